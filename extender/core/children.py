"""What a job owns beside pods and their Services: made before its pods, and kept as it should be.

None is watched (a cluster has thousands of ConfigMaps and Secrets, which are nobody's business). Each
is written once in the life of this process, again when it changes, and asked for now and then, since
somebody may have deleted it. One that exists already is left alone unless this job owns it, which the
executor finds out; the job then waits, and says so in mpi-operator's words.
"""

from __future__ import annotations

from extender.core import commands as c
from extender.core.admission import ADMISSION_SECONDS
from extender.core.api import Resource
from extender.core.events import Done
from extender.core.framework import Child
from extender.core.job import Job
from extender.core.objects import Manifest
from extender.core.state import State


def keep(s: State, job: Job, wanted: tuple[Child, ...]) -> bool:
    """Bring them to what is wanted; whether all of them exist."""
    for at, child in enumerate(wanted):
        known = job.children.get(_place(child))
        if _flight(child) in job.in_flight or _place(child) in job.denied:
            continue
        if known is None or _place(child) in job.unsure:
            if not child.last or all(_sure(job, each) for each in wanted[:at]):
                job.unsure.discard(_place(child))
                _create(s, job, child)
        elif known != _following(child):
            _change(s, job, child)
    return _all(job, wanted)


def look(job: Job) -> None:
    """Those that are there no more are made again. All count as there meanwhile: no pod waits."""
    job.unsure.update(job.children)
    job.denied.clear()


def suspect(job: Job, resource: Resource, name: str) -> None:
    """It was seen to go: made again at the next pass."""
    if (resource.plural, name) in job.children:
        job.unsure.add((resource.plural, name))


def _all(job: Job, some: tuple[Child, ...]) -> bool:
    return all(_place(child) in job.children for child in some if not child.shows)


def _sure(job: Job, child: Child) -> bool:
    """Whether it is there and the job's own."""
    place = _place(child)
    return place in job.children and place not in job.unsure and _flight(child) not in job.in_flight


def _place(child: Child) -> tuple[str, str]:
    return child.resource.plural, child.name


def _flight(child: Child) -> tuple[str, str]:
    return "child", f"{child.resource.plural}/{child.name}"


def _following(child: Child) -> Manifest:
    return {field: child.body[field] for field in child.follows}


def _create(s: State, job: Job, child: Child) -> None:
    job.in_flight.add(_flight(child))

    def then(done: Done, now: float) -> None:
        job.in_flight.discard(_flight(child))
        if done.ok and done.reason == c.OWNED:
            if _place(child) not in job.children:
                # One of an earlier life of this process may say what was true then.
                job.children[_place(child)] = {}
                job.child_uids.pop(_place(child), None)
            job.dirty = True
        elif done.ok:
            # A status is nothing that is created.
            job.children[_place(child)] = {} if child.shows else _following(child)
            _note_uid(job, child, done)
            job.dirty = True
        elif done.code == 409:
            job.children.pop(_place(child), None)
            if child.shows:
                job.denied.add(_place(child))
            kind = child.resource.kind
            message = (
                f'Resource "{child.name}" of Kind "{kind}" already exists and is not managed by'
            )
            _say(s, job, "ErrResourceExists", f"{message} {job.resource.kind}")
            s.look_at_job(job, now + ADMISSION_SECONDS)
        else:
            _refused(s, job, child, done, now)

    s.send(c.Create(s.next_id(then), c.Lane.JOB, child.resource, job.namespace, child.body))


def _change(s: State, job: Job, child: Child) -> None:
    wanted = _following(child)
    job.in_flight.add(_flight(child))

    def then(done: Done, now: float) -> None:
        job.in_flight.discard(_flight(child))
        job.dirty = True
        if done.ok:
            job.children[_place(child)] = wanted
            _note_uid(job, child, done)
        elif done.code in (404, 409):
            # Somebody deleted it: made again, unless another one has its name.
            job.children.pop(_place(child), None)
        else:
            _refused(s, job, child, done, now)

    uid = job.child_uids.get(_place(child))
    body = {**wanted, "metadata": {"uid": uid}} if uid else wanted
    id_, sub = s.next_id(then), "status" if child.shows else ""
    lane = c.Lane.STATUS if child.shows else c.Lane.JOB
    s.send(c.Patch(id_, lane, child.resource, job.namespace, child.name, body, sub))


def _note_uid(job: Job, child: Child, done: Done) -> None:
    """So that a patch changes this very object, and none that took its name."""
    job.child_uids.pop(_place(child), None)
    if uid := ((done.object or {}).get("metadata") or {}).get("uid"):
        job.child_uids[_place(child)] = uid


def _refused(s: State, job: Job, child: Child, done: Done, now: float) -> None:
    what = f"{child.resource.kind} {child.name} could not be written: {done.code} {done.message}"
    if child.rights and done.code == 403:
        what += f"; the rights for it are in {child.rights}"
    _say(s, job, child.resource.kind, what)
    if child.shows:
        job.denied.add(_place(child))
        return
    job.rest_until = max(job.rest_until, now + ADMISSION_SECONDS)
    s.look_at_job(job, job.rest_until)


def _say(s: State, job: Job, reason: str, message: str) -> None:
    s.notice(job.resource, job.namespace, job.name, job.uid, "Warning", reason, message)
