"""gang: a gang starts whole, and is not broken once it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from extender.core.framework import Arguments, BoolArray, GroupFacts, Victim
from extender.core.reasons import Code, Reason, Refusal

if TYPE_CHECKING:
    from extender.core.shape import PodShape


class Gang:
    """Volcano's ``gang``.

    Differs in one point: minima by task hold whatever minMember is (Volcano ignores them when
    minMember is smaller than their sum).
    """

    name: ClassVar[str] = "gang"
    arguments: ClassVar[Mapping[str, str | int | float | bool]] = {}

    def __init__(self, arguments: Arguments) -> None:
        """Takes no arguments."""

    def order_key(self, group: GroupFacts) -> int:
        """Gangs that are bound in part first: they hold their GPUs for nothing until they are
        whole. Those that only grow come last.
        """
        if self.ready(group, group.placed):
            return 2
        return 0 if group.placed else 1

    def valid(self, group: GroupFacts) -> Refusal | None:
        """Enough members must exist, in all and of each task."""
        reasons = []
        have = sum(group.members.values())
        if have < group.min_member:
            reasons.append(Reason.of(Code.TOO_FEW_PODS, have=have, want=group.min_member))
        for task, want in sorted(group.min_task_member.items()):
            of_task = group.members.get(task, 0)
            if of_task < want:
                reasons.append(Reason.of(Code.TOO_FEW_OF_TASK, have=of_task, want=want, task=task))
        return Refusal(tuple(reasons)) if reasons else None

    def ready(self, group: GroupFacts, placed: int) -> bool:
        """Enough members are placed; which task each belongs to is the plan's business."""
        return placed >= max(group.min_member, sum(group.min_task_member.values()))

    def evictable(self, preemptor: PodShape, victims: Sequence[Victim]) -> BoolArray:
        """Members beyond minMember, and pods of no gang."""
        return np.array(
            [not v.group or v.remaining >= v.min_member for v in victims], dtype=np.bool_
        )
