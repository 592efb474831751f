"""What a job asks to be written: each write once, and not again before its answer is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

from extender.core import commands as c
from extender.core.admission import ADMISSION_SECONDS
from extender.core.api import MUSTER_GROUP, PODS, SERVICES, VOLCANO_GROUPS, Resource
from extender.core.capacity import CAPACITY
from extender.core.errors import InvalidObject
from extender.core.events import Done
from extender.core.framework import JobStep
from extender.core.gang import Gang, Stage
from extender.core.identity import GroupKey
from extender.core.ingest import version
from extender.core.job import Job
from extender.core.objects import Manifest
from extender.core.reporting import LANDING_SECONDS, REPORT_DELAY
from extender.core.state import State

#: Services that one step asks for (20 µs each).
SERVICES_A_STEP = 50
#: How long Services that nobody is told to dial wait for gangs that land, and how often to look.
SPARE_SECONDS = 60.0
SPARE_LOOK = 1.0
#: How long a job's first status waits to hear whether its gang has to wait.
UNDECIDED_SECONDS = 5.0
#: How long a job rests after a write of its status, annotations or deletions was refused.
REFUSED_SECONDS = 5.0


def show(job: Job, raw: Manifest) -> None:
    """The job as the watch or an answer has it, which overtake each other: the newer one counts."""
    shown = raw["metadata"].get("resourceVersion", "")
    if version(shown) >= version(job.raw["metadata"].get("resourceVersion", "")):
        job.edits += _made_of(raw) != _made_of(job.raw)
        job.raw = raw


def _made_of(raw: Manifest) -> tuple[Any, ...]:
    """All of a job that its pods may depend on; what Muster itself writes there is not among it."""
    marks = raw["metadata"].get("annotations") or {}
    users = {
        k: v for k, v in marks.items() if k == CAPACITY or not k.startswith(f"{MUSTER_GROUP}/")
    }
    return raw.get("spec"), users


def group(s: State, job: Job, key: GroupKey, body: Manifest, now: float) -> None:
    """Make the job's PodGroup, or bring its minimum up to date."""
    gang = s.gang(key)
    if gang.uid:
        job.group_again_at = 0.0
        _keep_minimum(s, job, gang, body)
    elif now >= job.group_again_at:
        _write_group(s, job, lambda id_: c.Create(id_, *_place(key), body))


def keep_minimum(s: State, gang: Gang) -> None:
    """Bring the minimum of a job's PodGroup up to date where the job was edited before the record
    was shown, or while its members were on their way.
    """
    job = s.jobs.get(gang.job) if gang.job is not None else None
    if job is not None and gang.uid and job.step.group is not None:
        _keep_minimum(s, job, gang, job.step.group)


def _keep_minimum(s: State, job: Job, gang: Gang, body: Manifest) -> None:
    wanted = {"minMember": body["spec"]["minMember"]}
    if gang.stage == Stage.WAITING and wanted["minMember"] != gang.min_member:
        patch = {"metadata": {"uid": gang.uid}, "spec": wanted}
        _write_group(s, job, lambda id_: c.Patch(id_, *_place(gang.key), gang.key.name, patch))


def _place(key: GroupKey) -> tuple[c.Lane, Resource, str]:
    return c.Lane.JOB, VOLCANO_GROUPS, key.namespace


def _write_group(s: State, job: Job, write: Callable[[int], c.Create | c.Patch]) -> None:
    """One write of the record at a time; ``write`` makes the command of an id."""
    flight = ("group", job.name)
    if flight in job.in_flight:
        return

    def then(done: Done, now: float) -> None:
        job.in_flight.discard(flight)
        if done.ok:
            # One that was made is shown by the watch: until then it is not made once more.
            job.group_again_at = now + REFUSED_SECONDS
            s.look_at_job(job, job.group_again_at)
        elif done.code != 409:
            name = f"{job.namespace}/{job.name}"
            message = f"PodGroup {name} could not be written: {done.code} {done.message}"
            s.notice(job.resource, job.namespace, job.name, job.uid, "Warning", "PodGroup", message)
            s.look_at_job(job, now + ADMISSION_SECONDS)

    job.in_flight.add(flight)
    s.send(write(s.next_id(then)))


def wish(s: State, job: Job, step: JobStep, now: float) -> None:
    """Take down which Services the job lacks."""
    job.to_serve = list(reversed(step.services))
    job.spare = list(reversed(step.spare_services))
    if not job.spare:
        job.spare_until = math.inf
    elif job.spare_until == math.inf:
        job.spare_until = now + SPARE_SECONDS
        # Where one was deleted while nothing else happens, there is no other step to make it in.
        s.send(c.WakeAt(max(now, s.spare_at)))


def spare(s: State, now: float) -> None:
    """Services that nobody is told to dial are no longer kept back once no gang is being placed.

    A third of what small gangs that land ask of the API server would be theirs.
    """
    if now < s.spare_at:
        return
    waiting = [job for job in s.jobs.values() if job.spare]
    if not waiting:
        return
    landing = any(gang.stage for gang in s.gangs.values())
    for job in waiting:
        if not landing or now >= job.spare_until:
            job.to_serve, job.spare, job.spare_until = job.spare + job.to_serve, [], math.inf
    if landing:
        s.spare_at = now + SPARE_LOOK
        s.send(c.WakeAt(s.spare_at))


