"""priority: the higher priority goes first, and may evict what is strictly lower."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from extender.core.framework import Arguments, BoolArray, GroupFacts, Victim

if TYPE_CHECKING:
    from extender.core.shape import PodShape


class Priority:
    """Volcano's ``priority``."""

    name: ClassVar[str] = "priority"
    arguments: ClassVar[Mapping[str, str | int | float | bool]] = {}

    def __init__(self, arguments: Arguments) -> None:
        """Takes no arguments."""

    def order_key(self, group: GroupFacts) -> int:
        """By PriorityClass value, descending."""
        return -group.priority

    def evictable(self, preemptor: PodShape, victims: Sequence[Victim]) -> BoolArray:
        """Pods of strictly lower priority."""
        return np.array([v.priority < preemptor.priority for v in victims], dtype=np.bool_)
