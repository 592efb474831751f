"""What the API server makes of a role's pods, asked (dry run) before any of them is planned."""

from __future__ import annotations

import hashlib
from typing import Any

from msgspec import ValidationError, convert, json
from msgspec.structs import replace

from extender.core import commands as c
from extender.core.api import PODS, VOLCANO_GROUPS
from extender.core.creating import dress
from extender.core.errors import InvalidObject
from extender.core.events import Done
from extender.core.gang import Gang, Member, Slot
from extender.core.groups import foreign
from extender.core.identity import GANG_RESTART, REPLICA_INDEX_LABEL, GroupKey
from extender.core.indexes import renumbered
from extender.core.ingest import PLAN_ANNOTATION
from extender.core.job import Admission, Job, admission_keys
from extender.core.objects import Manifest, Pod
from extender.core.reasons import Code, Refusal, refuse
from extender.core.shape import PodShape, shape_of
from extender.core.state import State

#: How long a refused dry run is believed (quota may have been freed since).
ADMISSION_SECONDS = 10.0


def admit(s: State, gang: Gang, job: Job, now: float) -> None:
    """Find out what the API server makes of each role's pods before they are planned, and again after
    the job was edited.
    """
    wanted = [slot for slot in gang.unplaced() if slot.state == Member.WANTED]
    _forget_edited(gang, job, wanted)
    # A role's first replica may carry a label that the others have not (job-role).
    by_role: dict[tuple[str, bool], PodShape | Refusal | None] = {}
    for slot in wanted:
        if slot.shape is not None or slot.fault is not None:
            continue
        assert slot.replica is not None
        kind = (slot.task, slot.replica.index == 0)
        if kind not in by_role:
            by_role[kind] = _admit(s, gang, job, slot, now)
        found = by_role[kind]
        if isinstance(found, PodShape) and found.numbered:
            del by_role[kind]
        if isinstance(found, Refusal):
            slot.fault = found
        elif found is not None:
            slot.shape = found
        gang.dirty = gang.dirty or found is not None


def _forget_edited(gang: Gang, job: Job, wanted: list[Slot]) -> None:
    """What pods of the job as it was would be. What is planned stays: those pods will be seen soon."""
    edited = [slot for slot in wanted if slot.edits != job.edits and not slot.node]
    known = [slot for slot in edited if slot.shape is not None or slot.fault is not None]
    for slot in edited:
        slot.edits, slot.shape, slot.fault = job.edits, None, None
    if not known:
        return
    gang.dirty, gang.refused_at = True, -1
    if not any(m.uid or m.node for m in gang.members.values()):
        gang.member_priority = None


def _admit(s: State, gang: Gang, job: Job, slot: Slot, now: float) -> PodShape | Refusal | None:
    """The shape that a role's pods will have, as one of them is admitted; None until it is known."""
    assert slot.replica is not None
    body = dress(s, gang, s.kinds[job.resource].pod(job.raw, slot.replica), "")
    form = _form(body, job.name)
    mark = (slot.task, form)
    if mark not in job.admitted:
        key, own = admission_keys(job, form)
        if (asked := s.admissions.get(key)) is not None and asked.apart:
            key = own
            asked = s.admissions.get(key)
        if asked is not None and asked.answer is not None and now - asked.at < ADMISSION_SECONDS:
            _learn(s, job, mark, asked)
        elif asked is not None and asked.answer is None:
            asked.waiting[job.uid] = mark
        else:
            _ask(s, key, job, mark, body)
    known = job.admitted.get(mark)
    if isinstance(known, Pod) and known.spec.scheduler_name not in s.rules.scheduler_names:
        return foreign(s, slot.name, known.spec.scheduler_name)
    return None if known is None else _shape(s, gang, _renamed(known, body, job.name))


def _ask(s: State, key: tuple[str, str], job: Job, mark: tuple[str, str], body: Manifest) -> None:
    """Ask once for all jobs of the namespace whose pods have this form."""
    s.admissions.pop(key, None)  # the latest is the last
    asked = s.admissions[key] = Admission(waiting={job.uid: mark})

    def then(done: Done, at: float) -> None:
        asked.at, asked.answer = at, _admitted(body["metadata"]["name"], done)
        asked.apart = _names(done.object, body, job.name)
        for uid, wanted in asked.waiting.items():
            waits = s.jobs_by_uid.get(uid)
            if waits is not None:
                if not asked.apart or waits is job:
                    _learn(s, waits, wanted, asked)
                waits.dirty, waits.rest_until = True, at
        asked.waiting.clear()
        s.send(c.WakeAt(at + ADMISSION_SECONDS))

    s.send(c.Create(s.next_id(then), c.Lane.PLAN, PODS, job.namespace, body, dry_run=True))


