"""What a node's agents say of it: the links of its devices, their health, who holds them, and the
devices of which parts are given away (:mod:`.parts`).

Each annotation is read; one that is wrong leaves what it would have said unknown. What follows
from a text of links is computed once for all nodes that publish the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from extender.core.errors import InvalidObject
from extender.core.objects import Resources
from extender.core.topology import annotation, devices, registers
from extender.core.topology.bandwidth import MOST_DEVICES, NodeModel, model_of
from extender.core.topology.choice import choices_of, mask_of, positions_of
from extender.core.topology.devices import Devices
from extender.core.topology.kubelet import Devices as Stock
from extender.core.topology.kubelet_take import Prefer, no_preference
from extender.core.topology.model import NO_ZONE, Topology, zones
from extender.core.topology.preferred import pair_scores, preferred_allocation

#: The resource that NVIDIA's device plugin offers the agent's devices as.
GPU = "nvidia.com/gpu"
_VENDOR = "nvidia.com/"
#: The same where the plugin is told to give replicas of devices another name.
_SHARED = GPU + ".shared"
#: With one such device no container with any of the node's starts: the driver's own enumeration
#: fails (k8s-device-plugin#2038: Xid 79).
POISON = frozenset({devices.LOST, "xid79"})
#: Above so many free devices the plugin's choice is not predicted, and the lowest are taken.
MOST_PREDICTED = 8


class Equipment(Struct, frozen=True):
    """What is known of one node's devices; both parts have the same devices in the same order."""

    #: The annotation's text, "" where links are not known: the name of all that follows from it.
    links: str = ""
    #: Health and holders; None where not known.
    devices: Devices | None = None
    #: Devices of which parts are given away; None: whole ones alone.
    parts: registers.Devices | None = None

    @property
    def told(self) -> bool:
        """Whether anything is known of whole devices."""
        return bool(self.links) or self.devices is not None

    @property
    def model(self) -> NodeModel | None:
        """What the links carry; None where they are not known, or join too many devices."""
        return model(self.links) if self.links else None

    @property
    def well(self) -> int | None:
        """How many devices work, 0 where one of them spoils the node; None: not known."""
        if self.devices is None:
            return None
        health = self.devices.health
        return 0 if POISON.intersection(health) else sum(map(_works, health))

    @property
    def sick(self) -> tuple[str, ...]:
        """What is wrong, one word for each device that does not work."""
        known = self.devices
        return () if known is None else tuple(word for word in known.health if not _works(word))


UNKNOWN = Equipment()
#: A node none of whose devices can be used.
BROKEN = Equipment(devices=Devices(("",), (devices.LOST,), (None,), (None,)))


def read(
    annotations: Mapping[str, str], allocatable: Resources | None = None
) -> tuple[Equipment, list[InvalidObject]]:
    """What a Node's annotations say, and what of them cannot be read. ``allocatable``: of the Node."""
    register, wrong = registers.read(annotations, allocatable or {})
    links, found, count = annotations.get(annotation.KEY, ""), None, 0
    if links:
        try:
            count = len(_topology(links))
        except InvalidObject as error:
            wrong.append(error)
            links = ""
    if devices.KEY in annotations:
        try:
            found = _devices(annotations[devices.KEY], count)
        except InvalidObject as error:
            wrong.append(error)
    if register is not None and found is not None:
        register = _working(register, found)
    return Equipment(links, found, register), wrong


