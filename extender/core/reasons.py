"""Why something waits or is refused, as values.

One :class:`Reason` is a code and its parameters; it is rendered only at the edges (FailedNodes,
events, conditions, ``/debug``, ``muster explain``), always by :meth:`Reason.render`, so that the
words are the same everywhere and do not change while the situation does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct


class Code(StrEnum):
    """Every reason there is. The value is what scripts match on."""

    # of nodes, for one pod shape
    RESOURCE = "InsufficientResource"
    TOO_SMALL = "InsufficientCapacity"
    TOO_MANY_PODS = "TooManyPods"
    NODE_NAME = "NodeNameMismatch"
    SELECTOR = "NodeSelectorMismatch"
    TAINT = "UntoleratedTaint"
    UNSCHEDULABLE = "NodeUnschedulable"
    HOST_PORT = "HostPortInUse"
    POD_AFFINITY = "PodAffinityMismatch"
    POD_ANTI_AFFINITY = "PodAntiAffinityConflict"
    SPREAD = "TopologySpreadSkew"
    VOLUME = "VolumeNodeAffinityConflict"
    NO_CLAIM = "ClaimMissing"
    NUMA_NODE = "NoRoomInOneNUMANode"
    NUMA_NODES = "NoRoomInFewestNUMANodes"
    PART = "NoRoomOnOneGPU"
    DEVICES = "DevicesNotWorking"
    EVIDENCE = "RefusedByScheduler"
    KUBELET = "RefusedByKubelet"
    PLUGIN = "RefusedByPlugin"
    FITS = "FitsAlone"
    # of a group
    TOO_FEW_PODS = "NotEnoughPods"
    TOO_FEW_OF_TASK = "NotEnoughPodsOfTask"
    TOO_FEW_PARTS = "NotEnoughSubGroups"
    NOT_COUNTED = "PodsNotCounted"
    STOPPING = "PodsBeingStopped"
    GATED = "PodsGated"
    TOO_MANY_MEMBERS = "TooManyMembers"
    NO_ROOM = "NotEnoughRoom"
    NEVER_FITS = "NeverFits"
    NO_NODE_ADMITS = "NoNodeAdmits"
    NO_NODES = "NoNodes"
    TOO_FAR = "NotEnoughRoomTogether"
    NO_DOMAIN = "NoTopologyDomain"
    PARTS = "NotEnoughRoomForParts"
    NO_HYPER_NODE = "NoHyperNode"
    UNKNOWN_LEVEL = "UnknownTopologyLevel"
    MIN_RESOURCES = "MinResourcesNotFree"
    BEHIND = "PlannedBehind"
    NO_GROUP = "PodGroupMissing"
    GROUP_REFUSED = "PodGroupRefused"
    FOREIGN_SCHEDULER = "MemberOfAnotherScheduler"
    CLAIMED_TWICE = "PodClaimedTwice"
    INVALID = "InvalidObject"
    MORE_INVALID = "MoreInvalidFields"
    UNKNOWN_PRIORITY = "UnknownPriorityClass"
    ADMISSION = "AdmissionRefused"
    TIMED_OUT = "ScheduleTimeout"
    BACK_OFF = "BackOff"
    RELEASED = "Released"
    NOT_LEADER = "NotLeader"
    UNMANAGED = "MemberWithoutManagedResource"
    PARTIAL = "PartlyBound"
    NOT_COME = "SchedulerDidNotCome"
    # of a pod
    RESERVED = "CapacityReserved"
    PLANNED_ELSEWHERE = "PlannedElsewhere"
    UNKNOWN_POD = "UnknownPod"


_TEXT: dict[Code, str] = {
    Code.RESOURCE: "{free} of {total} {resource} free, {asked} asked",
    Code.TOO_SMALL: "{total} {resource} in all, {asked} asked",
    Code.TOO_MANY_PODS: "{free} of {total} pods free, {asked} asked",
    Code.NODE_NAME: "spec.nodeName asks for {wanted}",
    Code.SELECTOR: "node selector or affinity does not match",
    Code.TAINT: "taint {taint} is not tolerated",
    Code.UNSCHEDULABLE: "cordoned",
    Code.HOST_PORT: "host port {port} is in use",
    Code.POD_AFFINITY: "required pod affinity on {key} is not met",
    Code.POD_ANTI_AFFINITY: "required pod anti-affinity on {key} conflicts",
    Code.SPREAD: "topology spread on {key} would exceed max skew {skew}",
    Code.NO_CLAIM: "PersistentVolumeClaim {claim} does not exist",
    Code.VOLUME: "volume of claim {claim} cannot be used there",
    Code.NUMA_NODE: "no NUMA node has {asked} free together ({free}), policy single-numa-node",
    Code.NUMA_NODES: (
        "the fewest NUMA nodes that could have {asked} do not have them free together ({free}),"
        " policy restricted"
    ),
    Code.PART: "no {count} of its GPUs {has} {asked} free",
    Code.DEVICES: "{free} of {total} {resource} free, {asked} asked; not working: {health}",
    Code.EVIDENCE: "kube-scheduler refused it there: {message}",
    Code.KUBELET: "its kubelet refused it there: {message}",
    Code.PLUGIN: "refused by plugin {plugin}",
    Code.FITS: "room for {room}",
    Code.TOO_FEW_PODS: "{have} of at least {want} pods exist",
    Code.TOO_FEW_OF_TASK: "{have} of at least {want} pods of task {task} exist",
    Code.TOO_FEW_PARTS: "{have} of at least {want} subGroups {name} of {size} pods exist",
    Code.NOT_COUNTED: "not counted: {failed} failed",
    Code.STOPPING: "its pods are being stopped",
    Code.GATED: (
        "{gated} of {have} pods wait for others to take off their scheduling gate ({gate});"
        " without them there are too few"
    ),
    Code.TOO_MANY_MEMBERS: "{have} pods wait to be placed, at most {most} of one group can be",
    Code.NO_ROOM: "{placed} of {want} pods fit",
    Code.NEVER_FITS: "{placed} of {want} pods would fit even if every node were empty",
    Code.NO_NODE_ADMITS: "{placed} of {want} pods fit, and no node admits the rest",
    Code.NO_NODES: "the cluster has no nodes",
    Code.TOO_FAR: "no {level} has room for {want} pods together; {best} has room for {placed}",
    Code.NO_DOMAIN: "no node has the label {level}",
    Code.PARTS: "{placed} of {want} parts of {size} pods fit, each in one {level}",
    Code.NO_HYPER_NODE: "no node is in a HyperNode of tier {tier} or nearer",
    Code.UNKNOWN_LEVEL: "{field}: {value} is no level of this cluster's network; allowed: {allowed}",
    Code.MIN_RESOURCES: "minResources asks for {asked} {resource}, {free} of {total} free in the cluster",
    Code.BEHIND: "fits, but {other} goes first",
    Code.NO_GROUP: "PodGroup {name} does not exist in {api}",
    Code.GROUP_REFUSED: "the API server refuses to make PodGroup {name}: {message}",
    Code.FOREIGN_SCHEDULER: (
        "pod {pod} names scheduler {scheduler}, which does not carry Muster's extender"
        " (those that do: {allowed})"
    ),
    Code.CLAIMED_TWICE: "pod {pod} names two groups: {first} and {second}",
    Code.INVALID: "{field}: {value} is not allowed: {allowed}",
    Code.MORE_INVALID: "{count} more values are not allowed",
    Code.UNKNOWN_PRIORITY: "spec.priorityClassName: {name} does not exist; allowed: {allowed}",
    Code.ADMISSION: "the API server refuses pod {pod}: {message}",
    Code.TIMED_OUT: "not placed within {seconds} s (schedule timeout)",
    Code.BACK_OFF: "attempt {attempt} was rolled back ({why}); tried again after a pause",
    Code.RELEASED: "planned on {node}; kube-scheduler is asked to bind it",
    Code.NOT_LEADER: "this replica does not lead",
    Code.UNMANAGED: (
        "pod {pod} asks for none of the resources that kube-scheduler sends to Muster ({allowed});"
        " it cannot be held"
    ),
    Code.PARTIAL: "{bound} of at least {want} pods are bound",
    Code.NOT_COME: "kube-scheduler did not come for {count} of its pods that are planned",
    Code.RESERVED: "free capacity is reserved for gang {group}",
    Code.PLANNED_ELSEWHERE: "planned on {node}",
    Code.UNKNOWN_POD: "Muster has not seen this pod yet",
}


class Reason(Struct, frozen=True, order=True):
    """A code, its parameters in a fixed order, and (for reasons of nodes) how many nodes say so."""

    code: Code
    params: tuple[tuple[str, str | int], ...] = ()
    nodes: int = 0

    @classmethod
    def of(cls, code: Code, nodes: int = 0, **params: str | int) -> Reason:
        """Make a reason; parameters keep the order of the call."""
        return cls(code, tuple(params.items()), nodes)

    def render(self) -> str:
        """The one sentence part of this reason, with its node count in front where it has one."""
        text = _TEXT[self.code].format(**dict(self.params))
        if not self.nodes:
            return text
        return f"{self.nodes} node{'s' if self.nodes > 1 else ''}: {text}"


class Refusal(Struct, frozen=True):
    """Why a gang, a pod or an object is not placed: the headline first, then the nearest misses."""

    reasons: tuple[Reason, ...]

    def render(self, limit: int = 4) -> str:
        """One sentence; the headline and at most ``limit`` further reasons."""
        parts = [reason.render() for reason in self.reasons]
        shown = parts[: limit + 1]
        if len(parts) > len(shown):
            shown.append(f"and {len(parts) - len(shown)} more")
        return "; ".join(shown)

    @property
    def code(self) -> Code:
        """The headline's code."""
        return self.reasons[0].code


def refuse(code: Code, rest: Iterable[Reason] = (), **params: str | int) -> Refusal:
    """A refusal whose headline is ``code``."""
    return Refusal((Reason(code, tuple(params.items())), *rest))
