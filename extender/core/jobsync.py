"""Running training jobs: what a job kind asks for, turned into members and commands.

A kind is pure and compares (job, pods, services, now); this module keeps what it owns up to date,
asks the API server once per role what a pod will look like when admitted (dry run), and sends
every write once.
"""

from __future__ import annotations

import zlib
from typing import Any

from msgspec import ValidationError, convert, json

from extender.core import commands as c
from extender.core import events as e
from extender.core.api import PODS, SERVICES, VOLCANO_GROUPS
from extender.core.creating import dress
from extender.core.errors import InvalidObject
from extender.core.events import Done
from extender.core.framework import JobStep, Replica
from extender.core.gang import Gang, Member, Slot, Stage
from extender.core.identity import GroupKey
from extender.core.ingest import version
from extender.core.objects import Manifest, Pod
from extender.core.reasons import Code, Refusal, refuse
from extender.core.shape import PodShape, shape_of
from extender.core.state import Job, State

#: How long a refused dry run is believed (quota may have been freed since).
ADMISSION_SECONDS = 10.0
#: How long a job rests after a write of its status, annotations or deletions was refused.
REFUSED_SECONDS = 5.0
#: A pass takes 10 µs a pod, and each pod has some five events in a life: a job of more pods than
#: this rests between two passes, the longer the larger it is (seconds a pod, and at most).
SMALL_JOB = 8
REST_PER_POD = 0.005
REST_MOST = 2.0


def job_seen(s: State, event: e.JobSeen) -> None:
    """A job was added or changed."""
    meta = event.raw["metadata"]
    key = (event.resource, meta["namespace"], meta["name"])
    job = s.jobs.get(key)
    if job is not None and job.uid != meta["uid"]:
        forget_job(s, job)
        job = None
    if job is None:
        job = Job(event.resource, meta["namespace"], meta["name"], meta["uid"], event.raw)
        s.jobs[key] = job
        s.jobs_by_uid[job.uid] = job
        # What it owns may have been listed before it was.
        for pod in s.orphans.pop(job.uid, {}).values():
            job.pods[pod.metadata.name] = pod
            s.pod_jobs[pod.metadata.uid] = job
        job.services |= {name for _, name in s.orphan_services.pop(job.uid, set())}
    _show(job, event.raw)
    job.dirty = True


def _show(job: Job, raw: Manifest) -> None:
    """The job as the watch or an answer has it, which overtake each other: the newer one counts."""
    shown = raw["metadata"].get("resourceVersion", "")
    if version(shown) >= version(job.raw["metadata"].get("resourceVersion", "")):
        job.raw = raw


def job_gone(s: State, event: e.JobGone) -> None:
    """A job was deleted; its pods and its group go with it (owner references)."""
    job = s.jobs.get((event.resource, event.namespace, event.name))
    if job is not None and job.uid == event.uid:
        forget_job(s, job)


def forget_job(s: State, job: Job) -> None:
    """Drop a job and the replicas that it wanted and that do not exist."""
    del s.jobs[job.resource, job.namespace, job.name]
    s.jobs_by_uid.pop(job.uid, None)
    s.forget_notices(job.uid)
    gang = s.gangs.get(GroupKey(VOLCANO_GROUPS, job.namespace, job.name))
    if gang is not None:
        _want(s, gang, ())


def service_seen(s: State, event: e.ServiceSeen) -> None:
    """A service was added or changed."""
    for owner in event.metadata.owner_references:
        job = s.jobs_by_uid.get(owner.uid)
        if job is None and s.runs(owner):
            place = (event.metadata.namespace, event.metadata.name)
            s.orphan_services.setdefault(owner.uid, set()).add(place)
        elif job is not None and event.metadata.name not in job.services:
            job.services.add(event.metadata.name)
            job.dirty = True


def service_gone(s: State, event: e.ServiceGone) -> None:
    """A service was deleted."""
    for owner, places in list(s.orphan_services.items()):
        places.discard((event.namespace, event.name))
        if not places:
            del s.orphan_services[owner]
    for job in s.jobs.values():
        if job.namespace == event.namespace and event.name in job.services:
            job.services.discard(event.name)
            job.dirty = True


