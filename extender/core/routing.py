"""Which event is applied by which function: one line each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from extender.core import (
    adopting,
    committing,
    groups,
    ingest,
    jobsync,
    learning,
    networks,
    nodeevents,
    plain,
    zoning,
)
from extender.core import commands as c
from extender.core import events as e
from extender.core.api import (
    CLAIMS,
    GANG_PLANS,
    HYPER_NODES,
    NAMESPACES,
    NODE_TOPOLOGIES,
    NODES,
    OLD_TOPOLOGIES,
    PODS,
    PRIORITY_CLASSES,
    SERVICES,
    TOPOLOGIES,
    VOLUMES,
)
from extender.core.gang import Member
from extender.core.reasons import Code, refuse
from extender.core.state import Place, State

Handler = Callable[[Any, float], None]

#: kube-scheduler evicts those of one node; that the others are not is seen by their staying.
GIVEN_AWAY_SECONDS = 2.0


def handlers(s: State) -> dict[type[e.Event], Handler]:
    """The handler of every event type."""
    cluster = s.cluster
    table: dict[type[e.Event], Handler] = {
        e.NodeSeen: lambda x, now: nodeevents.node_seen(s, x, now),
        e.NodeGone: lambda x, now: nodeevents.node_gone(s, x, now),
        e.ZonesSeen: lambda x, _: zoning.zones_seen(s, x),
        e.ZonesGone: lambda x, _: zoning.zones_gone(s, x),
        e.HyperNodeSeen: lambda x, _: networks.hyper_seen(s, x),
        e.HyperNodeGone: lambda x, _: networks.hyper_gone(s, x),
        e.TopologySeen: lambda x, _: networks.topology_seen(s, x),
        e.TopologyGone: lambda x, _: networks.topology_gone(s, x),
        e.PodSeen: lambda x, now: ingest.pod_seen(s, x.pod, now),
        e.PodGone: lambda x, _: ingest.pod_gone(s, x),
        e.GroupSeen: lambda x, _: groups.group_seen(s, x),
        e.GroupGone: lambda x, _: groups.group_gone(s, x),
        e.PlanSeen: lambda x, _: adopting.plan_seen(s, x),
        e.PlanGone: lambda x, _: adopting.plan_gone(s, x),
        e.JobSeen: lambda x, _: jobsync.job_seen(s, x),
        e.JobGone: lambda x, _: jobsync.job_gone(s, x),
        e.ServiceSeen: lambda x, _: jobsync.service_seen(s, x),
        e.ServiceGone: lambda x, _: jobsync.service_gone(s, x),
        e.NamespaceSeen: lambda x, _: cluster.upsert_namespace(x.namespace),
        e.NamespaceGone: lambda x, _: cluster.remove_namespace(x.name),
        e.ClaimSeen: lambda x, _: _claim_seen(s, x),
        e.ClaimGone: lambda x, _: cluster.remove_claim(x.namespace, x.name),
        e.VolumeSeen: lambda x, _: _volume_seen(s, x),
        e.VolumeGone: lambda x, _: cluster.remove_volume(x.name),
        e.PriorityClassSeen: lambda x, _: _priority_class_seen(s, x),
        e.PriorityClassGone: lambda x, _: _priority_class_gone(s, x),
        e.InvalidSeen: lambda x, _: _invalid_seen(s, x),
        e.Listed: lambda x, _: ingest.listed(s, x),
        e.KindServed: lambda x, _: s.served.__setitem__(x.resource, x.served),
        e.Synced: lambda _, __: _synced(s),
        e.LeaderGained: lambda x, now: adopting.gained(s, x, now),
        e.LeaderLost: lambda x, _: adopting.lost(s),
        e.FilterAsked: lambda x, now: _filter_asked(s, x, now),
        e.PlainRefused: lambda x, _: plain.refused(s, x),
        e.PreemptAllowed: lambda x, now: _preempt_allowed(s, x, now),
        e.BindAsked: lambda x, now: committing.bind_asked(s, x, now),
        e.BindAbandoned: lambda x, now: committing.bind_abandoned(s, x, now),
        e.Done: s.done,
        e.Tick: lambda x, _: None,
    }
    return table | {kind: _forgetting(s, table[kind], place) for kind, place in _PLACES.items()}


#: Where an object was that is gone.
_PLACES: dict[type[e.Event], Callable[[Any], Place]] = {
    e.NodeGone: lambda x: (NODES, "", x.name),
    e.ZonesGone: lambda x: (x.resource, "", x.name),
    e.HyperNodeGone: lambda x: (HYPER_NODES, "", x.name),
    e.TopologyGone: lambda x: (x.resource, "", x.name),
    e.PodGone: lambda x: (PODS, x.namespace, x.name),
    e.GroupGone: lambda x: (x.resource, x.namespace, x.name),
    e.PlanGone: lambda x: (GANG_PLANS, x.namespace, x.name),
    e.JobGone: lambda x: (x.resource, x.namespace, x.name),
    e.ServiceGone: lambda x: (SERVICES, x.namespace, x.name),
    e.NamespaceGone: lambda x: (NAMESPACES, "", x.name),
    e.ClaimGone: lambda x: (CLAIMS, x.namespace, x.name),
    e.VolumeGone: lambda x: (VOLUMES, "", x.name),
    e.PriorityClassGone: lambda x: (PRIORITY_CLASSES, "", x.name),
}


def _forgetting(s: State, handler: Handler, place: Callable[[Any], Place]) -> Handler:
    """Whatever it was, nothing more is to be said of it; also if it never could be read."""

    def handle(event: Any, now: float) -> None:
        handler(event, now)
        s.forget_notices(place(event))

    return handle


def _filter_asked(s: State, event: e.FilterAsked, now: float) -> None:
    """A released member came by; one whose planned node is not offered was refused it in-tree."""
    s.line.heard_at = now
    known = s.slots.get(s.uids.get(event.uid, ("", "")))
    if known is None or known[1].state != Member.RELEASED:
        return
    gang, slot = known
    gang.progress_at = now
    committing.came(s, slot, now)
    if event.planned_offered:
        slot.passed = True
    elif event.full:
        learning.note_refused(s, gang, slot, learning.IN_TREE, now, event.offered)


def _preempt_allowed(s: State, event: e.PreemptAllowed, now: float) -> None:
    """The next preemptor may ask before the watch shows whom this one has evicted."""
    s.given_away |= {uid: now + GIVEN_AWAY_SECONDS for uid in event.uids if uid in s.uids}
    if s.given_away:
        s.send(c.WakeAt(now + GIVEN_AWAY_SECONDS))


def _claim_seen(s: State, event: e.ClaimSeen) -> None:
    """What was learnt about volumes may hold no longer."""
    s.cluster.upsert_claim(event.claim)
    s.evidence.forget()


def _volume_seen(s: State, event: e.VolumeSeen) -> None:
    s.cluster.upsert_volume(event.volume)
    s.evidence.forget()


def _priority_class_seen(s: State, event: e.PriorityClassSeen) -> None:
    name = event.priority_class.metadata.name
    s.priority_classes[name] = event.priority_class.value
    _reprioritise(s, name)


def _priority_class_gone(s: State, event: e.PriorityClassGone) -> None:
    s.priority_classes.pop(event.name, None)
    _reprioritise(s, event.name)


def _reprioritise(s: State, name: str) -> None:
    for gang in s.gangs.values():
        if gang.priority_class == name:
            groups.resolve_priority(s, gang)
            gang.dirty = True


def _invalid_seen(s: State, event: e.InvalidSeen) -> None:
    """An object that cannot be decoded: said on the object; a pod of it is never let through."""
    s.count("undecodable")
    if not event.name:
        return  # nothing can be said on it
    s.notice(
        event.resource,
        event.namespace,
        event.name,
        event.uid,
        "Warning",
        "Invalid",
        event.message,
    )
    if event.resource.plural == NODE_TOPOLOGIES.plural:
        zoning.forget(s, event.resource, event.name)
    if event.resource in (HYPER_NODES, TOPOLOGIES, OLD_TOPOLOGIES):
        networks.forget(s, event.resource, event.name)
    if event.resource == PODS:
        s.faults[event.uid] = refuse(
            Code.INVALID, field="pod", value=event.name, allowed=event.message
        )


def _synced(s: State) -> None:
    s.synced = True
    for gang in s.gangs.values():
        gang.dirty = True
