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
from extender.core.taken import scores
from extender.core.topology.domains import Domains
from extender.core.topology.spread import Manner, Order, divide
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

    def short(self, roles: Sequence[Role]) -> Role:
        """The first role of which required members are missing; some are."""
        return next(r for r, rows in zip(roles, self.rows, strict=True) if len(rows) < r.required)


class Kind(Struct):
    """Roles that are interchangeable to the planner, as one."""

    roles: list[int]
    request: Int64s
    allowed: BoolArray
    score: FloatArray
    #: Devices that one member has; 0 for a launcher or a parameter server.
    devices: int


class Case(Struct):
    """A gang as it is planned, and what it is planned on."""

    roles: Sequence[Role]
    kinds: list[Kind]
    #: (rows, resources and host ports).
    free: Int64s
    preference: Preference
    #: By kind.
    required: list[int]
    optional: list[int]
    #: (rows,) those that have devices: for others' members they are the last choice.
    hosts: BoolArray
    #: By kind: its rows before anything is placed, best first.
    orders: dict[int, Order] = {}

    def kind_of(self, role: int) -> Kind:
        """The kind of the role with this index."""
        return next(kind for kind in self.kinds if role in kind.roles)

    @property
    def most(self) -> list[int]:
        """Members by kind, the optional ones too."""
        return [r + o for r, o in zip(self.required, self.optional, strict=True)]


class Way(Struct, frozen=True, eq=False):
    """Where in the network, and how divided. None of it: few rows, wherever they are."""

    #: (rows,) where members with devices go (all members, if none has any).
    area: BoolArray | None = None
    #: (rows,) where anybody may go at all.
    reach: BoolArray | None = None
    domains: Domains = Domains()
    manner: Manner = Manner()
    #: (rows,) of the resource in this column no more than so much on each row.
    quota: tuple[int, Int64s] | None = None
    #: No long search: another way is tried next.
    quick: bool = False

    def everywhere(self, rows: int) -> BoolArray:
        """The rows where all members may go, with devices and without. Shape: (rows,)."""
        everywhere = np.ones(rows, np.bool_)
        for limit in (self.area, self.reach):
            if limit is not None:
                everywhere &= limit
        return everywhere


class _Trial:
    """What is free and near after what this trial has placed."""

    def __init__(self, case: Case, way: Way) -> None:
        self.case = case
        self.way = way
        self.area = way.area
        self.talk = any(kind.devices for kind in case.kinds)
        self.free = case.free.copy()
        if way.quota is not None:
            column, most = way.quota
            self.free[:, column] = np.minimum(self.free[:, column], most)
        self.preference = case.preference.again(case.preference.near)
        self.rows: list[list[int]] = [[] for _ in case.kinds]

    def allowed(self, kind: Kind) -> BoolArray:
        """Where a kind may go in this trial. Shape: (rows,)."""
        allowed = kind.allowed
        if self.way.reach is not None:
            allowed = allowed & self.way.reach
        if self.area is not None and (kind.devices or not self.talk):
            allowed = allowed & self.area
        return allowed

    def add(self, index: int, want: int) -> None:
        """Place up to ``want`` members of a kind, those without devices beside devices last."""
        kind, before = self.case.kinds[index], len(self.rows[index])
        allowed = self.allowed(kind)
        if not kind.devices and self.case.hosts.any():
            self._fill(index, want, allowed & ~self.case.hosts)
        want -= len(self.rows[index]) - before
        if want:
            self._fill(index, want, allowed)

    def put(self, index: int, rows: Int64s, counts: Int64s) -> None:
        """Place ``counts`` members of a kind on ``rows``."""
        rows, counts = rows[counts > 0], counts[counts > 0]
        self.free[rows] -= counts[:, None] * self.case.kinds[index].request
        self.preference.near[rows] = True
        self.rows[index] += np.repeat(rows, counts).tolist()

    def _fill(self, index: int, want: int, allowed: BoolArray) -> None:
        order = self._order(index, allowed)
        if len(self.way.domains.levels):
            self.put(index, *divide(self.way.domains, order, want, self.way.manner))
            return
        counts = np.zeros(len(order.rows), dtype=np.int64)
        near = int(order.near[order.rows].sum())
        kernels.fill(order.rows, near, order.capacity, order.last, want, counts)
        self.put(index, order.rows, counts)

    def _order(self, index: int, allowed: BoolArray) -> Order:
        """``allowed`` rows in the order for a kind; before anything is placed it is sorted once."""
        kind = self.case.kinds[index]
        if any(self.rows) or self.way.quota is not None:
            return self._sorted(kind, allowed)
        whole = self.case.orders.get(index)
        if whole is None:
            whole = self.case.orders[index] = self._sorted(kind, kind.allowed)
        rows = whole.rows[allowed[whole.rows]]
        return Order(rows, whole.near, np.where(allowed, whole.capacity, 0), whole.last)

    def _sorted(self, kind: Kind, allowed: BoolArray) -> Order:
        capacity = np.zeros(len(self.free), dtype=np.int64)
        kernels.copies(self.free, kind.request, allowed, _MANY, capacity)
        rows, last = self.preference.bulk(self.free, kind.request, capacity, kind.score)
        return Order(rows, self.preference.near.copy(), capacity, last)