def forget(s: State, now: float) -> None:
    """Drop answers that are believed no longer, from the one that was asked for first."""
    while s.admissions:
        key, first = next(iter(s.admissions.items()))
        if first.answer is None or now - first.at < ADMISSION_SECONDS:
            return
        del s.admissions[key]


def _learn(s: State, job: Job, mark: tuple[str, str], asked: Admission) -> None:
    """Tell a job; a refusal is believed for a while only."""
    assert asked.answer is not None
    job.admitted[mark] = asked.answer
    if isinstance(asked.answer, Refusal):
        job.recheck[mark] = asked.at + ADMISSION_SECONDS
        s.send(c.WakeAt(job.recheck[mark]))


def _admitted(name: str, done: Done) -> Pod | Refusal:
    if done.ok and done.object is not None:
        try:
            return convert(done.object, Pod)
        except ValidationError as error:
            return refuse(Code.ADMISSION, pod=name, message=str(error))
    return refuse(Code.ADMISSION, pod=name, message=done.message)


def _names(admitted: Manifest | None, body: Manifest, job: str) -> bool:
    """Whether admission has written the job's name into the pod, where it says whom it goes with:
    the API server does so with matchLabelKeys. Then it is no answer for another job.
    """
    if admitted is None:
        return False
    labels = admitted["metadata"].get("labels") or {}
    if job in {labels[name] for name in labels.keys() - (body["metadata"].get("labels") or {})}:
        return True
    fields = ("affinity", "topologySpreadConstraints", "nodeSelector", "tolerations")
    return any(_holds(admitted["spec"].get(field), job) for field in fields)


def _holds(value: object, text: str) -> bool:
    if isinstance(value, dict):
        return any(_holds(each, text) for each in value.values())
    if isinstance(value, list):
        return any(_holds(each, text) for each in value)
    return value == text


def _renamed(admitted: Pod | Refusal, body: Manifest, job: str) -> Pod | Refusal:
    """The pod with this job's and its own name and index in its labels: another's may have been asked
    about.
    """
    if isinstance(admitted, Refusal):
        return admitted
    labels = body["metadata"].get("labels") or {}
    names = {job, body["metadata"]["name"]}
    own = {key: value for key, value in labels.items() if value in names}
    meta = replace(admitted.metadata, labels={**admitted.metadata.labels, **own})
    return renumbered(replace(admitted, metadata=meta), labels)


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


def _form(body: Manifest, job: str) -> str:
    """Equal for pods that differ in nothing that admission looks at: in what names the job or
    numbers the replica (names, such labels, environment values) alone.
    """
    spec = {k: v for k, v in body["spec"].items() if k not in ("hostname", "subdomain")}
    spec["containers"] = [
        {**box, "env": [_of_any(entry, job) for entry in box.get("env") or ()]}
        for box in spec.get("containers", ())
    ]
    if isinstance(volumes := spec.get("volumes"), list):
        spec["volumes"] = [_of_any_job(volume, job) for volume in volumes]
    if isinstance(dns := spec.get("dnsConfig"), dict) and isinstance(dns.get("searches"), list):
        others = [each for each in dns["searches"] if not str(each).startswith(f"{job}.")]
        spec["dnsConfig"] = {**dns, "searches": others}
    names = {job, body["metadata"]["name"]}
    labels, annotations = (
        {k: "" if v in names else v for k, v in (body["metadata"].get(part) or {}).items()}
        for part in ("labels", "annotations")
    )
    labels.pop(REPLICA_INDEX_LABEL, None)
    for mark in (PLAN_ANNOTATION, GANG_RESTART):
        annotations.pop(mark, None)
    form = json.encode([spec, labels, annotations], order="deterministic")
    return hashlib.blake2b(form, digest_size=16).hexdigest()


def _of_any_job(volume: Any, job: str) -> Any:
    """A volume without the name of what the job itself owns (a claim's decides where a pod fits)."""
    if not isinstance(volume, dict):  # the API server is the one to say so
        return volume
    found = dict(volume)
    for kind, field in (("secret", "secretName"), ("configMap", "name")):
        source = volume.get(kind)
        if isinstance(source, dict) and str(source.get(field)).startswith(f"{job}-"):
            found[kind] = {**source, field: ""}
    return found


def _of_any(entry: Manifest, job: str) -> Manifest:
    """An environment variable without a value that a rank or an address differs by."""
    value = entry.get("value")
    if not isinstance(value, str):  # the API server is the one to say so
        return entry
    names = value == job or f"{job}-" in value
    return {**entry, "value": ""} if names or value.isdecimal() else entry
