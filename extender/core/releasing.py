"""From a plan to pods that kube-scheduler may bind: write the record, then release.

Write-ahead: nothing is released before the API server holds the plan.
"""

from __future__ import annotations

from typing import Any

from extender.core import attempts, creating, telling
from extender.core import commands as c
from extender.core.api import GANG_PLANS
from extender.core.events import Done
from extender.core.gang import Gang, Member, Slot, Stage, stays
from extender.core.reasons import Code
from extender.core.record import DONE, PLANNED, PlannedMember, PlanRecord, encode, record_name
from extender.core.reporting import REPORT_DELAY
from extender.core.state import State


def begin(s: State, gang: Gang, now: float) -> None:
    """A gang has just been given nodes: record them unless the gang is whole already.

    Members beyond minMember, and replacements that keep it whole, need no record: no barrier
    waits for them, and their nomination (or pin) is itself written before they can be bound.
    """
    gang.progress_at = now
    if not any(map(stays, gang.members.values())):
        # Nobody is left of its earlier life: what is bound now is rolled back as a first commit is.
        gang.was_whole = False
    if gang.stays_satisfied():
        let_through(s, gang, now)
        return
    if gang.stage == Stage.WAITING:
        gang.attempt += 1
        gang.began_at = now
        gang.arrived_at = None
    write(s, gang, PLANNED)


def write(s: State, gang: Gang, state: str) -> None:
    """Write the gang's plan record; a plan that is written is then released."""
    if state == PLANNED:
        gang.stage = Stage.WRITING
    name = record_name(gang.key)
    if not gang.record_version:
        # That of an earlier group of this name, which the garbage collector has not come to yet.
        gang.record_version = s.plan_versions.get((gang.key.namespace, name), "")
    members = [m for m in gang.members.values() if m.node]
    members.sort(key=lambda m: m.name)
    plan = PlanRecord(
        key=gang.key,
        group_uid=gang.uid,
        epoch=s.epoch,
        attempt=gang.attempt,
        state=state,
        min_member=gang.min_member,
        members=tuple(PlannedMember(m.name, m.uid, m.task, m.node) for m in members),
        resource_version=gang.record_version,
    )
    body = encode(plan)
    if state != PLANNED:
        body = {"metadata": body["metadata"], "spec": {"state": state, "epoch": s.epoch}}
    gang.record_in_flight = True

    def then(done: Done, now: float) -> None:
        _written(s, gang, state, done, now)

    id_ = s.next_id(then)
    namespace = gang.key.namespace
    if gang.record_version:
        s.send(c.Patch(id_, c.Lane.PLAN, GANG_PLANS, namespace, name, body))
    else:
        s.send(c.Create(id_, c.Lane.PLAN, GANG_PLANS, namespace, body))


def _written(s: State, gang: Gang, state: str, done: Done, now: float) -> None:
    gang.record_in_flight = False
    gang.dirty = True
    if s.gangs.get(gang.key) is not gang:
        return
    if done.ok:
        meta: dict[str, Any] = (done.object or {}).get("metadata", {})
        gang.record_version = meta.get("resourceVersion", "")
        if state == PLANNED and gang.stage == Stage.WRITING:
            gang.stage = Stage.COMMITTING if started(gang) else Stage.RELEASED
            # However long the write took (or the old leader has been gone), they come from now on.
            gang.progress_at = now
            let_through(s, gang, now)
        return
    if done.code in (404, 409):
        # Gone or changed by somebody else: the watch tells its true version; write it anew.
        known = s.plan_versions.get((gang.key.namespace, record_name(gang.key)), "")
        gang.record_version = known if done.code == 409 else ""
        if state == PLANNED and started(gang) and gang.stage == Stage.WRITING:
            # What is bound waits for the rest, whose places nobody else may get: written again soon.
            gang.not_before = now + s.rules.retry_seconds
            return
    if state == PLANNED:
        why = f"its plan could not be written: {done.code} {done.message}"
        attempts.abort(s, gang, why, now)


def write_again(s: State, gang: Gang, now: float) -> None:
    """Write the plan of a gang that is bound in part, and whose record had changed, once more."""
    if gang.stage != Stage.WRITING or gang.record_in_flight:
        return
    if now >= gang.not_before:
        write(s, gang, PLANNED)
    else:
        s.look(gang, gang.not_before)


def started(gang: Gang) -> bool:
    """Some of it is bound, and stays, or is on its way."""
    if gang.count(Member.BINDING):
        return True
    return gang.placed() > 0 and any(map(stays, gang.members.values()))


def let_through(s: State, gang: Gang, now: float) -> None:
    """Release every planned member that is not on its way yet, beginning with this step.

    Of a replica that an adopted plan names, its job is first to say that it wants it.
    """
    held = (
        slot
        for slot in gang.unplaced()
        if slot.node and (slot.state == Member.HELD or _wanted(slot))
    )
    gang.to_release = [slot.name for slot in held if slot.name not in gang.later][::-1]
    if gang.to_release:
        s.look(gang, now)


def _wanted(slot: Slot) -> bool:
    return slot.state == Member.WANTED and slot.replica is not None


def release(s: State, gang: Gang, now: float) -> None:
    """Release the next members, as many as a step may: /filter waits while it runs."""
    while gang.to_release and s.releases:
        s.releases -= 1
        slot = gang.members.get(gang.to_release.pop())
        if slot is None or not slot.node or slot.deleting:
            continue
        gang.progress_at = now
        if slot.state == Member.WANTED:
            creating.create(s, gang, slot, slot.node, now)
        elif slot.state == Member.HELD and slot.pinned and slot.pinned != slot.node:
            s.delete_pod(gang, slot)
        elif slot.state == Member.HELD:
            telling.nominate(s, gang, slot, now)
    if gang.to_release:
        s.look(gang, now)


def finish(s: State, gang: Gang, now: float) -> None:
    """The gang is whole: its record says so, and a restart adopts nothing."""
    gang.stage = Stage.WAITING
    gang.partial_since = None
    gang.partial = False
    gang.was_whole = True
    if (job := s.jobs.get(gang.job) if gang.job else None) is not None and job.ready_at is not None:
        # Its first status has waited for this; the watch shows the last of its pods in a moment.
        s.look_at_job(job, now + REPORT_DELAY)
    if gang.refusal is not None and gang.refusal.code == Code.BACK_OFF:
        # Bound all the same: by a Binding whose answer was lost, by another leader, by hand.
        gang.refusal = None
    if gang.record_version and not gang.record_in_flight:
        write(s, gang, DONE)
