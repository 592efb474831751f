"""Running training jobs: what a job kind asks for, turned into members and commands.

A kind is pure and compares (job, pods, services, now); this module keeps what it owns up to date.
"""

from __future__ import annotations

from extender.core import (
    admission,
    advising,
    autoscaling,
    children,
    jobwrites,
    keeping,
    releasing,
    stuck,
)
from extender.core import commands as c
from extender.core import events as e
from extender.core.api import PODS, SERVICES, VOLCANO_GROUPS, Resource
from extender.core.framework import JobStep, Replica
from extender.core.gang import Gang, Member, Slot, Stage
from extender.core.identity import GANG_RESTART, GroupKey
from extender.core.job import Job
from extender.core.state import State

#: A pass takes 10 µs a pod, and each pod has some five events in a life: a job of more pods than
#: this rests between two passes, the longer the larger it is (seconds a pod, and at most).
SMALL_JOB = 8
REST_PER_POD = 0.005
REST_MOST = 4.0

#: Seconds between two looks for what a job owns and nobody watches: as long as a pod of it starts,
#: and else (three requests a job).
LOOK_STARTING = 30.0
LOOK = 300.0


def job_seen(s: State, event: e.JobSeen) -> None:
    """A job was added or changed."""
    meta = event.raw["metadata"]
    key = (event.resource, meta["namespace"], meta["name"])
    job = s.jobs.get(key)
    if not s.kinds[event.resource].takes(event.raw):
        return  # seen in the version of another kind, too
    if job is not None and job.uid != meta["uid"]:
        forget_job(s, job)
        job = None
    if job is None:
        job = Job(event.resource, meta["namespace"], meta["name"], meta["uid"], event.raw)
        s.jobs[key] = job
        s.jobs_by_uid[job.uid] = job
        # What it owns may have been listed before it was.
        for pod in s.orphans.pop(job.uid, {}).values():
            job.show_pod(pod)
            s.pod_jobs[pod.metadata.uid] = job
        job.services |= {name for _, name in s.orphan_services.pop(job.uid, set())}
    jobwrites.show(job, event.raw)
    job.dirty = True


def job_gone(s: State, event: e.JobGone) -> None:
    """A job was deleted; its pods and its group go with it (owner references)."""
    job = s.jobs.get((event.resource, event.namespace, event.name))
    if job is not None and job.uid == event.uid:
        forget_job(s, job)


def forget_job(s: State, job: Job) -> None:
    """Drop a job and the replicas that it wanted and that do not exist."""
    del s.jobs[job.resource, job.namespace, job.name]
    s.jobs_by_uid.pop(job.uid, None)
    gang = s.gangs.get(GroupKey(VOLCANO_GROUPS, job.namespace, job.name))
    if gang is not None and gang.job in (None, _key(job)):
        keeping.end(s, gang)
        _want(s, gang, ())
    for resource in s.kinds:
        # One of another kind may have waited for the name.
        if (namesake := s.jobs.get((resource, job.namespace, job.name))) is not None:
            namesake.dirty = True


def drop_jobless(s: State, gang: Gang) -> None:
    """A replica that does not exist is wanted by its job alone: without the job it is no member.

    Its pod, or the answer to its creation, may be lost after the job has gone, and a group of
    that name may have come that is no job's.
    """
    key = gang.key
    mine = key.resource == VOLCANO_GROUPS and any(
        (resource, key.namespace, key.name) in s.jobs for resource in s.kinds
    )
    if not mine and gang.count(Member.WANTED):
        _want(s, gang, ())


def service_seen(s: State, event: e.ServiceSeen) -> None:
    """A service was added or changed."""
    place = (event.metadata.namespace, event.metadata.name)
    for owner in event.metadata.owner_references:
        job = s.jobs_by_uid.get(owner.uid)
        if job is None and not s.runs(owner):
            continue
        s.service_owners.setdefault(place, set()).add(owner.uid)
        if job is None:
            s.orphan_services.setdefault(owner.uid, set()).add(place)
        elif event.metadata.name not in job.services:
            job.services.add(event.metadata.name)
            job.dirty = True


def service_gone(s: State, event: e.ServiceGone) -> None:
    """A service was deleted."""
    place = (event.namespace, event.name)
    for owner in sorted(s.service_owners.pop(place, ())):
        places = s.orphan_services.get(owner, set())
        places.discard(place)
        if not places:
            s.orphan_services.pop(owner, None)
        job = s.jobs_by_uid.get(owner)
        if job is not None and event.name in job.services:
            job.services.discard(event.name)
            job.dirty = True
            children.suspect(job, SERVICES, event.name)


