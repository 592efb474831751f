"""Which of the rows that are possible a gang takes: one order, used by every way of planning.

1. Rows where members are already, or are planned: near costs nothing.
2. Fewest rows: the one that takes most of what is left, up to all of it.
3. A row in use before an idle one, so that no idle node is broken for what fits on a used one.
4. The plugins' score, then the tightest row, then one of the fullest rack, then the name.

Which domains of the network they are taken from is decided before (:mod:`extender.core.nearest`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from extender.core.framework import BoolArray, FloatArray
from extender.core.topology.domains import Domains
from extender.core.topology.spread import crowding

if TYPE_CHECKING:
    from extender.core.snapshot import Snapshot

Int64s = NDArray[np.int64]


class Preference:
    """The order of rows for one plan. ``near`` (rows,) grows as members are placed."""

    def __init__(self, view: Snapshot, near: Iterable[int] = ()) -> None:
        self.allocatable: Int64s = view.allocatable
        self.totals: FloatArray = view.allocatable[view.alive].sum(axis=0, dtype=np.float64)
        self.names: Int64s = view.view.ranks
        self.domains: Domains = view.view.domains
        self.near: BoolArray = np.zeros(view.rows, dtype=np.bool_)
        self.near[list(near)] = True

    def again(self, near: BoolArray) -> Preference:
        """The same order with other near rows."""
        copy = object.__new__(Preference)
        copy.allocatable, copy.totals, copy.names = self.allocatable, self.totals, self.names
        copy.domains, copy.near = self.domains, near.copy()
        return copy

    def with_ones(self, columns: int) -> Preference:
        """The same order with more resources, of which every row has one."""
        copy = self.again(self.near)
        rows = len(self.allocatable)
        copy.allocatable = np.hstack([self.allocatable, np.ones((rows, columns), np.int64)])
        copy.totals = np.concatenate([self.totals, np.full(columns, float(rows))])
        return copy

    def share(self, request: Int64s) -> float:
        """The largest share of any resource of the cluster that one copy takes."""
        return float(self._shares(request).max(initial=0.0))

    def idle(self, free: Int64s, request: Int64s, rows: NDArray[np.intp]) -> BoolArray:
        """Per row of ``rows``: nobody uses the resource of which the request takes most."""
        scarce = int(self._shares(request).argmax())
        return np.asarray(free[rows, scarce] >= self.allocatable[rows, scarce], dtype=np.bool_)

    def bulk(
        self, free: Int64s, request: Int64s, capacity: Int64s, score: FloatArray
    ) -> tuple[Int64s, Int64s]:
        """``order`` and ``last`` as :func:`extender.kernels.place.fill` takes them."""
        rows = np.flatnonzero(capacity)
        idle = self.idle(free, request, rows)
        size, points, names = capacity[rows], -score[rows], self.names[rows]
        order = rows[np.lexsort((names, points, idle, -size, ~self.near[rows]))]
        last = np.zeros(len(capacity), dtype=np.int64)
        crowds = crowding(self.domains, capacity, rows)
        last[rows[np.lexsort((names, *crowds, size, points, idle))]] = np.arange(len(rows))
        return order.astype(np.int64), last

    def best(
        self,
        rows: NDArray[np.intp],
        want: int,
        free: Int64s,
        request: Int64s,
        capacity: Int64s,
        score: FloatArray,
    ) -> NDArray[np.intp]:
        """``rows`` with the best first, when ``want`` copies are still to be placed."""
        idle = self.idle(free, request, rows)
        size, points, names = capacity[rows], -score[rows], self.names[rows]
        keys = (names, size, points, idle, -np.minimum(size, want), ~self.near[rows])
        return rows[np.lexsort(keys)]

    def _shares(self, request: Int64s) -> FloatArray:
        shares = np.zeros(len(request))
        asked = request > 0
        with np.errstate(divide="ignore"):
            shares[asked] = request[asked] / self.totals[asked]
        return shares
