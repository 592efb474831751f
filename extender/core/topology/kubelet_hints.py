"""Which NUMA nodes a kubelet's managers could serve a request from, and what it makes of that.

A set of zones is a mask: bit i is the i-th zone of the node. Reimplemented from the published
behaviour of kubelet's Topology Manager (pkg/kubelet/cm/topologymanager: HintMerger and policies),
and of the hints of its device, CPU and memory managers. The kubelet tries every combination of
its managers' hints; what it picks does not depend on their order, so it is computed here from the
sets alone. ``tests/topology`` has the combinations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from msgspec import Struct

NONE, BEST_EFFORT, RESTRICTED, SINGLE = "none", "best-effort", "restricted", "single-numa-node"
#: Policies that refuse pods.
STRICT = frozenset({RESTRICTED, SINGLE})

_Fitness = Callable[[int], tuple[int, float, int]]


class Hints(Struct, frozen=True):
    """Where one resource could come from. The kubelet prefers masks of ``width`` zones."""

    #: Masks with enough that is free; none: the resource cannot be had at all.
    masks: tuple[int, ...]
    #: The fewest zones that could serve the request if all of them were idle.
    width: int

    def preferred(self) -> frozenset[int]:
        """The masks that are as narrow as can be."""
        return frozenset(mask for mask in self.masks if mask.bit_count() == self.width)


class Affinity(Struct, frozen=True):
    """What the Topology Manager tells its managers."""

    #: Zones to take from; None: any.
    mask: int | None
    admitted: bool


@cache
def masks_of(zones: int) -> tuple[int, ...]:
    """Every set of zones but the empty one, narrow ones first."""
    return tuple(sorted(range(1, 1 << zones), key=lambda mask: (mask.bit_count(), mask)))


def merge(
    policy: str, zones: int, hints: Sequence[Hints], distance: Sequence[Sequence[int]] = ()
) -> Affinity:
    """The best set of zones for all of ``hints``, and whether the policy admits it.

    Resources that do not care are left out of ``hints``. ``distance`` (zones, zones) is given where
    the option prefer-closest-numa-nodes is on.
    """
    if policy == NONE:
        return Affinity(None, admitted=True)
    everywhere = (1 << zones) - 1
    common = [each.preferred() for each in hints]
    if policy == SINGLE:
        singles = {1 << zone for zone in range(zones)} if hints else {everywhere}
        found = singles.intersection(*common)
        mask = min(found, default=None)
        return Affinity(None if mask == everywhere else mask, admitted=bool(found))
    best = {everywhere} if not hints else common[0].intersection(*common[1:])

    def fitness(mask: int) -> tuple[int, float, int]:
        """Narrow, then near, then the lowest zones."""
        return mask.bit_count(), _spread(mask, distance), mask

    if best:
        return Affinity(min(best, key=fitness), admitted=True)
    return Affinity(_second_best(everywhere, hints, fitness), admitted=policy != RESTRICTED)


def _second_best(everywhere: int, hints: Sequence[Hints], fitness: _Fitness) -> int:
    """Zones that all could use something of, as many as the neediest needs; else as near to that
    as can be, rather fewer than more.
    """
    reached = {everywhere}
    for each in hints:
        if each.masks:
            reached = {a & b for a in reached for b in each.masks}
    reached.discard(0)
    wanted = max(
        (min(m.bit_count() for m in each.masks) for each in hints if each.masks), default=0
    )

    def order(mask: int) -> tuple[int, tuple[int, float, int]]:
        return max(wanted - mask.bit_count(), 0), fitness(mask)

    return min(reached, key=order, default=everywhere)


def _spread(mask: int, distance: Sequence[Sequence[int]]) -> float:
    """The mean distance between zones of a mask, themselves included; 0 where none is told."""
    if not distance:
        return 0.0
    inside = [zone for zone in range(len(distance)) if mask >> zone & 1]
    return sum(distance[a][b] for a in inside for b in inside) / len(inside) ** 2


def of_devices(
    zones: int, devices: Sequence[int], free: int, kept: int, request: int
) -> Hints | None:
    """Hints of the device manager; None: no device says where it is.

    ``devices`` has the zones of each as a mask, 0 where they are not told, unhealthy devices among
    them. ``free`` is the set of devices that may be taken, ``kept`` of those that the pod has from
    an init container, which must be of the zones.
    """
    if not any(devices):
        return None
    if (free | kept).bit_count() < request:
        return Hints((), zones)
    everywhere = range(len(devices))
    found, width = [], zones
    for mask in masks_of(zones):
        inside = [at for at in everywhere if devices[at] & mask]
        if len(inside) >= request:
            width = min(width, mask.bit_count())
        held = [at for at in everywhere if kept >> at & 1 and devices[at]]
        if any(not devices[at] & mask for at in held):
            continue
        if len(held) + sum(free >> at & 1 for at in inside) >= request:
            found.append(mask)
    return Hints(tuple(found), width)


def of_cpus(total: Sequence[int], free: Sequence[int], kept: Sequence[int], request: int) -> Hints:
    """Hints of the CPU manager's static policy, by CPUs of each zone. Zones without CPUs do not count."""
    having = sum(1 << zone for zone, cpus in enumerate(total) if cpus)
    held = sum(1 << zone for zone, cpus in enumerate(kept) if cpus)
    found, width = [], having.bit_count()
    for mask in masks_of(len(total)):
        if mask & ~having:
            continue
        if within(total, mask) >= request:
            width = min(width, mask.bit_count())
        if not held & ~mask and within(free, mask) + sum(kept) >= request:
            found.append(mask)
    return Hints(tuple(found), width)


def of_memory(
    total: Sequence[Sequence[int]],
    free: Sequence[Sequence[int]],
    groups: Sequence[int],
    requests: Sequence[int],
) -> Hints:
    """Hints of the memory manager's Static policy, the same for each kind of memory.

    ``total`` and ``free`` are (kinds, zones) in bytes, ``requests`` (kinds,). ``groups`` has for
    each zone the zones with which memory of it was given out, 0 where none was: a zone is used
    alone or with the others of its group.
    """
    zones = len(groups)
    found, width = [], zones
    kinds = range(len(requests))
    for mask in masks_of(zones):
        if any(within(total[kind], mask) < requests[kind] for kind in kinds):
            continue
        width = min(width, mask.bit_count())
        inside = [zone for zone in range(zones) if mask >> zone & 1]
        if any(groups[zone] not in (0, mask) for zone in inside):
            continue
        if all(within(free[kind], mask) >= requests[kind] for kind in kinds):
            found.append(mask)
    return Hints(tuple(found), width)


def within(amounts: Sequence[int], mask: int) -> int:
    """What the zones of the mask have together."""
    return sum(amount for zone, amount in enumerate(amounts) if mask >> zone & 1)