def serve(s: State, job: Job, now: float) -> None:
    """Make the next of the job's Services, as many as a step may: /filter waits while it runs."""
    for _ in range(min(SERVICES_A_STEP, len(job.to_serve))):
        replica = job.to_serve.pop()
        if replica.pod_name not in job.services:
            try:
                _create(s, job, s.kinds[job.resource].service(job.raw, replica))
            except InvalidObject:
                # The job was edited: reconciling it says so on the job, and begins anew.
                s.count("invalid_replicas")
                job.to_serve.clear()
                return
    if job.to_serve:
        s.send(c.WakeAt(now))


def _create(s: State, job: Job, body: Manifest) -> None:
    name = body["metadata"]["name"]
    flight = ("service", name)
    if flight in job.in_flight:
        return
    job.in_flight.add(flight)

    def then(done: Done, now: float) -> None:
        job.in_flight.discard(flight)
        if done.ok:
            job.services.add(name)
        elif done.code != 409:
            message = f"Service {name} could not be created: {done.code} {done.message}"
            s.notice(job.resource, job.namespace, job.name, job.uid, "Warning", "Service", message)
            s.look_at_job(job, now + ADMISSION_SECONDS)

    s.send(c.Create(s.next_id(then), c.Lane.SERVICE, SERVICES, job.namespace, body))


def delete(
    s: State,
    job: Job,
    resource: Resource,
    name: str,
    uid: str,
    grace: int | None = None,
    *,
    verb: Literal["delete", "hurry", "remove"] = "delete",
) -> None:
    """Delete what the job has no use for: a pod, a service, or the job itself. ``grace``: seconds
    that it is given, where that is not its own matter. ``verb``: of one object, each is a write of
    its own.
    """
    flight = (verb, uid or name)
    if flight in job.in_flight:
        return
    job.in_flight.add(flight)

    def then(done: Done, now: float) -> None:
        job.in_flight.discard(flight)
        if done.code == 404:
            job.services.discard("" if resource == PODS else name)
        elif not done.ok:
            _refused(s, job, now)

    s.send(c.Delete(s.next_id(then), c.Lane.JOB, resource, job.namespace, name, uid, grace))


def _refused(s: State, job: Job, now: float) -> None:
    """A write that the API server does not take would be given again at once, for ever."""
    s.count("job_writes_refused")
    job.dirty = True
    job.rest_until = max(job.rest_until, now + REFUSED_SECONDS)
    s.send(c.WakeAt(job.rest_until))


def _as_seen(job: Job) -> Manifest:
    """The precondition of a write that follows from the job as it was seen.

    Without it a write that was late would put back what a later one has changed (I6).
    """
    return {"uid": job.uid, "resourceVersion": job.raw["metadata"].get("resourceVersion")}


def _answered(s: State, job: Job, asked: Manifest, done: Done, now: float) -> None:
    """What follows from a write of the job itself."""
    if done.ok and done.object is not None:
        job.dirty = True
        show(job, done.object)
    elif done.code != 409:
        _refused(s, job, now)
    elif job.raw["metadata"].get("resourceVersion") != asked["resourceVersion"]:
        job.dirty = True
    else:
        # Its newer version is on its way; without it the same would be asked again.
        s.look_at_job(job, now + REFUSED_SECONDS)


def annotate(s: State, job: Job, annotations: dict[str, str]) -> None:
    """Merge annotations into the job; what else the step asked for follows once they are kept."""
    flight = ("annotations", "")
    if flight in job.in_flight:
        return
    job.in_flight.add(flight)

    meta = _as_seen(job)

    def then(done: Done, now: float) -> None:
        job.in_flight.discard(flight)
        _answered(s, job, meta, done, now)

    body = {"metadata": {**meta, "annotations": annotations}}
    id_ = s.next_id(then)
    s.send(c.Patch(id_, c.Lane.JOB, job.resource, job.namespace, job.name, body))


def first_waits(s: State, job: Job, step: JobStep, now: float) -> bool:
    """Whether the job's first status waits, as it changes with the first of its pods that is bound:
    for a moment, and as long as its gang lands.
    """
    shown = job.raw.get("status")
    if step.group is None or (isinstance(shown, dict) and shown.get("conditions")):
        return False
    if any(pod.status.phase not in ("", "Pending") for pod in job.pods.values()):
        return False  # what was true for a moment alone would never be said
    if job.ready_at is None:
        job.ready_at = now
    gang = s.gangs.get(GroupKey(VOLCANO_GROUPS, job.namespace, job.name))
    lands = (
        gang is not None
        and gang.stage != Stage.WAITING
        and gang.job == (job.resource, job.namespace, job.name)
    )
    undecided = gang is None or not gang.uid or (gang.refusal is None and not gang.satisfied())
    most = LANDING_SECONDS if lands else UNDECIDED_SECONDS if undecided else REPORT_DELAY
    until = job.ready_at + most
    if now >= until:
        return False
    # Nobody tells the job that its gang is refused.
    s.look_at_job(job, until if lands else min(until, now + REPORT_DELAY))
    return True


def status(s: State, job: Job, status: Manifest) -> None:
    """One status write at a time; the next is computed from what the watch then shows."""
    flight = ("status", "")
    if flight in job.in_flight:
        return
    job.in_flight.add(flight)

    meta = _as_seen(job)

    def then(done: Done, now: float) -> None:
        job.in_flight.discard(flight)
        _answered(s, job, meta, done, now)

    body = {"metadata": meta, "status": status}
    id_ = s.next_id(then)
    s.send(c.Patch(id_, c.Lane.STATUS, job.resource, job.namespace, job.name, body, "status"))
