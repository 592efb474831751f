"""The in-memory API server's storage: what etcd, registry and admission are to kube-apiserver.

Synchronous and deterministic: the clock and the source of uids are given, so equal calls give
equal objects. Objects are JSON maps; one that was returned is shared and must not be changed. An
error is an :class:`extender.core.errors.ApiError` with kube-apiserver's code, reason and words
(:mod:`extender.sim.statuses`).

Beyond storage it does at once what kube-controller-manager does later: dependents of a deleted
owner are deleted, a deleted namespace is emptied and removed.

Source: apiserver ``pkg/registry/generic/registry/store.go``, kubernetes ``pkg/registry/core/pod``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from extender.core import api, times
from extender.core.api import Resource
from extender.core.objects import Manifest
from extender.sim import intake, podrules, statuses
from extender.sim.history import Change, History, Key, Shape, Watch
from extender.sim.history import Kind as ChangeKind
from extender.sim.kinds import SERVED, Kind
from extender.sim.owners import Owners
from extender.sim.patches import copy_json
from extender.sim.selectors import Selector

#: Looks at (or changes) a new object before it is stored; raises an ApiError to refuse it.
Admission = Callable[[Resource, Manifest], None]

_SYSTEM_CLASSES = (
    ("system-cluster-critical", 2_000_000_000),
    ("system-node-critical", 2_000_001_000),
)


class Store:
    """Objects of every served kind under one increasing resourceVersion."""

    def __init__(
        self,
        now: Callable[[], float],
        uid: Callable[[], str],
        *,
        history: int = 20_000,
        kinds: Iterable[Kind] = SERVED,
    ) -> None:
        """``now`` in seconds since the epoch; ``history`` in changes that a watch may go back."""
        self.version = 1
        self.history = History(history)
        self.admission: list[Admission] = []
        self._now = now
        self._uid = uid
        self._kinds: dict[Resource, Kind] = {}
        self._tables: dict[Resource, dict[Key, Manifest]] = {}
        self._owners = Owners()
        self._watches: dict[int, Watch] = {}
        self._watch_ids = itertools.count()
        for kind in kinds:
            self.serve(kind)
        for name in ("default", "kube-system"):
            self.create(api.NAMESPACES, "", {"metadata": {"name": name}})
        for name, value in _SYSTEM_CLASSES:
            self.create(api.PRIORITY_CLASSES, "", {"metadata": {"name": name}, "value": value})

    # --- kinds

    def serve(self, kind: Kind | Resource) -> None:
        """Serve a kind from now on (a bare resource behaves as a custom resource does)."""
        kind = Kind(kind) if isinstance(kind, Resource) else kind
        self._kinds[kind.resource] = kind
        self._tables.setdefault(kind.resource, {})

    def unserve(self, resource: Resource) -> None:
        """Stop serving a kind: its objects are gone (without a word) and its watches end."""
        for key, obj in self._tables[resource].items():
            self._owners.remove(resource, key, obj)
        del self._kinds[resource], self._tables[resource]
        for watch in self._watches.values():
            watch.end(resource)

    def kind(self, group: str, version: str, plural: str) -> Kind:
        """The kind under a URL path; 404 when it is not served."""
        for resource, kind in self._kinds.items():
            if (resource.group, resource.version, resource.plural) == (group, version, plural):
                return kind
        raise statuses.not_served()

    # --- reads

    def get(self, resource: Resource, namespace: str, name: str) -> Manifest:
        obj = self._table(resource).get((namespace, name))
        if obj is None:
            raise statuses.not_found(resource, name)
        return obj

    def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        selector: Selector | None = None,
        at: int | None = None,
    ) -> list[Manifest]:
        """Objects in key order, of all namespaces if None; ``at`` an earlier version, if kept."""
        table = self._table(resource)
        if at is not None and at < self.version:
            table = dict(table)
            self.history.rewind(resource, table, at)
        return [
            obj
            for key, obj in sorted(table.items(), key=lambda item: item[0])
            if (namespace is None or key[0] == namespace)
            and (selector is None or selector.matches(obj))
        ]

    def watch(
        self,
        resource: Resource,
        namespace: str | None,
        selector: Selector,
        since: int | None,
        *,
        wake: Callable[[], None],
        limit: int = 10_000,
        shape: Shape | None = None,
    ) -> tuple[int, Watch]:
        """Follow a kind from ``since``; None begins with what exists. Ends with :meth:`unwatch`."""
        watch = Watch(resource, namespace, selector, limit=limit, shape=shape, wake=wake)
        if since is None:
            watch.initial(self.list(resource, namespace, selector))
        else:
            self._table(resource)
            for change in self.history.since(since):
                watch.offer(change)
        number = next(self._watch_ids)
        self._watches[number] = watch
        return number, watch

    def unwatch(self, number: int) -> None:
        self._watches.pop(number, None)

    # --- writes

    def create(
        self, resource: Resource, namespace: str, body: Manifest, *, dry_run: bool = False
    ) -> Manifest:
        """Admit and store a new object; the answer is the object as admitted."""
        kind, table = self._kinds[resource], self._table(resource)
        obj: Manifest = {"apiVersion": resource.api_version, "kind": resource.kind}
        obj |= copy_json(body)
        self._name(resource, namespace, obj)
        intake.default(kind, obj, self.list(api.PRIORITY_CLASSES))
        for admit in self.admission:
            admit(resource, obj)
        meta = obj["metadata"]
        intake.check(resource, obj)
        key = (meta.get("namespace", ""), meta["name"])
        if key in table:
            raise statuses.already_exists(resource, meta["name"])
        if dry_run:
            return obj
        created = self._commit(resource, key, "ADDED", obj, None)
        self._collect_orphan(resource, key, created)
        return created

    def replace(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        change: Callable[[Manifest], Manifest],
        *,
        subresource: str = "",
        dry_run: bool = False,
        put: bool = False,
    ) -> Manifest:
        """Update an object or its status to ``change(old)``, which must not change ``old``.

        A uid or resourceVersion in the new metadata is a precondition (another uid is a 409 of PUT
        but a 422 of PATCH, as on the real server); ``put`` demands the latter
        where the kind does. A content that is the old one is no write.
        """
        kind, old = self._kinds[resource], self.get(resource, namespace, name)
        if subresource not in ("", "status") or (subresource and not kind.status):
            raise statuses.not_served()
        new = copy_json(change(old))
        meta = new.setdefault("metadata", {})
        intake.preconditions(kind, old, meta, put=put)
        for field in intake.SYSTEM:
            meta.pop(field, None)
            if field in old["metadata"]:
                meta[field] = old["metadata"][field]
        new |= {"apiVersion": resource.api_version, "kind": resource.kind}
        new = intake.confine(kind, old, new, subresource)
        if resource == api.PODS and not subresource:
            problems = podrules.update_problems(old["spec"], new.get("spec") or {})
            if problems:
                raise statuses.invalid(resource, name, problems)
        intake.check(resource, new)
        if kind.generation and intake.content(new) != intake.content(old):
            meta = new["metadata"]
            meta["generation"] = meta.get("generation", 1) + 1
        if dry_run or new == old:
            return new
        return self._store(resource, (namespace, name), new, old)

    def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        version: str = "",
        grace: int | None = None,
        orphan: bool = False,
        dry_run: bool = False,
    ) -> Manifest:
        """Delete an object, or mark it deleted while grace or finalizers hold it.

        ``grace`` in seconds; only a bound, unfinished pod has any. The answer is the last state.
        """
        old = self.get(resource, namespace, name)
        meta = old["metadata"]
        for field, wanted, have in (
            ("UID", uid, meta["uid"]),
            ("ResourceVersion", version, meta["resourceVersion"]),
        ):
            if wanted and wanted != have:
                raise statuses.delete_precondition(resource, name, field, wanted, have)
        seconds = intake.grace(old, grace) if resource == api.PODS else 0
        if dry_run:
            return old
        if orphan:
            self._orphan(meta["uid"])
        if resource == api.NAMESPACES:
            self._empty(name)
        if not seconds and not meta.get("finalizers"):
            return self._remove(resource, (namespace, name), old)
        ends = self._now() + seconds
        if "deletionTimestamp" in meta:
            given = meta["deletionGracePeriodSeconds"]
            if seconds >= given:
                return old  # grace can only be shortened
            # It counts from when the deletion was first asked for; of what is over 1 s is left.
            ends = (times.parse(meta["deletionTimestamp"]) or ends) - given + seconds
            if ends < self._now():
                ends, seconds = self._now(), min(seconds, 1)
        new = copy_json(old)
        new["metadata"]["deletionTimestamp"] = intake.timestamp(ends)
        new["metadata"]["deletionGracePeriodSeconds"] = seconds
        if "generation" in meta and "deletionTimestamp" not in meta:
            new["metadata"]["generation"] += 1
        return self._store(resource, (namespace, name), new, old)

    def bind(
        self,
        namespace: str,
        name: str,
        node: str,
        *,
        uid: str = "",
        version: str = "",
        annotations: dict[str, str] | None = None,
        dry_run: bool = False,
    ) -> None:
        """Set a pod's node, once. Precondition, deletion, node and gates are checked in this order."""
        old = self.get(api.PODS, namespace, name)
        meta, spec = old["metadata"], old["spec"]
        for field, wanted, have in (
            ("UID", uid, meta["uid"]),
            ("ResourceVersion", version, meta["resourceVersion"]),
        ):
            if wanted and wanted != have:
                raise statuses.precondition(api.PODS, name, field, wanted, have)
        why = ""
        if "deletionTimestamp" in meta:
            why = f"pod {name} is being deleted, cannot be assigned to a host"
        elif spec.get("nodeName"):
            why = f'pod {name} is already assigned to node "{spec["nodeName"]}"'
        elif spec.get("schedulingGates"):
            why = f"pod {name} has non-empty .spec.schedulingGates"
        if why:
            raise statuses.conflict(api.PODS, name, why, "binding")
        if dry_run:
            return
        new = copy_json(old)
        new["spec"]["nodeName"] = node
        new["status"].pop("nominatedNodeName", None)
        if annotations:
            new["metadata"].setdefault("annotations", {}).update(annotations)
        intake.set_condition(new["status"], "PodScheduled", "True", intake.timestamp(self._now()))
        self._store(api.PODS, (namespace, name), new, old)

    # --- steps of a write

    def _name(self, resource: Resource, namespace: str, obj: Manifest) -> None:
        meta = obj["metadata"] = dict(obj.get("metadata") or {})
        if meta.get("namespace", namespace) != namespace:
            raise statuses.bad_request(
                "the namespace of the provided object does not match the namespace sent on the"
                " request"
            )
        for field in intake.SYSTEM[2:]:
            meta.pop(field, None)
        if resource.namespaced:
            meta["namespace"] = namespace
            holder = self._tables[api.NAMESPACES].get(("", namespace))
            if holder is None:
                raise statuses.not_found(api.NAMESPACES, namespace)
        meta["uid"] = self._uid()
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"] + intake.suffix(meta["uid"])
        meta["creationTimestamp"] = intake.timestamp(self._now())

    def _store(self, resource: Resource, key: Key, new: Manifest, old: Manifest) -> Manifest:
        meta = new["metadata"]
        held = meta.get("finalizers") or meta.get("deletionGracePeriodSeconds")
        if "deletionTimestamp" in meta and not held:
            return self._remove(resource, key, new, old)
        return self._commit(resource, key, "MODIFIED", new, old)

    def _remove(
        self, resource: Resource, key: Key, last: Manifest, old: Manifest | None = None
    ) -> Manifest:
        gone = self._commit(resource, key, "DELETED", dict(last), old or last)
        self._collect(gone["metadata"]["uid"])
        return gone

    def _commit(
        self, resource: Resource, key: Key, kind: ChangeKind, obj: Manifest, old: Manifest | None
    ) -> Manifest:
        self.version += 1
        obj["metadata"] = {**obj["metadata"], "resourceVersion": str(self.version)}
        if old is not None:
            self._owners.remove(resource, key, old)
        if kind == "DELETED":
            del self._tables[resource][key]
        else:
            self._tables[resource][key] = obj
            self._owners.add(resource, key, obj)
        change = Change(self.version, resource, key, kind, obj, old)
        self.history.add(change)
        for watch in list(self._watches.values()):
            watch.offer(change)
        return obj

    def _table(self, resource: Resource) -> dict[Key, Manifest]:
        table = self._tables.get(resource)
        if table is None:
            raise statuses.not_served()
        return table

    # --- owners

    def _collect(self, owner: str) -> None:
        """Delete the dependents of an owner that is gone, unless another owner lives."""
        for resource, key in self._owners.dependents(owner):
            obj = self._tables[resource].get(key)
            if obj is not None:
                self._collect_orphan(resource, key, obj)

    def _collect_orphan(self, resource: Resource, key: Key, obj: Manifest) -> None:
        owners = obj["metadata"].get("ownerReferences") or ()
        if owners and not any(self._owners.lives(reference["uid"]) for reference in owners):
            self.delete(resource, *key)

    def _orphan(self, owner: str) -> None:
        for resource, key in self._owners.dependents(owner):
            old = self._tables[resource][key]
            new = copy_json(old)
            new["metadata"]["ownerReferences"] = [
                item for item in old["metadata"]["ownerReferences"] if item["uid"] != owner
            ]
            self._commit(resource, key, "MODIFIED", new, old)

    def _empty(self, namespace: str) -> None:
        for resource in sorted(self._tables):
            if resource.namespaced:
                for obj in self.list(resource, namespace):
                    name = obj["metadata"]["name"]
                    if (namespace, name) in self._tables[resource]:
                        self.delete(resource, namespace, name, grace=0)
