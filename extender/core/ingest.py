"""Pods as the watch shows them, applied to the state; nodes are in :mod:`extender.core.nodeevents`."""

from __future__ import annotations

from extender.core import events as e
from extender.core.api import MUSTER_GROUP, PODS
from extender.core.cluster import TERMINAL
from extender.core.errors import InvalidObject
from extender.core.framework import Replica
from extender.core.gang import PLACED, UNPLACED, Gang, Member, Slot, Stage
from extender.core.identity import (
    REPLICA_INDEX_LABEL,
    REPLICA_TYPE_LABEL,
    membership,
)
from extender.core.learning import note_refused, offered_by, surprised
from extender.core.nodeevents import touch
from extender.core.objects import Meta, Pod, PodStatus
from extender.core.reasons import Code, Refusal, refuse
from extender.core.shape import PodShape, pinned_node
from extender.core.state import State, reservation_key

#: Muster's own scheduling gate, put on by admission (manifests/admission) or by Muster.
GATE = f"{MUSTER_GROUP}/gang"
#: On pods that Muster makes: the attempt they were made in.
PLAN_ANNOTATION = f"{MUSTER_GROUP}/plan"
#: Patched to wake a pod whose nomination did not.
WAKE_ANNOTATION = f"{MUSTER_GROUP}/wake"
#: Opens every message Muster gives to kube-scheduler, which quotes it in PodScheduled.
MARK = "Muster: "


def pod_seen(s: State, pod: Pod, now: float) -> None:
    """A pod was added or changed."""
    meta = pod.metadata
    s.pods_shown = max(s.pods_shown, version(meta.resource_version))
    known = _known(s, meta)
    claim = membership(pod)
    shape, fault = _shape(s, pod)
    held = s.cluster.row_of_pod(meta.uid) is not None
    _count(s, pod, known, shape)
    if held or (known is not None and known[1].state not in (Member.FAILED, Member.FINISHED)):
        surprised(s, pod, shape, now)
    _tell_job(s, pod)
    if isinstance(claim, Refusal):
        fault, claim = claim, None
    place = (None if claim is None else claim.key, meta.name)
    if s.foreign.get(meta.uid, place) != place:
        _forget_foreign(s, meta.uid)
    if claim is None:
        if fault is not None and pod.spec.scheduler_name in s.rules.scheduler_names:
            _fault(s, meta, fault)
        else:
            s.faults.pop(meta.uid, None)
            _plain(s, pod)
        if known is not None:
            s.discharge(*known, "the pod belongs to no group any more")
        return
    if known is not None and known[0].key != claim.key:
        s.discharge(*known, "the pod changed its group")
        known = None
    gang = s.gang(claim.key)
    if pod.spec.scheduler_name not in s.rules.scheduler_names:
        _foreign(s, gang, pod)
        return
    s.plain.pop(meta.uid, None)
    s.refused.pop(meta.uid, None)
    slot = gang.members.get(meta.name) or Slot(meta.name, claim.task, Member.HELD)
    if slot.state in PLACED and slot.uid == meta.uid:
        # Nothing is planned by it any more.
        shape, fault = slot.shape, None
    _update(s, gang, slot, pod, shape, fault)
    _transition(s, gang, slot, pod, now)
    if claim.min_available is not None:
        gang.claim = claim
        slot.owner = next((each for each in meta.owner_references if each.controller), None)


def _known(s: State, meta: Meta) -> tuple[Gang, Slot] | None:
    """The member of this name. One that was another pod, or this one by another name, is lost."""
    place = (meta.namespace, meta.name)
    known = s.slots.get(place)
    if known is not None and known[1].uid not in ("", meta.uid):
        _lost(s, *known, "the pod was replaced by a namesake")
    if (before := s.uids.get(meta.uid, place)) != place:
        _lost(s, *s.slots[before], "the pod goes by another name")
    return known


def pod_gone(s: State, event: e.PodGone) -> None:
    """A pod is no longer in the API."""
    row = s.cluster.row_of_pod(event.uid)
    if row is not None:
        s.evidence.forget(s.cluster.name_of(row))
    s.cluster.remove_pod(event.uid)
    s.plain.pop(event.uid, None)
    s.refused.pop(event.uid, None)
    s.sent.pop(event.uid, None)
    s.cluster.release(plain_key(event.uid))
    s.faults.pop(event.uid, None)
    job = s.pod_jobs.get(event.uid)
    if job is not None:
        job.pods.pop(event.name, None)
        if not job.pods:
            # A pass over none costs nothing: a large gang starts again at once.
            job.rest_until = 0.0
        job.in_flight -= {("delete", event.uid), ("remove", event.uid)}
        job.dirty = True
    _forget_orphan(s, event.uid)
    _forget_foreign(s, event.uid)
    known = s.slots.get((event.namespace, event.name))
    if known is not None and known[1].uid == event.uid:
        _lost(s, *known, "the pod was deleted")
    s.pod_jobs.pop(event.uid, None)


