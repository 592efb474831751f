"""Sending a Binding until it is certain what became of it.

A Binding carries its pod's resourceVersion, so any change of the pod makes it conflict for good,
however late it arrives. That is how one is called off of which nobody knows whether it took effect:
the answer to the change says whether it had.
"""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from extender.core import commands as c
from extender.core.api import PODS
from extender.core.errors import InvalidObject
from extender.core.events import Done
from extender.core.gang import Member
from extender.core.ingest import WAKE_ANNOTATION, plain_key
from extender.core.shape import PodShape, shape_of
from extender.core.snapshot import Snapshot
from extender.core.state import State, Then, reservation_key

#: How often a Binding is called off before its outcome is left open (the executor tries each write
#: for a while, too).
CALL_OFF_TRIES = 8


def bind(
    s: State, namespace: str, name: str, uid: str, resource_version: str, node: str, then: Then
) -> c.Bind:
    """Bind a pod to the node where a place is reserved for it. ``then`` is told what came of it:
    bound as asked, or not, and never to be by this Binding. (Or, after CALL_OFF_TRIES, no answer.)
    """

    def answered(done: Done, now: float) -> None:
        if _unknown(done):
            _call_off(s, command, done, then, CALL_OFF_TRIES)
        else:
            then(done, now)

    command = c.Bind(s.next_id(answered), namespace, name, uid, resource_version, node)
    s.send(command)
    return command


def call_off(s: State) -> None:
    """Find out what became of Bindings that this replica sent before it lost the Lease (I2): until
    then their places are kept, which belong to no plan any more.
    """
    for uid, sent in s.sent.items():
        unknown = Done(sent.id, 0, "NotLeader")
        _call_off(s, sent, unknown, partial(answered, s, uid), CALL_OFF_TRIES)


def answered(s: State, uid: str, done: Done, now: float) -> None:
    """It took effect, and the watch will show it; or it never will, and holds nothing."""
    if not done.ok:
        s.cluster.release(plain_key(uid))
        s.sent.pop(uid, None)


def stands(s: State, command: c.Bind) -> bool:
    """Whether the place that is reserved for its pod is still there (I2)."""
    known = s.slots.get((command.namespace, command.name))
    if known is not None and known[1].uid == command.uid:
        gang, slot = known
        if slot.state != Member.BINDING or slot.shape is None:
            return True
        return fits(s, reservation_key(gang, slot), slot.shape, command.node)
    pod = s.plain.get(command.uid)
    if pod is None:
        return True
    try:
        return fits(s, plain_key(command.uid), shape_of(pod), command.node)
    except InvalidObject:
        return False  # it was edited since


def fits(s: State, key: str, shape: PodShape, node: str) -> bool:
    """Whether the shape fits the place on the node that is reserved under ``key``."""
    row = s.cluster.row_of(node)
    if row is None or s.cluster.reservation(key) != row:
        return False
    view = Snapshot(s.cluster)
    view.remove(shape, row)
    return view.fits(shape, row)


def _unknown(done: Done) -> bool:
    """Whether the request may have taken effect: no answer came, or one that says nothing of it."""
    return done.code == 0 or done.code >= 500


def _call_off(s: State, command: c.Bind, why: Done, then: Then, tries: int) -> None:
    """Change the pod, so that the Binding cannot take effect any more, as often as it takes."""

    def answered(done: Done, now: float) -> None:
        if _unknown(done) and tries > 1:
            _call_off(s, command, why, then, tries - 1)
        elif done.ok and done.object is not None:
            bound = done.object["spec"].get("nodeName") == command.node
            then(replace(why, code=201 if bound else 409, object=done.object), now)
        else:
            then(done, now)

    s.count("bindings_called_off")
    mark = {WAKE_ANNOTATION: f"not as {command.resource_version}"}
    body = {"metadata": {"uid": command.uid, "annotations": mark}}
    id_ = s.next_id(answered)
    s.send(c.Patch(id_, c.Lane.BIND, PODS, command.namespace, command.name, body))
