"""Joins what the sources say of one node: pure.

Devices are matched by PCI address. One that the kernel sees and the driver does not is *lost*, and
keeps its place. Links that nobody tells now stay as they were published, if the node still has the
same devices: a driver that is away for its upgrade does not change what is soldered.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from extender.agent.facts import Driven, Gpu, Held, Tree
from extender.core.topology import annotation, devices
from extender.core.topology.devices import Devices
from extender.core.topology.model import SELF, UNKNOWN, Codes, Topology, topology
from extender.core.topology.pci import Place, nearness

#: What NVIDIA's device plugin appends to an id for each time that it offers the device.
_REPLICA = re.compile(r"::[0-9]+$")
#: Devices of NVIDIA's DRA driver: by minor number, MIG instances after it.
_CLAIMED = re.compile(r"gpu\.nvidia\.com/gpu-([0-9]+)(?:-mig-.+)?")
_QUARTERS = 4


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """What the node has; ``gpus`` and ``places`` in the order of both others."""

    gpus: tuple[Gpu, ...]
    places: tuple[Place, ...]
    topology: Topology
    devices: Devices

    def annotations(self) -> dict[str, str]:
        """What is published."""
        return {
            annotation.KEY: annotation.encode(self.topology),
            devices.KEY: devices.encode(self.devices),
        }


def assemble(
    driven: Driven | None, tree: Tree | None, held: Held | None, before: Topology | None = None
) -> Node | None:
    """One node from what its sources say; None where no device is known.

    ``before``: what was published. Raises InvalidObject for more devices than Muster keeps.
    """
    gpus = _gpus(driven, tree)
    if not gpus:
        return None
    known = {place.bus: place for place in tree.gpus} if tree is not None else {}
    places = tuple(known.get(gpu.bus) or Place(gpu.bus, cpus=gpu.cpus) for gpu in gpus)
    ports = tree.ports if tree is not None else ()
    ports = tuple(port for port in ports if annotation.NAME.fullmatch(port[0]))
    ports = ports[: annotation.MOST_NICS]
    index = tuple(gpu.index for gpu in gpus)
    cpus = tuple(place.cpus or gpu.cpus for place, gpu in zip(places, gpus, strict=True))
    product = next((gpu.product for gpu in gpus if gpu.product), "")
    found = topology(
        _links(gpus, driven, before if before is not None and before.index == index else None),
        index=index,
        numa=np.array([place.numa for place in places], dtype=np.int16),
        cpus=tuple(each if annotation.CPUS.fullmatch(each) else "" for each in cpus),
        nics=tuple(name for name, _ in ports),
        nic_links=np.array(
            [[nearness(place, port) for _, port in ports] for place in places], dtype=np.uint8
        ).reshape(len(gpus), len(ports)),
        # As GFD's label writes it, which is what the catalogue knows.
        product=product.replace(" ", "-") or (before.product if before is not None else ""),
    )
    use = Devices(
        ids=tuple(gpu.uuid for gpu in gpus),
        health=tuple(_health(gpu, gpus, held) for gpu in gpus),
        held=tuple(None if held is None else _holders(gpu, held) for gpu in gpus),
        memory=tuple(_quarters(gpu) for gpu in gpus),
        clique=driven.clique if driven is not None else "",
    )
    return Node(gpus, places, found, use)


def _gpus(driven: Driven | None, tree: Tree | None) -> tuple[Gpu, ...]:
    """All devices by the driver's number; what it does not number takes what numbers are free."""
    seen = list(driven.gpus) if driven is not None else []
    addresses = {gpu.bus for gpu in seen}
    taken = {gpu.index for gpu in seen}
    free = iter(sorted(set(range(len(seen) + (len(tree.gpus) if tree is not None else 0))) - taken))
    health = devices.LOST if driven is not None else devices.UNKNOWN
    for place in tree.gpus if tree is not None else ():
        if place.bus not in addresses:
            seen.append(Gpu(next(free), place.bus, health=health, cpus=place.cpus))
    return tuple(sorted(seen, key=lambda gpu: gpu.index))


def _links(gpus: tuple[Gpu, ...], driven: Driven | None, before: Topology | None) -> Codes:
    """(n, n) codes, ``UNKNOWN`` between devices of which the driver tells nothing.

    The PCIe tree says nothing of NVLinks, so a word of it here would claim that there are none.
    """
    count = len(gpus)
    out = np.full((count, count), UNKNOWN, dtype=np.uint8)
    np.fill_diagonal(out, SELF)
    if driven is not None:
        at = {gpu.bus: i for i, gpu in enumerate(driven.gpus)}
        rows = [i for i, gpu in enumerate(gpus) if gpu.bus in at]
        out[np.ix_(rows, rows)] = driven.links[
            np.ix_([at[gpus[i].bus] for i in rows], [at[gpus[i].bus] for i in rows])
        ]
    if before is not None:
        out = np.where(out == UNKNOWN, before.links, out)
    return out


def _health(gpu: Gpu, gpus: tuple[Gpu, ...], held: Held | None) -> str:
    """What the driver says, and where it has no complaint what the device plugin says."""
    if gpu.health not in (devices.OK, devices.UNKNOWN) or held is None or held.offered is None:
        return gpu.health
    offered = {_REPLICA.sub("", device) for device in held.offered}
    # A plugin that offers none of the node's devices is not running, or calls them otherwise.
    if any(offered & _names(each) for each in gpus) and not offered & _names(gpu):
        return devices.WITHHELD
    return gpu.health


def _holders(gpu: Gpu, held: Held) -> tuple[str, ...] | None:
    if not gpu.uuid:
        return None
    names = _names(gpu)
    pods: set[str] = set()
    for device, holders in held.pods.items():
        claimed = _CLAIMED.fullmatch(device)
        mine = int(claimed[1]) == gpu.minor if claimed else _REPLICA.sub("", device) in names
        if mine:
            pods.update(holders)
    return tuple(sorted(pods))


def _names(gpu: Gpu) -> set[str]:
    return {gpu.uuid, *gpu.parts} - {""}


def _quarters(gpu: Gpu) -> int | None:
    """Quarters of memory in use, rounded up past what a driver keeps for itself (1/64)."""
    if gpu.memory_used is None or not gpu.memory_total:
        return None
    used = max(0, gpu.memory_used - gpu.memory_total // 64)
    return min(_QUARTERS, -(-used * _QUARTERS // gpu.memory_total))