def _plain(s: State, pod: Pod) -> None:
    """Keep a pod of no group while it waits for a node, for its /bind."""
    ended = pod.status.phase in ("Succeeded", "Failed")
    ours = pod.spec.scheduler_name in s.rules.scheduler_names
    if ours and not pod.spec.node_name and not ended:
        s.plain[pod.metadata.uid] = pod
    else:
        s.plain.pop(pod.metadata.uid, None)
        s.refused.pop(pod.metadata.uid, None)


def _shape(s: State, pod: Pod) -> tuple[PodShape | None, Refusal | None]:
    """The pod's shape wherever it is, or what is wrong with it; other schedulers' pods have neither."""
    if pod.spec.scheduler_name not in s.rules.scheduler_names:
        return None, None
    try:
        return s.same(s.cluster.shapes.of(pod)), None
    except InvalidObject as error:
        return None, refuse(
            Code.INVALID, field=error.field, value=repr(error.value), allowed=error.allowed
        )


def _count(s: State, pod: Pod, known: tuple[Gang, Slot] | None, shape: PodShape | None) -> None:
    """Count the pod on its node, in place of what was reserved for it. ``shape``: if it is known.

    A bound pod that cannot be read blocks its node (the cluster sees to that).
    """
    uid, node = pod.metadata.uid, pod.spec.node_name
    before = s.cluster.row_of_pod(uid)
    ours = s.cluster.reservation(plain_key(uid)) is not None or (
        known is not None and known[1].state in (Member.BINDING, Member.BOUND)
    )
    if node:
        s.sent.pop(uid, None)
        keys = [plain_key(uid), *([reservation_key(*known)] if known is not None else [])]
        for key in keys:
            if pod.status.phase in TERMINAL:
                s.cluster.release(key)
            else:
                s.cluster.confirm(key, node)
    try:
        s.cluster.upsert_pod(pod, shape)
    except InvalidObject:
        s.count("invalid_pods")
    tell_of_devices(s, uid, pod.metadata.namespace, pod.metadata.name)
    after = s.cluster.row_of_pod(uid)
    if before is None and after is not None and not ours:
        touch(s, node)
    elif before is not None and after is None:
        s.evidence.forget(s.cluster.name_of(before))


def tell_of_devices(s: State, uid: str, namespace: str, name: str) -> None:
    """Say on a pod that the devices that it says it has are not believed."""
    for each in s.cluster.not_believed(uid):
        s.notice(PODS, namespace, name, uid, "Warning", "InvalidDevices", str(each))


def _update(
    s: State, gang: Gang, slot: Slot, pod: Pod, shape: PodShape | None, fault: Refusal | None
) -> None:
    """What the slot says about its pod, whatever its state."""
    gates = [gate.name for gate in pod.spec.scheduling_gates]
    asked = (slot.shape, slot.fault, slot.foreign_gates)
    slot.uid, slot.resource_version = pod.metadata.uid, pod.metadata.resource_version
    slot.shown = True
    names = s.rules.scheduler_names
    slot.scheduler = names[names.index(pod.spec.scheduler_name)]  # one text for all pods
    slot.shape, slot.fault = shape, fault or _unmanaged(s, pod, shape)
    slot.pinned = pinned_node(pod.spec) or ""
    slot.nominated = pod.status.nominated_node_name
    if slot.nominated and slot.state == Member.HELD and gang.strays_at is None:
        gang.strays_at = gang.look_at = 0.0
    slot.complaint = complaint(pod.status)
    slot.gated = GATE in gates
    slot.foreign_gates = tuple(gate for gate in gates if gate != GATE)
    if asked != (slot.shape, slot.fault, slot.foreign_gates):
        # A refusal was about something else.
        gang.dirty = True
        if slot.node and slot.state in UNPLACED and slot.state != Member.BINDING:
            _asks_otherwise(s, gang, slot)
    slot.terminating = pod.metadata.deletion_timestamp is not None
    slot.deleting = slot.deleting or slot.terminating
    slot.replica = slot.replica or _replica(s, pod)
    slot.remade = slot.replica is not None or any(
        owner.controller for owner in pod.metadata.owner_references
    )
    gang.foreign.pop(slot.name, None)
    gang.rank(pod.spec.priority or 0)
    if slot.name not in gang.members:
        s.enroll(gang, slot)
    s.uids[slot.uid] = (gang.key.namespace, slot.name)
    if slot.fault is not None:
        _fault(s, pod.metadata, slot.fault)
    else:
        s.faults.pop(slot.uid, None)


