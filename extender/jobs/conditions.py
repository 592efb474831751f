"""status.conditions of a training job, with the rules of kubeflow.org/v1 JobStatus.

A condition that is set moves to the end of the list, where kubectl's column ``State`` looks.
Running and Restarting exclude each other, and neither holds once a job has ended.

Source: kubeflow/trainer v1.9.4, pkg/util/status.go.
"""

from __future__ import annotations

from extender.core.objects import Manifest
from extender.core.times import rfc3339
from extender.jobs.fields import dig

CREATED = "Created"
RUNNING = "Running"
RESTARTING = "Restarting"
SUCCEEDED = "Succeeded"
FAILED = "Failed"
SUSPENDED = "Suspended"
#: Muster's own: the spec cannot be used as it stands. Unlike Failed it ends with the next edit.
INVALID = "Invalid"

_ENDS = (SUCCEEDED, FAILED)
_EXCLUDES = {RUNNING: (RESTARTING,), RESTARTING: (RUNNING,)}

Conditions = list[Manifest]


def of(job: Manifest) -> Conditions:
    """status.conditions as they are; what is no condition there is left out."""
    found = dig(job, "status", "conditions")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def find(conditions: Conditions, kind: str) -> Manifest | None:
    """The condition of this type."""
    return next((condition for condition in conditions if condition.get("type") == kind), None)


def holds(conditions: Conditions, kind: str) -> bool:
    """Whether the condition of this type is True."""
    condition = find(conditions, kind)
    return condition is not None and condition.get("status") == "True"


def end(conditions: Conditions) -> Manifest | None:
    """The terminal condition, if the job has ended."""
    return next((find(conditions, kind) for kind in _ENDS if holds(conditions, kind)), None)


def put(
    conditions: Conditions, kind: str, status: bool, reason: str, message: str, now: float
) -> Conditions:
    """The conditions after setting one; the same list when it says so already.

    Only Invalid follows its message; of the others the first message of a state stays.
    """
    current = find(conditions, kind)
    said = "True" if status else "False"
    if (
        current
        and (current.get("status"), current.get("reason")) == (said, reason)
        and (kind != INVALID or current.get("message") == message)
    ):
        return conditions
    kept = [c for c in conditions if c.get("type") not in (kind, *_EXCLUDES.get(kind, ()))]
    if kind in _ENDS:
        kept = [_ended(condition, reason, message, now) for condition in kept]
    same = current is not None and current.get("status") == said
    changed = current.get("lastTransitionTime") if current and same else None
    kept.append(
        {
            "type": kind,
            "status": said,
            "reason": reason,
            "message": message,
            "lastUpdateTime": rfc3339(now),
            "lastTransitionTime": changed or rfc3339(now),
        }
    )
    return kept


def drop(conditions: Conditions, kind: str) -> Conditions:
    """The conditions without one type; the same list when it is not there."""
    kept = [condition for condition in conditions if condition.get("type") != kind]
    return kept if len(kept) < len(conditions) else conditions


def _ended(condition: Manifest, reason: str, message: str, now: float) -> Manifest:
    if condition.get("type") not in (RUNNING, RESTARTING) or condition.get("status") != "True":
        return condition
    return {
        **condition,
        "status": "False",
        "reason": reason,
        "message": message,
        "lastUpdateTime": rfc3339(now),
        "lastTransitionTime": rfc3339(now),
    }
