"""What kube-scheduler is told of a member: a nomination, a gate taken off, a mark that wakes it.

A release is a level, not an edge: a released member that lost its nomination and does not arrive
is told again, with back-off.
"""

from __future__ import annotations

from typing import Any

from extender.core import commands as c
from extender.core.api import PODS
from extender.core.events import Done
from extender.core.gang import Gang, Member, Slot
from extender.core.ingest import WAKE_ANNOTATION, version
from extender.core.state import State

#: kube-scheduler has so long (seconds) to end a nomination itself, which costs Muster no write.
STRAY_SECONDS = 5.0


def again(s: State, gang: Gang, slot: Slot, now: float) -> None:
    """Tell a released member once more: its nomination is lost, or it was not heard."""
    slot.tries += 1
    slot.released_at = now
    s.count("releases_again")
    if slot.gated:
        ungate(s, gang, slot)
    elif slot.pinned != slot.node and slot.nominated != slot.node:
        patch_nomination(s, gang, slot)
    else:
        mark = {WAKE_ANNOTATION: f"{gang.attempt}.{slot.tries}"}
        body = {"metadata": {"uid": slot.uid, "annotations": mark}}
        _patch(s, gang, slot, body, "")


def nominate(s: State, gang: Gang, slot: Slot, now: float) -> None:
    gang.move(slot, on_way(s, slot))
    slot.released_at, slot.tries, slot.passed, slot.told = now, 0, False, None
    if slot.pinned != slot.node:
        patch_nomination(s, gang, slot)
    if slot.state == Member.ARRIVED:
        gang.dirty = True
    elif slot.gated:
        ungate(s, gang, slot)
    elif slot.pinned == slot.node:
        again(s, gang, slot, now)


def patch_nomination(s: State, gang: Gang, slot: Slot) -> None:
    node = slot.node or None
    body = {"metadata": {"uid": slot.uid}, "status": {"nominatedNodeName": node}}
    _patch(s, gang, slot, body, "status")


def end_strays(s: State, gang: Gang, now: float) -> None:
    """End nominations that have outlived their plan: they keep others from their nodes.

    kube-scheduler ends them when it refuses the pod, but not if that write fails, nor for a pod
    that it does not try again.
    """
    if gang.strays_at is None:
        return
    gang.strays_at = gang.strays_at or now + STRAY_SECONDS
    if now >= gang.strays_at:
        strays = [
            slot
            for slot in gang.members.values()
            if slot.state == Member.HELD and slot.nominated and not (slot.node or slot.deleting)
        ]
        for slot in strays:
            s.count("nominations_ended")
            patch_nomination(s, gang, slot)
        gang.strays_at = now + STRAY_SECONDS if strays else None
    if gang.strays_at is not None:
        s.look(gang, gang.strays_at)


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