def _asks_otherwise(s: State, gang: Gang, slot: Slot) -> None:
    """A planned member asks for something else now: its place becomes one for that, and is looked
    at again in the next step. One that cannot be placed at all holds none (kube-scheduler does not
    come for it).
    """
    node, placeable = slot.node, slot.shape is not None and slot.fault is None
    if placeable and not slot.foreign_gates and s.cluster.row_of(node) is not None:
        s.assign(gang, slot, node)
        s.touched.add(node)
        return
    s.unassign(gang, slot)
    s.reject(slot, "the pod was changed and cannot be placed as it is")
    if slot.state != Member.CREATING:
        gang.move(slot, Member.HELD)


def _transition(s: State, gang: Gang, slot: Slot, pod: Pod, now: float) -> None:
    before = slot.state
    if pod.status.phase == "Succeeded":
        gang.move(slot, Member.FINISHED)
    elif pod.status.phase == "Failed":
        gang.move(slot, Member.FAILED)
    elif pod.spec.node_name:
        gang.move(slot, Member.BOUND)
    elif slot.state == Member.CREATING:
        waits = slot.gated and s.unmanaged(slot.shape)
        gang.move(
            slot,
            Member.HELD if not slot.node else Member.ARRIVED if waits else Member.RELEASED,
        )
        gang.progress_at = now
        slot.released_at = now
        if slot.doomed:
            s.delete_pod(gang, slot)
    elif slot.state == Member.WANTED:
        _is_made(gang, slot)
    gang.ran(slot, runs=slot.state == Member.BOUND and pod.status.phase == "Running")
    if pod.spec.node_name or slot.state in (Member.FINISHED, Member.FAILED):
        s.unassign(gang, slot)
        slot.node = pod.spec.node_name
        if before not in PLACED and slot.token is not None and before != Member.BINDING:
            s.reject(slot, f"the pod is bound to {slot.node or 'no node'} already")
    if slot.state != before:
        gang.dirty = True
    _yield_place(s, gang, slot)
    unasked = slot.state == Member.BINDING and s.unmanaged(slot.shape)
    if slot.state == Member.RELEASED or unasked:
        _look_for_refusal(s, gang, slot, pod, now)
    elif slot.state == Member.HELD:
        slot.scheduled_message = scheduled_message(pod.status)


def _is_made(gang: Gang, slot: Slot) -> None:
    """The pod of a replica that was wanted is there. Where it has a place already, because an earlier
    pod was lost there, nobody else lets it through: it is released, or replaced if it is pinned
    elsewhere.
    """
    gang.move(slot, Member.HELD)
    if slot.node and slot.name not in gang.later:
        gang.to_release.append(slot.name)


def _yield_place(s: State, gang: Gang, slot: Slot) -> None:
    """A pod that is being deleted before it was placed needs no place."""
    if slot.deleting and slot.state not in PLACED:
        s.unassign(gang, slot)
        s.reject(slot, "the pod is being deleted")
        gang.move(slot, Member.HELD)
        gang.dirty = True


def _look_for_refusal(s: State, gang: Gang, slot: Slot, pod: Pod, now: float) -> None:
    """PodScheduled=False that is not /filter's doing is evidence against the planned node.

    It must be an answer to the release: other words than before, or the nomination taken back.
    """
    if slot.told is None or version(pod.metadata.resource_version) <= slot.told:
        return
    lost = slot.pinned != slot.node and not slot.nominated
    for condition in pod.status.conditions:
        if condition.type != "PodScheduled" or condition.status != "False":
            continue
        fresh = lost or condition.message != slot.scheduled_message
        if condition.reason == "Unschedulable" and fresh and MARK not in condition.message:
            if slot.passed:
                return
            note_refused(s, gang, slot, condition.message, now, offered_by(s, slot))


def complaint(status: PodStatus) -> str:
    """What in-tree filters say against the pod, if they do."""
    for each in status.conditions:
        if each.type == "PodScheduled" and each.status == "False":
            ours = each.reason != "Unschedulable" or MARK in each.message
            return "" if ours else each.message
    return ""


def version(text: str) -> int:
    """A resourceVersion as the number of 64 bits that it is on every API server (KEP-5504)."""
    return int(text) if text.isdecimal() and len(text) <= 20 else 0


def scheduled_message(status: PodStatus) -> str:
    """PodScheduled's message, to tell a later refusal from an earlier one."""
    return next((c.message for c in status.conditions if c.type == "PodScheduled"), "")


