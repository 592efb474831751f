"""Pods that are being deleted on nodes that are dead: nobody there ends them.

A kubelet that is gone never says that a pod has ended, so that the pod keeps its name for ever and
its replica cannot be made again (kubeflow/trainer #2072). It is removed from the API: at once where
the node is known to be off, after a while where it is only not heard of.
"""

from __future__ import annotations

from extender.core import jobwrites, times
from extender.core.api import PODS
from extender.core.objects import Pod
from extender.core.state import Job, State


def remove(s: State, job: Job, now: float) -> None:
    """Remove the job's pods that are due; it is looked at again when the next one is."""
    for pod in job.pods.values():
        at = _due(s, pod)
        if at is None:
            continue
        if at > now:
            s.look_at_job(job, at)
        elif ("remove", pod.metadata.uid) not in job.in_flight:
            s.count("pods_removed_by_force")
            jobwrites.delete(s, job, PODS, pod.metadata.name, pod.metadata.uid, 0)


def grace_of(pod: Pod | None, most: int | None) -> int | None:
    """What a pod is given to stop in, where that is less than it asks for itself (seconds)."""
    own = pod.spec.termination_grace_period_seconds if pod is not None else None
    return most if most is not None and own is not None and own > most else None


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
