"""What users see of a gang: its record's phase, counts and conditions, and events.

Phases and conditions are Volcano's (facts: pkg/scheduler/framework/session.go), coscheduling's or
Kubernetes' own, by the kind of the record. A status is written when its words change, and counts
at most once a second; nothing is written on a group none of whose members names Muster.
"""

from __future__ import annotations

from typing import Protocol

from extender.core import commands as c
from extender.core.api import NATIVE_GROUPS, PODS, SIGS_GROUPS
from extender.core.events import Done
from extender.core.gang import UNPLACED, Gang, Member, Stage
from extender.core.ingest import MARK
from extender.core.objects import Condition, Manifest
from extender.core.reasons import Code
from extender.core.state import State, Then
from extender.core.times import rfc3339

#: Of Kubernetes' own PodGroup (scheduling.k8s.io/v1beta1); once True it stays so.
NATIVE_CONDITION = "PodGroupInitiallyScheduled"
#: Counts alone are not worth a write more often than this (seconds).
REPORT_SECONDS = 1.0
#: A status is written this long after it changed, so that a gang which passes several phases in
#: a moment, as most do, is written once.
REPORT_DELAY = 0.3
#: A gang on its way passes several phases, and is looked at again when it has landed: until then its
#: status waits, for so long (seconds). A status costs the API server as much as two pods.
LANDING_SECONDS = 30.0
#: A status that could not be written is written again after this (seconds).
REPORT_AGAIN_SECONDS = 10.0


class Written(Protocol):
    """What follows a status write, applied at ``at``."""

    def __call__(self, at: float, *, ok: bool) -> None:
        """``ok``: whether the record says now what it should."""


#: Headlines that Volcano calls NotEnoughTasks or NotEnoughPodsOfTask.
_VOLCANO_REASON = {
    Code.TOO_FEW_PODS: "NotEnoughTasks",
    Code.TOO_FEW_OF_TASK: "NotEnoughPodsOfTask",
    Code.NO_ROOM: "NotEnoughResources",
    Code.NEVER_FITS: "NotEnoughResources",
    Code.NO_NODE_ADMITS: "NotEnoughResources",
    Code.MIN_RESOURCES: "NotEnoughResources",
}


def held_message(s: State, gang: Gang) -> str:
    """The constant sentence for members that are held, and for people (S1)."""
    told = gang.told()
    why = told.render() if told is not None else "it is being planned"
    return f"{MARK}gang {gang.key} waits: {why}"


def report(s: State, gang: Gang, now: float) -> None:
    """Write the record's status if what it should say has changed."""
    if not gang.uid or gang.status_in_flight:
        return
    due = gang.report_again_at is not None
    if not gang.members and gang.job is None and gang.reported_at < 0 and not due:
        # Others' pods alone: their scheduler's record. One that was emptied says so.
        return
    landed_by = gang.began_at + LANDING_SECONDS
    if gang.stage != Stage.WAITING and now < landed_by:
        s.look(gang, landed_by)
        return
    if gang.report_again_at is not None:
        if now < gang.report_again_at:
            s.look(gang, gang.report_again_at)
            return
        gang.report_again_at = None
    phase, conditions = _phase(gang), _conditions(gang, now)
    counts = (len(gang.running), gang.count(Member.FINISHED), gang.count(Member.FAILED))
    words_differ = phase != gang.phase or conditions != gang.conditions
    if not words_differ and counts == gang.counts:
        if gang.key.resource == NATIVE_GROUPS and not gang.satisfied():
            # Its condition is final once it was whole: what it lacks now is said in Events alone.
            _events(s, gang)
        return
    earliest = now if due else now + REPORT_DELAY
    if not words_differ:
        earliest = max(earliest, gang.reported_at + REPORT_SECONDS)
    if now < earliest:
        gang.report_again_at = earliest
        s.look(gang, earliest)
        return
    gang.reported_at = now
    gang.status_in_flight = True

    def written(at: float, *, ok: bool) -> None:
        gang.status_in_flight = False
        if ok:
            gang.phase, gang.conditions, gang.counts = phase, conditions, counts
            # It may have gone on meanwhile.
            s.look(gang, at)
        else:
            s.count("status_failures")
            gang.report_again_at = at + REPORT_AGAIN_SECONDS
            s.look(gang, gang.report_again_at)

    _write(s, gang, _status(gang, phase, conditions, counts), written)
    _events(s, gang)


def _write(s: State, gang: Gang, status: Manifest, written: Written) -> None:
    """Patch the status; the object itself where its CRD has no status subresource.

    Such a CRD answers 404 although the object is there. It is known by its keeping a status that
    is patched into the object, which others ignore.
    """
    key, body = gang.key, {"metadata": {"uid": gang.uid}, "status": status}

    def patch(subresource: str, then: Then) -> None:
        id_, lane = s.next_id(then), c.Lane.STATUS
        s.send(c.Patch(id_, lane, key.resource, key.namespace, key.name, body, subresource))

    def whole(done: Done, at: float) -> None:
        kept = (done.object or {}).get("status") or {}
        ok = done.ok and all(kept.get(name) == value for name, value in status.items())
        if ok:
            s.without_status.add(key.resource)
        written(at, ok=ok)

    def sub(done: Done, at: float) -> None:
        if done.code == 404:
            patch("", whole)
        else:
            written(at, ok=done.ok)

    if key.resource in s.without_status:
        patch("", whole)
    else:
        patch("status", sub)


