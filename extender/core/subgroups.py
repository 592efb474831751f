"""How many parts of a gang have to be there whole: minSubGroups of Volcano's subGroupPolicy.

A part is the members that a policy's selector selects and whose labels have the same values for its
keys; it is whole with ``subGroupSize`` of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from extender.core.selectors import Selector, matches

if TYPE_CHECKING:
    from extender.core.gang import Slot

#: Of a pod, as its shape has them.
Labels = tuple[tuple[str, str], ...]


class Minimum(Struct, frozen=True):
    """What one policy asks for."""

    name: str
    #: Members that make a part whole.
    size: int
    #: Parts that have to be whole.
    least: int
    selector: Selector | None
    keys: tuple[str, ...]

    def parts(self, members: Iterable[Slot]) -> list[list[Slot]]:
        """The members of each part, in the order in which parts and members come."""
        found: dict[tuple[str, ...], list[Slot]] = {}
        for slot in members:
            labels = dict(slot.shape.labels) if slot.shape is not None else {}
            if self.selector is None or matches(self.selector, labels):
                found.setdefault(tuple(labels.get(key, "") for key in self.keys), []).append(slot)
        return list(found.values())

    def whole(self, counts: Mapping[Labels, int]) -> int:
        """How many parts so many members of each set of labels make whole."""
        found = Counter[tuple[str, ...]]()
        for pairs, count in counts.items():
            labels = dict(pairs)
            if self.selector is None or matches(self.selector, labels):
                found[tuple(labels.get(key, "") for key in self.keys)] += count
        return sum(count >= self.size for count in found.values())

    def missing(self, standing: Sequence[Slot], loose: Sequence[Slot]) -> list[list[Slot]]:
        """By part that can be made whole: the ``loose`` members that it lacks beside those that have
        places. The fewest first, of equal parts the first.
        """
        there = {slot.name for slot in standing}
        missing = []
        for part in self.parts([*standing, *loose]):
            lacks = max(0, self.size - sum(slot.name in there for slot in part))
            rest = [slot for slot in part if slot.name not in there]
            if lacks <= len(rest):
                missing.append(rest[:lacks])
        missing.sort(key=len)
        return missing


def short(minimums: Sequence[Minimum], members: Iterable[Slot]) -> tuple[Minimum, int] | None:
    """The first policy of which too few parts are whole, and how many are."""
    if not minimums:
        return None
    # Members are alike, mostly: each set of labels is looked at once a policy.
    counts = Counter(slot.shape.labels if slot.shape is not None else () for slot in members)
    for minimum in minimums:
        have = minimum.whole(counts)
        if have < minimum.least:
            return minimum, have
    return None
