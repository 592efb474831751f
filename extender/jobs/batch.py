"""The batch/v1 Job ``NAME-launcher`` of a v2beta1 MPIJob, which shows what becomes of its launcher.

mpi-operator leaves the launcher to a Job, and people look it up: ``kubectl logs job/NAME-launcher``,
``kubectl wait --for=condition=complete``, pods by the label ``job-name``. A Job's controller would make the pod
after the plan, and by a name of its own, so Muster makes the pod and keeps the Job as the launcher's
face: ``managedBy`` tells Kubernetes' own controller to leave it alone (from 1.32 on), ``suspend`` tells the same to those
before, and its selector finds the pod by the labels that mpi-operator gives it.

Source: mpi-operator v0.8.2, pkg/controller (newLauncherJob); kubernetes pkg/apis/batch/validation, whose rules of status
transitions hold for every controller: an end comes with its criterion (SuccessCriteriaMet,
FailureTarget), its startTime and no active pods; completionTime is of success alone.
"""

from __future__ import annotations

from typing import Final

from extender.core import times
from extender.core.api import BATCH_JOBS, MUSTER_GROUP
from extender.core.framework import Child
from extender.core.objects import Manifest, Pod
from extender.jobs import conditions, fields
from extender.jobs.model import TrainingJob

MANAGER: Final = f"{MUSTER_GROUP}/mpijob"
#: Labels of a Job's pods, by which they are looked up.
JOB_NAME: Final = ("batch.kubernetes.io/job-name", "job-name")
#: Seconds after its end for which a job's is brought up to date: a Muster that starts finds old ones done.
SETTLED: Final = 3600.0

#: Reason and message of the condition Suspended as a Job's controller has them.
_SUSPENDED: Final = ("JobSuspended", "Job suspended")
_RESUMED: Final = ("JobResumed", "Job resumed")
_ENDS: Final = {
    conditions.SUCCEEDED: ("SuccessCriteriaMet", "Complete"),
    conditions.FAILED: ("FailureTarget", "Failed"),
}


def labels(name: str) -> dict[str, str]:
    """Of the pod, as a Job of this name would have it."""
    return dict.fromkeys(JOB_NAME, name)


def show(
    job: Manifest, parsed: TrainingJob, pod: Manifest, seen: Pod | None, restarts: int, rights: str
) -> Child:
    """The Job. ``pod``: as the launcher is made; ``seen``: as it is, if it is there."""
    meta, spec = pod["metadata"], pod["spec"]
    chosen = ("operator-name", "job-name", "job-role")
    prefix = "training.kubeflow.org/"
    body = {
        "apiVersion": BATCH_JOBS.api_version,
        "kind": BATCH_JOBS.kind,
        "metadata": {
            "name": meta["name"],
            "namespace": parsed.namespace,
            "labels": {"app": parsed.name},
            "ownerReferences": meta["ownerReferences"],
        },
        "spec": {
            "managedBy": MANAGER,
            "suspend": True,
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": parsed.policy.backoff_limit,
            "podReplacementPolicy": "Failed",
            "manualSelector": True,
            "selector": {"matchLabels": {prefix + k: meta["labels"][prefix + k] for k in chosen}},
            "template": {"metadata": {"labels": meta["labels"]}, "spec": spec},
        },
        "status": status(job, seen, restarts),
    }
    return Child(BATCH_JOBS, body, follows=("status",), rights=rights, shows=True)


def status(job: Manifest, pod: Pod | None, restarts: int) -> Manifest:
    """The Job's, of what the MPIJob says and how its launcher is. As a merge patch."""
    said = conditions.of(job)
    start = fields.dig(job, "status", "startTime")
    end = conditions.end(said)
    idle = end is not None or conditions.holds(said, conditions.SUSPENDED)
    there = not idle and pod is not None and not pod.metadata.deletion_timestamp
    active = there and pod is not None and pod.status.phase in ("Pending", "Running")
    paused = _paused(said)
    found: Manifest = {
        "active": int(active),
        "ready": int(active and pod is not None and _ready(pod)),
        "succeeded": int(end is not None and end["type"] == conditions.SUCCEEDED),
        "failed": restarts,
        "startTime": start,
        "conditions": paused,
    }
    if end is not None:
        # The last failure ended the job, and is no restart. As it was then: a count may not fall.
        last = fields.dig(job, "status", "replicaStatuses", "Launcher", "failed")
        found["failed"] += last if isinstance(last, int) else 0
        at = end.get("lastTransitionTime")
        found["startTime"] = start or at
        if end["type"] == conditions.SUCCEEDED:
            found["completionTime"] = fields.dig(job, "status", "completionTime") or at
        found["conditions"] = [*paused, *(_condition(kind, end) for kind in _ENDS[end["type"]])]
    return found


def _paused(said: conditions.Conditions) -> list[Manifest]:
    """Suspended, in a Job's own words; it is False, and stays, once a job was resumed."""
    known = conditions.find(said, conditions.SUSPENDED)
    if known is None:
        return []
    held = known.get("status") == "True"
    reason, message = _SUSPENDED if held else _RESUMED
    status = "True" if held else "False"
    return [_condition("Suspended", {**known, "reason": reason, "message": message}, status)]


def settled(job: Manifest, now: float) -> bool:
    """Whether the MPIJob has ended so long ago that its Job says so."""
    end = conditions.end(conditions.of(job))
    at = None if end is None else times.parse(end.get("lastTransitionTime"))
    return end is not None and (at is None or now >= at + SETTLED)


def _condition(kind: str, source: Manifest, status: str = "True") -> Manifest:
    return {
        "type": kind,
        "status": status,
        # mpi-operator adds the pod's own to its Job's: BackoffLimitExceeded/Error.
        "reason": str(source.get("reason") or kind).partition("/")[0],
        "message": source.get("message") or "",
        "lastProbeTime": source.get("lastTransitionTime"),
        "lastTransitionTime": source.get("lastTransitionTime"),
    }


def _ready(pod: Pod) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)
