"""From a plan to pods that kube-scheduler may bind: write the record, then release.

Write-ahead: nothing is released before the API server holds the plan. Release is a level, not an
edge: a released member that lost its nomination and does not arrive is told again, with back-off.
"""

from __future__ import annotations

from typing import Any

from extender.core import commands as c
from extender.core.api import GANG_PLANS, PODS
from extender.core.errors import InvalidObject
from extender.core.events import Done
from extender.core.gang import PLACED, UNPLACED, Gang, Member, Slot, Stage
from extender.core.ingest import GATE, PLAN_ANNOTATION, WAKE_ANNOTATION, version
from extender.core.reasons import Code, Refusal, refuse
from extender.core.record import DONE, PLANNED, PlannedMember, PlanRecord, encode, record_name
from extender.core.state import State


def begin(s: State, gang: Gang, now: float) -> None:
    """A gang has just been given nodes: record them unless the gang is whole already.

    Members beyond minMember, and replacements that keep it whole, need no record: no barrier
    waits for them, and their nomination (or pin) is itself written before they can be bound.
    """
    gang.progress_at = now
    if not any(m.state in PLACED and not m.deleting for m in gang.members.values()):
        # Nobody is left of its earlier life: what is bound now is rolled back as a first commit is.
        gang.was_whole = False
    if gang.satisfied():
        release(s, gang, now)
        return
    gang.attempt += gang.stage == Stage.WAITING
    write(s, gang, PLANNED)


def write(s: State, gang: Gang, state: str) -> None:
    """Write the gang's plan record; a plan that is written is then released."""
    if state == PLANNED:
        gang.stage = Stage.WRITING
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
    name, body = record_name(gang.key), encode(plan)
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
        gang.record_uid = meta.get("uid", "")
        if state == PLANNED and gang.stage == Stage.WRITING:
            started = gang.placed() or any(m.state == Member.BINDING for m in gang.members.values())
            gang.stage = Stage.COMMITTING if started else Stage.RELEASED
            # However long the write took (or the old leader has been gone), they come from now on.
            gang.progress_at = now
            release(s, gang, now)
        return
    if done.code in (404, 409):
        # Gone or changed by somebody else: the watch tells its true version; write it anew.
        known = s.plan_versions.get((gang.key.namespace, record_name(gang.key)), "")
        gang.record_version = known if done.code == 409 else ""
    if state == PLANNED:
        why = f"its plan could not be written: {done.code} {done.message}"
        abort(s, gang, why, now)


def abort(s: State, gang: Gang, why: str, now: float) -> None:
    """Give the attempt up, because something failed: tried again after a pause.

    Pods stay; those with a pin keep it and are planned around it, or replaced, next time.
    """
    s.count("rollbacks")
    give_back(s, gang, why)
    pause = min(s.rules.retry_seconds * 2 ** min(gang.attempt, 10), s.rules.retry_seconds_max)
    gang.not_before = now + pause
    gang.refusal = refuse(Code.BACK_OFF, attempt=gang.attempt, why=why)
    s.send(c.WakeAt(gang.not_before))


def give_back(s: State, gang: Gang, why: str) -> None:
    """Free what is reserved for unbound members, tell those that wait; planned anew at once.

    Members whose Binding is on its way keep their place: its result decides.
    """
    for slot in gang.unplaced():
        if slot.state == Member.BINDING:
            continue
        s.unassign(gang, slot)
        s.reject(slot, why)
        if slot.gated and slot.nominated:
            # kube-scheduler counts it on that node, and does not clear it, as it never tries it.
            _patch_nomination(s, gang, slot)
        slot.tries = 0
        if slot.state not in (Member.WANTED, Member.CREATING):
            gang.move(slot, Member.HELD)
    gang.stage = Stage.WAITING
    # A refusal of some members counts what the others held; the next look at all does not.
    gang.refusal = None
    gang.refused_at = -1
    gang.dirty = True


def withdraw(s: State, gang: Gang, slot: Slot, why: str, now: float) -> None:
    """Free what a member does not come for; it is planned again after a pause."""
    s.count("withdrawals")
    s.unassign(gang, slot)
    s.reject(slot, why)
    gang.move(slot, Member.HELD)
    gang.not_before = now + s.rules.retry_seconds_max
    gang.refused_at = -1
    s.send(c.WakeAt(gang.not_before))


def partly(gang: Gang, why: Refusal | None) -> Refusal:
    """What a gang says that keeps its bound pods and cannot be completed."""
    rest = why.reasons if why is not None else ()
    rest = tuple(each for each in rest if each.code != Code.PARTIAL)
    return refuse(Code.PARTIAL, rest, bound=gang.placed(), want=gang.min_member)


