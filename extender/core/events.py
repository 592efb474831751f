"""What the core is told. With :mod:`extender.core.commands`, the whole protocol of the loop.

Every value is frozen and holds no clock: the time at which it is applied is given beside it, so
that a log of (now, event) replays exactly.
"""

from __future__ import annotations

from typing import dataclass_transform

from msgspec import Struct, field

from extender.core import objects as o
from extender.core.api import TOPOLOGIES, Resource
from extender.core.podgroups import NativeGroup, SigsGroup, VolcanoGroup
from extender.core.topology.hypernodes import HyperNode
from extender.core.topology.network import Topology
from extender.core.topology.nrt import NodeResourceTopology


# mypy does not see that msgspec's subclasses inherit ``frozen``.
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Event(Struct, frozen=True, tag=True, tag_field="event", gc=False):
    """Base of every event; ``tag`` names the type in a recorded log."""


class NodeSeen(Event):
    """A node was added or changed."""

    node: o.Node


class NodeGone(Event):
    """A node was deleted."""

    name: str


class ZonesSeen(Event):
    """A NodeResourceTopology of either version was added or changed."""

    resource: Resource
    zones: NodeResourceTopology


class ZonesGone(Event):
    """A NodeResourceTopology was deleted; its name is the node's."""

    resource: Resource
    name: str


class HyperNodeSeen(Event):
    """A Volcano HyperNode was added or changed."""

    hyper: HyperNode


class HyperNodeGone(Event):
    """A Volcano HyperNode was deleted."""

    name: str


class TopologySeen(Event):
    """A Kueue Topology of either version was added or changed."""

    topology: Topology
    resource: Resource = TOPOLOGIES


class TopologyGone(Event):
    """A Kueue Topology was deleted."""

    name: str
    resource: Resource = TOPOLOGIES


class PodSeen(Event):
    """A pod was added or changed."""

    pod: o.Pod


class PodGone(Event):
    """A pod was deleted (it is no longer in the API)."""

    namespace: str
    name: str
    uid: str


class GroupSeen(Event):
    """A PodGroup of any of the three kinds was added or changed."""

    resource: Resource
    group: VolcanoGroup | SigsGroup | NativeGroup


class GroupGone(Event):
    """A PodGroup was deleted."""

    resource: Resource
    namespace: str
    name: str
    uid: str


class PlanSeen(Event):
    """A GangPlan record was added or changed; ``raw`` is its JSON object."""

    raw: o.Manifest


class PlanGone(Event):
    """A GangPlan record was deleted."""

    namespace: str
    name: str
    uid: str


class JobSeen(Event):
    """A training job of a kind that Muster runs was added or changed."""

    resource: Resource
    raw: o.Manifest


class JobGone(Event):
    """A training job was deleted."""

    resource: Resource
    namespace: str
    name: str
    uid: str


class ServiceSeen(Event):
    """A Service was added or changed (only its metadata matters)."""

    metadata: o.Meta


class ServiceGone(Event):
    """A Service was deleted."""

    namespace: str
    name: str
    uid: str


class NamespaceSeen(Event):
    """A namespace was added or changed."""

    namespace: o.Namespace


class NamespaceGone(Event):
    """A namespace was deleted."""

    name: str


class ClaimSeen(Event):
    """A PersistentVolumeClaim was added or changed."""

    claim: o.Claim


class ClaimGone(Event):
    """A PersistentVolumeClaim was deleted."""

    namespace: str
    name: str


class VolumeSeen(Event):
    """A PersistentVolume was added or changed."""

    volume: o.PersistentVolume


class VolumeGone(Event):
    """A PersistentVolume was deleted."""

    name: str


class PriorityClassSeen(Event):
    """A PriorityClass was added or changed."""

    priority_class: o.PriorityClass


class PriorityClassGone(Event):
    """A PriorityClass was deleted."""

    name: str


class InvalidSeen(Event):
    """An object that could not be decoded: it is known to exist and is treated as unusable."""

    resource: Resource
    namespace: str
    name: str
    uid: str
    message: str


class Listed(Event):
    """All objects of a kind were told as of a version: what is older and was not told is gone."""

    resource: Resource
    version: str


class KindServed(Event):
    """Whether the cluster serves an optional kind (:data:`extender.core.api.OPTIONAL`)."""

    resource: Resource
    served: bool


class Synced(Event):
    """Every watched kind has been listed once: from here on absence means absence."""


class LeaderGained(Event):
    """This replica holds the Lease; the old holder's requests can no longer be on their way."""

    epoch: int


class LeaderLost(Event):
    """This replica no longer holds the Lease: no command may be sent."""


class FilterAsked(Event):
    """kube-scheduler asked /filter about a pod that belongs to a group; ``uid`` is empty when it asked
    about others: that it is at work is told once a second.

    ``full`` is false when it asked about the nominated (or pinned) node alone. ``planned_offered``
    says whether the planned node was among the names (true when there was no plan); if it was not
    among a full list, ``offered`` is that list.
    """

    uid: str
    full: bool
    planned_offered: bool
    offered: tuple[str, ...] = ()


class PlainRefused(Event):
    """/filter refused a pod of no group every node that it could go to, as they are held.

    ``parts_of``: for want of parts of GPUs, by the capacity of this generation; -1: for other reasons.
    """

    uid: str
    parts_of: int = -1


class PreemptAllowed(Event):
    """/preempt has allowed kube-scheduler to evict some of these pods (by uid)."""

    uids: tuple[str, ...]


class BindAsked(Event):
    """kube-scheduler called /bind and waits; ``token`` names the open request."""

    token: int
    namespace: str
    name: str
    uid: str
    node: str


class BindAbandoned(Event):
    """The connection of an open /bind closed before it was answered."""

    token: int


class Done(Event):
    """A command was carried out or refused.

    ``code`` is the API server's HTTP status of the last try; 0 when there was no answer within
    the executor's patience (the effect is then unknown). ``object`` is the object that was
    returned, if any; of a pod that was made its uid and resourceVersion.
    """

    id: int
    code: int
    reason: str = ""
    message: str = ""
    object: o.Manifest | None = None

    @property
    def ok(self) -> bool:
        """Whether it took effect."""
        return 200 <= self.code < 300


class Tick(Event):
    """Time passed (a WakeAt came due); carries nothing."""
