"""Which members of a gang belong together in one domain of the network: Kueue's slices, Volcano's
subGroupPolicy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from extender.core.gang import Slot
from extender.core.reasons import Refusal
from extender.core.selectors import matches
from extender.core.topology.domains import Domains, Level
from extender.core.topology.limits import Limit, Wish, limit_of

_INDEX = re.compile(r"[0-9]{1,9}$")


class Part(Struct):
    """Members that belong together in one domain of ``level``."""

    level: int
    hard: bool
    size: int
    slots: list[Slot]
    #: Rows of members of it that have a place.
    mates: list[int]


def parts_of(
    members: Sequence[Slot],
    wishes: Sequence[Wish],
    domains: Domains,
    told: Sequence[Level],
    rows: Mapping[str, int],
) -> list[Part] | Refusal:
    """The parts that some members still need a place in; ``rows`` of those that have one, by name.
    The gang's own ``wishes`` go before the pods'. A soft one for a level that is not there is moot.
    """
    limits: dict[Wish, Limit | Refusal | None] = {}
    parts: dict[object, Part] = {}
    for slot, key, wish in _keyed(members, wishes):
        if wish not in limits:
            limits[wish] = limit_of([wish.for_all()], domains, told)
        limit = limits[wish]
        if isinstance(limit, Refusal):
            return limit
        if limit is None:
            continue
        level = max(limit.bound, limit.prefer)
        part = parts.setdefault(key, Part(level, wish.hard, wish.size, [], []))
        if slot.name in rows:
            part.mates.append(rows[slot.name])
        else:
            part.slots.append(slot)
    return [part for part in parts.values() if part.slots and part.level >= 0]


def _keyed(members: Sequence[Slot], wishes: Sequence[Wish]) -> Iterator[tuple[Slot, object, Wish]]:
    """Each member that is in a part, and what all of a part have in common."""
    ranked: dict[object, list[tuple[Slot, Wish]]] = {}
    for slot in members:
        labels = dict(slot.shape.labels) if slot.shape is not None else {}
        own = slot.shape.near if slot.shape is not None else ()
        for at, wish in enumerate((*wishes, *own)):
            if wish.size and (wish.selector is None or matches(wish.selector, labels)):
                if wish.keys is None:
                    ranked.setdefault((slot.task, wish), []).append((slot, wish))
                else:
                    yield slot, (at, tuple(labels.get(key, "") for key in wish.keys)), wish
                break
    for group, those in ranked.items():
        found = [_INDEX.search(slot.name) for slot, _ in those]
        numbers = [int(each[0]) for each in found if each is not None]
        if len(set(numbers)) < len(those):
            numbers = list(range(len(those)))
        for (slot, wish), number in zip(those, numbers, strict=True):
            yield slot, (group, number // wish.size), wish
