"""Parts of a gang whose members ask for different things, and that are like each other: as many as can
be are placed at once, each whole on one node.

To the planner each part is one member that asks for what all of its members ask for together, so the
domains and the nodes are chosen for all parts at once, as for a gang whose members are alike. Alone each
would have got one node as well: nothing is nearer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from extender.core import bulk, inside, nearest
from extender.core.bulk import Attempt, Case, Kind, Role
from extender.core.framework import BoolArray
from extender.core.nearest import MOST, Found
from extender.core.preference import Preference
from extender.core.shape import PodShape
from extender.core.taken import scores
from extender.core.topology.domains import UNKNOWN, Int32s
from extender.kernels import place as kernels

if TYPE_CHECKING:
    from extender.core.session import Session
    from extender.core.snapshot import Snapshot

Int64s = NDArray[np.int64]

#: More than any node has of anything, and far below 2**63.
_MOST = 1 << 60


def on_nodes(
    session: Session,
    view: Snapshot,
    ids: Int32s,
    members: Sequence[tuple[PodShape, int]],
    parts: int,
) -> list[list[list[int]]]:
    """Rows by part and by kind for as many ``parts`` as find a node for all of their ``members`` (each
    shape so often); those of one domain side by side. Of these the ones without devices then go to
    nodes without, where the part's domain has any. ``ids`` (rows,): the domains that parts may be in.
    ``view`` is left as it was found.
    """
    main, times = max(members, key=lambda each: _devices(each[0]) * each[1])
    request, _, allowed = _together(session, view, members)
    room = np.zeros(view.rows, np.int64)
    kernels.copies(view.free, request, allowed & (ids != UNKNOWN), MOST, room)
    parts = min(parts, int(room.sum()))
    if not parts:
        return []

    def plan(view: Snapshot) -> Found:
        """Each row as often as there are members of the main kind."""
        rows = _planned(session, view, ids != UNKNOWN, members, parts)
        return Found(Attempt([np.repeat(np.array(rows, np.int64), times).tolist()], exact=False))

    every = [Role("", main, times * parts)]
    found = plan(view)
    if not found.attempt.missing(every):
        found = inside.faster(view, every, found, plan)
    rows = nearest.in_order(view.view.domains, found.attempt.rows[0][::times])
    seats = [[[row] * count for _, count in members] for row in rows]
    mark = view.checkpoint()
    for kind, (shape, _) in enumerate(members):
        if not _devices(shape) and _devices(main):
            _apart(session, view, ids, shape, [seat[kind] for seat in seats])
        for row, count in Counter(row for seat in seats for row in seat[kind]).items():
            view.place(shape, row, count)
    fits = view.zones_take([])
    view.rollback(mark)
    return seats if fits else []


def _apart(
    session: Session, view: Snapshot, ids: Int32s, shape: PodShape, seats: Sequence[list[int]]
) -> None:
    """Give the ``seats`` of members without devices to nodes without, of the same domain."""
    others = session.feasible(view, shape) & ~_hosts(view)
    room = np.where(others, view.capacity(shape), 0)
    preference, request = Preference(view), view.request_vector(shape)
    _, last = preference.bulk(view.free, request, room, scores(session, view, shape, 1))
    free: dict[int, list[int]] = {}
    for row in sorted(np.flatnonzero(room).tolist(), key=last.__getitem__, reverse=True):
        free.setdefault(int(ids[row]), []).append(row)
    for seat in seats:
        there = free.get(int(ids[seat[0]]), [])
        for at in range(len(seat)):
            if there:
                seat[at] = there[-1]
                room[seat[at]] -= 1
                if not room[seat[at]]:
                    there.pop()


def _planned(
    session: Session,
    view: Snapshot,
    known: BoolArray,
    members: Sequence[tuple[PodShape, int]],
    parts: int,
) -> list[int]:
    request, devices, allowed = _together(session, view, members)
    score = np.sum([n * scores(session, view, shape, n) for shape, n in members], axis=0)
    preference = Preference(view)
    role = Role("", members[0][0], parts)
    kind = Kind([0], request, allowed & known, score, devices)
    case = Case([role], [kind], view.free, preference, [parts], [0], _hosts(view))
    room = np.zeros(view.rows, np.int64)
    kernels.copies(view.free, request, kind.allowed, MOST, room)
    weight = max(devices, 1)
    ask = nearest.Ask(
        [role], lambda way: bulk.solve(case, way), [weight], room, weight, [], preference.names
    )
    return nearest.plan(ask, view.view.domains, (), None).attempt.rows[0]


def _together(
    session: Session, view: Snapshot, members: Sequence[tuple[PodShape, int]]
) -> tuple[Int64s, int, BoolArray]:
    """What they all ask for (resources,), their devices, and where each of them may go (rows,)."""
    for shape, _ in members:
        view.request_vector(shape)  # a resource that is new to the view gets its column
    total = [0] * len(view.resources)
    allowed = view.alive.copy()
    for shape, count in members:
        vector = view.request_vector(shape).tolist()
        total = [min(a + count * b, _MOST) for a, b in zip(total, vector, strict=True)]
        allowed &= session.feasible(view, shape)
    devices = sum(count * _devices(shape) for shape, count in members)
    return np.array(total, np.int64), devices, allowed


def _devices(shape: PodShape) -> int:
    return max((n for name, n in shape.requests if "/" in name), default=0)


def _hosts(view: Snapshot) -> BoolArray:
    """Rows that have devices. (rows,)."""
    columns = [column for name, column in view.resources.items() if "/" in name]
    return np.asarray((view.allocatable[:, columns] > 0).any(axis=1))
