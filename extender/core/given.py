"""What a node's kubelet has given to whom: as told, and for the rest as the model has it.

A NodeResourceTopology says what its writer saw a while ago, without names: pods that cannot be in it
(all that a plan has reserved, and of those that are bound the newest, as many as ask for more
devices than it has given out) are assumed to have what the model of the kubelet gives them, one
after the other as they came. A node's agent says which pods hold which GPUs, by name: what it tells
counts for GPUs, and only pods that it does not name are assumed.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from extender.core.alignment import Alignment
from extender.core.api import newness
from extender.core.places import Place, replayed
from extender.core.topology import equipment as gear
from extender.core.topology import parts, registers
from extender.core.topology.equipment import GPU, Equipment
from extender.core.topology.kubelet import Container, Kubelet, Stock
from extender.core.topology.kubelet_hints import NONE, STRICT
from extender.core.topology.nrt import NodeZones
from extender.core.topology.stock import MOST_ZONES, kubelet_of, stock_of, zone_ids

#: Who is on a node: a pod's slot, or the key of a reservation.
Key = int | str

#: What GB/s may differ by before it counts as less: published figures have no more digits.
_SLACK = 0.99


class Surprise(Struct, frozen=True):
    """Devices of which the agent told that the device plugin gave worse ones than predicted."""

    pods: tuple[str, ...]
    #: GB/s of the slowest of them (0: one device each), and NUMA nodes of the widest.
    expected_gbs: float
    got_gbs: float
    expected_zones: int
    got_zones: int


class Known(Struct):
    """A node of which something is told."""

    #: By the version of the API that told its zones; the newest counts.
    told: dict[str, NodeZones] = {}
    #: What its agent tells.
    equipment: Equipment = gear.UNKNOWN
    #: Who is there, in the order in which they came.
    pods: dict[Key, Alignment] = {}
    #: ``namespace/name`` of those that are bound.
    names: dict[Key, str] = {}
    #: The last prediction that was wrong; None once one was right.
    surprise: Surprise | None = None
    #: What follows from all that, and the number of its class; None until it is asked for.
    place: Place | None = None
    code: int | None = None
    #: GPUs that pods are assumed to have, as masks.
    assumed: dict[Key, int] = {}
    #: Which parts of GPUs pods are told to have: of all nodes' pods, by slot.
    shared: Mapping[int, registers.Given] = {}

    @property
    def zones(self) -> NodeZones | None:
        """What the newest version of the API tells."""
        return self.told[max(self.told, key=newness)] if self.told else None

    def changed(self) -> None:
        """What followed from it follows no more."""
        self.place = self.code = None


def place_of(node: Known) -> Place:
    """What is known of the node now; also notes who is assumed to have which GPUs."""
    if node.place is not None:
        return node.place
    zones, equipment = node.zones, node.equipment
    exact = equipment.told
    kubelet, ids = _kubelet(zones, equipment)
    held = {name for pod in node.pods.values() for name in devices_of(pod)}
    stock = stock_of(zones, held) if zones is not None else Stock()
    late = _late(zones, node.pods) if zones is not None else set(node.pods)
    unnamed = late
    if exact:
        there = gear.stock(equipment, ids, frozenset(node.names.values()))
        stock = replace(stock, devices=tuple(sorted({**dict(stock.devices), GPU: there}.items())))
        named = gear.held(equipment) if gear.tells_holders(equipment) else {}
        unnamed = {key for key in node.pods if node.names.get(key) not in named}
    runs, planned = {}, []
    for key, pod in node.pods.items():
        part = _part(pod, gpus=key in unnamed, others=key in late)
        if part and isinstance(key, int):
            runs[key] = part
        elif part:
            planned.append(part)
    links = equipment.links
    run = replayed(kubelet, stock, tuple(runs.values()), links)
    node.assumed = dict(zip(runs, run.devices, strict=True))
    then = replayed(kubelet, run.stock, tuple(planned), links)
    rooms, homeless = _rooms(node, equipment.parts) if equipment.parts is not None else (None, {})
    place = Place(
        kubelet, then.stock, links=links, trusted=node.surprise is None, parts=rooms,
        refused=tuple(homeless.items()),
    )  # fmt: skip
    if kubelet.policy in STRICT:
        refused = dict(then.refused)
        for pod, count in homeless.items():
            refused[pod] = max(count, refused.get(pod, 0))
        # Elsewhere nobody is refused by a kubelet: who is planned has no say.
        place = replace(
            place, refused=tuple(refused.items()), bare=run.stock, planned=tuple(planned)
        )
    node.place = place
    return place


def _rooms(node: Known, devices: registers.Devices) -> tuple[parts.Rooms, dict[Alignment, int]]:
    """What its devices have left, by what pods are told to have and the others are assumed to; and
    how many of those that are planned have no room any more.
    """
    rooms, homeless = parts.empty(devices), dict[Alignment, int]()
    rest = []
    for key, pod in node.pods.items():
        told = node.shared.get(key, ()) if isinstance(key, int) else ()
        left = parts.taken_as_told(rooms, devices, told, pod)
        if left is None:
            rest.append((key, pod))
        else:
            rooms = left
    for key, pod in sorted(rest, key=lambda each: isinstance(each[0], str)):
        asked = parts.asked(pod, devices.convention)
        left = parts.take(rooms, asked)
        if left is None and isinstance(key, str):
            homeless[pod] = homeless.get(pod, 0) + 1
        rooms = parts.taken_anyhow(rooms, asked) if left is None else left
    return parts.Rooms(devices.convention, tuple(sorted(rooms))), homeless


def assumed(node: Known) -> int:
    """How many pods of the node, reservations among them, are where the model says."""
    if node.equipment.told:
        place_of(node)
        return len(node.assumed) + sum(isinstance(key, str) for key in node.pods)
    return len(_late(node.zones, node.pods)) if node.zones is not None else 0


def unshown(node: Known) -> int:
    """How many bound pods cannot be in what a NodeResourceTopology tells; where that is more than 0 for
    long, nobody writes the object any more.
    """
    if node.zones is None:
        return 0
    return sum(isinstance(key, int) for key in _late(node.zones, node.pods))


def compared(node: Known, now: Equipment) -> tuple[bool, Surprise | None]:
    """Whether something that was predicted is told, and what is surprising about it.

    Pods that came together may have been admitted in another order: the best of what was
    predicted is compared with the best of what is told, and so on.
    """
    place_of(node)
    held, model = gear.held(now), now.model
    masks = [
        (node.names[key], mask, held[node.names[key]])
        for key, mask in node.assumed.items()
        if node.names.get(key) in held
    ]
    masks = [(name, a, b) for name, a, b in masks if a.bit_count() == b.bit_count() > 0]
    if not masks or now.links != node.equipment.links:
        return False, None
    expected = sorted(_reach(now, mask) for _, mask, _ in masks)
    got = sorted(_reach(now, mask) for _, _, mask in masks)
    speeds = [0.0], [0.0]
    if model is not None:
        speeds = (
            sorted(float(model.bandwidth[mask]) for _, mask, _ in masks),
            sorted(float(model.bandwidth[mask]) for _, _, mask in masks),
        )
    worse = any(b < a * _SLACK for a, b in zip(*speeds, strict=True))
    wider = any(b > a for a, b in zip(expected, got, strict=True))
    if not worse and not wider:
        return True, None
    names = tuple(sorted(name for name, _, _ in masks))
    return True, Surprise(names, speeds[0][0], speeds[1][0], expected[-1], got[-1])


def devices_of(pod: Alignment) -> dict[str, int]:
    """What a pod holds while it runs: of init containers no more than the rest takes over is counted."""
    total: dict[str, int] = {}
    for container in pod:
        for name, count in container.devices:
            if container.kind != "init":
                total[name] = total.get(name, 0) + count
    return total


def _kubelet(zones: NodeZones | None, equipment: Equipment) -> tuple[Kubelet, tuple[int, ...]]:
    """The kubelet's configuration as far as it is told, and the kernel's numbers of its zones."""
    if zones is not None:
        kubelet, ids = kubelet_of(zones), zone_ids(zones)
        told = zones.policy != ""
    else:
        ids = gear.zone_ids(equipment)
        kubelet, told = Kubelet(NONE, min(len(ids), MOST_ZONES)), False
    known = equipment.devices
    if not told and known is not None and known.policy and 0 < len(ids) <= MOST_ZONES:
        kubelet = replace(kubelet, policy=known.policy, scope=known.scope or "container")
    return kubelet, ids


def _late(zones: NodeZones, pods: Mapping[Key, Alignment]) -> set[Key]:
    """Who cannot be in what is told: the newest of those beyond the devices that it has given out."""
    given = np.where(zones.allocatable > 0, zones.allocatable - zones.available, 0).sum(axis=0)
    more = {name: -int(count) for name, count in zip(zones.resources, given, strict=True)}
    bound = {key: devices_of(pod) for key, pod in pods.items() if isinstance(key, int)}
    for devices in bound.values():
        for name, count in devices.items():
            more[name] = more.get(name, 0) + count
    late: set[Key] = set(pods.keys() - bound.keys())
    for key, devices in reversed(bound.items()):
        if any(more[name] > 0 for name in devices):
            late.add(key)
            for name, count in devices.items():
                more[name] -= count
    return late


def _part(pod: Alignment, *, gpus: bool, others: bool) -> Alignment:
    """What of a pod is still to be given; () for nothing."""
    if gpus and others:
        return pod
    if not gpus and not others:
        return ()
    parts = []
    for each in pod:
        devices = tuple(x for x in each.devices if (x[0] == GPU) == gpus)
        parts.append(
            Container(each.kind, devices)
            if gpus
            else Container(each.kind, devices, each.cpus, each.memory)
        )
    return tuple(parts)


def _reach(equipment: Equipment, mask: int) -> int:
    """How many NUMA nodes the devices are of, as far as that is known."""
    where = gear.stock(equipment, gear.zone_ids(equipment), ()).zones
    return len({zone for at, zone in enumerate(where) if mask >> at & 1 and zone})
