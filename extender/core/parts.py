"""Places for gangs whose members come in parts, each of which is to be in one domain of the network.

Parts that may be exchanged for each other, and of which nobody has a place yet, are divided at once:
exactly, so that the slowest part of the network sends the most, if all members are alike
(:mod:`extender.core.topology.fairest`); else each whole on a node, as far as that goes
(:mod:`extender.core.teams`). Others are planned one after the other, those with members that have places
first: what one takes, another may have needed, so a few orders are tried. Members of no part go beside
them. Where a hard limit holds for the whole gang, all of this is tried in one of its domains after the
other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from extender.core import teams
from extender.core.framework import BoolArray
from extender.core.gang import Slot
from extender.core.nearest import with_hosts
from extender.core.partition import Part
from extender.core.preference import Preference
from extender.core.reasons import Code, Refusal, refuse
from extender.core.shape import PodShape
from extender.core.topology.domains import HOST, UNKNOWN, Domains, divided
from extender.core.topology.fairest import MOST_ROWS, Slices, fairest
from extender.core.topology.limits import Limit
from extender.core.topology.spread import areas, inside, ports

if TYPE_CHECKING:
    from extender.core.session import Session
    from extender.core.snapshot import Snapshot

Int64s = NDArray[np.int64]
Places = list[tuple[Slot, int]]
Kinds = dict[PodShape | None, int | None]
#: Plans members, all of them, near rows where others of theirs are, within a limit.
Plan = Callable[["Snapshot", Sequence[Slot], Sequence[int], Limit | None], Places | Refusal]

#: Domains of a gang's hard limit that are tried.
MOST_TRIES = 8
#: Parts in all further orders in which they are tried.
MOST_AGAIN = 64


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


def further(
    session: Session,
    view: Snapshot,
    parts: Sequence[Part],
    peers: Sequence[int],
    limit: Limit | None,
    plan: Plan,
) -> Places:
    """Places for as many of the ``parts`` as find them, each for itself, where the rest of the gang, at
    the rows of ``peers``, does not wait for them. ``view`` is left as it was found.
    """
    bound = -1 if limit is None else limit.bound
    hosts = with_hosts(view.view.domains, Preference(view).names)
    chosen: Places = []
    for rows in islice(_homes(hosts, view, bound, peers), 1):
        part_of = view if rows is None else view.within(rows)
        mark = part_of.checkpoint()
        for group in _grouped(session, part_of, parts):
            for part in group.parts:
                near = Limit(bound=part.level) if part.hard else Limit(prefer=part.level)
                one = plan(part_of, part.slots, part.mates, near)
                if isinstance(one, Refusal):
                    break  # Nor do those that are like it.
                put(part_of, one)
                chosen += one
        part_of.rollback(mark)
    return chosen


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
    """Places for all parts and the rest. Those that fit nowhere beside the others are tried before
    them, a few times.
    """
    groups = _grouped(ask.session, view, ask.parts)
    first: Refusal | None = None
    orders: list[list[int]] = [[*range(len(groups))]]
    while orders[-1] not in orders[:-1] and (len(orders) - 1) * len(ask.parts) <= MOST_AGAIN:
        mark = view.checkpoint()
        found = _in_order(view, hosts, ask, [groups[at] for at in orders[-1]])
        if not isinstance(found, _Short):
            return found
        view.rollback(mark)
        first = first or found.refusal
        last = orders[-1]
        orders.append([last[found.at], *last[: found.at], *last[found.at + 1 :]])
    assert first is not None
    return first


class _Group(Struct):
    """Parts that may be exchanged for each other, and the numbers of what their members ask for."""

    parts: list[Part]
    kinds: Kinds


class _Short(Struct):
    """The group, by its place in the order, of which a part found no place."""

    at: int
    refusal: Refusal


def _in_order(
    view: Snapshot, hosts: Domains, ask: _Ask, groups: Sequence[_Group]
) -> Places | Refusal | _Short:
    chosen: Places = []
    done = 0
    for at, group in enumerate(groups):
        found = _at_once(ask.session, view, hosts, group)
        put(view, found)
        there = len(found) // len(group.parts[0].slots)
        done += there
        for part in group.parts[there:]:
            one = ask.plan(view, part.slots, part.mates, Limit(bound=part.level))
            if isinstance(one, Refusal):
                level, want = _label(hosts, part.level), len(ask.parts)
                code, size = Code.PARTS, part.size
                return _Short(at, refuse(code, level=level, want=want, size=size, placed=done))
            put(view, one)
            found += one
            done += 1
        chosen += found
    if ask.rest:
        near = [*ask.peers, *(row for _, row in chosen)]
        found_rest = ask.plan(view, ask.rest, near, ask.limit)
        if isinstance(found_rest, Refusal):
            return found_rest
        chosen += found_rest
    return chosen


def put(view: Snapshot, places: Places) -> None:
    """Place these members."""
    for (shape, row), count in Counter((slot.shape, row) for slot, row in places).items():
        assert shape is not None
        view.place(shape, row, count)


def _grouped(session: Session, view: Snapshot, parts: Sequence[Part]) -> list[_Group]:
    """Parts with members that have places, one by one; then those that are alike, together."""
    groups: dict[object, _Group] = {}
    #: By shape, the number of its kind; None: its members influence each other.
    kinds: Kinds = {}
    numbers: dict[object, int] = {}
    for part in parts:
        for slot in part.slots:
            if slot.shape is not None and slot.shape not in kinds:
                asked = slot.shape.requests, slot.shape.aligned
                kind = *asked, session.feasible(view, slot.shape).tobytes()
                known = None if view.interacts(slot.shape) else len(numbers)
                kinds[slot.shape] = known if known is None else numbers.setdefault(kind, known)
        of = Counter([kinds[slot.shape] for slot in part.slots])
        alone = bool(part.mates) or None in of
        key = id(part) if alone else (part.level, frozenset(of.items()))
        groups.setdefault(key, _Group([], kinds)).parts.append(part)
    return sorted(groups.values(), key=lambda group: not any(part.mates for part in group.parts))


def _at_once(session: Session, view: Snapshot, hosts: Domains, group: _Group) -> Places:
    """Places for the first parts of a group, which are planned together; none for one alone."""
    if len(group.parts) == 1:
        return []
    by_kind: list[dict[int | None, list[Slot]]] = []
    for part in group.parts:
        by_kind.append({})
        for slot in part.slots:
            by_kind[-1].setdefault(group.kinds[slot.shape], []).append(slot)
    first = [(slots[0].shape, len(slots)) for slots in by_kind[0].values()]
    members = [(shape, count) for shape, count in first if shape is not None]
    if len(members) == 1:
        return _alike(session, view, hosts, group.parts) or []
    level = group.parts[0].level
    ids = divided(hosts, level).ids[level]
    found = teams.on_nodes(session, view, ids, members, len(group.parts))
    return [
        (slot, row)
        for part, seats in zip(by_kind, found, strict=False)
        for kind, rows in zip(by_kind[0], seats, strict=True)
        for slot, row in zip(part[kind], rows, strict=True)
    ]


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
