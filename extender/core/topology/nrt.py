"""Reads NodeResourceTopology: the NUMA zones of a node, what each has, and the kubelet's policy.

Source: topology.node.k8s.io v1alpha1 and v1alpha2 (k8stopologyawareschedwg); NFD names zones
``node-<id>``, type ``Node``, and puts the kubelet's policy and scope into attributes; v1alpha1 has
only ``topologyPolicies``, of which the first counts.
"""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from extender.core import quantity
from extender.core.errors import InvalidObject, QuantityError
from extender.core.objects import ApiStruct, Meta, Quantity

#: The kubelet's cap on NUMA nodes, unless the option max-allowable-numa-nodes says else.
DEFAULT_MOST_ZONES = 8
#: As many nodes of memory as Linux counts (MAX_NUMNODES), and resources that they may tell of.
MOST_ZONES = MOST_RESOURCES = 1024
#: A resource that a zone does not report, or a distance that is not told.
NOT_TOLD = -1

#: Of the kubelet's Topology Manager.
POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
SCOPES = ("container", "pod")
#: Of NFD; others write ``numa-node-0`` or ``numa-0``.
_ZONE_NAME = re.compile(r"(?:numa-)?(?:node-)?([0-9]{1,4})")
_OLD_POLICY = re.compile(r"(None|BestEffort|Restricted|SingleNUMANode)(Container|Pod)?(?:Level)?")
_OLD = dict(zip(("None", "BestEffort", "Restricted", "SingleNUMANode"), POLICIES, strict=True))


class Attribute(ApiStruct):
    """AttributeInfo."""

    name: str
    value: str


class Cost(ApiStruct):
    """CostInfo: the distance to the zone of that name, as in the SLIT of ACPI."""

    name: str
    value: int


class ZoneResource(ApiStruct):
    """ResourceInfo. Early objects of v1alpha1 have no ``available``, some lack another amount."""

    name: str
    capacity: Quantity | None = None
    allocatable: Quantity | None = None
    available: Quantity | None = None


class Zone(ApiStruct):
    """Zone."""

    name: str
    type: str
    parent: str = ""
    costs: tuple[Cost, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    resources: tuple[ZoneResource, ...] = ()


class NodeResourceTopology(ApiStruct):
    """One object of either version; its name is the node's."""

    metadata: Meta = Meta()
    topology_policies: tuple[str, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    zones: tuple[Zone, ...] = ()


class NodeZones(Struct, frozen=True):
    """The NUMA zones of one node, z of them by rising id, and their r resources by name."""

    #: none, best-effort, restricted or single-numa-node; "" is unknown.
    policy: str
    #: container or pod; "" is unknown.
    scope: str
    #: Above so many zones the kubelet's policies do not run.
    most_zones: int
    #: (z,) ids as the kernel counts them.
    ids: tuple[int, ...]
    #: (r,)
    resources: tuple[str, ...]
    #: (z, r) cpu in thousandths, else whole units; NOT_TOLD where the zone does not report it.
    capacity: NDArray[np.int64]
    allocatable: NDArray[np.int64]
    available: NDArray[np.int64]
    #: (z, z) distances, NOT_TOLD where they are not told.
    distance: NDArray[np.int64]
    #: What the attributes cpuManagerPolicy and memoryManagerPolicy say. No updater is known to write
    #: them; left out, CPUs are taken for aligned (a strict policy is for little else) and memory not.
    static_cpu: bool = True
    static_memory: bool = False

    def with_cpus(self) -> NDArray[np.bool_]:
        """(z,) whether a zone has CPUs: GB200 shows 34 zones, 32 of them memory only."""
        if "cpu" not in self.resources:
            return np.ones(len(self.ids), dtype=np.bool_)
        return self.capacity[:, self.resources.index("cpu")] > 0


def zones_of(object_: NodeResourceTopology) -> NodeZones:
    """The zones of type ``Node`` and the kubelet's policy.

    Raises InvalidObject: a zone that is there twice, a quantity that cannot be read.
    """
    named: dict[str, int] = {}
    zones: dict[int, tuple[int, Zone]] = {}
    for at, zone in enumerate(object_.zones):
        if zone.type.lower() != "node":
            continue
        form = _ZONE_NAME.fullmatch(zone.name)
        id_ = int(form[1]) if form else at
        if zone.name in named or id_ in zones:
            raise InvalidObject(f"zones[{at}].name", zone.name, "one zone of a name and id")
        named[zone.name] = id_
        zones[id_] = (at, zone)
    if len(zones) > MOST_ZONES:
        raise InvalidObject("zones", f"{len(zones)} zones", f"at most {MOST_ZONES}")
    ids = tuple(sorted(zones))
    resources = tuple(sorted({each.name for _, zone in zones.values() for each in zone.resources}))
    if len(resources) > MOST_RESOURCES:
        raise InvalidObject("zones", f"{len(resources)} resources", f"at most {MOST_RESOURCES}")
    amounts = np.full((3, len(ids), len(resources)), NOT_TOLD, dtype=np.int64)
    distance = np.full((len(ids), len(ids)), NOT_TOLD, dtype=np.int64)
    for row, id_ in enumerate(ids):
        at, zone = zones[id_]
        for number, each in enumerate(zone.resources):
            field = f"zones[{at}].resources[{number}]"
            amounts[:, row, resources.index(each.name)] = _amounts(field, each)
        for number, cost in enumerate(zone.costs):
            if not 0 <= cost.value <= quantity.COUNT_LIMIT:
                field = f"zones[{at}].costs[{number}].value"
                raise InvalidObject(field, cost.value, f"0 to {quantity.COUNT_LIMIT}")
            if cost.name in named:
                distance[row, ids.index(named[cost.name])] = cost.value
    policy, scope = _policy(object_)
    most = _attribute(object_, "topologyManagerMaxNUMANodes")
    return NodeZones(
        policy,
        scope,
        int(most) if most.isdecimal() and len(most) < 5 else DEFAULT_MOST_ZONES,
        ids,
        resources,
        amounts[0],
        amounts[1],
        amounts[2],
        distance,
        _attribute(object_, "cpuManagerPolicy") in ("", "static"),
        _attribute(object_, "memoryManagerPolicy") == "Static",
    )


def _amounts(field: str, each: ZoneResource) -> list[int]:
    """Capacity, allocatable, available; what is not told is all of the one before, or after it."""
    read = quantity.milli if each.name == "cpu" else quantity.whole
    told: list[int | None] = []
    for name in ("capacity", "allocatable", "available"):
        amount = getattr(each, name)
        try:
            told.append(None if amount is None else read(amount))
        except QuantityError as error:
            raise InvalidObject(f"{field}.{name}", error.value, error.allowed) from error
    known = next((amount for amount in told if amount is not None), 0)
    out: list[int] = []
    for amount in told:
        known = known if amount is None else amount
        out.append(known)
    return out


def _policy(object_: NodeResourceTopology) -> tuple[str, str]:
    policy = _attribute(object_, "topologyManagerPolicy")
    scope = _attribute(object_, "topologyManagerScope")
    if policy in POLICIES:
        return policy, scope if scope in SCOPES else "container"
    old = _OLD_POLICY.fullmatch(object_.topology_policies[0]) if object_.topology_policies else None
    if old is None:
        return "", ""
    return _OLD[old[1]], (old[2] or "Container").lower()


def _attribute(object_: NodeResourceTopology, name: str) -> str:
    return next((each.value for each in object_.attributes if each.name == name), "")
