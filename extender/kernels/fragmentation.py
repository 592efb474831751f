"""How much of a node's devices a mix of task shapes can still use, and what one more pod takes.

The columns of every function here:

=============  ========================================================================
``free``       (rows, H) what is left of the host's resources (cpu, memory)
``devices``    (rows, D) what is left of each device in thousandths; 0 where there is none
``kinds``      (rows,) the row's column of ``weights``: rows that the same shapes may use
``hosts``      (R, H) host resources that one task of each shape asks for
``shares``     (R,) thousandths of each of its devices: 1000 where it asks for several
``counts``     (R,) how many devices it asks for, at least 1
``weights``    (kinds, R) how much a usable thousandth counts, by shape
=============  ========================================================================

Two notions of what a shape can use of a node, both in thousandths. *First*: where one task fits,
all that is left of the devices it could take (Weng et al., ATC '23). *Filled*: what as many copies
as fit take, host resources counted. Serial on purpose, see :mod:`extender.kernels.place`.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


@numba.njit(cache=True)
def _sort_out(left: Int64s, parts: Int64s) -> tuple[int, int]:
    """How many devices are whole, and how many are partly free; those go into ``parts`` (D,)."""
    whole, partly = 0, 0
    for d in range(left.shape[0]):
        if left[d] == 1000:
            whole += 1
        elif left[d] > 0:
            parts[partly] = left[d]
            partly += 1
    return whole, partly


@numba.njit(cache=True)
def _usable(
    free: Int64s, whole: int, parts: Int64s, partly: int, host: Int64s, share: int, count: int
) -> tuple[int, int]:
    """First and filled of one node (``free`` (H,), devices as sorted out) for one shape."""
    for h in range(free.shape[0]):
        # what is not asked for may be over-committed
        if host[h] > 0 and host[h] > free[h]:
            return 0, 0
    able, first = whole, whole * 1000
    # A division costs as much as the rest of a turn, and large shares need none.
    copies = whole if share > 500 else whole * (1000 // share)
    if share < 1000:
        for d in range(partly):
            if parts[d] >= share:
                able += 1
                first += parts[d]
                copies += 1 if parts[d] < 2 * share else parts[d] // share
    if able < count:
        return 0, 0
    # Shapes of several devices ask for whole ones, of which copies never share one.
    if count > 1:
        copies //= count
    for h in range(free.shape[0]):
        if host[h] > 0 and copies * host[h] > free[h]:
            copies = free[h] // host[h]
    return first, copies * count * share


@numba.njit(cache=True)
def _alike(row: int, other: int, free: Int64s, devices: Int64s) -> bool:
    """Whether two rows have the same left."""
    alike = True
    for h in range(free.shape[1]):
        alike = alike and free[row, h] == free[other, h]
    for d in range(devices.shape[1]):
        alike = alike and devices[row, d] == devices[other, d]
    return alike


@numba.njit(cache=True)
def filled(
    rows: Int64s,
    free: Int64s,
    devices: Int64s,
    hosts: Int64s,
    shares: Int64s,
    counts: Int64s,
    out: Int64s,
) -> None:
    """Thousandths that copies of each shape take of each of ``rows``, into ``out`` (rows, R).

    A row like the one before it in ``rows`` costs little: give them sorted.
    """
    parts = np.empty(devices.shape[1], dtype=np.int64)
    last = -1
    for row in rows:
        if last >= 0 and _alike(row, last, free, devices):
            out[row] = out[last]
            continue
        last = row
        whole, partly = _sort_out(devices[row], parts)
        for r in range(shares.shape[0]):
            _, full = _usable(free[row], whole, parts, partly, hosts[r], shares[r], counts[r])
            out[row, r] = full


@numba.njit(cache=True)
def _worth(
    free: Int64s,
    left: Int64s,
    hosts: Int64s,
    shares: Int64s,
    counts: Int64s,
    weights: Floats,
    depth: float,
    parts: Int64s,
) -> float:
    """What all shapes can use of one node, ``depth`` parts filled and the rest first, weighted."""
    whole, partly = _sort_out(left, parts)
    worth = 0.0
    if whole + partly == 0:
        return worth
    for r in range(shares.shape[0]):
        if weights[r] > 0:
            first, full = _usable(free, whole, parts, partly, hosts[r], shares[r], counts[r])
            worth += weights[r] * ((1.0 - depth) * first + depth * full)
    return worth


@numba.njit(cache=True)
def _graded(loss: float, asked: int) -> float:
    """The loss as FGD's simulator sees it: minus whole points of 100."""
    return float(-np.floor(100.0 / (1.0 + np.exp((loss - asked) / 1000.0))))


@numba.njit(cache=True)
def _take(left: Int64s, share: int, count: int) -> None:
    """Take a share of each of the first ``count`` devices that have room."""
    for d in range(left.shape[0]):
        if count > 0 and left[d] >= share:
            left[d] -= share
            count -= 1


@numba.njit(cache=True)
def _repeats(left: Int64s, device: int) -> bool:
    """Whether an earlier device has as much left: it then stands for both."""
    repeats = False
    for d in range(device):
        repeats = repeats or left[d] == left[device]
    return repeats


@numba.njit(cache=True)
def losses(
    rows: Int64s,
    host: Int64s,
    share: int,
    count: int,
    free: Int64s,
    devices: Int64s,
    kinds: Int64s,
    hosts: Int64s,
    shares: Int64s,
    counts: Int64s,
    weights: Floats,
    depth: float,
    graded: bool,
    out: Floats,
    device: Int64s,
) -> None:
    """What the mix can use less of each of ``rows`` once a pod is there, into ``out`` (rows,).

    The pod asks for ``host`` (H,) and ``share`` thousandths of each of ``count`` devices (0 for
    none), and fits on every one of ``rows``. A pod of one device gets the one whose loss is
    smallest, then the fullest, then the first; its index goes into ``device`` (rows,). Several are
    whole ones, the first that are free, and -1 goes there.

    ``graded`` gives losses as FGD's simulator sees them: minus whole points of
    100 / (1 + e^-x), x being by how many devices fragmentation shrinks; the first device of equals.
    Source: kubernetes-scheduler-simulator pkg/simulator/plugin/fgd_score.go.

    As in :func:`filled`, sorted rows cost less.
    """
    after = np.empty(devices.shape[1], dtype=np.int64)
    rest = np.empty(free.shape[1], dtype=np.int64)
    parts = np.empty(devices.shape[1], dtype=np.int64)
    last = -1
    for row in rows:
        if last >= 0 and kinds[row] == kinds[last] and _alike(row, last, free, devices):
            out[row], device[row] = out[last], device[last]
            continue
        last = row
        mix = weights[kinds[row]]
        rest[:] = free[row] - host
        after[:] = devices[row]
        before = _worth(free[row], after, hosts, shares, counts, mix, depth, parts)
        best, smallest = -1, np.inf
        if count != 1:
            _take(after, share, count)
            smallest = before - _worth(rest, after, hosts, shares, counts, mix, depth, parts)
            out[row] = _graded(smallest, share * count) if graded else smallest
            device[row] = -1
            continue
        for d in range(after.shape[0]):
            if after[d] < share or _repeats(after, d):
                continue
            after[d] -= share
            loss = before - _worth(rest, after, hosts, shares, counts, mix, depth, parts)
            after[d] += share
            if graded:
                loss = _graded(loss, share)
            fuller = not graded and loss == smallest and after[d] < after[best]
            if loss < smallest or fuller:
                best, smallest = d, loss
        out[row] = smallest
        device[row] = best
