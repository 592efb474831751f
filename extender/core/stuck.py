"""Pods that are being deleted on nodes that are dead, or will be before they have ended.

A kubelet that is gone never says that a pod has ended, so that the pod keeps its name for ever and
its replica cannot be made again (kubeflow/trainer #2072). It is removed from the API: at once where
the node is known to be off, after a while where it is only not heard of.

A pod that was just given longer to stop in than its node will be there is given less: a second DELETE
shortens the grace, which the kubelet then counts anew. Not one that has used up half of what it would
be given: the API server counts from the first DELETE, and what would be over already becomes 1 s
(kubernetes registry/rest BeforeDelete; kubelet pod_workers).
"""

from __future__ import annotations

from extender.core import jobwrites, times
from extender.core.api import PODS
from extender.core.job import Job
from extender.core.objects import Pod
from extender.core.state import State


def tend(s: State, job: Job, now: float) -> None:
    """Remove the job's pods that are due; it is looked at again when the next one is. Hurry those
    that are late for their node.
    """
    for pod in job.pods.values():
        if _too_long(s, pod, now):
            most = s.health.news.seconds
            jobwrites.delete(s, job, PODS, pod.metadata.name, pod.metadata.uid, most, verb="hurry")
        at = _due(s, pod)
        if at is None:
            continue
        if at > now:
            s.look_at_job(job, at)
        elif ("remove", pod.metadata.uid) not in job.in_flight:
            s.count("pods_removed_by_force")
            jobwrites.delete(s, job, PODS, pod.metadata.name, pod.metadata.uid, 0, verb="remove")


def grace_of(pod: Pod | None, most: int | None) -> int | None:
    """What a pod is given to stop in, where that is less than it asks for itself (seconds)."""
    own = pod.spec.termination_grace_period_seconds if pod is not None else None
    return most if most is not None and own is not None and own > most else None


def _too_long(s: State, pod: Pod, now: float) -> bool:
    """Whether a pod has just been given more to stop in than its node says that it has."""
    meta, most = pod.metadata, s.health.news.seconds
    ends, grace = times.parse(meta.deletion_timestamp), meta.deletion_grace_period_seconds or 0
    if ends is None or grace <= most or not s.health.leaves(pod.spec.node_name):
        return False
    return now - (ends - grace) <= most / 2


def _due(s: State, pod: Pod) -> float | None:
    """When a pod is removed by force. Its deletionTimestamp is when it was to have ended."""
    ended_by = times.parse(pod.metadata.deletion_timestamp)
    node = pod.spec.node_name
    if ended_by is None or not node:
        return None
    if s.health.dead(node):
        return 0.0
    after = s.rules.force_delete_after
    return ended_by + after if after is not None and s.health.silent(node) else None
