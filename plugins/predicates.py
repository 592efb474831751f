"""predicates: what kube-scheduler's own filters decide, over all nodes at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from extender.core.framework import Arguments, BoolArray
from extender.core.reasons import Reason

if TYPE_CHECKING:
    from extender.core.shape import PodShape
    from extender.core.snapshot import Snapshot


class Predicates:
    """Volcano's ``predicates``.

    It has no switches for single filters: kube-scheduler applies all of its own whatever Muster
    is told, so a plan that left one out would only be refused later.
    """

    name: ClassVar[str] = "predicates"
    arguments: ClassVar[Mapping[str, str | int | float | bool]] = {}

    def __init__(self, arguments: Arguments) -> None:
        """Takes no arguments."""

    def feasible(self, view: Snapshot, task: PodShape) -> BoolArray:
        """The snapshot's answer, see :mod:`extender.core.fit`. (rows,)."""
        return view.feasible(task)

    def explain(self, view: Snapshot, task: PodShape) -> Sequence[Reason]:
        """The snapshot's reasons, nearest miss first."""
        return view.explain(task)
