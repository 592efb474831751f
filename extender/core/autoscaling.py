"""The HorizontalPodAutoscaler of an elastic job: made, brought up to date, taken away.

None is watched: a cluster's autoscalers change every few seconds, and nothing is decided by them. So
what a job's should be is written once in the life of this process, when it changes, and now and then. One
that exists already (409) is looked at by a patch that changes nothing, and left alone unless this
job owns it.
"""

from __future__ import annotations

from extender.core import commands as c
from extender.core.admission import ADMISSION_SECONDS
from extender.core.api import AUTOSCALERS
from extender.core.events import Done
from extender.core.job import Job
from extender.core.objects import Manifest
from extender.core.state import State, Then

_FLIGHT = ("autoscaler", "")


def keep(s: State, job: Job, wanted: Manifest | None) -> None:
    """Bring it to what is wanted: empty for none; None leaves it as it is."""
    if wanted is None or _FLIGHT in job.in_flight or job.autoscaler == wanted.get("spec", {}):
        return
    job.in_flight.add(_FLIGHT)
    if wanted:
        _create(s, job, wanted)
    else:
        _look(s, job, wanted)


def look(job: Job) -> None:
    """Somebody may have deleted it: what should be there is written once more."""
    if job.autoscaler:
        job.autoscaler = None


def _create(s: State, job: Job, wanted: Manifest) -> None:
    def then(done: Done, now: float) -> None:
        if done.code == 409:
            _look(s, job, wanted)
        else:
            _settle(s, job, wanted, done, now)

    s.send(c.Create(s.next_id(then), c.Lane.JOB, AUTOSCALERS, job.namespace, wanted))


def _look(s: State, job: Job, wanted: Manifest) -> None:
    """One of that name: whose is it?"""

    def then(done: Done, now: float) -> None:
        meta = (done.object or {}).get("metadata") or {}
        owners = meta.get("ownerReferences") or ()
        if done.ok and any(owner.get("uid") == job.uid for owner in owners):
            _change(s, job, wanted, str(meta.get("uid", "")))
            return
        if done.ok and wanted:
            _say(s, job, "exists already and is not this job's: it is left alone")
            _again(s, job, now)
            return
        _settle(s, job, wanted, done, now)

    _patch(s, job, {"metadata": {}}, then)


def _change(s: State, job: Job, wanted: Manifest, uid: str) -> None:
    def then(done: Done, now: float) -> None:
        _settle(s, job, wanted, done, now)

    if wanted:
        _patch(s, job, {"metadata": {"uid": uid}, "spec": wanted["spec"]}, then)
    else:
        id_ = s.next_id(then)
        s.send(c.Delete(id_, c.Lane.JOB, AUTOSCALERS, job.namespace, job.name, uid))


def _patch(s: State, job: Job, body: Manifest, then: Then) -> None:
    id_ = s.next_id(then)
    s.send(c.Patch(id_, c.Lane.JOB, AUTOSCALERS, job.namespace, job.name, body))


def _settle(s: State, job: Job, wanted: Manifest, done: Done, now: float) -> None:
    """The last answer; what the job has come to want meanwhile is written next."""
    if done.ok or (done.code == 404 and not wanted):
        job.in_flight.discard(_FLIGHT)
        job.autoscaler = wanted.get("spec", {})
        job.dirty = True
        return
    if done.code not in (404, 409):  # it went or changed in between
        _say(s, job, f"could not be written: {done.code} {done.message}")
    _again(s, job, now)


def _again(s: State, job: Job, now: float) -> None:
    job.in_flight.discard(_FLIGHT)
    s.look_at_job(job, now + ADMISSION_SECONDS)


def _say(s: State, job: Job, what: str) -> None:
    message = f"HorizontalPodAutoscaler {job.name} {what}"
    s.notice(job.resource, job.namespace, job.name, job.uid, "Warning", "Autoscaler", message)
