"""Bytes of lists and watches to core values.

The envelope leaves each object raw, so that one bad object spoils itself alone: it becomes an
:class:`InvalidSeen`. The API's Go types take JSON null for empty and CRDs let it through in places;
an object that does not decode is tried once more without its nulls. Custom resources may hold
whatever their users wrote (x-kubernetes-preserve-unknown-fields), at any depth: nobody's stack may
depend on it, so what is nested deeply is cut off or makes its object invalid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from extender.core import events as e
from extender.core import objects as o
from extender.core.api import (
    CLAIMS,
    GANG_PLANS,
    HYPER_NODES,
    JOBS,
    NAMESPACES,
    NATIVE_GROUPS,
    NODE_TOPOLOGIES,
    NODES,
    OLD_NODE_TOPOLOGIES,
    OLD_TOPOLOGIES,
    PODS,
    PRIORITY_CLASSES,
    SERVICES,
    SIGS_GROUPS,
    TOPOLOGIES,
    VOLCANO_GROUPS,
    VOLUMES,
    Resource,
)
from extender.core.errors import ApiError, Gone
from extender.core.podgroups import NativeGroup, SigsGroup, VolcanoGroup
from extender.core.topology.hypernodes import HyperNode
from extender.core.topology.network import Topology
from extender.core.topology.nrt import NodeResourceTopology
from extender.kube.nesting import cut_off, nested, without_nulls
from extender.obs.metrics import Metrics

#: Reason of the ApiError for what the API does not send: the stream cannot be trusted further.
GARBAGE = "Garbage"

#: Levels of an object that is kept whole; a pod has about 15. Copying and encoding recurse.
MOST_NESTED = 100
#: Levels that are left of a body too deep to be read: more than an object is allowed within it.
_CUT_AT = 2 * MOST_NESTED


#: What a decoder raises for bytes that are not what it was made for.
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

T = TypeVar("T")


class Key(Struct, frozen=True, order=True):
    """Which object: its place, and the life of it that lives there."""

    namespace: str
    name: str
    uid: str


class ListMeta(Struct, frozen=True, rename="camel"):
    """metav1.ListMeta. ``next`` is the token of the following page."""

    resource_version: str = ""
    next: str = msgspec.field(default="", name="continue")


class Page(Struct, frozen=True):
    """One page of a list; ``items: null`` is how an empty one is written."""

    metadata: ListMeta = ListMeta()
    items: list[Raw] | None = None


class _Line(Struct, frozen=True):
    type: str
    object: Raw


class _OnlyMeta(o.ApiStruct, frozen=True):
    metadata: o.Meta = o.Meta()


class _MetaParts(Struct, frozen=True):
    metadata: dict[str, Raw] = {}


class _Identity(Struct, frozen=True, rename="camel"):
    """What the core relies on in the metadata of an object that it is given as it is."""

    name: str
    namespace: str
    uid: str
    resource_version: str


class _Version(Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _OnlyVersion(Struct, frozen=True):
    metadata: _Version = _Version()


class _Status(Struct, frozen=True):
    code: int = 0
    reason: str = ""
    message: str = ""


class Seen(Struct, frozen=True):
    """An object that is there: its key, and the event that tells the core."""

    key: Key
    event: e.Event


class Left(Struct, frozen=True):
    """An object that is no longer there."""

    key: Key


class Bookmark(Struct, frozen=True):
    """Nothing but a newer resourceVersion to resume from."""


class Change(Struct, frozen=True):
    """One line of a watch. ``resource_version`` is "" when the object had none to be read."""

    what: Seen | Left | Bookmark
    resource_version: str


class _Kind(Struct, frozen=True):
    """How one resource is decoded (``type``), announced and withdrawn."""

    type: type[Any]
    seen: Callable[[Any], e.Event]
    gone: Callable[[Key], e.Event]


def _group(resource: Resource, type_: type[Any]) -> _Kind:
    return _Kind(
        type_,
        lambda group: e.GroupSeen(resource, group),
        lambda k: e.GroupGone(resource, k.namespace, k.name, k.uid),
    )


def _job(resource: Resource) -> _Kind:
    return _Kind(
        dict[str, Any],
        lambda raw: e.JobSeen(resource, raw),
        lambda k: e.JobGone(resource, k.namespace, k.name, k.uid),
    )


def _zones(resource: Resource) -> _Kind:
    return _Kind(
        NodeResourceTopology,
        lambda zones: e.ZonesSeen(resource, zones),
        lambda k: e.ZonesGone(resource, k.name),
    )


def _network(resource: Resource) -> _Kind:
    return _Kind(
        Topology,
        lambda topology: e.TopologySeen(topology, resource),
        lambda k: e.TopologyGone(k.name, resource),
    )


_KINDS: dict[Resource, _Kind] = {
    PODS: _Kind(o.Pod, e.PodSeen, lambda k: e.PodGone(k.namespace, k.name, k.uid)),
    NODES: _Kind(o.Node, e.NodeSeen, lambda k: e.NodeGone(k.name)),
    NAMESPACES: _Kind(o.Namespace, e.NamespaceSeen, lambda k: e.NamespaceGone(k.name)),
    SERVICES: _Kind(
        _OnlyMeta,
        lambda service: e.ServiceSeen(service.metadata),
        lambda k: e.ServiceGone(k.namespace, k.name, k.uid),
    ),
    CLAIMS: _Kind(o.Claim, e.ClaimSeen, lambda k: e.ClaimGone(k.namespace, k.name)),
    VOLUMES: _Kind(o.PersistentVolume, e.VolumeSeen, lambda k: e.VolumeGone(k.name)),
    PRIORITY_CLASSES: _Kind(
        o.PriorityClass, e.PriorityClassSeen, lambda k: e.PriorityClassGone(k.name)
    ),
    NODE_TOPOLOGIES: _zones(NODE_TOPOLOGIES),
    OLD_NODE_TOPOLOGIES: _zones(OLD_NODE_TOPOLOGIES),
    HYPER_NODES: _Kind(HyperNode, e.HyperNodeSeen, lambda k: e.HyperNodeGone(k.name)),
    TOPOLOGIES: _network(TOPOLOGIES),
    OLD_TOPOLOGIES: _network(OLD_TOPOLOGIES),
    GANG_PLANS: _Kind(dict[str, Any], e.PlanSeen, lambda k: e.PlanGone(k.namespace, k.name, k.uid)),
    VOLCANO_GROUPS: _group(VOLCANO_GROUPS, VolcanoGroup),
    SIGS_GROUPS: _group(SIGS_GROUPS, SigsGroup),
    NATIVE_GROUPS: _group(NATIVE_GROUPS, NativeGroup),
    **{resource: _job(resource) for resource in JOBS},
}

#: Everything that Muster watches, optional kinds included.
WATCHED = tuple(_KINDS)


class ObjectDecoder:
    """Decodes the objects of one resource. Holds no state but its msgspec decoders."""

    def __init__(self, resource: Resource, metrics: Metrics) -> None:
        kind = _KINDS[resource]
        self.resource = resource
        self._type = kind.type
        self._make = kind.seen
        self._gone = kind.gone
        self._raw = kind.type == dict[str, Any]
        self._object: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind.type)
        self._meta = msgspec.json.Decoder(_OnlyMeta)
        self._parts = msgspec.json.Decoder(_MetaParts)
        self._page = msgspec.json.Decoder(Page)
        self._line = msgspec.json.Decoder(_Line)
        self._version = msgspec.json.Decoder(_OnlyVersion)
        self._status = msgspec.json.Decoder(_Status)
        self._errors = metrics.decode_errors.labels(resource.kind)
        self._stripped = metrics.nulls_stripped.labels(resource.kind)
        self._counts = {
            kind_: metrics.events_in.labels(resource.kind, kind_)
            for kind_ in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")
        }

    def page(self, body: bytes) -> Page:
        """Split a page of a list.

        Raises ApiError: it is no list (reason Garbage).
        """
        try:
            return self._read(self._page, body)
        except _UNREADABLE as error:
            self._errors.inc()
            raise ApiError(200, GARBAGE, f"list of {self.resource.plural}: {error}") from error

    def item(self, raw: Raw | bytes) -> Seen:
        """An object of a list. Never raises: what cannot be decoded is an InvalidSeen."""
        self._counts["ADDED"].inc()
        return self._seen(raw)[0]

    def line(self, line: bytes) -> Change:
        """One line of a watch.

        Raises Gone: the server says that the resourceVersion is too old; ApiError: it says another
        error, or the line is no watch event (reason Garbage).
        """
        try:
            envelope = self._read(self._line, line)
        except _UNREADABLE as error:
            self._errors.inc()
            text = line[:80].decode(errors="replace")
            raise ApiError(200, GARBAGE, f"{error} in {text!r}") from error
        count = self._counts.get(envelope.type)
        if count is None:
            raise self._error(envelope)
        count.inc()
        if envelope.type == "BOOKMARK":
            return Change(Bookmark(), self._version_of(envelope.object))
        if envelope.type == "DELETED":
            meta = self._meta_of(envelope.object)
            return Change(Left(_key(meta)), meta.resource_version)
        seen, version = self._seen(envelope.object)
        return Change(seen, version)

    def gone(self, key: Key) -> e.Event:
        """The event that withdraws an object."""
        return self._gone(key)

    def _read(self, decoder: msgspec.json.Decoder[T], body: bytes) -> T:
        try:
            return decoder.decode(body)
        except RecursionError:
            return decoder.decode(cut_off(body, _CUT_AT))

    def _seen(self, raw: Raw | bytes) -> tuple[Seen, str]:
        try:
            value = self._object.decode(raw)
            meta = self._meta_in(value)
        except _UNREADABLE as error:
            return self._again(raw, str(error))
        return Seen(_key(meta), self._make(value)), meta.resource_version

    def _again(self, raw: Raw | bytes, message: str) -> tuple[Seen, str]:
        """Without nulls; then not at all."""
        try:
            value = msgspec.convert(without_nulls(msgspec.json.decode(raw)), self._type)
            meta = self._meta_in(value)
        except _UNREADABLE:
            self._errors.inc()
            meta = self._meta_of(raw)
            key = _key(meta)
            event = e.InvalidSeen(self.resource, key.namespace, key.name, key.uid, message)
            return Seen(key, event), meta.resource_version
        self._stripped.inc()
        return Seen(_key(meta), self._make(value)), meta.resource_version

    def _meta_in(self, value: Any) -> o.Meta:
        """Raises ValidationError for an object that the core could not tell from another."""
        if not self._raw:
            meta: o.Meta = value.metadata
            if not meta.name:
                raise msgspec.ValidationError("metadata.name is missing")
            return meta
        meta = msgspec.convert(value.get("metadata", {}), o.Meta)
        msgspec.convert(value.get("metadata", {}), _Identity)
        if nested(value, MOST_NESTED):
            raise msgspec.ValidationError(f"it is nested more than {MOST_NESTED} levels deep")
        return meta

    def _meta_of(self, raw: Raw | bytes) -> o.Meta:
        """What can be told of an object's identity, however bad the rest is."""
        try:
            return self._meta.decode(raw).metadata
        except _UNREADABLE:
            self._stripped.inc()
        try:
            parts = self._parts.decode(raw).metadata
        except _UNREADABLE:
            return o.Meta()

        def text(name: str) -> str:
            try:
                return msgspec.json.decode(parts.get(name, b'""'), type=str)
            except _UNREADABLE:
                return ""

        return o.Meta(
            name=text("name"),
            namespace=text("namespace"),
            uid=text("uid"),
            resource_version=text("resourceVersion"),
        )

    def _version_of(self, raw: Raw) -> str:
        try:
            return self._version.decode(raw).metadata.resource_version
        except _UNREADABLE as error:
            self._errors.inc()
            raise ApiError(200, GARBAGE, f"bookmark: {error}") from error

    def _error(self, envelope: _Line) -> ApiError:
        if envelope.type != "ERROR":
            self._errors.inc()
            return ApiError(200, GARBAGE, f"watch event of type {envelope.type!r}")
        try:
            status = self._status.decode(envelope.object)
        except _UNREADABLE as error:
            self._errors.inc()
            return ApiError(200, GARBAGE, f"error event: {error}")
        kind = Gone if status.code == 410 else ApiError
        return kind(status.code, status.reason, status.message)


def _key(meta: o.Meta) -> Key:
    return Key(meta.namespace, meta.name, meta.uid)