def release(s: State, gang: Gang, now: float) -> None:
    """Let every planned member through that is not on its way yet."""
    for slot in gang.unplaced():
        if not slot.node or slot.deleting:
            continue
        if slot.state == Member.WANTED:
            _create(s, gang, slot, slot.node, now)
        elif slot.state == Member.HELD and slot.pinned and slot.pinned != slot.node:
            s.delete_pod(gang, slot)
        elif slot.state == Member.HELD:
            _nominate(s, gang, slot, now)


def make_visible(s: State, gang: Gang, now: float) -> None:
    """Create a waiting job's pods without a plan, so that autoscalers see the demand."""
    for slot in gang.unplaced():
        if slot.state == Member.WANTED:
            _create(s, gang, slot, "", now)


def again(s: State, gang: Gang, slot: Slot, now: float) -> None:
    """Tell a released member once more: its nomination is lost, or it was not heard."""
    slot.tries += 1
    slot.released_at = now
    s.count("releases_again")
    if slot.gated:
        ungate(s, gang, slot)
    elif slot.pinned != slot.node and slot.nominated != slot.node:
        _patch_nomination(s, gang, slot)
    else:
        mark = {WAKE_ANNOTATION: f"{gang.attempt}.{slot.tries}"}
        body = {"metadata": {"uid": slot.uid, "annotations": mark}}
        _patch(s, gang, slot, body, "")


def _nominate(s: State, gang: Gang, slot: Slot, now: float) -> None:
    gang.move(slot, on_way(s, slot))
    slot.released_at, slot.tries, slot.passed, slot.told = now, 0, False, None
    if slot.pinned != slot.node:
        _patch_nomination(s, gang, slot)
    if slot.state == Member.ARRIVED:
        gang.dirty = True
    elif slot.gated:
        ungate(s, gang, slot)
    elif slot.pinned == slot.node:
        again(s, gang, slot, now)


def _patch_nomination(s: State, gang: Gang, slot: Slot) -> None:
    node = slot.node or None
    body = {"metadata": {"uid": slot.uid}, "status": {"nominatedNodeName": node}}
    _patch(s, gang, slot, body, "status")


def on_way(s: State, slot: Slot) -> Member:
    """The state of a member that has just been let through. A gated one that will never come to
    /bind has arrived: its gate is removed at commit, in place of a Binding.
    """
    return Member.ARRIVED if slot.gated and s.unmanaged(slot.shape) else Member.RELEASED


def ungate(s: State, gang: Gang, slot: Slot) -> None:
    """Remove Muster's gate, the only one on a pod that is planned."""
    body = {"metadata": {"uid": slot.uid}, "spec": {"schedulingGates": None}}
    _patch(s, gang, slot, body, "")


def _patch(s: State, gang: Gang, slot: Slot, body: dict[str, Any], subresource: str) -> None:
    uid = slot.uid

    def then(done: Done, now: float) -> None:
        if slot.uid != uid:
            return
        gang.progress_at = max(gang.progress_at, now)
        if done.ok and done.object is not None:
            slot.resource_version = done.object["metadata"]["resourceVersion"]
            _told(slot, done.object)

    s.send(
        c.Patch(
            s.next_id(then),
            c.Lane.RELEASE,
            PODS,
            gang.key.namespace,
            slot.name,
            body,
            subresource,
        )
    )


def _told(slot: Slot, body: dict[str, Any]) -> None:
    """Its release is written; what the pod says until then was said before."""
    if slot.told is None:
        slot.told = version(slot.resource_version)
        for condition in body.get("status", {}).get("conditions") or ():
            if condition["type"] == "PodScheduled":
                slot.scheduled_message = condition.get("message", "")


def _create(s: State, gang: Gang, slot: Slot, node: str, now: float) -> None:
    """Create a job's pod, pinned to its planned node (O(1) for kube-scheduler)."""
    job = s.jobs.get(gang.job) if gang.job else None
    if job is None or slot.replica is None:
        return
    kind = s.kinds[job.resource]
    try:
        made = kind.pod(job.raw, slot.replica)
    except InvalidObject as error:
        # The job was edited since it was planned; reconciling it says so on the job.
        s.count("invalid_replicas")
        slot.fault = refuse(
            Code.INVALID, field=error.field, value=repr(error.value), allowed=error.allowed
        )
        s.unassign(gang, slot)
        gang.dirty = True
        return
    body = dress(s, gang, made, node)
    slot.gated = s.unmanaged(slot.shape)
    if slot.gated:
        body["spec"]["schedulingGates"] = [{"name": GATE}]
    gang.move(slot, Member.CREATING)
    slot.doomed = False
    slot.released_at, slot.tries, slot.passed = now, 0, False
    # Nothing was said of it before.
    slot.told, slot.scheduled_message = 0, ""

    def then(done: Done, now: float) -> None:
        _created(s, gang, slot, node, done, now)

    id_ = s.next_id(then)
    s.send(c.Create(id_, c.Lane.JOB, PODS, gang.key.namespace, body))


