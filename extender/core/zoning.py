"""NodeResourceTopology objects as they come and go."""

from __future__ import annotations

from extender.core import events as e
from extender.core.api import Resource
from extender.core.errors import InvalidObject
from extender.core.state import State
from extender.core.topology import nrt


def zones_seen(s: State, event: e.ZonesSeen) -> None:
    """A node's zones are told. Where they cannot be read they are not known, and nothing is refused."""
    name = event.zones.metadata.name
    try:
        zones = nrt.zones_of(event.zones)
    except InvalidObject as error:
        s.count("invalid_zones")
        uid = event.zones.metadata.uid
        s.notice(event.resource, "", name, uid, "Warning", "InvalidZones", str(error))
        forget(s, event.resource, name)
        return
    if s.cluster.tell_zones(name, event.resource.version, zones):
        _changed(s, name)


def zones_gone(s: State, event: e.ZonesGone) -> None:
    """A node's zones are told no more."""
    forget(s, event.resource, event.name)


def forget(s: State, resource: Resource, name: str) -> None:
    """What that version of the API told of a node holds no longer."""
    if s.cluster.zones.forget(name, resource.version):
        s.cluster.capacity_generation += 1
        _changed(s, name)


def _changed(s: State, name: str) -> None:
    """Plans for the node are looked at again, and what it was seen to refuse may fit now."""
    s.touched.add(name)
    s.evidence.forget(name)
