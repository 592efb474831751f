"""The parts of Kubernetes objects that Muster reads, as frozen msgspec structs.

Field names are the API's (camel case on the wire); unknown fields are skipped while decoding, so
an object costs what is read of it. Absent lists and maps are empty. Quantities stay text here:
:mod:`extender.core.quantity` makes integers of them, so that one bad quantity spoils one object.

PodGroups are in :mod:`extender.core.podgroups`.

Source: k8s.io/api core/v1, scheduling/v1.
"""

from __future__ import annotations

from typing import Any, dataclass_transform

from msgspec import Struct, field

Labels = dict[str, str]
#: A quantity as the API writes it; clients may also send bare numbers.
Quantity = str | int | float
Resources = dict[str, Quantity]


# mypy does not see that msgspec's subclasses inherit ``frozen``.
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class ApiStruct(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Base of every decoded object: a tree, which the garbage collector need not walk."""


class OwnerRef(ApiStruct):
    """metav1.OwnerReference."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class Meta(ApiStruct):
    """metav1.ObjectMeta. Times are RFC 3339 text."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: Labels = {}
    annotations: Labels = {}
    owner_references: tuple[OwnerRef, ...] = ()
    creation_timestamp: str | None = None
    #: Not when it was asked for, but when its grace is over.
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    finalizers: tuple[str, ...] = ()


class ResourceRequirements(ApiStruct):
    """core/v1 ResourceRequirements."""

    requests: Resources = {}
    limits: Resources = {}


class ContainerPort(ApiStruct):
    """core/v1 ContainerPort."""

    name: str = ""
    container_port: int = 0
    host_port: int = 0
    host_ip: str = field(default="", name="hostIP")
    protocol: str = "TCP"


class Container(ApiStruct):
    """core/v1 Container, scheduling part. ``restart_policy: Always`` marks a sidecar."""

    name: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""


class Requirement(ApiStruct):
    """A selector requirement of nodes (6 operators) or of labels (4)."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(ApiStruct):
    """Requirements that all hold; an empty term matches nothing."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeSelector(ApiStruct):
    """Terms of which one must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredNodeTerm(ApiStruct):
    """core/v1 PreferredSchedulingTerm."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(ApiStruct):
    """core/v1 NodeAffinity."""

    required: NodeSelector | None = field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[PreferredNodeTerm, ...] = field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class LabelSelector(ApiStruct):
    """metav1.LabelSelector; an empty one matches everything, an absent one nothing."""

    match_labels: Labels = {}
    match_expressions: tuple[Requirement, ...] = ()


class PodAffinityTerm(ApiStruct):
    """core/v1 PodAffinityTerm."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(ApiStruct):
    """core/v1 WeightedPodAffinityTerm."""

    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(ApiStruct):
    """core/v1 PodAffinity and PodAntiAffinity."""

    required: tuple[PodAffinityTerm, ...] = field(
        default=(), name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[WeightedPodAffinityTerm, ...] = field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(ApiStruct):
    """core/v1 Affinity."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(ApiStruct):
    """core/v1 Toleration. ``operator`` is Exists, Equal, or (1.35) Lt and Gt."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class TopologySpreadConstraint(ApiStruct):
    """core/v1 TopologySpreadConstraint."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()


class ClaimSource(ApiStruct):
    """core/v1 PersistentVolumeClaimVolumeSource."""

    claim_name: str = ""


class Volume(ApiStruct):
    """core/v1 Volume: claims and generic ephemeral volumes; the rest does not bind a node."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: dict[str, Any] | None = None


class SchedulingGate(ApiStruct):
    """core/v1 PodSchedulingGate."""

    name: str = ""


class SchedulingGroup(ApiStruct):
    """core/v1 PodSchedulingGroup (Kubernetes 1.36 and later)."""

    pod_group_name: str = ""


class PodSpec(ApiStruct):
    """core/v1 PodSpec, scheduling part."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Resources = {}
    resources: ResourceRequirements | None = None
    node_name: str = ""
    node_selector: Labels = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    scheduler_name: str = "default-scheduler"
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    scheduling_group: SchedulingGroup | None = None
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str = "PreemptLowerPriority"
    volumes: tuple[Volume, ...] = ()
    host_network: bool = False
    restart_policy: str = "Always"
    termination_grace_period_seconds: int | None = None


class Condition(ApiStruct):
    """Any object's condition."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int | None = None


class Terminated(ApiStruct):
    """core/v1 ContainerStateTerminated."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""
    signal: int = 0
    finished_at: str | None = None


class ContainerState(ApiStruct):
    """core/v1 ContainerState."""

    terminated: Terminated | None = None


class ResourceHealth(ApiStruct):
    """core/v1 ResourceHealth: of one device. Healthy, Unhealthy or Unknown."""

    resource_id: str = field(default="", name="resourceID")
    health: str = ""


class ResourceStatus(ApiStruct):
    """core/v1 ResourceStatus: the devices of one resource that a container was given."""

    name: str = ""
    resources: tuple[ResourceHealth, ...] = ()


class ContainerStatus(ApiStruct):
    """core/v1 ContainerStatus."""

    name: str = ""
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    resources: ResourceRequirements | None = None
    allocated_resources: Resources = {}
    #: Told by kubelets with the gate ResourceHealthStatus (KEP-4680).
    allocated_resources_status: tuple[ResourceStatus, ...] = ()


class PodStatus(ApiStruct):
    """core/v1 PodStatus, the part Muster reads. ``resize`` is the pre-1.33 field."""

    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    nominated_node_name: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resources: ResourceRequirements | None = None
    allocated_resources: Resources = {}
    resize: str = ""
    start_time: str | None = None


class Pod(ApiStruct):
    """core/v1 Pod."""

    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Taint(ApiStruct):
    """core/v1 Taint."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(ApiStruct):
    """core/v1 NodeSpec."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(ApiStruct):
    """core/v1 NodeStatus."""

    allocatable: Resources = {}
    capacity: Resources = {}
    conditions: tuple[Condition, ...] = ()


class Node(ApiStruct):
    """core/v1 Node."""

    metadata: Meta = Meta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Namespace(ApiStruct):
    """core/v1 Namespace (labels decide namespaceSelector terms)."""

    metadata: Meta = Meta()


class ClaimSpec(ApiStruct):
    """core/v1 PersistentVolumeClaimSpec."""

    volume_name: str = ""
    storage_class_name: str | None = None


class ClaimStatus(ApiStruct):
    """core/v1 PersistentVolumeClaimStatus."""

    phase: str = ""


class Claim(ApiStruct):
    """core/v1 PersistentVolumeClaim."""

    metadata: Meta = Meta()
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class VolumeNodeAffinity(ApiStruct):
    """core/v1 VolumeNodeAffinity."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(ApiStruct):
    """core/v1 PersistentVolumeSpec."""

    node_affinity: VolumeNodeAffinity | None = None


class PersistentVolume(ApiStruct):
    """core/v1 PersistentVolume."""

    metadata: Meta = Meta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()


class PriorityClass(ApiStruct):
    """scheduling.k8s.io/v1 PriorityClass."""

    metadata: Meta = Meta()
    value: int = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"


#: A JSON object as the API server holds it; for what Muster writes or passes through whole.
Manifest = dict[str, Any]