def dress(s: State, gang: Gang, body: dict[str, Any], node: str) -> dict[str, Any]:
    """Add what Muster adds to a pod it makes: scheduler name, marks, and the pin."""
    spec, meta = body["spec"], body["metadata"]
    if not spec.get("schedulerName"):
        spec["schedulerName"] = s.rules.scheduler_name
    meta.setdefault("annotations", {})[PLAN_ANNOTATION] = str(gang.attempt)
    if node:
        pin = {"key": "metadata.name", "operator": "In", "values": [node]}
        affinity = spec["affinity"] = dict(spec.get("affinity") or {})
        node_affinity = affinity["nodeAffinity"] = dict(affinity.get("nodeAffinity") or {})
        key = "requiredDuringSchedulingIgnoredDuringExecution"
        terms = (node_affinity.get(key) or {}).get("nodeSelectorTerms") or [{}]
        node_affinity[key] = {
            "nodeSelectorTerms": [
                {**term, "matchFields": [*(term.get("matchFields") or []), pin]} for term in terms
            ]
        }
    return body


def _created(s: State, gang: Gang, slot: Slot, node: str, done: Done, now: float) -> None:
    gang = s.gangs.get(gang.key, gang)
    gang.dirty = True
    gang.progress_at = max(gang.progress_at, now)
    if gang.members.get(slot.name) is not slot or slot.state != Member.CREATING:
        return
    if done.ok and done.object is not None:
        meta = done.object["metadata"]
        slot.uid, slot.resource_version = meta["uid"], meta["resourceVersion"]
        slot.pinned = node
        s.uids[slot.uid] = (gang.key.namespace, slot.name)
        gang.move(slot, on_way(s, slot) if slot.node else Member.HELD)
        if slot.doomed:
            s.delete_pod(gang, slot)
        return
    gang.move(slot, Member.WANTED)
    refusal = refuse(Code.ADMISSION, pod=slot.name, message=done.message)
    if gang.satisfied():
        # The gang runs without it: asked again after a pause.
        withdraw(s, gang, slot, "", now)
        gang.move(slot, Member.WANTED)
        _tell_job(s, gang, refusal)
    elif done.code == 409:
        # Its own, of a create whose answer was lost: the watch will show it. Or a namesake that is
        # not the job's: asked again after a pause, until it is gone.
        abort(s, gang, f"a pod {slot.name} exists already", now)
    elif gang.stage != Stage.WAITING or not node:
        fail(s, gang, refusal, now)


def _tell_job(s: State, gang: Gang, refusal: Refusal) -> None:
    job = s.jobs.get(gang.job) if gang.job else None
    if job is not None:
        reason, words = str(refusal.code), refusal.render()
        s.notice(job.resource, job.namespace, job.name, job.uid, "Warning", reason, words)


def fail(s: State, gang: Gang, refusal: Refusal, now: float) -> None:
    """The attempt cannot go on: roll it back, deleting the pods that this attempt made (S11b)."""
    if gang.satisfied():
        return
    for slot in list(gang.members.values()):
        if slot.replica is not None and slot.uid and slot.state in UNPLACED:
            s.delete_pod(gang, slot)
        elif slot.state == Member.CREATING:
            slot.doomed = True
    job = s.jobs.get(gang.job) if gang.job else None
    if job is not None:
        job.admitted.clear()
    # Pods made only to be seen are no attempt, but their refusals wait longer and longer, too.
    gang.attempt += gang.stage == Stage.WAITING
    abort(s, gang, refusal.render(), now)
    gang.refusal = refusal


def finish(s: State, gang: Gang) -> None:
    """The gang is whole: its record says so, and a restart adopts nothing."""
    gang.stage = Stage.WAITING
    gang.partial_since = None
    gang.partial = False
    gang.was_whole = True
    if gang.record_version and not gang.record_in_flight:
        write(s, gang, DONE)
