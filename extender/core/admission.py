"""What the API server makes of a role's pods, asked (dry run) before any of them is planned."""

from __future__ import annotations

import zlib

from msgspec import ValidationError, convert, json

from extender.core import commands as c
from extender.core.api import PODS, VOLCANO_GROUPS
from extender.core.creating import dress
from extender.core.errors import InvalidObject
from extender.core.events import Done
from extender.core.gang import Gang, Member, Slot
from extender.core.identity import GroupKey
from extender.core.objects import Manifest, Pod
from extender.core.reasons import Code, Refusal, refuse
from extender.core.shape import PodShape, shape_of
from extender.core.state import Job, State

#: How long a refused dry run is believed (quota may have been freed since).
ADMISSION_SECONDS = 10.0


def admit(s: State, gang: Gang, job: Job) -> None:
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
