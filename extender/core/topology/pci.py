"""How near two PCI devices are, from their places in the tree of bridges.

Source of the classes: the legend of ``nvidia-smi topo -m``; of the tree: a device's path in sysfs,
``pci0000:17/0000:17:01.0/0000:18:00.0/..``, root complex first, the device itself last.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from extender.core.topology.model import NO_ZONE, NODE, PHB, PIX, PXB, SYS, UNKNOWN


@dataclass(frozen=True, slots=True)
class Place:
    """Where a PCI device is: its address, the way to it, and what the kernel says is nearest."""

    #: ``domain:bus:device.function`` in lower case, as sysfs writes it.
    bus: str
    #: From the root complex to the device itself; empty where the tree is not known.
    path: tuple[str, ...] = ()
    #: NUMA node, ``NO_ZONE`` where not known.
    numa: int = NO_ZONE
    #: The nearest CPUs as the kernel lists them, or "".
    cpus: str = ""


def nearness(a: Place, b: Place) -> int:
    """The PCIe code between two devices: the higher, the nearer; ``UNKNOWN`` if that is not told.

    What shares a bridge below the root complex is PIX if neither is behind a further switch (one
    bridge each at most: the switch's downstream port), else PXB.
    """
    if not a.path or not b.path or a.path[0] != b.path[0]:
        if NO_ZONE in (a.numa, b.numa):
            return UNKNOWN
        return NODE if a.numa == b.numa else SYS
    bridges_a, bridges_b = a.path[1:-1], b.path[1:-1]
    shared = 0
    while shared < min(len(bridges_a), len(bridges_b)) and bridges_a[shared] == bridges_b[shared]:
        shared += 1
    if shared == 0:
        return PHB
    return PIX if max(len(bridges_a), len(bridges_b)) - shared <= 1 else PXB


def address(bus_id: str | bytes) -> str:
    """NVML's PCI address (``00000000:3B:00.0``) as sysfs writes it (``0000:3b:00.0``)."""
    text = bus_id.decode() if isinstance(bus_id, bytes) else bus_id
    domain, _, rest = text.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def cpu_list(words: Iterable[int]) -> str:
    """A mask of CPUs in words of 64 bits, the lowest first, as the kernel writes lists."""
    mask = sum(int(word) << (64 * i) for i, word in enumerate(words))
    runs: list[list[int]] = []
    for cpu in range(mask.bit_length()):
        if not mask >> cpu & 1:
            continue
        if runs and runs[-1][1] == cpu - 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
