"""Failover: what a new leader does with plans it finds, and what an old leader may still send.

There is no fencing token. A new leader re-stamps the plans it adopts with its epoch (their
resourceVersion changes, so a late write of the old leader conflicts) and voids those of an older
epoch that appear later. Members are re-nominated before anything about them is decided anew, which
changes their pods, so that a late Binding of the old leader answers 409.
"""

from __future__ import annotations

from extender.core import binding, releasing
from extender.core import commands as c
from extender.core import events as e
from extender.core.api import GANG_PLANS
from extender.core.events import Done
from extender.core.gang import UNPLACED, Gang, Member, Slot, Stage
from extender.core.identity import GroupKey
from extender.core.ingest import plain_key, tell_of_devices, version
from extender.core.record import DONE, PLANNED, VOID, PlanRecord, decode, record_name
from extender.core.shape import PodShape
from extender.core.snapshot import Snapshot
from extender.core.state import State, reservation_key


def plan_seen(s: State, event: e.PlanSeen) -> None:
    """A plan record was added or changed: by this replica, by another, or by a user."""
    record = decode(event.raw)
    meta = event.raw["metadata"]
    name = meta["name"]
    # Whatever it says: a plan of that name is written over this one.
    s.plan_versions[meta["namespace"], name] = meta["resourceVersion"]
    if record is None:
        s.count("unreadable_plans")
        return
    if name != record_name(record.key):
        s.count("forged_plans")
        return
    s.records[record.key.namespace, name] = record
    gang = s.gangs.get(record.key)
    if gang is not None and not gang.record_in_flight:
        gang.record_version = record.resource_version
    if s.leading and record.state == PLANNED and record.epoch < s.epoch:
        _void(s, record)


def plan_gone(s: State, event: e.PlanGone) -> None:
    """A plan record was deleted; what it promised is in the pods, or is written again."""
    s.plan_versions.pop((event.namespace, event.name), None)
    record = s.records.get((event.namespace, event.name))
    if record is not None and record.uid == event.uid:
        del s.records[event.namespace, event.name]
        owner = s.gangs.get(record.key)
        if owner is not None:
            owner.record_version = ""


def gained(s: State, event: e.LeaderGained, now: float) -> None:
    """This replica leads from now on: adopt every plan that still stands."""
    s.leading, s.epoch = True, event.epoch
    s.forget_commands()
    for gang in s.gangs.values():
        _reset(s, gang, "leadership changed")
    binding.call_off(s)
    # The newest first: an older plan may have been given up, and its places given away.
    view = Snapshot(s.cluster)
    for record in sorted(s.records.values(), key=_age, reverse=True):
        found = s.gangs.get(record.key)
        if found is not None and found.uid == record.group_uid:
            _adopt(s, view, found, record)
    for job in s.jobs.values():
        job.in_flight.clear()
        job.children.clear()  # another leader may have written them
        job.dirty = True
    for uid, name in s.cluster.sharing():
        tell_of_devices(s, uid, *name.split("/"))


def lost(s: State) -> None:
    """This replica leads no more: it keeps watching, and promises nothing."""
    s.leading = False
    for gang in s.gangs.values():
        _reset(s, gang, "this replica does not lead any more")
    for token in [*s.binds, *s.tokens]:
        s.binds.pop(token, None)
        s.send(c.Answer(token, "this replica does not lead any more"))
    s.refused.clear()
    sent = {plain_key(uid) for uid in s.sent}
    for key in [k for k in s.cluster.reserved_keys - sent if k.startswith("plain ")]:
        s.cluster.release(key)
    s.forget_commands()


def _reset(s: State, gang: Gang, why: str) -> None:
    """Back to what the API server itself shows of the gang, or has answered: a member that is bound
    keeps its place, however late the watch shows it (I2), and so does one that may be.
    """
    for slot in list(gang.members.values()):
        s.reject(slot, why)
        # Its deletion may have been refused, as this replica did not lead any more.
        slot.deleting = slot.terminating
        if slot.state == Member.BINDING:
            _keep(s, gang, slot)
        if slot.state in UNPLACED:
            s.unassign(gang, slot)
        if slot.state in (Member.CREATING, Member.WANTED):
            # A replica that does not exist: wanted again once its job has been looked at.
            s.discharge(gang, slot, why)
        elif slot.state in UNPLACED:
            gang.move(slot, Member.HELD)
    gang.stage = Stage.WAITING
    gang.strays_at = 0.0
    gang.record_in_flight = gang.status_in_flight = False
    gang.not_before = gang.record_again_at = 0.0
    gang.record_unseen = False
    gang.refused_at = -1
    gang.dirty = True


def _keep(s: State, gang: Gang, slot: Slot) -> None:
    row = s.cluster.row_of(slot.node)
    if row is None or slot.shape is None or s.unmanaged(slot.shape):
        return
    namespace, version = gang.key.namespace, slot.resource_version
    s.sent[slot.uid] = c.Bind(0, namespace, slot.name, slot.uid, version, slot.node)
    s.cluster.release(reservation_key(gang, slot))
    s.cluster.reserve(plain_key(slot.uid), slot.shape, row)


def _age(record: PlanRecord) -> tuple[int, GroupKey]:
    return version(record.resource_version), record.key


def _adopt(s: State, view: Snapshot, gang: Gang, record: PlanRecord) -> None:
    gang.attempt = max(gang.attempt, record.attempt)
    gang.record_version = record.resource_version
    gang.was_whole = record.state == DONE
    if record.state != PLANNED:
        return
    for planned in record.members:
        slot = gang.members.get(planned.name)
        if slot is None and not planned.uid and gang.job is not None:
            slot = Slot(planned.name, planned.role, Member.WANTED, remade=True)
            s.enroll(gang, slot)
        row = s.cluster.row_of(planned.node)
        fits = row is not None and slot is not None and slot.state in UNPLACED
        if not fits or slot is None or planned.uid not in ("", slot.uid):
            continue
        slot.hint = planned.node
        slot.shape = slot.shape or _role_shape(gang, planned.role)
        if slot.shape is None or row is None or slot.pinned not in ("", planned.node):
            continue
        if view.feasible(slot.shape)[row]:
            view.place(slot.shape, row)
            s.assign(gang, slot, planned.node)
    s.count("adopted_plans")
    if any(slot.node for slot in gang.unplaced()):
        releasing.write(s, gang, PLANNED)


def _role_shape(gang: Gang, task: str) -> PodShape | None:
    """A replica that does not exist looks like those of its role that do, if they look alike; the first
    one may have a label that the others have not (job-role).
    """
    peers = (m for m in gang.members.values() if m.task == task and m.shape is not None)
    best = min(peers, key=lambda m: (_leads(m), m.name), default=None)
    return best.shape if best is not None and best.shape and not best.shape.numbered else None


def _leads(slot: Slot) -> bool:
    return slot.replica is not None and slot.replica.index == 0


def _void(s: State, record: PlanRecord) -> None:
    """A plan of an older epoch appeared after this leader's takeover: it promises nothing."""
    s.count("voided_plans")
    name = record_name(record.key)
    body = {
        "metadata": {"resourceVersion": record.resource_version},
        "spec": {"state": VOID, "epoch": s.epoch},
    }

    def then(done: Done, now: float) -> None:
        owner = s.gangs.get(record.key)
        if done.ok and done.object is not None and owner is not None:
            owner.record_version = done.object["metadata"]["resourceVersion"]

    id_ = s.next_id(then)
    s.send(c.Patch(id_, c.Lane.PLAN, GANG_PLANS, record.key.namespace, name, body))
