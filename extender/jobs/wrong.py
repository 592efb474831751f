"""A field of a pod that kube-apiserver refuses."""

from __future__ import annotations

from typing import Final, NamedTuple

from extender.core.errors import brief

#: Types of upstream's field errors, in its words.
INVALID: Final = "Invalid value"
REQUIRED: Final = "Required value"
FORBIDDEN: Final = "Forbidden"
DUPLICATE: Final = "Duplicate value"
NOT_FOUND: Final = "Not found"
UNSUPPORTED: Final = "Unsupported value"
#: A quantity that is none is not even decoded: the request is bad.
UNREADABLE: Final = "Unreadable"


class Wrong(NamedTuple):
    """Where, in which of upstream's ways, the value, and what is allowed instead."""

    field: str
    type: str
    value: object
    allowed: str

    def render(self) -> str:
        """What is wrong with it, without the field."""
        if self.type == REQUIRED:
            return "is missing" + (f": {self.allowed}" if self.allowed else "")
        return f"{brief(self.value)} is not allowed: {self.allowed}"
