"""How fast rings can be over every subset of a node's devices.

Subsets are bit masks: bit i is device i. Arrays over masks have 2**n elements. Serial; compiled by
:func:`extender.kernels.warm.compile_all` for exactly the types written here.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@numba.njit(cache=True)
def widest(hop: Floats, path: Floats, out: Floats) -> None:
    """The slowest hop of the best ring through all devices of each mask, into ``out`` (2**n,).

    ``hop`` (n, n) is symmetric, 0 where no ring may pass. ``path`` (2**n, n) is scratch: the
    slowest hop of the best path from a mask's lowest device to device j. Exact, by dynamic
    programming over masks (Held and Karp 1962, with a bottleneck for a sum): 2**n * n**2 steps.
    """
    n = hop.shape[0]
    for mask in range(1 << n):
        out[mask] = 0.0
        start = 0
        while start < n and not (mask >> start) & 1:
            start += 1
        for j in range(start, n):
            path[mask, j] = 0.0
            if not (mask >> j) & 1:
                continue
            if j == start:
                path[mask, j] = np.inf if mask == 1 << start else 0.0
                continue
            before = mask ^ (1 << j)
            for i in range(start, n):
                if (before >> i) & 1:
                    path[mask, j] = max(path[mask, j], min(path[before, i], hop[i, j]))
            out[mask] = max(out[mask], min(path[mask, j], hop[j, start]))


@numba.njit(cache=True)
def pack(count: Int64s, part: Int64s, most: int, out: Floats) -> None:
    """How many rings the direct links of each mask carry side by side, into ``out`` (2**n,).

    ``count`` (n, n) is symmetric: the links of each pair. A ring takes one link of each of its
    hops, in one direction; the best fractional packing is counted, in both directions, so a pair
    of m links carries m and a full mesh of k devices carries m * (k - 1). 0 for a mask that is not
    within one ``part`` (n,) (mask of the devices that links connect), has more than ``most``
    devices, or has no ring.
    """
    n = count.shape[0]
    inside = np.empty(n, np.int64)
    for mask in range(1 << n):
        out[mask] = 0.0
        k = 0
        for i in range(n):
            if (mask >> i) & 1:
                inside[k] = i
                k += 1
        if k < 2 or k > most or (mask & ~part[inside[0]]) != 0:
            continue
        if k == 2:
            out[mask] = count[inside[0], inside[1]]
        else:
            out[mask] = 2.0 * _rings(count, inside[:k])


@numba.njit(cache=True)
def _rings(count: Int64s, inside: Int64s) -> float:
    """The best fractional packing of rings through all of ``inside`` (k,), k >= 3.

    A linear program: maximise the sum of all rings' weights so that no pair carries more than its
    links. Revised simplex; columns are made when needed, as the shortest ring under the current
    prices (Gilmore and Gomory 1961). Capacities are perturbed against degenerate steps; the answer
    is what all links are worth under the last prices, where nothing is left of that, and rounded to
    1e-6, so that equal sets of devices are equal.
    """
    k = inside.shape[0]
    edge = np.full((k, k), -1, np.int64)
    value = np.zeros(k * k)
    edges = _number(count, inside, edge, value)
    inverse = np.zeros((edges, edges))
    for row in range(edges):
        inverse[row, row] = 1.0
    #: Whether the column of each row is a ring (worth 1) or slack (worth nothing).
    ring = np.zeros(edges, np.bool_)
    price = np.zeros(edges)
    column = np.zeros(edges)
    step = np.zeros(edges)
    chosen = np.zeros(k, np.int64)
    for _ in range(64 * k * k):
        slack = _price(inverse, ring, price)
        column[:] = 0.0
        if slack >= 0:
            column[slack] = 1.0
        elif _shortest(edge, price, chosen) < 1.0 - 1e-9:
            for a in range(k):
                column[edge[chosen[a], chosen[(a + 1) % k]]] = 1.0
        else:
            break
        leaving = _leaving(inverse, value, column, step)
        if leaving < 0:
            break
        _pivot(inverse, value, step, leaving)
        ring[leaving] = slack < 0
    total = 0.0
    for a in range(k):
        for b in range(a + 1, k):
            if edge[a, b] >= 0:
                total += price[edge[a, b]] * count[inside[a], inside[b]]
    return round(total * 1e6) / 1e6


@numba.njit(cache=True)
def _number(count: Int64s, inside: Int64s, edge: Int64s, value: Floats) -> int:
    """Number the pairs that have links into ``edge`` (k, k), their capacities into ``value``."""
    edges = 0
    for a in range(edge.shape[0]):
        for b in range(a + 1, edge.shape[0]):
            links = count[inside[a], inside[b]]
            if links > 0:
                edge[a, b] = edges
                edge[b, a] = edges
                value[edges] = links + 1e-6 / (edges + 1.0)
                edges += 1
    return edges


@numba.njit(cache=True)
def _price(inverse: Floats, ring: Bools, price: Floats) -> int:
    """What each pair costs under the basis, into ``price``; the first that costs less than nothing.

    Such a pair should have slack; -1 if there is none.
    """
    slack = -1
    for e in range(price.shape[0]):
        price[e] = 0.0
        for row in range(price.shape[0]):
            if ring[row]:
                price[e] += inverse[row, e]
        if price[e] < -1e-9 and slack < 0:
            slack = e
    return slack


@numba.njit(cache=True)
def _leaving(inverse: Floats, value: Floats, column: Floats, step: Floats) -> int:
    """The row that is used up first as ``column`` grows, -1 for none; its image into ``step``."""
    leaving = -1
    for row in range(step.shape[0]):
        step[row] = 0.0
        for e in range(step.shape[0]):
            step[row] += inverse[row, e] * column[e]
        if step[row] > 1e-9 and (
            leaving < 0 or value[row] * step[leaving] < value[leaving] * step[row]
        ):
            leaving = row
    return leaving


@numba.njit(cache=True)
def _pivot(inverse: Floats, value: Floats, step: Floats, leaving: int) -> None:
    """Bring the column whose image is ``step`` into the basis at row ``leaving``."""
    edges = inverse.shape[0]
    pivot = step[leaving]
    value[leaving] /= pivot
    for e in range(edges):
        inverse[leaving, e] /= pivot
    for row in range(edges):
        if row != leaving and step[row] != 0.0:
            value[row] -= step[row] * value[leaving]
            for e in range(edges):
                inverse[row, e] -= step[row] * inverse[leaving, e]


@numba.njit(cache=True)
def _shortest(edge: Int64s, price: Floats, chosen: Int64s) -> float:
    """The length of the shortest ring, inf where there is none; its order into ``chosen`` (k,)."""
    k = edge.shape[0]
    rest = k - 1
    length = np.full((1 << rest, rest), np.inf)
    came = np.zeros((1 << rest, rest), np.int64)
    _paths(edge, price, length, came)
    best = np.inf
    last = 0
    mask = (1 << rest) - 1
    for j in range(rest):
        if edge[j, rest] >= 0 and length[mask, j] + price[edge[j, rest]] < best:
            best = length[mask, j] + price[edge[j, rest]]
            last = j
    chosen[0] = rest
    for at in range(1, k):
        chosen[at] = last
        last, mask = came[mask, last], mask ^ (1 << last)
    return best


@numba.njit(cache=True)
def _paths(edge: Int64s, price: Floats, length: Floats, came: Int64s) -> None:
    """The shortest paths from the last device through each mask of the others, by where they end.

    ``length`` (2**(k - 1), k - 1) is inf on entry; ``came`` gets the device before the end.
    """
    rest = edge.shape[0] - 1
    for j in range(rest):
        if edge[rest, j] >= 0:
            length[1 << j, j] = price[edge[rest, j]]
    for mask in range(1, 1 << rest):
        for j in range(rest):
            if length[mask, j] == np.inf:  # also where j is not in mask
                continue
            for i in range(rest):
                after = mask | (1 << i)
                if after == mask or edge[j, i] < 0:
                    continue
                longer = length[mask, j] + price[edge[j, i]]
                if longer < length[after, i]:
                    length[after, i] = longer
                    came[after, i] = j
