"""The PCI devices of a node, from sysfs.

A container sees its host's whole tree under /sys, read-only; of ``class/infiniband`` it sees what
its network namespace may use, which is all unless the administrator set that to exclusive.
Source: Documentation/ABI/testing/sysfs-bus-pci and sysfs-class-infiniband of Linux.
"""

from __future__ import annotations

import re
from pathlib import Path

from extender.agent.facts import Tree
from extender.agent.lacks import Lacks
from extender.core.topology.model import NO_ZONE
from extender.core.topology.pci import Place

_NVIDIA = 0x10DE
#: PCI classes of GPUs: VGA controller, 3D controller.
_DISPLAYS = (0x0300, 0x0302)
#: Drivers that give a device to a virtual machine: it is not this node's to offer.
_PASSED_ON = frozenset({"vfio-pci", "pci-stub", "nvidia-vgpu-vfio"})
_BUS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def read(root: Path, lacks: Lacks) -> Tree | None:
    """What ``root`` (/sys) holds; None if there is no PCI tree in it."""
    try:
        addresses = sorted(
            entry.name
            for entry in (root / "bus/pci/devices").iterdir()
            if _BUS.fullmatch(entry.name)
        )
    except OSError as error:
        lacks.add("sysfs", "bus/pci/devices", error.strerror)
        return None
    one_node = _one_node(root)
    gpus = [bus for bus in addresses if _is_gpu(root / "bus/pci/devices" / bus, lacks)]
    return Tree(
        tuple(_place(root / "bus/pci/devices" / bus, one_node, lacks) for bus in gpus),
        _ports(root, one_node, lacks),
    )


def _is_gpu(device: Path, lacks: Lacks) -> bool:
    vendor, kind = _number(device / "vendor", lacks), _number(device / "class", lacks)
    if vendor != _NVIDIA or kind is None or kind >> 8 not in _DISPLAYS:
        return False
    driver = device / "driver"
    return not (driver.exists() and driver.resolve().name in _PASSED_ON)


def _ports(root: Path, one_node: bool, lacks: Lacks) -> tuple[tuple[str, Place], ...]:
    """RDMA ports; a virtual function shares the slot of its physical one and is left out."""
    folder = root / "class/infiniband"
    if not folder.exists():
        return ()
    found = []
    try:
        for entry in folder.iterdir():
            device = entry / "device"
            if not (device / "physfn").exists():
                found.append((entry.name, _place(device, one_node, lacks)))
    except OSError as error:
        lacks.add("sysfs", "class/infiniband", error.strerror)
    # mlx5_2 before mlx5_10.
    return tuple(sorted(found, key=lambda port: (len(port[0]), port[0])))


def _place(device: Path, one_node: bool, lacks: Lacks) -> Place:
    path = device.resolve().parts
    roots = [i for i, part in enumerate(path) if part.startswith("pci") and ":" in part]
    numa = _number(device / "numa_node", lacks)
    if numa is None or numa < 0:
        # Firmware that names no node: no matter where there is but one.
        numa = 0 if one_node else NO_ZONE
    cpus = _text(device / "local_cpulist", lacks)
    return Place(path[-1], path[roots[0] :] if roots else (), numa, cpus or "")


def _one_node(root: Path) -> bool:
    """Whether the machine has a single NUMA node, or a kernel without NUMA."""
    nodes = root / "devices/system/node"
    return len([n for n in nodes.glob("node*") if n.name[4:].isdecimal()]) <= 1


def _number(file: Path, lacks: Lacks) -> int | None:
    text = _text(file, lacks)
    try:
        return None if text is None else int(text, 0)
    except ValueError:
        lacks.add("sysfs", file.name, f"{text[:40]!r} is no number" if text else "is empty")
        return None


def _text(file: Path, lacks: Lacks) -> str | None:
    try:
        return file.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        lacks.add("sysfs", file.name, getattr(error, "strerror", None) or error)
        return None
