"""Gangs whose members come in parts, each of which is to be in one domain of the network: Kueue's
slices, Volcano's subGroupPolicy.

Parts that are alike, and of which nobody has a place yet, are divided at once, so that the slowest
part of the network sends the most (:mod:`extender.core.topology.fairest`); this is exact. Others
are planned one after the other, those with members that have places first: what one takes, another
may have needed. Members of no part go beside them. Where a hard limit holds for the whole gang, all
of this is tried in one of its domains after the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from extender.core.framework import BoolArray
from extender.core.gang import Slot
from extender.core.nearest import with_hosts
from extender.core.preference import Preference
from extender.core.reasons import Code, Refusal, refuse
from extender.core.selectors import matches
from extender.core.topology.domains import HOST, UNKNOWN, Domains, Level, divided
from extender.core.topology.fairest import MOST_ROWS, Slices, fairest
from extender.core.topology.limits import Limit, Wish, limit_of
from extender.core.topology.spread import areas, inside, ports

if TYPE_CHECKING:
    from extender.core.session import Session
    from extender.core.snapshot import Snapshot

Int64s = NDArray[np.int64]
Places = list[tuple[Slot, int]]
#: Plans members, all of them, near rows where others of theirs are, within a limit.
Plan = Callable[["Snapshot", Sequence[Slot], Sequence[int], Limit | None], Places | Refusal]

#: Domains of a gang's hard limit that are tried.
MOST_TRIES = 8
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


class _Ask(Struct):
    """What is to be placed, and by what."""

    session: Session
    plan: Plan
    parts: Sequence[Part]
    rest: Sequence[Slot]
    #: Rows of members that have a place.
    peers: Sequence[int]
    #: Of the whole gang.
    limit: Limit | None


def search(
    session: Session,
    view: Snapshot,
    parts: Sequence[Part],
    rest: Sequence[Slot],
    peers: Sequence[int],
    limit: Limit | None,
    plan: Plan,
) -> Places | Refusal:
    """Places for the members of all ``parts`` and for the ``rest``, or why there are none."""
    found = _within(view, _Ask(session, plan, parts, rest, peers, limit))
    if isinstance(found, Refusal) and not all(part.hard for part in parts):
        firm = [part for part in parts if part.hard]
        rest = [*rest, *(slot for part in parts if not part.hard for slot in part.slots)]
        found = _within(view, _Ask(session, plan, firm, rest, peers, limit))
    if not isinstance(found, Refusal):
        return found
    together = plan(view, [*(s for part in parts for s in part.slots), *rest], peers, limit)
    # Where it is not the parts, say what it is.
    return together if isinstance(together, Refusal) else found


def _within(view: Snapshot, ask: _Ask) -> Places | Refusal:
    """All of it in one domain of the limit, the ones with the least room first; else what the one
    with the most lacks.
    """
    bound = -1 if ask.limit is None else ask.limit.bound
    hosts = with_hosts(view.view.domains, Preference(view).names)
    last: Refusal | None = None
    for rows in _homes(hosts, view, bound, ask.peers):
        part_of = view if rows is None else view.within(rows)
        mark = part_of.checkpoint()
        found = _place(part_of, hosts, ask)
        part_of.rollback(mark)
        if not isinstance(found, Refusal):
            return found
        last = found
    return last or refuse(Code.NO_DOMAIN, level=_label(hosts, bound))


def _homes(
    hosts: Domains, view: Snapshot, bound: int, peers: Sequence[int]
) -> Iterator[BoolArray | None]:
    if bound < 0:
        yield None
        return
    ids = hosts.ids[bound]
    held = np.flatnonzero((ids != UNKNOWN) & view.alive)
    near = np.unique(ids[[row for row in peers if ids[row] != UNKNOWN]])
    order = near.tolist()
    if not order:
        devices = [column for name, column in view.resources.items() if "/" in name]
        free = np.maximum(view.free[held][:, devices], 0).sum(axis=1)
        room = np.bincount(ids[held], free, minlength=len(hosts.ranks[bound]))
        there = np.unique(ids[held])
        order = there[np.lexsort((hosts.ranks[bound][there], room[there]))].tolist()
        # The largest are the likeliest, where the smallest are too small.
        order = [*order[-MOST_TRIES:]] if len(order) > MOST_TRIES else order
    for domain in order:
        yield np.asarray(ids == domain)


def _place(view: Snapshot, hosts: Domains, ask: _Ask) -> Places | Refusal:
    chosen: Places = []
    done = 0
    for group in _grouped(ask.session, view, ask.parts):
        found = _alike(ask.session, view, hosts, group) if len(group) > 1 else None
        if found is None:
            found = []
            for part in group:
                one = ask.plan(view, part.slots, part.mates, Limit(bound=part.level))
                if isinstance(one, Refusal):
                    level = _label(hosts, part.level)
                    want, size = len(ask.parts), part.size
                    return refuse(Code.PARTS, level=level, want=want, size=size, placed=done)
                _put(view, one)
                found += one
                done += 1
        else:
            _put(view, found)
            done += len(group)
        chosen += found
    if ask.rest:
        near = [*ask.peers, *(row for _, row in chosen)]
        found_rest = ask.plan(view, ask.rest, near, ask.limit)
        if isinstance(found_rest, Refusal):
            return found_rest
        chosen += found_rest
    return chosen


def _put(view: Snapshot, places: Places) -> None:
    for slot, row in places:
        assert slot.shape is not None
        view.place(slot.shape, row)


def _grouped(session: Session, view: Snapshot, parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Parts with members that have places, one by one; then those that are alike, together."""
    groups: dict[object, list[Part]] = {}
    for part in parts:
        key: object = id(part)
        shapes = {slot.shape for slot in part.slots if slot.shape is not None}
        requests = {shape.requests for shape in shapes}
        if not part.mates and len(requests) == 1 and not any(view.interacts(s) for s in shapes):
            masks = {session.feasible(view, shape).tobytes() for shape in shapes}
            if len(masks) == 1 and len({shape.aligned for shape in shapes}) == 1:
                key = (part.level, len(part.slots), *requests, *masks)
        groups.setdefault(key, []).append(part)
    yield from sorted(groups.values(), key=lambda group: not any(part.mates for part in group))


def _alike(
    session: Session, view: Snapshot, hosts: Domains, group: Sequence[Part]
) -> Places | None:
    """Parts that are alike, divided at once over the best domain that takes them all."""
    slots = [slot for part in group for slot in part.slots]
    shape, level, size = slots[0].shape, group[0].level, len(group[0].slots)
    assert shape is not None
    hosts = divided(hosts, level)
    known = hosts.ids[level] != UNKNOWN
    room = np.where(session.feasible(view, shape) & known, view.capacity(shape), 0)
    weight = max((n for name, n in shape.requests if "/" in name), default=1)
    best, most = None, 0.0
    for area in areas(hosts, room, len(slots), weight, [], -1):
        if area.ports <= most:
            break
        rows = np.flatnonzero(inside(hosts, area, len(room)) & (room > 0))
        found = fairest(hosts, rows, room, len(slots), Slices(level, size))
        if found is not None:
            counts = np.zeros(len(room), np.int64)
            counts[found[0]] = found[1]
            value = ports(view.view.domains, counts * weight)
            if value > most:
                best, most = np.repeat(*found), value
            if len(rows) > MOST_ROWS:
                break  # the best bound is good enough
    return None if best is None else list(zip(slots, best.tolist(), strict=True))


def _label(hosts: Domains, level: int) -> str:
    return hosts.levels[level].label if 0 <= level < len(hosts.levels) else HOST
