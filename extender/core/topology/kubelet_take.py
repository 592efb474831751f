"""Which devices and CPUs the kubelet's managers take once the Topology Manager has picked zones.

A set of devices is a mask, bit i is device i; so is a set of zones. Source: devicesToAllocate and
filterByAffinity (pkg/kubelet/cm/devicemanager), allocateCPUs and takeByTopology (cpumanager).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

#: A device plugin's GetPreferredAllocation on sets of devices: (available, required, size) to the
#: preferred set; 0: no answer, and the kubelet takes any (here: the lowest numbers).
Prefer = Callable[[int, int, int], int]


def no_preference(available: int, required: int, size: int) -> int:
    """A plugin without GetPreferredAllocation."""
    return 0


def devices_for(
    where: Sequence[int], free: int, kept: int, count: int, mask: int | None, prefer: Prefer
) -> int | None:
    """The devices of one container; None: fewer are free.

    First what the pod has from an init container (``kept``); then of the zones of ``mask``, where
    the plugin chooses if there are more than are needed; then any, by the plugin's choice.
    ``where`` has the zones of each device.
    """
    taken = lowest(kept, count)
    if taken.bit_count() == count:
        return taken
    if taken.bit_count() + free.bit_count() < count:
        return None
    near = 0 if mask is None else of_zones(where, mask) & free
    if taken.bit_count() + near.bit_count() > count:
        taken = _more(taken, prefer(near | taken, taken, count) & near, count)
        return _more(taken, near, count)
    taken |= near
    if taken.bit_count() < count:
        taken = _more(taken, prefer(free | taken, taken, count) & free, count)
    taken = _more(taken, free & of_zones(where, -1), count)
    return _more(taken, free, count)


def cpus_for(
    total: Sequence[int], free: Sequence[int], mask: int | None, count: int
) -> list[int] | None:
    """CPUs by zone, those of ``mask`` first; None: fewer are free. (zones,)."""
    if sum(free) < count:
        return None
    near = -1 if mask is None else mask
    taken = _packed(total, free, near, count)
    rest = [have - got for have, got in zip(free, taken, strict=True)]
    more = _packed(total, rest, ~near, count - sum(taken))
    return [a + b for a, b in zip(taken, more, strict=True)]


def of_zones(where: Sequence[int], mask: int) -> int:
    """The set of devices that are in one of the zones."""
    return sum(1 << device for device, zones in enumerate(where) if zones & mask)


def lowest(devices: int, count: int) -> int:
    """The ``count`` lowest of a set, or all of it."""
    taken = 0
    for _ in range(min(count, devices.bit_count())):
        taken |= devices & -devices
        devices &= devices - 1
    return taken


def _more(taken: int, of: int, count: int) -> int:
    return taken | lowest(of & ~taken, count - taken.bit_count())


def _packed(total: Sequence[int], free: Sequence[int], mask: int, need: int) -> list[int]:
    """Whole idle zones first, then those with the fewest left."""
    taken = [0] * len(total)
    zones = sorted(
        (zone for zone in range(len(total)) if mask >> zone & 1 and free[zone]),
        key=lambda zone: (free[zone], zone),
    )
    for zone in zones:
        if free[zone] == total[zone] <= need:
            taken[zone] = total[zone]
            need -= total[zone]
    for zone in zones:
        got = min(need, free[zone] - taken[zone])
        taken[zone] += got
        need -= got
    return taken
