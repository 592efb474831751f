"""Kubernetes' forms of names and labels.

Source: k8s.io/apimachinery v0.37, pkg/api/validate/content and pkg/util/validation.
"""

from __future__ import annotations

import re
from typing import Final

_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_DNS_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_DNS_NAME: Final = 253
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)

#: What is allowed, in the words of people.
DNS_LABEL: Final = (
    "at most 63 lower case letters, digits and '-', with a letter or digit at both ends"
)
LABEL_KEY: Final = (
    "[DOMAIN/]NAME, with a DNS name, and at most 63 letters, digits, '-', '_' and '.',"
    " a letter or digit at both ends"
)
LABEL_VALUE: Final = (
    "nothing, or at most 63 letters, digits, '-', '_' and '.', a letter or digit at both ends"
)


def is_dns_label(text: str) -> bool:
    """RFC 1123's label, as names of containers and volumes are."""
    return _DNS_LABEL.fullmatch(text) is not None


def is_qualified(text: str) -> bool:
    """A label's key: a name, perhaps behind a domain."""
    domain, slash, name = text.rpartition("/")
    if slash and (len(domain) > _LONGEST_DNS_NAME or _DNS_NAME.fullmatch(domain) is None):
        return False
    return _NAME.fullmatch(name) is not None


def is_label_value(text: str) -> bool:
    """What a label may be."""
    return not text or _NAME.fullmatch(text) is not None
