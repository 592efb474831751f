"""What a NodeResourceTopology says of a node, in the words of the model of its kubelet."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from extender.core.topology.kubelet import Amounts, Devices, Kubelet, Stock
from extender.core.topology.kubelet_hints import NONE
from extender.core.topology.nrt import NodeZones

#: Zones that have something to give; above, all sets of them are too many to look at, and the
#: kubelet is taken for one that refuses nothing.
MOST_ZONES = 10
#: Devices of one resource on a node; what has more is shared without end and bound to no zone.
MOST_DEVICES = 1024
_MILLI = 1000
_HUGE = "hugepages-"


def kubelet_of(zones: NodeZones) -> Kubelet:
    """The configuration of the node's kubelet, as far as it is told."""
    count = len(_rows(zones))
    policy = zones.policy if 0 < count <= MOST_ZONES else NONE
    return Kubelet(
        policy or NONE,
        count,
        zones.scope or "container",
        static_cpu=zones.static_cpu,
        static_memory=zones.static_memory,
    )


def zone_ids(zones: NodeZones) -> tuple[int, ...]:
    """The kernel's numbers of the zones that have something to give, in the kubelet's order."""
    return tuple(zones.ids[row] for row in _rows(zones))


def stock_of(zones: NodeZones, held: Collection[str]) -> Stock:
    """What the node has. Devices are numbered by zone; those that are given out come last.

    ``held``: resources that pods of the node ask for. Of all others nothing is given out, however
    old what is told of them may be.
    """
    rows = _rows(zones)
    if not 0 < len(rows) <= MOST_ZONES:
        return Stock()
    columns = dict(zip(zones.resources, range(len(zones.resources)), strict=True))
    total = np.maximum(np.maximum(zones.capacity, zones.allocatable)[rows], 0)
    usable = np.maximum(zones.allocatable[rows], 0)
    free = np.minimum(np.maximum(zones.available[rows], 0), usable)
    devices = tuple(
        (name, _devices(total[:, at], (free if name in held else usable)[:, at]))
        for name, at in columns.items()
        if "/" in name and np.minimum(total[:, at], MOST_DEVICES + 1).sum() <= MOST_DEVICES
    )
    memory = tuple(
        (name, _amounts(usable[:, at], free[:, at]))
        for name, at in columns.items()
        if name == "memory" or name.startswith(_HUGE)
    )
    cpu = columns.get("cpu")
    cpus = None if cpu is None else _amounts(total[:, cpu] // _MILLI, free[:, cpu] // _MILLI)
    if not zones.static_memory:
        return Stock(devices, cpus)
    return Stock(devices, cpus, memory, (0,) * len(rows))


def _rows(zones: NodeZones) -> list[int]:
    """Zones that have CPUs or devices (or memory that is given out by zone): GB200 shows 34, two do."""
    counts = [
        name == "cpu" or "/" in name or (zones.static_memory and name == "memory")
        for name in zones.resources
    ]
    has = (np.maximum(zones.capacity, zones.allocatable)[:, counts] > 0).any(axis=1)
    return [int(row) for row in np.flatnonzero(has)]


def _devices(total: NDArray[np.int64], free: NDArray[np.int64]) -> Devices:
    zones: list[int] = []
    unused = 0
    for zone, (count, left) in enumerate(zip(total.tolist(), free.tolist(), strict=True)):
        unused |= ((1 << left) - 1) << len(zones)
        zones += [1 << zone] * count
    return Devices(tuple(zones), unused)


def _amounts(total: NDArray[np.int64], free: NDArray[np.int64]) -> Amounts:
    return Amounts(tuple(total.tolist()), tuple(free.tolist()))
