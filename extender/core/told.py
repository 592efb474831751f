"""What the core has been told and still holds, by object: where a log may begin anew.

Level-triggered, as the core is: of each object the last event counts, whatever came before.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, Literal

from extender.core import events as e
from extender.core.api import (
    CLAIMS,
    GANG_PLANS,
    HYPER_NODES,
    NAMESPACES,
    NODE_TOPOLOGIES,
    NODES,
    OLD_NODE_TOPOLOGIES,
    OLD_TOPOLOGIES,
    PODS,
    PRIORITY_CLASSES,
    SERVICES,
    TOPOLOGIES,
    VOLUMES,
    Resource,
)
from extender.core.objects import Manifest, Meta

#: ``keep``: the object is as this event says. ``drop``: it is gone. ``note``: something more about
#: an object, until it is seen again or gone. ``pass``: nothing that lasts.
Use = Literal["keep", "drop", "note", "pass"]
_Key = Callable[[Any], Hashable]


#: The event of their end has no uid, so there is one object of a name.
_ONE_OF_A_NAME = frozenset(
    {
        NODES,
        NODE_TOPOLOGIES,
        OLD_NODE_TOPOLOGIES,
        HYPER_NODES,
        TOPOLOGIES,
        OLD_TOPOLOGIES,
        NAMESPACES,
        CLAIMS,
        VOLUMES,
        PRIORITY_CLASSES,
    }
)


def _object(resource: Resource, namespace: str, name: str, uid: str = "") -> Hashable:
    """Two lives of a name may overlap."""
    return (resource, namespace, name, "" if resource in _ONE_OF_A_NAME else uid)


def _of_meta(resource: Resource, meta: Meta) -> Hashable:
    return _object(resource, meta.namespace, meta.name, meta.uid)


def _of_raw(resource: Resource, raw: Manifest) -> Hashable:
    meta = raw.get("metadata") or {}
    return _object(resource, meta.get("namespace", ""), meta.get("name", ""), meta.get("uid", ""))


def _gone(resource: Resource) -> _Key:
    return lambda x: _object(resource, x.namespace, x.name, x.uid)


def _own(x: Any) -> Hashable:
    return _object(x.resource, x.namespace, x.name, x.uid)


#: What each type of event is to :class:`Told`, and the object that it speaks of.
USES: Final[Mapping[type[e.Event], tuple[Use, _Key]]] = {
    e.NodeSeen: ("keep", lambda x: _of_meta(NODES, x.node.metadata)),
    e.NodeGone: ("drop", lambda x: _object(NODES, "", x.name)),
    e.ZonesSeen: ("keep", lambda x: _of_meta(x.resource, x.zones.metadata)),
    e.ZonesGone: ("drop", lambda x: _object(x.resource, "", x.name)),
    e.HyperNodeSeen: ("keep", lambda x: _of_meta(HYPER_NODES, x.hyper.metadata)),
    e.HyperNodeGone: ("drop", lambda x: _object(HYPER_NODES, "", x.name)),
    e.TopologySeen: ("keep", lambda x: _of_meta(x.resource, x.topology.metadata)),
    e.TopologyGone: ("drop", lambda x: _object(x.resource, "", x.name)),
    e.PodSeen: ("keep", lambda x: _of_meta(PODS, x.pod.metadata)),
    e.PodGone: ("drop", _gone(PODS)),
    e.GroupSeen: ("keep", lambda x: _of_meta(x.resource, x.group.metadata)),
    e.GroupGone: ("drop", _own),
    e.PlanSeen: ("keep", lambda x: _of_raw(GANG_PLANS, x.raw)),
    e.PlanGone: ("drop", _gone(GANG_PLANS)),
    e.JobSeen: ("keep", lambda x: _of_raw(x.resource, x.raw)),
    e.JobGone: ("drop", _own),
    e.ServiceSeen: ("keep", lambda x: _of_meta(SERVICES, x.metadata)),
    e.ServiceGone: ("drop", _gone(SERVICES)),
    e.NamespaceSeen: ("keep", lambda x: _of_meta(NAMESPACES, x.namespace.metadata)),
    e.NamespaceGone: ("drop", lambda x: _object(NAMESPACES, "", x.name)),
    e.ClaimSeen: ("keep", lambda x: _of_meta(CLAIMS, x.claim.metadata)),
    e.ClaimGone: ("drop", lambda x: _object(CLAIMS, x.namespace, x.name)),
    e.VolumeSeen: ("keep", lambda x: _of_meta(VOLUMES, x.volume.metadata)),
    e.VolumeGone: ("drop", lambda x: _object(VOLUMES, "", x.name)),
    e.PriorityClassSeen: ("keep", lambda x: _of_meta(PRIORITY_CLASSES, x.priority_class.metadata)),
    e.PriorityClassGone: ("drop", lambda x: _object(PRIORITY_CLASSES, "", x.name)),
    e.InvalidSeen: ("note", _own),
    e.Listed: ("keep", lambda x: ("Listed", x.resource)),
    e.KindServed: ("keep", lambda x: ("Served", x.resource)),
    e.Synced: ("keep", lambda _: "Synced"),
    e.LeaderGained: ("keep", lambda _: "Leader"),
    e.LeaderLost: ("drop", lambda _: "Leader"),
    e.FilterAsked: ("pass", lambda _: None),
    e.PlainRefused: ("pass", lambda _: None),
    e.PreemptAllowed: ("pass", lambda _: None),
    e.BindAsked: ("pass", lambda _: None),
    e.BindAbandoned: ("pass", lambda _: None),
    e.Done: ("pass", lambda _: None),
    e.Tick: ("pass", lambda _: None),
}
#: What is told after all objects, in this order.
_LAST = ("Synced", "Leader")


class Told:
    """The last event of each object, encoded: as large as the objects themselves."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, bytes] = {}
        self._notes: dict[Hashable, bytes] = {}

    def tell(self, event: e.Event, encoded: bytes) -> None:
        """An event was applied; ``encoded`` is how it is to be told again."""
        use, key_of = USES[type(event)]
        if use == "pass":
            return
        key = key_of(event)
        if use == "note":
            self._notes[key] = encoded
            return
        self._notes.pop(key, None)
        if use == "keep":
            self._kept[key] = encoded
        else:
            self._kept.pop(key, None)

    def again(self) -> list[bytes]:
        """Events that tell all of it to a core that knows nothing."""
        objects = [line for key, line in self._kept.items() if key not in _LAST]
        last = [self._kept[key] for key in _LAST if key in self._kept]
        return [*objects, *self._notes.values(), *last]