def usable(equipment: Equipment, resource: str, amount: int) -> int:
    """How many of a resource's ``amount`` devices a pod may be planned on.

    The device plugin may go on offering a device that does not work, and it chooses: nobody can be
    kept from that one device alone, but no more are counted than work. Where GPUs are offered in
    replicas, all of one's are as sick as it is.
    """
    well = equipment.well
    if well is None or equipment.devices is None or not resource.startswith(_VENDOR):
        return amount
    if well == 0:
        return 0
    if resource not in (GPU, _SHARED):
        return amount  # MIG devices: whose they are is not told.
    replicas = -(-amount // len(equipment.devices))
    return min(amount, well * replicas)


def stock(equipment: Equipment, ids: Collection[int], there: Collection[str]) -> Stock:
    """The devices as a kubelet has them. ``ids``: the kernel's numbers of its zones, in order;
    ``there``: the pods (``namespace/name``) that are on the node: what others held is free.
    """
    known = equipment.devices
    count = len(known) if known is not None else len(_topology(equipment.links))
    at = {number: 1 << zone for zone, number in enumerate(ids)}
    where = _zones(equipment.links) if equipment.links else (NO_ZONE,) * count
    free = (1 << count) - 1
    if known is not None:
        for device, (health, holders) in enumerate(zip(known.health, known.held, strict=True)):
            if not _works(health) or any(pod in there for pod in holders or ()):
                free &= ~(1 << device)
    return Stock(tuple(at.get(zone, 0) for zone in where), free)


def zone_ids(equipment: Equipment) -> tuple[int, ...]:
    """The kernel's numbers of the zones that the devices are in, rising."""
    if not equipment.links:
        return ()
    return tuple(sorted({zone for zone in _zones(equipment.links) if zone != NO_ZONE}))


def held(equipment: Equipment) -> dict[str, int]:
    """Pods (``namespace/name``) that are told to hold devices, and the set of them as a mask."""
    found: dict[str, int] = {}
    for device, holders in enumerate(equipment.devices.held if equipment.devices else ()):
        for pod in holders or ():
            found[pod] = found.get(pod, 0) | 1 << device
    return found


def tells_holders(equipment: Equipment) -> bool:
    """Whether it is told who holds the devices."""
    return equipment.devices is not None and None not in equipment.devices.held


@lru_cache(maxsize=256)
def model(links: str) -> NodeModel | None:
    """The model of the links that an annotation's text tells; None: more devices than are looked at."""
    known = _topology(links)
    return model_of(known) if len(known) <= MOST_DEVICES else None


@lru_cache(maxsize=256)
def groups(links: str) -> Mapping[str, NDArray[np.int64]]:
    """By name (``quads``), (2**n,) how many disjoint groups of that size a set of devices holds;
    empty where the links join too many devices.
    """
    found = model(links)
    return {} if found is None else choices_of(found).unbroken


@lru_cache(maxsize=256)
def prefer(links: str) -> Prefer:
    """What NVIDIA's device plugin prefers on a node with these links ("": not known)."""
    found = model(links) if links else None
    if found is None:
        return no_preference
    scores = pair_scores(found.topology, switched=found.switched)

    @lru_cache(maxsize=4096)
    def preferred(available: int, required: int, size: int) -> int:
        if available.bit_count() > MOST_PREDICTED:
            return 0
        chosen = preferred_allocation(scores, positions_of(available), positions_of(required), size)
        return mask_of(chosen)

    return preferred


def _devices(text: str, count: int) -> Devices:
    """``count`` of them, as the links are told of; 0: of any number."""
    found = devices.decode(text)
    if count and len(found) != count:
        field, allowed = f"metadata.annotations[{devices.KEY}].devices", f"{count}, as in "
        raise InvalidObject(field, len(found), allowed + annotation.KEY)
    return found


def _working(register: registers.Devices, known: Devices) -> registers.Devices:
    """What a node registers, without the slots of devices that its agent says do not work. Registers name
    them by UUID, or (Alibaba's) by number.
    """
    names = zip(known.ids, map(str, range(len(known))), known.health, strict=True)
    sick = {name for *both, health in names if not _works(health) for name in both}
    if POISON.intersection(known.health):
        sick = set(register.ids)
    columns = zip(register.ids, register.slots, strict=True)
    slots = tuple(0 if name in sick else count for name, count in columns)
    return replace(register, slots=slots)


def _works(health: str) -> bool:
    """What is not known is not held against a device."""
    return health in (devices.OK, devices.UNKNOWN)


@lru_cache(maxsize=256)
def _topology(links: str) -> Topology:
    return annotation.decode(links)


@lru_cache(maxsize=256)
def _zones(links: str) -> tuple[int, ...]:
    return tuple(np.asarray(zones(_topology(links))).tolist())
