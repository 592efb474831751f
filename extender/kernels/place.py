"""Where the copies of one pod shape go when nothing but resources ties them together.

Serial on purpose: with parallel loops one busy neighbour multiplies the slowest call by twenty.
Both are compiled by :func:`extender.kernels.warm.compile_all` for exactly the types written here.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]


@numba.njit(cache=True)
def copies(free: Int64s, request: Int64s, allowed: Bools, most: int, out: Int64s) -> None:
    """How many copies of ``request`` (R,) fit into each row of ``free`` (rows, R), into ``out``.

    0 where ``allowed`` is false, never above ``most``. A resource that is not asked for does not
    count, also where it is over-committed (negative), as in kube-scheduler's NodeResourcesFit.
    """
    for row in range(free.shape[0]):
        fit = most if allowed[row] else 0
        for r in range(free.shape[1]):
            if fit <= 0:
                break
            if request[r] > 0:
                fit = min(fit, max(free[row, r], 0) // request[r])
        out[row] = max(fit, 0)


@numba.njit(cache=True)
def fill(order: Int64s, near: int, capacity: Int64s, last: Int64s, want: int, out: Int64s) -> int:
    """Distribute ``want`` copies over few rows; returns how many were placed.

    ``order`` holds the candidate rows: first the ``near`` rows where the gang is already, then the
    others, each part by falling ``capacity`` (by row). Rows are filled whole in that order until
    the rest fits into one row; of the rows of that part that can take it whole, the one with the
    smallest ``last`` (a rank by row) does. ``out`` (len(order),) gets the copies by position.
    """
    left = want
    out[:] = 0
    for i in range(order.shape[0]):
        if left <= 0:
            break
        if capacity[order[i]] < left:
            out[i] = capacity[order[i]]
            left -= out[i]
            continue
        end = near if i < near else order.shape[0]
        best = i
        for j in range(i + 1, end):
            if capacity[order[j]] < left:
                break
            if last[order[j]] < last[order[best]]:
                best = j
        out[best] = left
        left = 0
    return want - left
