"""The division of a gang's members that lets its slowest part send the most: exact, for members that
are alike and domains that are nested.

What a part of the network can be given is a set of numbers, kept as bits of one integer: with a
slowest node of v members a node takes none, or v up to what it has room for; a domain what its
parts take together, if that is none or enough for its share of the uplinks. Whether v is possible
is one look at the root's set, and the largest v is found by halving.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from extender.core.topology.domains import Domains

Int64s = NDArray[np.int64]

#: Rows up to which it is asked: some milliseconds.
MOST_ROWS = 512
#: Floats that should be whole numbers are this near to one.
_EXACT = 1e-9


class Slices(Struct, frozen=True):
    """Members are taken ``size`` at a time, each time in one domain of ``level``."""

    level: int
    size: int


class _Part(Struct):
    """A domain: of its nodes, if no level divides it further, else of its parts."""

    level: int
    rows: Int64s
    #: (rows,) falling.
    room: list[int]
    parts: list[_Part]


def fairest(
    domains: Domains,
    rows: Int64s,
    capacity: Int64s,
    want: int,
    slices: Slices | None = None,
) -> tuple[Int64s, Int64s] | None:
    """Rows and counts for ``want`` members on some of the ``rows``, neighbours beside each other;
    None: there is no way. ``capacity`` (all rows) is how many each takes.

    The fewest domains and nodes are not sought, but none is used that could do without.
    """
    task = _Task(domains, capacity, want, slices, rows)
    best = task.most()
    if best is None:
        return None
    taken = list(task.taken(task.root, best, want))
    return np.array([row for row, _ in taken], np.int64), np.array([n for _, n in taken], np.int64)


class _Task:
    def __init__(
        self, domains: Domains, capacity: Int64s, want: int, slices: Slices | None, rows: Int64s
    ) -> None:
        self.want = want
        self.slices = slices
        self.domains = domains
        self.capacity = capacity
        spans = [len(np.unique(ids[rows])) > 1 for ids in domains.ids]
        #: By level, what a used domain has to take for each member of the slowest node; 0: nothing.
        self.ratios = [
            level.oversubscription if several else 0.0
            for level, several in zip(domains.levels, spans, strict=True)
        ]
        self.mask = (1 << (want + 1)) - 1
        self.whole = sum(1 << k for k in range(0, want + 1, slices.size)) if slices else 0
        self.root = self._part(rows, -1)

    def most(self) -> float | None:
        """The most that the slowest part can send, in members' ports; None: they do not fit."""
        top = int(self.capacity[self.root.rows].max(initial=0))
        values = {float(v) for v in range(1, min(top, self.want) + 1)}
        for ratio in set(self.ratios) - {0.0, 1.0}:
            values |= {k / ratio for k in range(1, self.want + 1) if k / ratio <= top}
        order = sorted(values)
        if not order or not self._possible(order[0]):
            return None
        low, high = 0, len(order) - 1
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._possible(order[middle]) else (low, middle - 1)
        return order[low]

    def taken(self, part: _Part, value: float, want: int) -> Iterator[tuple[int, int]]:
        """(row, members) of a part that takes ``want``."""
        if not want:
            return
        if not part.parts:
            yield from self._nodes(part, ceil(value - _EXACT), want)
            return
        sets = [self._amounts(each, value) for each in part.parts]
        before = [1]
        for each in sets:
            before.append(self._sums(before[-1], each))
        shares = []
        for at in reversed(range(len(sets))):
            # The last, which have the least room, are left out where the others do.
            fits = (k for k in (0, *_falling(sets[at])) if k <= want and before[at] >> want - k & 1)
            shares.append(next(fits))
            want -= shares[-1]
        for below, share in zip(part.parts, reversed(shares), strict=True):
            yield from self.taken(below, value, share)

    def _part(self, rows: Int64s, level: int) -> _Part:
        if level + 1 < len(self.domains.levels):
            ids = self.domains.ids[level + 1][rows]
            parts = [self._part(rows[ids == each], level + 1) for each in np.unique(ids)]
            parts.sort(key=lambda part: -sum(part.room))  # stable: by name of the domain's number
            return _Part(
                level, rows, sorted((r for p in parts for r in p.room), reverse=True), parts
            )
        rows = rows[np.argsort(-self.capacity[rows], kind="stable")]
        return _Part(level, rows, self.capacity[rows].tolist(), [])

    def _possible(self, value: float) -> bool:
        return bool(self._amounts(self.root, value) >> self.want & 1)

    def _amounts(self, part: _Part, value: float) -> int:
        """The numbers of members that a part can take, as bits."""
        if part.parts:
            found = 1
            for each in part.parts:
                found = self._sums(found, self._amounts(each, value))
        else:
            found = self._by_nodes(part.room, ceil(value - _EXACT))
        if part.level < 0:
            return found
        least = ceil(value * self.ratios[part.level] - _EXACT)
        found &= ~((1 << least) - 1) | 1
        if self.slices is not None and self.slices.level == part.level:
            found &= self.whole
        return found

    def _by_nodes(self, room: Sequence[int], least: int) -> int:
        found, most = 1, 0
        for used, size in enumerate(room, 1):
            if size < least or used * least > self.want:
                break
            most += size
            found |= (1 << min(most, self.want) + 1) - (1 << used * least)
        return found

    def _sums(self, one: int, other: int) -> int:
        """The sums of a number of each."""
        if other == 1:
            return one
        found = 0
        for low, high in _runs(other):
            part, done, left = one << low, 1, high - low
            while left:
                step = min(done, left)
                part |= part << step
                done, left = done + step, left - step
            found |= part & self.mask
        return found

    def _nodes(self, part: _Part, least: int, want: int) -> Iterator[tuple[int, int]]:
        """The fewest nodes that take ``want``: each the least, the first ones up to their room."""
        used = next(
            used for used in range(1, len(part.room) + 1)
            if used * least <= want <= sum(part.room[:used])
        )  # fmt: skip
        rest = want - used * least
        for row, room in zip(part.rows[:used].tolist(), part.room, strict=False):
            more = min(rest, room - least)
            rest -= more
            yield row, least + more


def _runs(bits: int) -> Iterator[tuple[int, int]]:
    """First and last of each run of bits that are set."""
    at = 0
    while bits:
        skip = (bits & -bits).bit_length() - 1
        bits >>= skip
        size = (bits ^ (bits + 1)).bit_length() - 1
        yield at + skip, at + skip + size - 1
        bits >>= size
        at += skip + size


def _falling(bits: int) -> Iterator[int]:
    while bits:
        top = bits.bit_length() - 1
        yield top
        bits ^= 1 << top
