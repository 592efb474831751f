"""Which parts of a gang are placed, where not all of them have to be whole (minSubGroups).

The parts that lack the fewest members are asked for first. Where they are refused, parts are placed
one after the other, and who does not fit beside the others is passed over; then come other choices,
of parts that are alike one alone. With few kinds of parts that is all choices there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, product

from msgspec import Struct

from extender.core.asking import Ask, asked, unplaced
from extender.core.gang import Gang, Slot
from extender.core.reasons import Refusal
from extender.core.selectors import matches
from extender.core.shape import PodShape
from extender.core.subgroups import Minimum

Part = list[Slot]
Places = list[tuple[Slot, int]]
#: Places for a part beside others that have theirs, or why there are none.
Fits = Callable[[Part, Places], Places | Refusal]

#: Searches for one gang at one moment, and members in all of them together.
MOST_SEARCHES, MOST_MEMBERS = 64, 4096
#: Kinds of parts of which choices are made.
MOST_KINDS = 32


class _Open(Struct):
    """What one policy leaves open: ``want`` parts are to be placed, of those by kind. Parts of one kind
    may be exchanged for each other.
    """

    want: int
    kinds: dict[Hashable, list[Part]]


class _Budget:
    def __init__(self) -> None:
        self.searches, self.members = MOST_SEARCHES, MOST_MEMBERS

    def spend(self, members: int) -> bool:
        """Whether so many members may be searched places for."""
        self.searches -= 1
        self.members -= members
        return self.searches >= 0 and self.members >= 0


def others(gang: Gang, first: Ask, fits: Fits) -> Iterator[Ask]:
    """What may be asked for instead of the ``first``, which was refused: members that must be placed,
    and nobody else.
    """
    policies = [_open(gang, minimum) for minimum in gang.min_parts]
    if not any(len(each.kinds) > 1 and each.want for each in policies):
        return
    budget = _Budget()
    tried = {frozenset(first.required)}
    for parts in _choices(policies, fits, budget):
        ask = asked(gang, [slot for part in parts for slot in part])
        names = frozenset(ask.required)
        if names in tried:
            continue
        tried.add(names)
        if not budget.spend(len(names)):
            return
        yield Ask([slot for slot in ask.loose if slot.name in names], ask.required)


def _choices(policies: Sequence[_Open], fits: Fits, budget: _Budget) -> Iterator[list[Part]]:
    """Parts for all policies: those that fit one after the other, then every choice, but of parts that
    fit nowhere.
    """
    found = _one_by_one(policies, fits, budget)
    if found is not None:
        yield found
    if all(sum(map(len, each.kinds.values())) >= each.want for each in policies):
        ways = [
            islice(_ways(each.want, [*each.kinds.values()][:MOST_KINDS]), MOST_SEARCHES)
            for each in policies
        ]
        for chosen in product(*ways):
            yield [part for parts in chosen for part in parts]


def _one_by_one(policies: Sequence[_Open], fits: Fits, budget: _Budget) -> list[Part] | None:
    """Parts that fit beside each other, for all policies; None: not enough were found. A kind that
    does not fit where nobody else is goes from the policies.
    """
    placed: Places = []
    taken: list[Part] = []
    for policy in policies:
        want = policy.want
        for kind, parts in [*policy.kinds.items()]:
            for part in parts[:want]:
                if not budget.spend(len(part)):
                    return None
                found = fits(part, placed)
                if isinstance(found, Refusal):
                    # Nor do those that are like it.
                    if not placed:
                        del policy.kinds[kind]
                    break
                placed += found
                taken.append(part)
                want -= 1
        if want:
            return None
    return taken


def _ways(want: int, kinds: Sequence[list[Part]]) -> Iterator[list[Part]]:
    """All choices of ``want`` parts, as many of the first kinds as there are in the first ones."""
    if not want:
        yield []
    elif sum(map(len, kinds)) >= want:
        first, *rest = kinds
        for count in range(min(len(first), want), -1, -1):
            for more in _ways(want - count, rest):
                yield [*first[:count], *more]


def _open(gang: Gang, minimum: Minimum) -> _Open:
    loose, stand = unplaced(gang)
    missing = minimum.missing(stand, loose)
    lacking = [part for part in missing if part]
    kinds: dict[Hashable, list[Part]] = {}
    known: dict[tuple[str, PodShape | None], Hashable] = {}
    for part in lacking:
        kind: Hashable = part[0].name
        # One that has begun goes on where it is.
        if len(part) == minimum.size and not any(slot.pinned or slot.hint for slot in part):
            for slot in part:
                if (slot.task, slot.shape) not in known:
                    known[slot.task, slot.shape] = _likeness(gang, minimum, slot)
            kind = frozenset(Counter(known[slot.task, slot.shape] for slot in part).items())
        kinds.setdefault(kind, []).append(part)
    return _Open(max(0, minimum.least - (len(missing) - len(lacking))), kinds)


def _likeness(gang: Gang, minimum: Minimum, slot: Slot) -> Hashable:
    """Of members with the same, one may have the other's place: labels count where somebody looks at
    them.
    """
    shape = slot.shape
    if shape is None or any(
        m.shape is not None and m.shape.interacts for m in gang.members.values()
    ):
        return slot.task, shape
    labels = dict(shape.labels)
    selected = [wish.selector is None or matches(wish.selector, labels) for wish in gang.near]
    others = sorted({key for wish in gang.near for key in wish.keys or ()} - set(minimum.keys))
    looks = (*selected, *(labels.get(key, "") for key in others))
    return slot.task, replace(shape, labels=()), looks