def plan(
    session: Session, view: Snapshot, roles: Sequence[Role], preference: Preference
) -> Attempt:
    """Place all required members, and of the optional ones as many as then fit."""
    return solve(case_of(session, view, roles, preference), Way())


def case_of(
    session: Session, view: Snapshot, roles: Sequence[Role], preference: Preference
) -> Case:
    """Look at every role once, whatever ways are tried."""
    ports = sorted({p for role in roles for p in _ports(role.shape)})
    kinds = _kinds(session, view, roles, ports)
    devices = [column for name, column in view.resources.items() if "/" in name]
    return Case(
        roles,
        kinds,
        np.hstack([view.free, np.ones((view.rows, len(ports)), np.int64)]),
        preference.with_ones(len(ports)),
        [sum(roles[i].required for i in kind.roles) for kind in kinds],
        [sum(roles[i].optional for i in kind.roles) for kind in kinds],
        np.asarray((view.allocatable[:, devices] > 0).any(axis=1)),
    )


def solve(case: Case, way: Way, *, spill: bool = True) -> Attempt:
    """Place all required members, and of the optional ones as many as then fit: all members in
    the area, or the required ones there and (``spill``) the others within reach.
    """
    roles, kinds, required = case.roles, case.kinds, case.required
    orders = list(_orders(case))

    if any(case.optional):
        trial = _greedy(_Trial(case, way), orders[0], case.most)
        if [len(rows) for rows in trial.rows] == case.most:
            whole = [Role(r.name, r.shape, r.required + r.optional) for r in roles]
            return Attempt(_deal(whole, kinds, trial.rows, case.most), exact=True)

    trials = []
    for order in orders:
        trials.append(_greedy(_Trial(case, way), order, required))
        if [len(rows) for rows in trials[-1].rows] == required:
            break
    else:
        found = _search(case, _Trial(case, way))
        if found.counts is None:
            best = max(trials, key=lambda t: sum(len(rows) for rows in t.rows))
            return Attempt(_deal(roles, kinds, best.rows, required), found.exact)
        trials.append(_covered(_Trial(case, way), found.counts))
    trial = trials[-1]
    if spill:
        trial.area = None
    _greedy(trial, orders[0], case.optional)
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
) -> list[Kind]:
    kinds: dict[tuple[bytes, bytes, bytes], Kind] = {}
    by_shape: dict[PodShape, Kind] = {}
    for index, role in enumerate(roles):
        known = by_shape.get(role.shape)
        if known is None:
            taken = _ports(role.shape)
            request = np.array(
                [*view.request_vector(role.shape), *(port in taken for port in ports)], np.int64
            )
            allowed = session.feasible(view, role.shape)
            alike = (each for each in roles if each.shape.aligned == role.shape.aligned)
            want = sum(each.required + each.optional for each in alike)
            score = scores(session, view, role.shape, want)
            devices = max((n for name, n in role.shape.requests if "/" in name), default=0)
            key = (request.tobytes(), allowed.tobytes(), score.tobytes())
            known = kinds.setdefault(key, Kind([], request, allowed, score, devices))
            by_shape[role.shape] = known
        known.roles.append(index)
    return list(kinds.values())


def _orders(case: Case) -> Iterator[list[int]]:
    """Largest share first; then, for several kinds, the one with the least room to spare first."""
    kinds, everything = case.kinds, range(len(case.kinds))
    by_share = sorted(everything, key=lambda k: (-case.preference.share(kinds[k].request), k))
    yield by_share
    if len(kinds) > 1:
        spare = []
        for kind, want in zip(kinds, case.required, strict=True):
            capacity = np.zeros(len(case.free), dtype=np.int64)
            kernels.copies(case.free, kind.request, kind.allowed, max(want, 1), capacity)
            spare.append(int(capacity.sum()) - want)
        by_room = sorted(everything, key=lambda k: (spare[k], k))
        if by_room != by_share:
            yield by_room


def _greedy(trial: _Trial, order: Sequence[int], want: Sequence[int]) -> _Trial:
    for kind in order:
        if want[kind]:
            trial.add(kind, want[kind])
    return trial


def _search(case: Case, trial: _Trial) -> search.Cover:
    if len(case.kinds) == 1 or trial.way.quick:
        return search.Cover(None, exact=len(case.kinds) == 1)
    by_name = np.argsort(case.preference.names)
    found = search.cover(
        case.free[by_name],
        np.array([trial.allowed(kind)[by_name] for kind in case.kinds]),
        np.array([kind.request for kind in case.kinds]),
        case.required,
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
    kinds: Sequence[Kind],
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
