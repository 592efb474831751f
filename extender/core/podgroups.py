"""PodGroups of three conventions, as frozen msgspec structs: see :mod:`extender.core.objects`.

Source: k8s.io/api scheduling/v1beta1, scheduling.volcano.sh/v1beta1, scheduling.x-k8s.io/v1alpha1.
"""

from __future__ import annotations

from typing import Any

from msgspec import field

from extender.core.objects import ApiStruct, Condition, LabelSelector, Meta, Resources


class GroupStatus(ApiStruct):
    """Status of a Volcano or scheduler-plugins PodGroup."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    running: int = 0
    succeeded: int = 0
    failed: int = 0


class NetworkTopology(ApiStruct):
    """scheduling.volcano.sh/v1beta1 NetworkTopologySpec; at most one of the two tiers."""

    mode: str = "hard"
    highest_tier_allowed: int | None = None
    highest_tier_name: str = ""


class SubGroupPolicy(ApiStruct):
    """scheduling.volcano.sh/v1beta1 SubGroupPolicySpec."""

    name: str = ""
    network_topology: NetworkTopology | None = None
    sub_group_size: int = 1
    min_sub_groups: int = 0
    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()


class VolcanoGroupSpec(ApiStruct):
    """scheduling.volcano.sh/v1beta1 PodGroupSpec."""

    min_member: int | None = None
    min_task_member: dict[str, int] = field(default_factory=dict)
    queue: str = "default"
    priority_class_name: str = ""
    min_resources: Resources = field(default_factory=dict)
    network_topology: NetworkTopology | None = None
    sub_group_policy: tuple[SubGroupPolicy, ...] = ()


class VolcanoGroup(ApiStruct):
    """scheduling.volcano.sh/v1beta1 PodGroup: Muster's canonical record of a gang."""

    metadata: Meta = Meta()
    spec: VolcanoGroupSpec = VolcanoGroupSpec()
    status: GroupStatus = GroupStatus()


class SigsGroupSpec(ApiStruct):
    """scheduling.x-k8s.io/v1alpha1 PodGroupSpec."""

    min_member: int | None = None
    min_resources: Resources = field(default_factory=dict)
    schedule_timeout_seconds: int | None = None


class SigsGroup(ApiStruct):
    """scheduling.x-k8s.io/v1alpha1 PodGroup (scheduler-plugins' coscheduling)."""

    metadata: Meta = Meta()
    spec: SigsGroupSpec = SigsGroupSpec()
    status: GroupStatus = GroupStatus()


class GangPolicy(ApiStruct):
    """scheduling.k8s.io/v1beta1 GangSchedulingPolicy."""

    min_count: int = 1


class NativePolicy(ApiStruct):
    """scheduling.k8s.io/v1beta1 PodGroupSchedulingPolicy: one of basic and gang."""

    gang: GangPolicy | None = None
    basic: dict[str, Any] | None = None


class TopologyConstraint(ApiStruct):
    """scheduling.k8s.io/v1beta1 TopologyConstraint: all pods in one domain of a node label."""

    key: str = ""


class NativeConstraints(ApiStruct):
    """scheduling.k8s.io/v1beta1 PodGroupSchedulingConstraints."""

    topology: tuple[TopologyConstraint, ...] = ()


class NativeGroupSpec(ApiStruct):
    """scheduling.k8s.io/v1beta1 PodGroupSpec."""

    scheduling_policy: NativePolicy = NativePolicy()
    scheduling_constraints: NativeConstraints = NativeConstraints()
    priority_class_name: str = ""
    priority: int | None = None


class NativeGroup(ApiStruct):
    """scheduling.k8s.io/v1beta1 PodGroup (Kubernetes' own, 1.37)."""

    metadata: Meta = Meta()
    spec: NativeGroupSpec = NativeGroupSpec()
    status: GroupStatus = GroupStatus()
