"""Pods of no group: bound as they come, but not onto what a plan holds, and woken when it is free.

kube-scheduler does not look again at a pod that /filter refused before something in the API
changes, and a reservation that ends without a Binding changes nothing there.
"""

from __future__ import annotations

from extender.core import binding, committing
from extender.core import commands as c
from extender.core import events as e
from extender.core.api import PODS
from extender.core.errors import InvalidObject
from extender.core.events import Done
from extender.core.ingest import WAKE_ANNOTATION, plain_key
from extender.core.objects import Pod
from extender.core.reasons import Code, Reason
from extender.core.shape import PodShape, shape_of
from extender.core.snapshot import Snapshot
from extender.core.state import HeldBind, State

#: A /bind that the node has no room for waits so long (seconds) for the watch to show some.
SHOWN_SECONDS = 2.0


def refused(s: State, event: e.PlainRefused) -> None:
    """/filter let the pod onto no node, as these are held for others."""
    if event.uid in s.plain:
        s.refused[event.uid] = event.parts_of


def wake(s: State) -> None:
    """Places were given back unused: pods that were refused for them are worth another look; those
    that lacked a part of a GPU also when there is room for any reason: the watch may be behind
    kube-scheduler, which has looked already.
    """
    now, freed = s.cluster.capacity_generation, s.woken_at != s.cluster.given_back
    worth = [uid for uid, parts in s.refused.items() if freed or parts not in (-1, now)]
    if not (worth or freed) or any(gang.dirty for gang in s.gangs.values()):
        # A gang that is yet to be decided on may take the places again.
        return
    s.woken_at = s.cluster.given_back
    room: dict[PodShape, bool] = {}
    if not worth:
        return
    view = Snapshot(s.cluster)
    for uid in worth:
        if s.refused[uid] != -1:
            s.refused[uid] = now
        pod = s.plain[uid]
        try:
            shape = shape_of(pod)
        except InvalidObject:
            s.count("invalid_pods")
            continue
        if shape not in room:
            room[shape] = bool(view.feasible(shape).any())
        if room[shape]:
            del s.refused[uid]
            _wake(s, pod)


def _wake(s: State, pod: Pod) -> None:
    """Any change of a pod makes kube-scheduler look at it again."""
    s.count("plain_pods_woken")
    meta = pod.metadata
    mark = {WAKE_ANNOTATION: str(s.cluster.capacity_generation)}
    body = {"metadata": {"uid": meta.uid, "annotations": mark}}
    id_ = s.next_id(lambda done, now: None)
    s.send(c.Patch(id_, c.Lane.STATUS, PODS, meta.namespace, meta.name, body))


def binds(s: State, now: float) -> None:
    """Bind pods of no group, once the watch has shown them; refuse what is reserved."""
    for token, held in list(s.binds.items()):
        known = s.slots.get((held.namespace, held.name))
        if known is not None and known[1].uid == held.uid:
            del s.binds[token]
            committing.bind_asked(
                s, e.BindAsked(token, held.namespace, held.name, held.uid, held.node), now
            )
            continue
        pod = s.plain.get(held.uid)
        if pod is not None:
            if not _wait_for_room(s, held, pod, now):
                del s.binds[token]
                _bind_plain(s, held, pod)
        elif now - held.since >= s.rules.patience:
            del s.binds[token]
            s.count("unseen_binds_refused")
            why = f"pod {held.namespace}/{held.name} (uid {held.uid})"
            s.send(c.Answer(token, f"{why}: {Reason.of(Code.UNKNOWN_POD).render()}"))


def _wait_for_room(s: State, held: HeldBind, pod: Pod, now: float) -> bool:
    """Whether the node is full by what was shown, and may yet turn out not to be.

    kube-scheduler may have seen a pod go that Muster's watch has not shown. Or it has not seen one
    that Muster has bound: then the pod is refused in the end (I2).
    """
    if not _full(s, held, pod) or now - held.since >= SHOWN_SECONDS:
        return False
    s.send(c.WakeAt(held.since + SHOWN_SECONDS))
    return True


def _full(s: State, held: HeldBind, pod: Pod) -> bool:
    """Whether what runs on the node leaves too little for the pod; what is reserved apart, but for
    parts of GPUs.
    """
    row = s.cluster.row_of(held.node)
    try:
        shape = shape_of(pod)
        asked = s.cluster.nodes.vector(shape.requests)
    except InvalidObject:
        return False  # said when it is to be bound
    if row is None:
        return False
    free = s.cluster.allocatable[row] - s.cluster.used[row]
    if (free < asked)[asked > 0].any():
        return True
    zones = s.cluster.zone_view() if any(each.share for each in shape.aligned) else None
    return zones is not None and not zones.spares(shape.aligned)[row]


def _spares(s: State, shape: PodShape, row: int) -> bool:
    """Whether the pod leaves what is reserved on the row to whom it is reserved for."""
    asked = s.cluster.nodes.vector(shape.requests)
    free = s.cluster.allocatable[row] - s.cluster.used[row] - s.cluster.reserved[row]
    if (free < asked)[asked > 0].any() or s.cluster.unreadable[row]:
        return False
    zones = s.cluster.zone_view()
    return zones is None or bool(zones.spares(shape.aligned)[row])


def _bind_plain(s: State, held: HeldBind, pod: Pod) -> None:
    """Bind a plain pod unless that would take what a plan holds (checked again after /filter)."""
    row = s.cluster.row_of(held.node)
    try:
        shape = shape_of(pod)
    except InvalidObject as error:
        s.send(c.Answer(held.token, str(error)))
        return
    if row is None:
        s.send(c.Answer(held.token, f"node {held.node} does not exist"))
        return
    if _full(s, held, pod):
        s.count("plain_binds_refused")
        s.send(c.Answer(held.token, f"node {held.node} has no room for it"))
        return
    if s.cluster.reserved[row].any() and not _spares(s, shape, row):
        s.count("plain_binds_refused")
        s.send(c.Answer(held.token, Reason.of(Code.RESERVED, group="a planned gang").render()))
        return
    s.cluster.reserve(plain_key(held.uid), shape, row)
    s.tokens[held.token] = (held.namespace, held.name)

    def then(done: Done, now: float) -> None:
        error = "" if done.ok else f"{done.code} {done.reason}: {done.message}"
        binding.answered(s, held.uid, done, now)
        if held.token in s.tokens:
            s.send(c.Answer(held.token, error))

    version = pod.metadata.resource_version
    sent = binding.bind(s, held.namespace, held.name, held.uid, version, held.node, then)
    s.sent[held.uid] = sent