def _foreign(s: State, gang: Gang, pod: Pod) -> None:
    """A member of another scheduler: its gang is not placed while it is there (S10b)."""
    name = pod.metadata.name
    slot = gang.members.get(name)
    if slot is not None:
        s.discharge(gang, slot, "the pod names another scheduler")
    if pod.status.phase in ("Succeeded", "Failed"):
        _forget_foreign(s, pod.metadata.uid)
    elif gang.foreign.get(name) != pod.spec.scheduler_name:
        gang.foreign[name] = pod.spec.scheduler_name
        s.foreign[pod.metadata.uid] = (gang.key, name)
        gang.dirty = True


def _forget_foreign(s: State, uid: str) -> None:
    key, name = s.foreign.pop(uid, (None, ""))
    gang = s.gangs.get(key) if key is not None else None
    if gang is not None:
        gang.foreign.pop(name, None)
        gang.dirty = True


def listed(s: State, event: e.Listed) -> None:
    """A pod that only answers have told of, and a later list does not, went unseen."""
    if event.resource != PODS:
        return
    s.pods_listed = version(event.version)
    for (namespace, name), (_, slot) in list(s.slots.items()):
        if slot.uid and not slot.shown and version(slot.resource_version) <= s.pods_listed:
            s.count("pods_gone_unseen")
            pod_gone(s, e.PodGone(namespace, name, slot.uid))


def _lost(s: State, gang: Gang, slot: Slot, why: str) -> None:
    """The pod is gone. A job's replica with a planned node keeps it: it is created again there."""
    s.reject(slot, why)
    job = s.jobs.get(gang.job) if gang.job else None
    # One that was an earlier job's is made again by nobody.
    own = job is not None and s.pod_jobs.get(slot.uid, job) is job
    if job is not None:
        # Its name is free, be it an earlier job's: the job may want it.
        job.dirty = True
    keep = own and slot.replica is not None and slot.node and gang.stage != Stage.WAITING
    # One that has failed has given its place back.
    if keep and slot.state in UNPLACED:
        s.uids.pop(slot.uid, None)
        gang.move(slot, Member.WANTED)
        slot.uid = slot.resource_version = ""
        slot.pinned = slot.nominated = ""
        slot.shown = slot.deleting = slot.terminating = slot.gated = slot.passed = False
        gang.dirty = True
    else:
        s.discharge(gang, slot, why)


def _unmanaged(s: State, pod: Pod, shape: PodShape | None) -> Refusal | None:
    """A foreign member that kube-scheduler does not send to Muster, and that no gate holds."""
    held = pod.spec.scheduling_gates or pinned_node(pod.spec) or pod.spec.node_name
    if held or not s.unmanaged(shape):
        return None
    allowed = ", ".join(sorted(s.rules.managed_resources))
    return refuse(Code.UNMANAGED, pod=pod.metadata.name, allowed=allowed)


def _fault(s: State, meta: Meta, fault: Refusal) -> None:
    s.faults[meta.uid] = fault
    s.notice(PODS, meta.namespace, meta.name, meta.uid, "Warning", str(fault.code), fault.render())


def _tell_job(s: State, pod: Pod) -> None:
    """Keep the pods of jobs that Muster runs; a job may be shown after its pods."""
    meta = pod.metadata
    for owner in meta.owner_references:
        job = s.jobs_by_uid.get(owner.uid)
        if job is not None:
            job.show_pod(pod)
            s.pod_jobs[meta.uid] = job
            job.dirty = True
        elif s.runs(owner):
            _forget_orphan(s, meta.uid)  # it may have had another owner
            s.orphans.setdefault(owner.uid, {})[meta.uid] = pod
            s.orphan_owner[meta.uid] = owner.uid


def _forget_orphan(s: State, uid: str) -> None:
    owner = s.orphan_owner.pop(uid, "")
    if owner in s.orphans:
        s.orphans[owner].pop(uid, None)
        if not s.orphans[owner]:
            del s.orphans[owner]


def _replica(s: State, pod: Pod) -> Replica | None:
    """Which replica of a job's a pod is, in the words of its name and labels (after a restart)."""
    labels = pod.metadata.labels
    role, index = labels.get(REPLICA_TYPE_LABEL), labels.get(REPLICA_INDEX_LABEL, "")
    head, _, number = pod.metadata.name.rpartition("-")
    if number.isdecimal() and head.endswith(f"-{role}"):
        # Where an MPIJob's launcher is number 0 of those that compute, the label is one more.
        index = number
    owned = any(s.runs(owner) for owner in pod.metadata.owner_references)
    if not owned or not role or not index.isdecimal():
        return None
    return Replica(role, int(index), pod.metadata.name)


def plain_key(uid: str) -> str:
    """Reservation key of a plain pod between its Binding and the watch showing it."""
    return f"plain {uid}"
