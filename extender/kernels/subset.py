"""Which devices of a node to take: tables over every mask of free devices.

Subsets are bit masks: bit i is device i. Serial; compiled by
:func:`extender.kernels.warm.compile_all` for exactly the types written here.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Masks = NDArray[np.uint32]
SmallMasks = NDArray[np.uint16]


@numba.njit(cache=True)
def pack(group: Masks, begin: Int64s, out: Int64s) -> None:
    """How many disjoint groups each mask holds, at most, into ``out`` (2**n,).

    ``group`` (g,) lists masks that are a group (an unbroken pair, say); those whose lowest device
    is i stand from ``begin[i]`` up to ``begin[i + 1]`` (n + 1,).
    """
    out[0] = 0
    for mask in range(1, out.shape[0]):
        device = 0
        while not (mask >> device) & 1:
            device += 1
        most = out[mask ^ (1 << device)]
        for at in range(begin[device], begin[device + 1]):
            one = np.int64(group[at])
            if one & ~mask == 0:
                most = max(most, out[mask ^ one] + 1)
        out[mask] = most


@numba.njit(cache=True)
def choose(taken: Int64s, left: Int64s, out: SmallMasks) -> None:
    """The best k devices out of each mask of free ones, into ``out`` (2**n, n + 1); 0: none.

    The best has the greatest ``taken[chosen] + left[remaining]`` (2**n,) each; of equals the one
    whose list of devices comes first. 3**n steps.
    """
    n = out.shape[1] - 1
    score = np.empty(n + 1, np.int64)
    size = np.zeros(out.shape[0], np.int64)
    for free in range(out.shape[0]):
        size[free] = size[free >> 1] + (free & 1)
        score[:] = np.iinfo(np.int64).min
        for k in range(n + 1):
            out[free, k] = 0
        some = free
        while some:
            k = size[some]
            this = taken[some] + left[free ^ some]
            differ = some ^ np.int64(out[free, k])
            if this > score[k] or (this == score[k] and some & differ & -differ):
                score[k] = this
                out[free, k] = some
            some = (some - 1) & free
