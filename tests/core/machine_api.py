"""An API server of dicts: what the executor asks of the real one, and a watch per object.

Objects are JSON as on the wire. Every write bumps one version and goes to the watchers, in order
per object. Answers are those that facts/controlplane.md measured.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

from msgspec import convert

from extender.core import commands as c
from extender.core import events as e
from extender.core import objects as o
from extender.core.api import (
    AUTOSCALERS,
    BATCH_JOBS,
    CONFIG_MAPS,
    GANG_PLANS,
    JOBS,
    NATIVE_GROUPS,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    SIGS_GROUPS,
    VOLCANO_GROUPS,
    Resource,
)
from extender.core.podgroups import NativeGroup, SigsGroup, VolcanoGroup
from tests.builders import GPU

Raw = dict[str, Any]
Place = tuple[Resource, str, str]
#: Status code and the object (or None) of an answer.
Reply = tuple[int, Raw | None]

#: What nobody watches.
UNWATCHED = (
    AUTOSCALERS,
    BATCH_JOBS,
    CONFIG_MAPS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
)
GROUPS: dict[Resource, type[VolcanoGroup] | type[SigsGroup] | type[NativeGroup]] = {
    VOLCANO_GROUPS: VolcanoGroup,
    SIGS_GROUPS: SigsGroup,
    NATIVE_GROUPS: NativeGroup,
}


def seen(resource: Resource, raw: Raw) -> e.Event:
    """What a reflector makes of an object that was added or changed."""
    if resource in GROUPS:
        return e.GroupSeen(resource, convert(raw, GROUPS[resource]))
    if resource == PODS:
        return e.PodSeen(convert(raw, o.Pod))
    if resource == NODES:
        return e.NodeSeen(convert(raw, o.Node))
    if resource == GANG_PLANS:
        return e.PlanSeen(raw)
    if resource == SERVICES:
        return e.ServiceSeen(convert(raw["metadata"], o.Meta))
    if resource == PRIORITY_CLASSES:
        return e.PriorityClassSeen(convert(raw, o.PriorityClass))
    assert resource in JOBS
    return e.JobSeen(resource, raw)


def gone(resource: Resource, raw: Raw) -> e.Event:
    """What a reflector makes of an object that is no more."""
    meta = raw["metadata"]
    namespace, name, uid = meta.get("namespace", ""), meta["name"], meta["uid"]
    if resource in GROUPS:
        return e.GroupGone(resource, namespace, name, uid)
    if resource == PODS:
        return e.PodGone(namespace, name, uid)
    if resource == NODES:
        return e.NodeGone(name)
    if resource == GANG_PLANS:
        return e.PlanGone(namespace, name, uid)
    if resource == SERVICES:
        return e.ServiceGone(namespace, name, uid)
    if resource == PRIORITY_CLASSES:
        return e.PriorityClassGone(name)
    assert resource in JOBS
    return e.JobGone(resource, namespace, name, uid)


class Api:
    """The objects, and what may be done to them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.objects: dict[Place, Raw] = {}
        self.watchers: list[Callable[[Place, e.Event], None]] = []
        #: Refuses the creation of some pods, as admission does: body → message, or "".
        self.admission: Callable[[Raw], str] = lambda body: ""
        #: Groups whose CRD has no status subresource.
        self.no_status: set[Resource] = set()
        #: Whether a pod runs as soon as it is bound.
        self.kubelets = True
        self._version = 0
        self._uids = 0

    def pods(self) -> list[Raw]:
        """Every pod, by name."""
        found = [(place[1:], raw) for place, raw in self.objects.items() if place[0] == PODS]
        return [raw for _, raw in sorted(found, key=lambda pair: pair[0])]

    def get(self, resource: Resource, name: str, namespace: str = "default") -> Raw | None:
        """An object as it is."""
        return self.objects.get((resource, namespace, name))

    def put(self, resource: Resource, raw: Raw) -> Raw:
        """Create as a user does; the name must be free."""
        code, made = self._create(resource, deepcopy(raw), dry_run=False)
        assert code == 201, (code, raw)
        assert made is not None
        return made

    def change(self, place: Place, **patch: Any) -> None:
        """Merge-patch as a user or a kubelet does; nothing if it is gone."""
        if place in self.objects:
            self._patch(place, patch)

    def delete(self, place: Place, grace: int | None = None) -> None:
        """As a user does: a bound pod first terminates; what it owns goes with it. ``grace``: seconds
        that the pod has for that, from the first time that it was asked to; it never grows.
        """
        raw = self.objects.get(place)
        if raw is None:
            return
        if place[0] != PODS or not raw["spec"].get("nodeName") or ended(raw):
            self.remove(place)
            return
        meta = raw["metadata"]
        own = raw["spec"].get("terminationGracePeriodSeconds", 0)
        now, seconds = self.clock(), own if grace is None else grace
        ends = now + seconds
        if "deletionTimestamp" in meta:
            given = meta["deletionGracePeriodSeconds"]
            if seconds >= given:
                return
            ends = datetime.fromisoformat(meta["deletionTimestamp"]).timestamp() - given + seconds
            if ends < now:
                ends, seconds = now, 1
        end = datetime.fromtimestamp(ends, UTC).isoformat()
        marks = {"deletionTimestamp": end, "deletionGracePeriodSeconds": seconds}
        self._patch(place, {"metadata": marks})

    def remove(self, place: Place) -> None:
        """Take an object away (a kubelet has ended its pod)."""
        raw = self.objects.pop(place, None)
        if raw is None:
            return
        self._tell(place, gone, raw)
        uid = raw["metadata"]["uid"]
        living = {each["metadata"]["uid"] for each in self.objects.values()}
        for other, child in list(self.objects.items()):
            owners = {owner["uid"] for owner in child["metadata"].get("ownerReferences", ())}
            if uid in owners and not owners & living:
                self.delete(other)

    def carry_out(self, command: c.Command) -> Reply:
        """What the executor gets for a command."""
        match command:
            case c.Bind():
                return self._bind(command)
            case c.Create():
                body = deepcopy(command.body)
                return self._create(command.resource, body, dry_run=command.dry_run)
            case c.Patch():
                return self._patch_checked(command)
            case c.Delete():
                place = (command.resource, command.namespace, command.name)
                raw = self.objects.get(place)
                if raw is None:
                    return 404, None
                if command.uid and raw["metadata"]["uid"] != command.uid:
                    return 409, None
                if command.grace == 0:
                    self.remove(place)
                else:
                    self.delete(place, command.grace)
                return 200, None
            case _:
                raise AssertionError(command)

    def _now(self) -> str:
        return datetime.fromtimestamp(self.clock(), UTC).isoformat()

    def _stamp(self, raw: Raw) -> None:
        self._version += 1
        raw["metadata"]["resourceVersion"] = str(self._version)

    def _tell(self, place: Place, news: Callable[[Resource, Raw], e.Event], raw: Raw) -> None:
        if place[0] in UNWATCHED:
            return
        event = news(place[0], deepcopy(raw))
        for watcher in self.watchers:
            watcher(place, event)

    def _create(self, resource: Resource, raw: Raw, *, dry_run: bool) -> Reply:
        meta = raw["metadata"]
        place = (resource, meta.get("namespace", "") if resource.namespaced else "", meta["name"])
        if resource == PODS and (message := self.admission(raw)):
            return 403, {"message": message}
        if not dry_run and place in self.objects:
            # The executor looks whose it is: a job's own is no conflict (commands.OWNED).
            own = place[0] in (*UNWATCHED, SERVICES) and place[0] != AUTOSCALERS and owned(raw)
            return (200 if own and own == owned(self.objects[place]) else 409), None
        self._uids += 1
        meta["uid"] = f"u{self._uids}"
        meta["creationTimestamp"] = self._now()
        self._stamp(raw)
        if resource == PODS:
            raw["spec"].setdefault("schedulerName", "default-scheduler")
            raw.setdefault("status", {"phase": "Pending"})
        if not dry_run:
            self.objects[place] = raw
            self._tell(place, seen, raw)
        return 201, deepcopy(raw)

    def _patch_checked(self, command: c.Patch) -> Reply:
        place = (command.resource, command.namespace, command.name)
        raw = self.objects.get(place)
        if raw is None or (command.subresource and command.resource in self.no_status):
            return 404, None
        wanted, meta = command.body.get("metadata", {}), raw["metadata"]
        for field in ("uid", "resourceVersion"):
            if field in wanted and wanted[field] != meta[field]:
                return 409, None
        if command.resource == PODS and not command.subresource:
            for field in command.body.get("spec", {}):
                if field != "schedulingGates":
                    return 422, None
        body = {k: v for k, v in command.body.items() if k == "metadata"}
        if command.subresource:
            body["status"] = command.body["status"]
        else:
            keeps = command.resource in self.no_status
            body |= {k: v for k, v in command.body.items() if k != "status" or keeps}
        return 200, self._patch(place, body)

    def _patch(self, place: Place, patch: Raw) -> Raw:
        raw = self.objects[place]
        merged = merge(raw, patch)
        if merged != raw:
            self._stamp(merged)
            self.objects[place] = merged
            self._tell(place, seen, merged)
        return deepcopy(self.objects[place])

    def _bind(self, command: c.Bind) -> Reply:
        place = (PODS, command.namespace, command.name)
        raw = self.objects.get(place)
        if raw is None:
            return 404, None
        meta, spec = raw["metadata"], raw["spec"]
        if meta["uid"] == command.uid and spec.get("nodeName") == command.node:
            return 201, None
        stale = command.resource_version and meta["resourceVersion"] != command.resource_version
        if (
            meta["uid"] != command.uid
            or stale
            or spec.get("nodeName")
            or spec.get("schedulingGates")
            or "deletionTimestamp" in meta
        ):
            return 409, deepcopy(raw)
        status = {"phase": "Running" if self.kubelets else "Pending"}
        self._patch(place, {"spec": {"nodeName": command.node}, "status": status})
        return 201, None


def owned(raw: Raw) -> list[str]:
    """Uids of an object's owners."""
    return [owner["uid"] for owner in raw["metadata"].get("ownerReferences", ())]


def merge(old: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return deepcopy(patch)
    out = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merge(out.get(key), value)
    return out


def ended(pod: Raw) -> bool:
    """Succeeded or Failed."""
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def gpus(pod: Raw) -> int:
    """GPUs that the pod asks for."""
    boxes = pod["spec"]["containers"]
    return sum(int(b.get("resources", {}).get("requests", {}).get(GPU, 0)) for b in boxes)