def reconcile(s: State, job: Job, now: float) -> None:
    """Ask the kind what the job needs now, and send what is not under way."""
    job.dirty = False
    kind = s.kinds[job.resource]
    pods = [job.pods[name] for name in sorted(job.pods)]
    if len(pods) > SMALL_JOB:
        job.rest_until = now + min(len(pods) * REST_PER_POD, REST_MOST)
    coming = (name for verb, name in job.in_flight if verb == "service")
    step = job.step = kind.reconcile(job.raw, pods, frozenset({*job.services, *coming}), now)
    job.wake_at = step.wake_at
    if step.wake_at is not None:
        s.send(c.WakeAt(step.wake_at))
    for type_, reason, message in step.notices:
        s.notice(job.resource, job.namespace, job.name, job.uid, type_, reason, message)
    if step.annotations is not None:
        # Written first: a count of restarts that is not persisted would be lost with its pods.
        _annotate(s, job, step.annotations)
        return
    if step.delete_job:
        _delete(s, job, job.resource, job.name, job.uid)
        return
    _writes(s, job, step)
    key = GroupKey(VOLCANO_GROUPS, job.namespace, job.name)
    gang = s.gangs.get(key)
    if step.group is not None:
        _group(s, job, key, step.group)
        gang = s.gang(key)
        gang.job = (job.resource, job.namespace, job.name)
    if gang is not None:
        _want(s, gang, step.wanted)
        if gang.count(Member.WANTED):
            _admit_all(s, gang, job)


def _writes(s: State, job: Job, step: JobStep) -> None:
    for body in step.services:
        _create(s, job, body)
    for name, uid in step.delete_pods:
        _delete(s, job, PODS, name, uid)
    for name in step.delete_services:
        _delete(s, job, SERVICES, name, "")
    if step.status is not None:
        _status(s, job, step.status)


def _want(s: State, gang: Gang, wanted: tuple[Replica, ...]) -> None:
    """Make the replicas that the job wants members; drop those it wants no more."""
    names = {replica.pod_name for replica in wanted}
    for slot in list(gang.members.values()):
        if slot.state == Member.WANTED and slot.name not in names:
            s.discharge(gang, slot, "the job wants it no more")
    for replica in wanted:
        known = gang.members.get(replica.pod_name)
        if known is None:
            fresh = Slot(replica.pod_name, replica.role, Member.WANTED, remade=True)
            fresh.replica = replica
            s.enroll(gang, fresh)
        elif not known.uid:
            known.replica = replica


def _admit_all(s: State, gang: Gang, job: Job) -> None:
    """Find out what the API server makes of each role's pods before they are planned."""
    by_role: dict[str, PodShape | Refusal | None] = {}
    for slot in gang.unplaced():
        if slot.state != Member.WANTED or slot.shape is not None or slot.fault is not None:
            continue
        if slot.task not in by_role:
            by_role[slot.task] = _admit(s, gang, job, slot)
        found = by_role[slot.task]
        if isinstance(found, Refusal):
            slot.fault = found
        elif found is not None:
            slot.shape = found
        gang.dirty = gang.dirty or found is not None


def _admit(s: State, gang: Gang, job: Job, slot: Slot) -> PodShape | Refusal | None:
    """The shape that a role's pods will have, as one of them is admitted; None until it is known."""
    assert slot.replica is not None
    body = dress(s, gang, s.kinds[job.resource].pod(job.raw, slot.replica), "")
    mark = (slot.task, _fingerprint(body))
    known = job.admitted.get(mark)
    if known is not None:
        return _shape(s, gang, known)
    if ("dryrun", mark[1]) in job.in_flight:
        return None
    job.in_flight.add(("dryrun", mark[1]))

    def then(done: Done, at: float) -> None:
        job.in_flight.discard(("dryrun", mark[1]))
        job.admitted[mark] = _admitted(slot.name, done)
        if not done.ok:
            s.send(c.WakeAt(at + ADMISSION_SECONDS))
            job.recheck[mark] = at + ADMISSION_SECONDS
        gang.dirty = job.dirty = True
        job.rest_until = at

    id_ = s.next_id(then)
    s.send(c.Create(id_, c.Lane.PLAN, PODS, job.namespace, body, dry_run=True))
    return None


def _admitted(name: str, done: Done) -> Pod | Refusal:
    if done.ok and done.object is not None:
        try:
            return convert(done.object, Pod)
        except ValidationError as error:
            return refuse(Code.ADMISSION, pod=name, message=str(error))
    return refuse(Code.ADMISSION, pod=name, message=done.message)


def _shape(s: State, gang: Gang, admitted: Pod | Refusal) -> PodShape | Refusal:
    if isinstance(admitted, Refusal):
        return admitted
    try:
        shape = s.same(shape_of(admitted, ignore_pin=True))
    except InvalidObject as error:
        return refuse(
            Code.INVALID, field=error.field, value=repr(error.value), allowed=error.allowed
        )
    gang.rank(admitted.spec.priority or 0)
    return shape


