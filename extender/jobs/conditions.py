"""status.conditions of a training job, with the rules of kubeflow.org/v1 JobStatus.

A condition that is set moves to the end of the list, where kubectl's column ``State`` looks.
Running and Restarting exclude each other, and neither holds once a job has ended.

Source: kubeflow/trainer v1.9.4, pkg/util/status.go.
"""

from __future__ import annotations

from datetime import UTC, datetime

from extender.core.objects import Manifest

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


def stamp(now: float) -> str:
    """RFC 3339 text of a time in epoch seconds, whole seconds as metav1.Time has."""
    return datetime.fromtimestamp(int(now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds(text: str | None) -> float | None:
    """Epoch seconds of RFC 3339 text; None for none and for what cannot be read."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:  # written by somebody else; it then limits nothing
        return None


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
            "lastUpdateTime": stamp(now),
            "lastTransitionTime": changed or stamp(now),
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
        "lastUpdateTime": stamp(now),
        "lastTransitionTime": stamp(now),
    }
