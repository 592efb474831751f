"""Which group a pod belongs to, under every convention people use.

The order of the conventions is design §2's: Kubernetes' own PodGroup, coscheduling's label,
Volcano's annotations, ACK's labels, Koordinator's annotations. It chooses only among conventions
that agree on the name; a pod that names two groups belongs to none.
"""

from __future__ import annotations

from msgspec import Struct

from extender.core.api import (
    MUSTER_GROUP,
    NATIVE_GROUPS,
    SIGS_GROUPS,
    VOLCANO_GROUPS,
    Resource,
)
from extender.core.objects import Pod
from extender.core.reasons import Code, Refusal, refuse

SIGS_LABEL = "scheduling.x-k8s.io/pod-group"
VOLCANO_ANNOTATIONS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
ACK_NAME = "pod-group.scheduling.sigs.k8s.io/name"
ACK_MIN = "pod-group.scheduling.sigs.k8s.io/min-available"
KOORDINATOR_NAME = "gang.scheduling.koordinator.sh/name"
KOORDINATOR_MIN = "gang.scheduling.koordinator.sh/min-available"
#: Volcano's name of a pod's task (role) within its group.
TASK_ANNOTATION = "volcano.sh/task-spec"
#: Roles of Kubeflow pods that came from elsewhere.
REPLICA_TYPE_LABEL = "training.kubeflow.org/replica-type"
REPLICA_INDEX_LABEL = "training.kubeflow.org/replica-index"
#: On a job: how often its gang was started again, and why (extender/jobs/restarts.py). On a pod: the
#: number of the restart that it was made in.
GANG_RESTART = f"{MUSTER_GROUP}/gang-restart"


class GroupKey(Struct, frozen=True, order=True, cache_hash=True):
    """A group's place in the API: its record's kind, namespace and name."""

    resource: Resource
    namespace: str
    name: str

    def __str__(self) -> str:
        """``namespace/name``, as people write it."""
        return f"{self.namespace}/{self.name}"


class Membership(Struct, frozen=True):
    """A pod's claim to a group."""

    key: GroupKey
    task: str
    #: minMember as the pod itself says it (ACK, Koordinator); such groups get a record made.
    min_available: str | None = None
    #: The field of the pod that says so.
    min_field: str = ""


def membership(pod: Pod) -> Membership | Refusal | None:
    """The group that a pod names; None for a plain pod, a Refusal where it names two."""
    claims = _claims(pod)
    if not claims:
        return None
    resource, name, minimum, field = claims[0]
    for _, other, *_ in claims[1:]:
        if other != name:
            return refuse(Code.CLAIMED_TWICE, pod=pod.metadata.name, first=name, second=other)
    task = pod.metadata.annotations.get(TASK_ANNOTATION) or pod.metadata.labels.get(
        REPLICA_TYPE_LABEL, ""
    )
    return Membership(GroupKey(resource, pod.metadata.namespace, name), task, minimum, field)


def _claims(pod: Pod) -> list[tuple[Resource, str, str | None, str]]:
    """(kind of the record, name, minimum, where that is said) of each convention, in their order."""
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    found: list[tuple[Resource, str, str | None, str]] = []
    if pod.spec.scheduling_group is not None and pod.spec.scheduling_group.pod_group_name:
        found.append((NATIVE_GROUPS, pod.spec.scheduling_group.pod_group_name, None, ""))
    if name := labels.get(SIGS_LABEL):
        found.append((SIGS_GROUPS, name, None, ""))
    found.extend(
        (VOLCANO_GROUPS, annotations[each], None, "")
        for each in VOLCANO_ANNOTATIONS
        if annotations.get(each)
    )
    if name := labels.get(ACK_NAME):
        field = f"metadata.labels[{ACK_MIN}]"
        found.append((VOLCANO_GROUPS, name, labels.get(ACK_MIN, ""), field))
    if name := annotations.get(KOORDINATOR_NAME):
        field = f"metadata.annotations[{KOORDINATOR_MIN}]"
        found.append((VOLCANO_GROUPS, name, annotations.get(KOORDINATOR_MIN, ""), field))
    return found
