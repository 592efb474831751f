"""What each source says of a node, as values. ``None`` and ``""`` stand for "not told"."""

from __future__ import annotations

from dataclasses import dataclass

from extender.core.topology.model import Codes
from extender.core.topology.pci import Place


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device as the driver sees it."""

    index: int
    #: PCI address as sysfs writes it.
    bus: str
    uuid: str = ""
    #: The number in its device file, which is in the names that a DRA driver gives.
    minor: int | None = None
    product: str = ""
    #: UUIDs of its MIG instances.
    parts: tuple[str, ...] = ()
    #: As :mod:`extender.core.topology.devices` lists them.
    health: str = "?"
    #: Bytes.
    memory_total: int | None = None
    memory_used: int | None = None
    #: Percent of the driver's last sample period in which a kernel ran.
    utilisation: int | None = None
    #: CPUs nearest to it, as the kernel writes lists.
    cpus: str = ""


@dataclass(frozen=True, eq=False, slots=True)
class Driven:
    """What the driver says: g devices in its order, and (g, g) codes of the links between them."""

    gpus: tuple[Gpu, ...]
    links: Codes
    clique: str = ""


@dataclass(frozen=True, slots=True)
class Tree:
    """What the kernel says: NVIDIA's GPUs by address, and the ports that can do RDMA by name."""

    gpus: tuple[Place, ...]
    ports: tuple[tuple[str, Place], ...] = ()


@dataclass(frozen=True, slots=True)
class Held:
    """What the kubelet says."""

    #: Device id to the pods (``namespace/name``) that hold it. Ids are as their plugin gave them,
    #: or ``DRIVER/DEVICE`` for what a ResourceClaim gave.
    pods: dict[str, tuple[str, ...]]
    #: Ids that plugins offer and call healthy; None where that was not told.
    offered: frozenset[str] | None = None
