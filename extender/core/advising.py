"""Advice shown on a job: an Event for each piece, once for each generation of its spec, and a condition
that holds all of it until the job is edited or has ended.
"""

from __future__ import annotations

from msgspec.structs import replace

from extender.core.framework import JobKind, JobStep
from extender.core.job import Job
from extender.core.objects import Manifest
from extender.core.state import State
from extender.core.times import rfc3339

#: Type of the condition; it stands beside Created, and never last: kubectl shows the last as STATE.
ADVICE = "Advice"
_ENDS = ("Succeeded", "Failed")


def show(s: State, job: Job, kind: JobKind, step: JobStep, now: float) -> JobStep:
    """``step`` with the condition in its status; the Events are sent."""
    meta = job.raw["metadata"]
    before = _conditions(job.raw)
    if meta.get("deletionTimestamp") or any(map(_is_end, before)):
        return step
    told = next((str(each.get("message")) for each in before if each.get("type") == ADVICE), "")
    if s.leading and job.advised != meta.get("generation"):
        job.advised, job.advice = meta.get("generation"), kind.advice(job.raw)
        for each in job.advice or ():
            text = f"{each.field} {each.render()}"
            if text not in told:
                s.notice(job.resource, job.namespace, job.name, job.uid, "Warning", each.code, text)
    if job.advice is None:
        return step
    message = "; ".join(f"{each.field} {each.render()}" for each in job.advice)
    if message == told:
        return step
    status = step.status or {}
    others = [each for each in status.get("conditions", before) if each.get("type") != ADVICE]
    if message:
        others.insert(min(1, len(others) - 1), _condition(message, now))
    return replace(step, status={**status, "conditions": others})


def _conditions(raw: Manifest) -> list[Manifest]:
    status = raw.get("status")
    found = status.get("conditions") if isinstance(status, dict) else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _is_end(condition: Manifest) -> bool:
    return condition.get("type") in _ENDS and condition.get("status") == "True"


def _condition(message: str, now: float) -> Manifest:
    return {
        "type": ADVICE,
        "status": "True",
        "reason": "Advised",
        "message": message,
        "lastUpdateTime": rfc3339(now),
        "lastTransitionTime": rfc3339(now),
    }
