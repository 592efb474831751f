"""What is left to do for a job that has ended: its pods, its Services, and in time itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from extender.core import times
from extender.core.errors import Faults, InvalidObject
from extender.core.framework import JobStep
from extender.core.objects import Manifest, Pod
from extender.jobs import conditions
from extender.jobs.model import RunPolicy, read_policy

_FINAL = ("Succeeded", "Failed")


def deletions(pods: Iterable[Pod]) -> tuple[tuple[str, str], ...]:
    """(name, uid) of the pods that are not being deleted already."""
    return tuple(
        (pod.metadata.name, pod.metadata.uid) for pod in pods if not pod.metadata.deletion_timestamp
    )


def after_end(job: Manifest, pods: Sequence[Pod], services: frozenset[str], now: float) -> JobStep:
    """Clean up as runPolicy says; the status of a job that has ended is never written again.

    A pod that is kept keeps its Service. A job that ran into its deadline keeps no running pod,
    whatever cleanPodPolicy says: to stop it is what the deadline is for.
    """
    notices: tuple[tuple[str, str, str], ...] = ()
    faults = Faults()
    try:
        policy = read_policy(job, faults)
        faults.end()
    except InvalidObject as problem:
        policy = RunPolicy()
        notices = (("Warning", "InvalidRunPolicy", str(problem)),)
    status = job["status"]
    ended = conditions.end(conditions.of(job)) or {}
    finished = times.parse(status.get("completionTime"))
    if finished is None:  # upstream leaves it out for some failures, and its ttl never comes
        finished = times.parse(ended.get("lastTransitionTime"))
    expiry = None if finished is None or policy.ttl is None else finished + policy.ttl
    if expiry is not None and now >= expiry:
        return JobStep(delete_job=True, notices=notices)

    clean = policy.clean_pods
    if clean == "None" and _overran(policy, times.parse(status.get("startTime")), finished):
        clean = "Running"
    if clean == "None":
        kept = list(pods)
        unnamed: frozenset[str] = frozenset()
    else:
        kept = [p for p in pods if clean == "Running" and p.status.phase in _FINAL]
        unnamed = services - {pod.metadata.name for pod in kept}
    staying = {pod.metadata.uid for pod in kept}
    return JobStep(
        delete_pods=deletions(pod for pod in pods if pod.metadata.uid not in staying),
        delete_services=tuple(sorted(unnamed)),
        notices=notices,
        wake_at=expiry,
    )


def _overran(policy: RunPolicy, started: float | None, finished: float | None) -> bool:
    if policy.deadline is None or started is None or finished is None:
        return False
    return finished >= started + policy.deadline