def reconcile(s: State, job: Job, now: float) -> None:
    """Ask the kind what the job needs now, and send what is not under way."""
    job.dirty = False
    kind = s.kinds[job.resource]
    pods = [job.pods[name] for name in sorted(job.pods)]
    if len(pods) > SMALL_JOB:
        job.rest_until = now + min(len(pods) * REST_PER_POD, REST_MOST)
        s.send(c.WakeAt(job.rest_until))
    coming = (name for verb, name in job.in_flight if verb == "service")
    ends = list(job.ends.values())
    services = frozenset({*job.services, *coming})
    step = kind.reconcile(job.raw, pods, services, now, ends, s.health.news)
    key = GroupKey(VOLCANO_GROUPS, job.namespace, job.name)
    gang = s.gangs.get(key)
    _restarts(s, job, gang, step, now)
    step = job.step = advising.show(s, job, kind, step, now)
    if step.annotations is None and not step.keep_ends:
        job.ends.clear()
    job.wake_at = step.wake_at
    if step.wake_at is not None:
        s.send(c.WakeAt(step.wake_at))
    for type_, reason, message in step.notices:
        s.notice(job.resource, job.namespace, job.name, job.uid, type_, reason, message)
    if step.annotations is not None:
        # Written first: a count of restarts that is not persisted would be lost with its pods.
        jobwrites.annotate(s, job, step.annotations)
        if GANG_RESTART in step.annotations:
            # A large gang, too, is stopped as soon as that is written.
            job.rest_until = now
        return
    if step.delete_job:
        jobwrites.delete(s, job, job.resource, job.name, job.uid)
        return
    _writes(s, job, step, now)
    stuck.tend(s, job, now)
    if gang is not None and gang.job != _key(job) and gang.job in s.jobs:
        if step.group is not None:
            _name_taken(s, job, s.jobs[gang.job])
        return
    _look_again(s, job, step, now)
    autoscaling.keep(s, job, step.autoscaler)
    complete = children.keep(s, job, step.children)
    if step.group is not None:
        jobwrites.group(s, job, key, step.group, now)
        gang = s.gang(key)
        gang.job = _key(job)
        gang.failures = step.failures
    if gang is not None:
        _gather(s, job, gang, step, step.wanted if complete else (), now)


def _restarts(s: State, job: Job, gang: Gang | None, step: JobStep, now: float) -> None:
    """A member was seen to fail: that says something about its node, as long as there is one. While
    the gang is stopped for it, its places are kept.
    """
    if step.failed is not None and s.cluster.row_of(step.failed.node) is not None:
        s.health.note(step.failed, job.uid)
    if gang is not None and gang.job == _key(job):
        keeping.note(s, gang, step, now)


def _look_again(s: State, job: Job, step: JobStep, now: float) -> None:
    """What is not watched may have been deleted by somebody: it is looked for now and then, and
    sooner while a pod starts that may mount it. Not where nobody needs it any more.
    """
    if not step.autoscaler and all(child.shows for child in step.children):
        return
    starting = any(
        pod.spec.node_name and pod.status.phase in ("", "Pending") for pod in job.pods.values()
    )
    due = job.looked_at + (LOOK_STARTING if starting else LOOK)
    if now >= due:
        children.look(job)
        autoscaling.look(job)
        job.looked_at, due = now, now + (LOOK_STARTING if starting else LOOK)
    s.look_at_job(job, due)


def _gather(
    s: State, job: Job, gang: Gang, step: JobStep, wanted: tuple[Replica, ...], now: float
) -> None:
    """Bring the gang to the replicas that are wanted now; those of ``step.later`` wait."""
    _want(s, gang, wanted)
    if gang.later != step.later:
        gang.later, gang.dirty = step.later, True
        if gang.stage != Stage.WRITING and (gang.stage != Stage.WAITING or gang.satisfied()):
            releasing.let_through(s, gang, now)
    if gang.count(Member.WANTED):
        admission.admit(s, gang, job, now)


def _key(job: Job) -> tuple[Resource, str, str]:
    return job.resource, job.namespace, job.name


def _name_taken(s: State, job: Job, holder: Job) -> None:
    """Jobs of two kinds with one name would have one PodGroup, and pods of the same names."""
    message = (
        f"{holder.resource.kind} {holder.name} has the PodGroup of this name;"
        f" this {job.resource.kind} waits until that one is deleted: give one of them another name"
    )
    s.notice(job.resource, job.namespace, job.name, job.uid, "Warning", "NameTaken", message)


def _writes(s: State, job: Job, step: JobStep, now: float) -> None:
    jobwrites.wish(s, job, step, now)
    jobwrites.serve(s, job, now)
    for name, uid in step.delete_pods:
        jobwrites.delete(s, job, PODS, name, uid, stuck.grace_of(job.pods.get(name), step.grace))
    for name in step.delete_services:
        jobwrites.delete(s, job, SERVICES, name, "")
    if step.status is not None and not jobwrites.first_waits(s, job, step, now):
        jobwrites.status(s, job, step.status)


def _want(s: State, gang: Gang, wanted: tuple[Replica, ...]) -> None:
    """Make the replicas that the job wants members; drop those it wants no more."""
    names = {replica.pod_name for replica in wanted}
    for slot in list(gang.members.values()):
        slot.unwanted = slot.state == Member.CREATING and slot.name not in names
        if slot.state == Member.WANTED and slot.name not in names:
            s.discharge(gang, slot, "the job wants it no more")
    for replica in wanted:
        known = gang.members.get(replica.pod_name)
        if known is None:
            fresh = Slot(replica.pod_name, replica.role, Member.WANTED, remade=True)
            fresh.replica = replica
            s.enroll(gang, fresh)
        elif not known.uid:
            # An adopted plan may have waited for it.
            gang.dirty = gang.dirty or known.replica is None
            known.replica = replica
