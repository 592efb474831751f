"""Which devices NVIDIA's device plugin answers the kubelet with (GetPreferredAllocation).

Not what Muster would choose: what the node will do, so that it can be predicted. Reimplemented
from the described behaviour of go-gpuallocator's best-effort policy and k8s-device-plugin's
``distributed`` and ``packed`` policies; ``tests/topology`` has their own tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from extender.core.topology.model import (
    NODE,
    PHB,
    PIX,
    PSB,
    PXB,
    SYS,
    Topology,
    distances,
    links_between,
)

Scores = NDArray[np.int64]

#: go-gpuallocator's points for a pair's PCIe path; each NVLink adds 100.
_POINTS = {SYS: 10, NODE: 20, PHB: 30, PXB: 40, PIX: 50, PSB: 60}
_PER_LINK = 100
#: Stands for a device that is not there: fills the last sets of a partition.
_NOBODY = -1


def pair_scores(known: Topology, *, switched: bool) -> Scores:
    """(n, n) the plugin's points of each pair.

    Links through an NVSwitch do not count: their other end is the switch, which the plugin does
    not follow, so on HGX boards only PCIe tells pairs apart.
    """
    distance = distances(known)
    points = np.zeros(int(distance.max(initial=PSB)) + 1, dtype=np.int64)
    for code, each in _POINTS.items():
        points[code] = each
    scores = points[distance]
    if not switched:
        scores = scores + _PER_LINK * links_between(known.links)
    np.fill_diagonal(scores, 0)
    return scores


def preferred_allocation(
    scores: Scores, available: Iterable[int], required: Iterable[int], size: int
) -> tuple[int, ...]:
    """The devices that the best-effort policy prefers, ascending; empty where it has no answer.

    All available devices are divided into sets of ``size`` (the last one filled up); the division
    with the greatest sum of pair scores counts, and of its sets the best that holds all of
    ``required``. Of equals the first in the order of device numbers.
    """
    free = tuple(sorted(set(available)))
    needed = frozenset(required)
    if size < 1 or size > len(free) or len(needed) > size or not needed <= set(free):
        return ()
    points = [[int(each) for each in row] for row in scores]

    def worth(group: Sequence[int]) -> int:
        return sum(points[a][b] for a, b in combinations(group, 2) if _NOBODY not in (a, b))

    if size == 1:
        return (min(needed or free),)
    groups = _best_division(free, needed, size, worth)
    # max() keeps the first of equals.
    return max((group for group in groups if needed <= set(group)), key=worth, default=())


def _best_division(
    free: tuple[int, ...], needed: frozenset[int], size: int, worth: Callable[[Sequence[int]], int]
) -> list[tuple[int, ...]]:
    """The division into sets of ``size`` whose sets are worth most together; the first of equals.

    The lowest device left is always in the next set, so a division is met once; what is left
    afterwards decides the rest, whatever came before (dynamic programming over what is left).
    """

    @cache
    def best(left: tuple[int, ...]) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """(what ``left`` is worth, the first set, what is left then)."""
        most = -1
        first: tuple[int, ...] = ()
        rest: tuple[int, ...] = ()
        for others in combinations(left[1:], size - 1):
            group = (left[0], *others)
            # All of the required devices, or none: they must be together.
            if needed and len(needed.intersection(group)) not in (0, len(needed)):
                continue
            after = list(left)
            for each in group:
                after.remove(each)
            more = best(tuple(after))[0] if after else 0
            if more >= 0 and worth(group) + more > most:
                most, first, rest = worth(group) + more, group, tuple(after)
        return most, first, rest

    left = free + (_NOBODY,) * (-len(free) % size)
    groups: list[tuple[int, ...]] = []
    while left:
        _, group, left = best(left)
        if not group:
            return []
        groups.append(tuple(each for each in group if each != _NOBODY))
    return groups


def distributed(
    available: Sequence[str], required: Sequence[str], size: int, totals: dict[str, int]
) -> tuple[str, ...]:
    """Replicas spread over devices: each time one of the device that has given fewest of its own.

    Replica ids are ``<device>::<number>``; ``totals`` is how many replicas each device has. Empty
    where there are too few.
    """
    return _replicas(available, required, size, totals, pack=False)


def packed(
    available: Sequence[str], required: Sequence[str], size: int, totals: dict[str, int]
) -> tuple[str, ...]:
    """Replicas packed onto devices: each time one of the device that has given most of its own."""
    return _replicas(available, required, size, totals, pack=True)


def device_of(replica: str) -> str:
    """The device of a replica's id, as the plugin annotates it."""
    return replica.split("::", 1)[0]


def _replicas(
    available: Sequence[str],
    required: Sequence[str],
    size: int,
    totals: dict[str, int],
    *,
    pack: bool,
) -> tuple[str, ...]:
    candidates = [each for each in available if each not in set(required)]
    wanted = size - len(required)
    if wanted < 0 or wanted > len(candidates):
        return ()
    left: dict[str, int] = {}
    for each in candidates:
        left[device_of(each)] = left.get(device_of(each), 0) + 1
    chosen = list(required)
    for _ in range(wanted):
        # The sort is stable here; the plugin's is not promised to be, beyond a dozen replicas.
        candidates.sort(
            key=lambda each: (totals[device_of(each)] - left[device_of(each)]) * (-1 if pack else 1)
        )
        chosen.append(candidates.pop(0))
        left[device_of(chosen[-1])] -= 1
    return tuple(chosen)