def recheck(s: State, job: Job, now: float) -> None:
    """Ask again about roles whose dry run was refused a while ago."""
    due = [mark for mark, at in job.recheck.items() if at <= now]
    for mark in due:
        del job.recheck[mark]
        job.admitted.pop(mark, None)
    gang = s.gangs.get(GroupKey(VOLCANO_GROUPS, job.namespace, job.name))
    if due and gang is not None:
        for slot in gang.unplaced():
            if slot.state == Member.WANTED and slot.fault is not None:
                slot.fault = None
        job.dirty = True


def _fingerprint(body: Manifest) -> str:
    """Equal for the replicas of one role: all but names, indices and environment values."""
    spec = {k: v for k, v in body["spec"].items() if k not in ("hostname", "subdomain")}
    spec["containers"] = [
        {k: v for k, v in box.items() if k != "env"} for box in spec.get("containers", ())
    ]
    return f"{zlib.crc32(json.encode(spec, order='deterministic')):08x}"


def _group(s: State, job: Job, key: GroupKey, body: Manifest) -> None:
    """Make the job's PodGroup, or bring its minimum up to date."""
    gang = s.gang(key)
    flight = ("group", key.name)
    if flight in job.in_flight:
        return

    def then(done: Done, now: float) -> None:
        job.in_flight.discard(flight)
        if not done.ok and done.code != 409:
            message = f"PodGroup {key} could not be written: {done.code} {done.message}"
            s.notice(job.resource, job.namespace, job.name, job.uid, "Warning", "PodGroup", message)
            job.wake_at = now + ADMISSION_SECONDS
            s.send(c.WakeAt(job.wake_at))

    if not gang.uid:
        job.in_flight.add(flight)
        id_ = s.next_id(then)
        s.send(c.Create(id_, c.Lane.JOB, VOLCANO_GROUPS, key.namespace, body))
    elif gang.stage == Stage.WAITING and body["spec"]["minMember"] != gang.min_member:
        job.in_flight.add(flight)
        id_ = s.next_id(then)
        patch = {"spec": {"minMember": body["spec"]["minMember"]}}
        s.send(c.Patch(id_, c.Lane.JOB, VOLCANO_GROUPS, key.namespace, key.name, patch))


def _create(s: State, job: Job, body: dict[str, Any]) -> None:
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
            job.wake_at = now + ADMISSION_SECONDS
            s.send(c.WakeAt(job.wake_at))

    s.send(c.Create(s.next_id(then), c.Lane.SERVICE, SERVICES, job.namespace, body))


def _delete(s: State, job: Job, resource: Any, name: str, uid: str) -> None:
    flight = ("delete", uid or name)
    if flight in job.in_flight:
        return
    job.in_flight.add(flight)

    def then(done: Done, now: float) -> None:
        job.in_flight.discard(flight)
        if done.code == 404:
            job.services.discard("" if resource == PODS else name)
        elif not done.ok:
            _refused(s, job, now)

    s.send(c.Delete(s.next_id(then), c.Lane.JOB, resource, job.namespace, name, uid))


def _refused(s: State, job: Job, now: float) -> None:
    """A write that the API server does not take would be given again at once, for ever."""
    s.count("job_writes_refused")
    job.dirty = True
    job.rest_until = max(job.rest_until, now + REFUSED_SECONDS)
    s.send(c.WakeAt(job.rest_until))


def _annotate(s: State, job: Job, annotations: dict[str, str]) -> None:
    """Merge annotations into the job; what else the step asked for follows once they are kept."""
    flight = ("annotations", "")
    if flight in job.in_flight:
        return
    job.in_flight.add(flight)

    def then(done: Done, now: float) -> None:
        job.in_flight.discard(flight)
        job.dirty = True
        if done.ok and done.object is not None:
            _show(job, done.object)
        else:
            _refused(s, job, now)

    body = {"metadata": {"uid": job.uid, "annotations": annotations}}
    id_ = s.next_id(then)
    s.send(c.Patch(id_, c.Lane.JOB, job.resource, job.namespace, job.name, body))


def _status(s: State, job: Job, status: Manifest) -> None:
    """One status write at a time; the next is computed from what the watch then shows."""
    flight = ("status", "")
    if flight in job.in_flight:
        return
    job.in_flight.add(flight)

    def then(done: Done, now: float) -> None:
        job.in_flight.discard(flight)
        job.dirty = True
        if done.ok and done.object is not None:
            _show(job, done.object)
        else:
            _refused(s, job, now)

    body = {"metadata": {"uid": job.uid}, "status": status}
    id_ = s.next_id(then)
    s.send(c.Patch(id_, c.Lane.STATUS, job.resource, job.namespace, job.name, body, "status"))
