"""Plans gangs whose members influence each other through resources alone.

Host ports are resources here of which every node has one.

One role, or roles that ask for the same and may go to the same rows, is exact and takes
O(rows log rows). Several kinds are placed greedily in a few good orders, then searched for
exactly within a budget (:mod:`extender.core.search`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from extender.core import search
from extender.core.framework import BoolArray, FloatArray
from extender.core.preference import Preference
from extender.core.shape import ANY_IP, PodShape
from extender.kernels import place as kernels

if TYPE_CHECKING:
    from extender.core.session import Session
    from extender.core.snapshot import Snapshot

Int64s = NDArray[np.int64]

_Port = tuple[int, str]

#: More copies than any node takes.
_MANY = 1 << 31


class Role(Struct, frozen=True):
    """Members of one shape: ``required`` must be placed, up to ``optional`` more may be."""

    name: str
    shape: PodShape
    required: int
    optional: int = 0


class Attempt(Struct):
    """Rows by role, the required members first; a member that found no room is absent.

    ``exact``: where members are missing, no other way of placing them exists.
    """

    rows: list[list[int]]
    exact: bool

    def missing(self, roles: Sequence[Role]) -> int:
        """Required members that are not placed."""
        return sum(
            max(role.required - len(rows), 0) for role, rows in zip(roles, self.rows, strict=True)
        )


class _Kind(Struct):
    """Roles that are interchangeable to the planner, as one."""

    roles: list[int]
    request: Int64s
    allowed: BoolArray
    score: FloatArray


class _Trial:
    """What is free and near after what this trial has placed."""

    def __init__(self, kinds: Sequence[_Kind], free: Int64s, preference: Preference) -> None:
        self.kinds = kinds
        self.free = free.copy()
        self.preference = preference.again(preference.near)
        self.rows: list[list[int]] = [[] for _ in kinds]

    def add(self, kind: int, want: int) -> None:
        """Place up to ``want`` members of a kind."""
        k = self.kinds[kind]
        capacity = np.zeros(len(self.free), dtype=np.int64)
        kernels.copies(self.free, k.request, k.allowed, _MANY, capacity)
        order, near, last = self.preference.bulk(self.free, k.request, capacity, k.score)
        counts = np.zeros(len(order), dtype=np.int64)
        kernels.fill(order, near, capacity, last, want, counts)
        self.put(kind, order, counts)

    def put(self, kind: int, rows: Int64s, counts: Int64s) -> None:
        """Place ``counts`` members of a kind on ``rows``."""
        rows, counts = rows[counts > 0], counts[counts > 0]
        self.free[rows] -= counts[:, None] * self.kinds[kind].request
        self.preference.near[rows] = True
        self.rows[kind] += np.repeat(rows, counts).tolist()


def plan(
    session: Session, view: Snapshot, roles: Sequence[Role], preference: Preference
) -> Attempt:
    """Place all required members, and of the optional ones as many as then fit."""
    ports = sorted({p for role in roles for p in _ports(role.shape)})
    kinds = _kinds(session, view, roles, ports)
    free = np.hstack([view.free, np.ones((view.rows, len(ports)), np.int64)])
    preference = preference.with_ones(len(ports))
    required = [sum(roles[i].required for i in kind.roles) for kind in kinds]
    optional = [sum(roles[i].optional for i in kind.roles) for kind in kinds]
    orders = list(_orders(kinds, free, required, preference))

    if any(optional):
        most = [r + o for r, o in zip(required, optional, strict=True)]
        trial = _greedy(_Trial(kinds, free, preference), orders[0], most)
        if [len(rows) for rows in trial.rows] == most:
            whole = [Role(r.name, r.shape, r.required + r.optional) for r in roles]
            return Attempt(_deal(whole, kinds, trial.rows, most), exact=True)

    trials = []
    for order in orders:
        trials.append(_greedy(_Trial(kinds, free, preference), order, required))
        if [len(rows) for rows in trials[-1].rows] == required:
            break
    else:
        found = _search(kinds, free, required, preference)
        if found.counts is None:
            best = max(trials, key=lambda t: sum(len(rows) for rows in t.rows))
            return Attempt(_deal(roles, kinds, best.rows, required), found.exact)
        trials.append(_covered(_Trial(kinds, free, preference), found.counts))
    trial = trials[-1]
    _greedy(trial, orders[0], optional)
    return Attempt(_deal(roles, kinds, trial.rows, required), exact=True)


def covers(shapes: Sequence[PodShape]) -> bool:
    """Whether members of these shapes influence each other through resources and ports alone.

    A port that is asked for on two addresses is no resource of which there is one.
    """
    addresses: dict[_Port, set[str]] = {}
    for shape in shapes:
        if shape.affinity or shape.anti_affinity or shape.spread:
            return False
        for port in shape.host_ports:
            addresses.setdefault((port.port, port.protocol), set()).add(port.ip)
    return all(len(ips - {ANY_IP}) <= 1 for ips in addresses.values())


def _ports(shape: PodShape) -> set[_Port]:
    return {(port.port, port.protocol) for port in shape.host_ports}


def _kinds(
    session: Session, view: Snapshot, roles: Sequence[Role], ports: Sequence[_Port]
) -> list[_Kind]:
    kinds: dict[tuple[bytes, bytes, bytes], _Kind] = {}
    by_shape: dict[PodShape, _Kind] = {}
    for index, role in enumerate(roles):
        known = by_shape.get(role.shape)
        if known is None:
            taken = _ports(role.shape)
            request = np.array(
                [*view.request_vector(role.shape), *(port in taken for port in ports)], np.int64
            )
            allowed = session.feasible(view, role.shape)
            score = session.score(view, role.shape)
            key = (request.tobytes(), allowed.tobytes(), score.tobytes())
            known = kinds.setdefault(key, _Kind([], request, allowed, score))
            by_shape[role.shape] = known
        known.roles.append(index)
    return list(kinds.values())


def _orders(
    kinds: Sequence[_Kind], free: Int64s, required: Sequence[int], preference: Preference
) -> Iterator[list[int]]:
    """Largest share first; then, for several kinds, the one with the least room to spare first."""
    everything = range(len(kinds))
    by_share = sorted(everything, key=lambda k: (-preference.share(kinds[k].request), k))
    yield by_share
    if len(kinds) > 1:
        spare = []
        for kind, want in zip(kinds, required, strict=True):
            capacity = np.zeros(len(free), dtype=np.int64)
            kernels.copies(free, kind.request, kind.allowed, max(want, 1), capacity)
            spare.append(int(capacity.sum()) - want)
        by_room = sorted(everything, key=lambda k: (spare[k], k))
        if by_room != by_share:
            yield by_room


def _greedy(trial: _Trial, order: Sequence[int], want: Sequence[int]) -> _Trial:
    for kind in order:
        if want[kind]:
            trial.add(kind, want[kind])
    return trial


def _search(
    kinds: Sequence[_Kind], free: Int64s, required: Sequence[int], preference: Preference
) -> search.Cover:
    if len(kinds) == 1:
        return search.Cover(None, exact=True)
    by_name = np.argsort(preference.names)
    found = search.cover(
        free[by_name],
        np.array([kind.allowed[by_name] for kind in kinds]),
        np.array([kind.request for kind in kinds]),
        required,
    )
    if found.counts is None:
        return found
    counts = np.zeros_like(found.counts)
    counts[:, by_name] = found.counts
    return search.Cover(counts, exact=True)


def _covered(trial: _Trial, counts: Int64s) -> _Trial:
    names = trial.preference.names
    for kind, by_row in enumerate(counts):
        rows = np.flatnonzero(by_row)
        rows = rows[np.lexsort((names[rows], -by_row[rows]))]
        trial.put(kind, rows.astype(np.int64), by_row[rows])
    return trial


def _deal(
    roles: Sequence[Role],
    kinds: Sequence[_Kind],
    rows_by_kind: Sequence[Sequence[int]],
    required: Sequence[int],
) -> list[list[int]]:
    """Rows of each kind dealt to its roles in order, each a stretch of neighbours."""
    dealt: list[list[int]] = [[] for _ in roles]
    for kind, rows, split in zip(kinds, rows_by_kind, required, strict=True):
        must, may = iter(rows[:split]), iter(rows[split:])
        for index in kind.roles:
            dealt[index] += _take(must, roles[index].required)
        for index in kind.roles:
            if len(dealt[index]) == roles[index].required:
                dealt[index] += _take(may, roles[index].optional)
    return dealt


def _take(rows: Iterator[int], most: int) -> list[int]:
    return [row for _, row in zip(range(most), rows, strict=False)]