def _phase(gang: Gang) -> str:
    finished, failed = gang.count(Member.FINISHED), gang.count(Member.FAILED)
    sigs = gang.key.resource == SIGS_GROUPS
    if gang.satisfied():
        if finished and not gang.count(Member.BOUND, *UNPLACED):
            return "Finished" if sigs else "Completed"
        return "Running"
    if gang.placed():
        return "Unknown"
    if gang.stage != Stage.WAITING:
        return "Scheduling" if sigs else "Inqueue"
    if failed and not gang.count(*UNPLACED):
        return "Failed" if sigs else "Completed"
    return "Pending"


def _conditions(gang: Gang, now: float) -> tuple[Condition, ...]:
    """Muster's conditions in their place among those that others have put there."""
    wanted: dict[str, Condition] = {}
    if gang.key.resource == NATIVE_GROUPS:
        good = gang.satisfied()
        if not any(
            old.type == NATIVE_CONDITION and old.status == "True" for old in gang.conditions
        ):
            wanted[NATIVE_CONDITION] = Condition(
                NATIVE_CONDITION,
                "True" if good else "False",
                "Scheduled" if good else "Unschedulable",
                "" if good else _sentence(gang),
            )
    elif gang.satisfied():
        wanted["Scheduled"] = Condition(
            "Scheduled", "True", "tasksReady", "tasks in gang are ready to be scheduled"
        )
        if any(c.type == "Unschedulable" for c in gang.conditions):
            wanted["Unschedulable"] = Condition("Unschedulable", "False", "Scheduled", "")
    elif not gang.members and gang.refusal is None:
        # Nobody is wanted (its job is suspended, or has ended): nobody waits.
        if any(c.type == "Unschedulable" for c in gang.conditions):
            wanted["Unschedulable"] = Condition("Unschedulable", "False", "NoPods", "")
    elif gang.refusal is not None:
        code = gang.refusal.code
        reason = _VOLCANO_REASON.get(code, str(code))
        wanted["Unschedulable"] = Condition("Unschedulable", "True", reason, _sentence(gang))
        if any(c.type == "Scheduled" for c in gang.conditions):
            wanted["Scheduled"] = Condition("Scheduled", "False", reason, "")
    kept = []
    for old in gang.conditions:
        new = wanted.pop(old.type, None)
        kept.append(old if new is None or _same(old, new) else _stamped(new, now, old))
    return (*kept, *(_stamped(new, now, None) for new in wanted.values()))


def _sentence(gang: Gang) -> str:
    told = gang.told()
    return told.render() if told is not None else "being planned"


def _same(old: Condition, new: Condition) -> bool:
    return (old.status, old.reason, old.message) == (new.status, new.reason, new.message)


def _stamped(new: Condition, now: float, old: Condition | None) -> Condition:
    at = rfc3339(now)
    if old is not None and old.status == new.status and old.last_transition_time:
        at = old.last_transition_time
    return Condition(new.type, new.status, new.reason, new.message, at)


def _status(
    gang: Gang, phase: str, conditions: tuple[Condition, ...], counts: tuple[int, int, int]
) -> Manifest:
    rows = [
        {
            "type": each.type,
            "status": each.status,
            "reason": each.reason or each.type,
            "message": each.message,
            "lastTransitionTime": each.last_transition_time,
        }
        for each in conditions
    ]
    if gang.key.resource == NATIVE_GROUPS:
        return {"conditions": rows}
    running, succeeded, failed = counts
    # scheduler-plugins' own CRD has no conditions and drops them; with Muster's they are kept.
    return {
        "phase": phase,
        "running": running,
        "succeeded": succeeded,
        "failed": failed,
        "conditions": rows,
    }


def _events(s: State, gang: Gang) -> None:
    """The record's own words as events on it, and on its job (whose pods may not exist yet)."""
    key = gang.key
    if gang.satisfied():
        type_, reason = "Normal", "Scheduled"
        message = f"{gang.placed()} of at least {gang.min_member} pods bound"
    elif gang.stage == Stage.WAITING and gang.refusal is not None:
        type_, reason, message = "Warning", "Unschedulable", _sentence(gang)
    else:
        return
    s.notice(key.resource, key.namespace, key.name, gang.uid, type_, reason, message)
    job = s.jobs.get(gang.job) if gang.job else None
    if job is not None:
        s.notice(job.resource, job.namespace, job.name, job.uid, type_, reason, message)


def orphan_notices(s: State, gang: Gang) -> None:
    """A group that has no record: its members are where the reason can be read."""
    told = gang.told()
    if gang.uid or told is None:
        return
    for slot in sorted(gang.members.values(), key=lambda m: m.name):
        if slot.uid:
            ns, why = gang.key.namespace, told.render()
            s.notice(PODS, ns, slot.name, slot.uid, "Warning", str(told.code), why)
