"""An exact search for gangs of several roles, for when no simple order of roles works out.

Covering the demand of every role with one pattern of counts per row is complete: rows do not
influence each other here, and another copy on a row never makes anything else impossible there, so
only patterns to which no copy can be added need to be tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from extender.core.framework import BoolArray

Int64s = NDArray[np.int64]
Counts = tuple[int, ...]

#: Patterns that are tried before the search gives up (about 0.1 s).
BUDGET = 20_000

_SURE = 1 - 1e-9


class Cover(Struct, frozen=True):
    """``counts`` (roles, rows) that meet the demand, or None; ``exact`` if None means never."""

    counts: Int64s | None
    exact: bool


def cover(
    free: Int64s, allowed: BoolArray, requests: Int64s, need: Sequence[int], budget: int = BUDGET
) -> Cover:
    """Find counts with ``sum(counts[:, row] * requests) <= free[row]`` and row sums ``need``.

    ``free`` (rows, R), ``allowed`` (roles, rows), ``requests`` (roles, R) and ``need`` (roles,).
    Resources are units of :class:`extender.core.cluster.Cluster`; none is negative in requests.
    """
    asked = (requests > 0).any(axis=0)
    requests = requests[:, asked]
    demand = [
        min(sum(n * q for n, q in zip(need, column, strict=True)), 1 << 62)
        for column in requests.T.tolist()
    ]
    free = np.clip(free[:, asked], 0, np.array(demand, dtype=np.int64))
    # Sums of 63-bit values need floats; what their rounding hides is left to the search.
    if (free.sum(axis=0, dtype=np.float64) < np.array(demand, dtype=np.float64) * _SURE).any():
        return Cover(None, exact=True)
    rows = _candidates(free, allowed, requests, sum(need))
    search = _Search(free[rows], allowed[:, rows], requests, tuple(need), budget)
    found = search.run()
    if found is None:
        return Cover(None, exact=search.steps < budget)
    counts = np.zeros(allowed.shape, dtype=np.int64)
    counts[:, rows[: len(found)]] = np.array(found, dtype=np.int64).reshape(-1, len(need)).T
    return Cover(counts, exact=True)


def _candidates(free: Int64s, allowed: BoolArray, requests: Int64s, most: int) -> NDArray[np.intp]:
    """Rows that take anything at all, equal ones together and no more of them than can matter."""
    fits = allowed & (free[None] >= requests[:, None]).all(axis=2)
    rows = np.flatnonzero(fits.any(axis=0))
    if not len(rows):
        return rows
    kinds = np.concatenate([free[rows], fits[:, rows].T.astype(np.int64)], axis=1)
    _, kind = np.unique(kinds, axis=0, return_inverse=True)
    order = np.argsort(-kind.ravel(), kind="stable")
    kind, rows = kind.ravel()[order], rows[order]
    _, first, size = np.unique(kind, return_index=True, return_counts=True)
    place = np.arange(len(kind)) - np.repeat(np.sort(first), size[np.argsort(first)])
    return rows[place < most]


class _Search:
    """Depth first over rows; a state (row, what is still needed) is never entered twice."""

    def __init__(
        self, free: Int64s, allowed: BoolArray, requests: Int64s, need: Counts, budget: int
    ) -> None:
        self.need = need
        self.budget = budget
        self.steps = 0
        self.requests: list[list[int]] = requests.tolist()
        self.free: list[list[int]] = free.tolist()
        with np.errstate(divide="ignore"):
            each = np.where(
                requests[:, None] > 0, free[None] // np.maximum(requests[:, None], 1), 1 << 62
            ).min(axis=2, initial=1 << 62)
        each = np.where(allowed, np.minimum(each, np.array(need)[:, None]), 0)
        self.alone: list[Counts] = [tuple(row) for row in each.T.tolist()]
        # What the rows from i on can take at most, per role and per resource: never too little.
        self.roles_left = _suffix_sums(each.T)
        self.free_left = _suffix_sums(free)

    def run(self) -> list[Counts] | None:
        """One pattern per row, from the first row on; None when there is none or time is up."""
        if not any(self.need):
            return []
        if not self._possible(0, self.need):
            return None
        seen: set[tuple[int, Counts]] = set()
        chosen: list[Counts] = []
        path = [(self.need, self._patterns(0, self.need))]
        while path:
            left, patterns = path[-1]
            pattern = next(patterns, None)
            if pattern is None:
                path.pop()
                if chosen:
                    chosen.pop()
                continue
            self.steps += 1
            if self.steps >= self.budget:
                return None
            rest = tuple(n - c for n, c in zip(left, pattern, strict=True))
            if not any(rest):
                return [*chosen, pattern]
            if self._takes_more(len(path) - 1, pattern, rest):
                continue
            row = len(path)
            if (row, rest) in seen or not self._possible(row, rest):
                continue
            seen.add((row, rest))
            chosen.append(pattern)
            path.append((rest, self._patterns(row, rest)))
        return None

    def _possible(self, row: int, left: Counts) -> bool:
        if any(n > most for n, most in zip(left, self.roles_left[row], strict=True)):
            return False
        return all(
            sum(n * request[r] for n, request in zip(left, self.requests, strict=True)) <= total
            for r, total in enumerate(self.free_left[row])
        )

    def _patterns(self, row: int, left: Counts) -> Iterator[Counts]:
        """Counts by role that fit on this row, most of the first roles first; the last role's is
        always as high as it can be.
        """
        last = len(left) - 1

        def extend(free: list[int], counts: Counts) -> Iterator[Counts]:
            role = len(counts)
            most = min(self.alone[row][role], left[role], _room(free, self.requests[role]))
            if role == last:
                yield (*counts, most)
                return
            for count in range(most, -1, -1):
                yield from extend(_minus(free, self.requests[role], count), (*counts, count))

        return extend(self.free[row], ())

    def _takes_more(self, row: int, pattern: Counts, rest: Counts) -> bool:
        """Whether the row could take another copy of something that is still needed."""
        free = self.free[row]
        for request, count in zip(self.requests, pattern, strict=True):
            free = _minus(free, request, count)
        return any(
            rest[role] > 0 and pattern[role] < self.alone[row][role] and _room(free, request) > 0
            for role, request in enumerate(self.requests)
        )


def _room(free: list[int], request: list[int]) -> int:
    return min(
        (have // want for have, want in zip(free, request, strict=True) if want), default=1 << 62
    )


def _minus(free: list[int], request: list[int], count: int) -> list[int]:
    return [have - count * want for have, want in zip(free, request, strict=True)]


def _suffix_sums(values: Int64s) -> list[list[int]]:
    """Sums over rows i.. for every i from 0 to len, as exact integers."""
    total = [0] * values.shape[1]
    sums = [total]
    for row in reversed(values.tolist()):
        total = [a + b for a, b in zip(total, row, strict=True)]
        sums.append(total)
    return sums[::-1]
