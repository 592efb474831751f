"""A training job as the core keeps it, and what the API server has said of the pods that it asks for.

What is done with them is in :mod:`extender.core.jobsync` and :mod:`extender.core.admission`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from msgspec.structs import replace

from extender.core.advice import Advice
from extender.core.api import Resource
from extender.core.cluster import TERMINAL
from extender.core.framework import JobStep, Replica
from extender.core.objects import Manifest, Pod, PodSpec
from extender.core.reasons import Refusal


@dataclass(slots=True)
class Job:
    """A training job that Muster runs, and what belongs to it."""

    resource: Resource
    namespace: str
    name: str
    uid: str
    raw: Manifest
    #: How often what its pods are made of was changed, since it is known.
    edits: int = 0
    pods: dict[str, Pod] = field(default_factory=dict)
    #: Pods by name as they ended, or restarted, of their own accord: they count when they are gone,
    #: until the job itself says so (its status and annotations are written later, or refused).
    ends: dict[str, Pod] = field(default_factory=dict)
    services: set[str] = field(default_factory=set)
    #: Replicas whose Services are still to be created, the next one last.
    to_serve: list[Replica] = field(default_factory=list)
    #: Those that may wait, and the time at which they wait no longer.
    spare: list[Replica] = field(default_factory=list)
    spare_until: float = math.inf
    step: JobStep = field(default_factory=JobStep)
    #: (verb, name) of writes under way, so that none is sent twice.
    in_flight: set[tuple[str, str]] = field(default_factory=set)
    #: Admitted shape of a role, by (role, fingerprint of the pod): a pod or its refusal.
    admitted: dict[tuple[str, str], Pod | Refusal] = field(default_factory=dict)
    #: When a refused role is asked about again.
    recheck: dict[tuple[str, str], float] = field(default_factory=dict)
    #: Spec of its HorizontalPodAutoscaler as it was last written, {} for none; None: not known.
    autoscaler: Manifest | None = None
    #: What else it owns, by (plural, name): the fields that follow it, as they were last written.
    children: dict[tuple[str, str], Manifest] = field(default_factory=dict)
    #: Their uids, where an answer told them.
    child_uids: dict[tuple[str, str], str] = field(default_factory=dict)
    #: Those of them that somebody may have deleted, until it is asked.
    unsure: set[tuple[str, str]] = field(default_factory=set)
    #: Of those that only show what becomes of the job: refused, or another's, until it is asked again.
    denied: set[tuple[str, str]] = field(default_factory=set)
    #: When it was last asked whether these, and the autoscaler, are still there.
    looked_at: float = -math.inf
    #: What its user is told of the spec of this generation; -1: not asked yet. None: it is another
    #: controller's, whose conditions it shows.
    advised: int | None = -1
    advice: tuple[Advice, ...] | None = ()
    #: Its PodGroup, which is not shown, is not made before this time: it was made a moment ago.
    group_again_at: float = 0.0
    #: When its first status was ready to be written (seconds); None while none was.
    ready_at: float | None = None
    wake_at: float | None = None
    #: Not looked at again before this time: a pass costs as much as the job is large.
    rest_until: float = 0.0
    dirty: bool = True

    def show_pod(self, pod: Pod) -> None:
        """One of its pods was added or changed. Of its spec the node and the grace alone are kept: a
        kind looks at what became of a pod, and what it asks for is most of its memory.
        """
        grace = pod.spec.termination_grace_period_seconds
        spec = PodSpec(node_name=pod.spec.node_name, termination_grace_period_seconds=grace)
        pod = replace(pod, spec=spec)
        name, status = pod.metadata.name, pod.status
        self.pods[name] = pod
        before = self.ends.get(name)
        if before is not None and before.status.phase == "Succeeded":
            return
        containers = (*status.container_statuses, *status.init_container_statuses)
        told = status.phase in TERMINAL or any(each.restart_count for each in containers)
        if told and not pod.metadata.deletion_timestamp:
            self.ends[name] = pod
        elif before is not None and before.metadata.uid != pod.metadata.uid:
            # It has been made again, and says itself what it inherited.
            del self.ends[name]


@dataclass(slots=True)
class Admission:
    """What the API server makes of pods of one form, asked once for all jobs that wait to know."""

    at: float = 0.0
    #: The pod as admitted, or its refusal; None while it is being asked.
    answer: Pod | Refusal | None = None
    #: The answer holds for the job that it was asked for alone: each asks for itself.
    apart: bool = False
    #: Uids of the jobs that wait, and what each calls the form.
    waiting: dict[str, tuple[str, str]] = field(default_factory=dict)


def admission_keys(job: Job, form: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """Where the dry run of pods of a form is kept: for all jobs of the namespace, and the job's own."""
    return (job.namespace, form), (job.namespace, f"{form} {job.uid}")
