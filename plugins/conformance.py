"""conformance: what keeps the cluster alive is never evicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from extender.core.framework import Arguments, BoolArray, Victim

if TYPE_CHECKING:
    from extender.core.shape import PodShape

#: The two classes that every cluster has (k8s.io/apiserver, pkg/apis/scheduling).
SYSTEM_CLASSES = frozenset({"system-cluster-critical", "system-node-critical"})
SYSTEM_NAMESPACE = "kube-system"


class Conformance:
    """Volcano's ``conformance``."""

    name: ClassVar[str] = "conformance"
    arguments: ClassVar[Mapping[str, str | int | float | bool]] = {}

    def __init__(self, arguments: Arguments) -> None:
        """Takes no arguments."""

    def evictable(self, preemptor: PodShape, victims: Sequence[Victim]) -> BoolArray:
        """All but system-critical classes and kube-system."""
        return np.array(
            [
                v.priority_class not in SYSTEM_CLASSES and v.namespace != SYSTEM_NAMESPACE
                for v in victims
            ],
            dtype=np.bool_,
        )
