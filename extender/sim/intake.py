"""How an API server judges and completes an object before it stores it.

Source: apiserver ``pkg/registry/rest``, kubernetes ``pkg/registry/core``.
"""

from __future__ import annotations

import re
import zlib
from datetime import UTC, datetime

from extender.core import api
from extender.core.api import Resource
from extender.core.objects import Manifest
from extender.sim import podrules, statuses
from extender.sim.kinds import Kind

#: Metadata that only the server sets.
SYSTEM = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
)
_ANNOTATIONS_LIMIT = 256 * 1024
_NAME = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def timestamp(now: float) -> str:
    """metav1.Time of seconds since the epoch: RFC 3339 in whole seconds."""
    return datetime.fromtimestamp(int(now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def default(kind: Kind, obj: Manifest, classes: list[Manifest]) -> None:
    """Complete a new object in place; ``classes`` are the PriorityClasses."""
    resource, meta = kind.resource, obj["metadata"]
    if kind.generation:
        meta["generation"] = 1
    if resource == api.PODS:
        podrules.default_pod(obj, meta["creationTimestamp"])
        if refusal := podrules.default_priority(obj["spec"], classes):
            raise statuses.forbidden(resource, meta.get("name", ""), refusal)
    elif resource == api.NODES:
        _default_node(obj)
    elif resource == api.NAMESPACES:
        labels = meta.get("labels") or {}
        meta["labels"] = {"kubernetes.io/metadata.name": meta.get("name", ""), **labels}
        obj["status"] = {"phase": "Active"}
    elif resource == api.PRIORITY_CLASSES:
        obj.setdefault("preemptionPolicy", "PreemptLowerPriority")
    elif resource in (api.CLAIMS, api.VOLUMES):
        obj["status"] = {"phase": "Pending"}
    elif kind.status:
        obj.pop("status", None)


def check(resource: Resource, obj: Manifest) -> None:
    """Raise 422 for an object that may not be stored; the rules that Muster's tests run into."""
    meta, problems = obj["metadata"], []
    name = str(meta.get("name", ""))
    if not name:
        problems.append("metadata.name: Required value: name or generateName is required")
    elif not _NAME.match(name) or len(name) > 253:
        problems.append(
            f'metadata.name: Invalid value: "{name}": a lowercase RFC 1123 subdomain must'
            " consist of lower case alphanumeric characters, '-' or '.', and must start and"
            " end with an alphanumeric character (e.g. 'example.com', regex used for validation"
            f" is '{_NAME.pattern[1:-1]}')"
        )
    size = sum(
        len(k.encode()) + len(v.encode()) for k, v in (meta.get("annotations") or {}).items()
    )
    if size > _ANNOTATIONS_LIMIT:
        problems.append(
            f"metadata.annotations: Too long: may not be more than {_ANNOTATIONS_LIMIT} bytes"
        )
    if resource == api.PODS:
        problems += podrules.pod_problems(obj)
    if problems:
        raise statuses.invalid(resource, name, problems)


def preconditions(kind: Kind, old: Manifest, meta: Manifest, *, put: bool) -> None:
    """Raise if the uid or resourceVersion that an update carries is not the object's."""
    resource, name = kind.resource, old["metadata"]["name"]
    have = old["metadata"]
    if (uid := meta.get("uid")) and uid != have["uid"]:
        if put:
            raise statuses.precondition(resource, name, "UID", uid, have["uid"])
        why = f'metadata.uid: Invalid value: "{uid}": field is immutable'
        raise statuses.invalid(resource, name, [why])
    if version := meta.get("resourceVersion"):
        if version != have["resourceVersion"]:
            raise statuses.modified(resource, name)
    elif put and not kind.unconditional:
        raise statuses.no_version(resource, name)


def confine(kind: Kind, old: Manifest, new: Manifest, subresource: str) -> Manifest:
    """Only status through the status subresource; anything but status otherwise."""
    if not kind.status:
        return new
    source, target = (new, dict(old)) if subresource else (old, new)
    target.pop("status", None)
    if "status" in source:
        target["status"] = source["status"]
    if subresource and kind.resource == api.PODS:
        # Labels and annotations do change through pods/status.
        meta = target["metadata"] = dict(old["metadata"])
        for field in ("labels", "annotations"):
            meta.pop(field, None)
            if new["metadata"].get(field):
                meta[field] = new["metadata"][field]
    elif subresource:
        target["metadata"] = dict(old["metadata"])
    return target


def set_condition(
    status: Manifest, kind: str, value: str, now: str, reason: str = "", message: str = ""
) -> bool:
    """Set a condition in place; the transition time moves only with ``value``. Whether it changed."""
    fresh = {"type": kind, "status": value}
    fresh |= {"reason": reason} if reason else {}
    fresh |= {"message": message} if message else {}
    conditions = status.setdefault("conditions", [])
    for index, old in enumerate(conditions):
        if old["type"] != kind:
            continue
        if all(
            old.get(field, "") == fresh.get(field, "") for field in ("status", "reason", "message")
        ):
            return False
        since = old.get("lastTransitionTime") if old["status"] == value else now
        conditions[index] = {"lastProbeTime": None, "lastTransitionTime": since, **fresh}
        return True
    conditions.append({"lastProbeTime": None, "lastTransitionTime": now, **fresh})
    return True


def _default_node(node: Manifest) -> None:
    """Capacity is allocatable; a new node carries the not-ready taint until somebody removes it."""
    spec, status = node.setdefault("spec", {}), node.setdefault("status", {})
    if "capacity" in status and "allocatable" not in status:
        status["allocatable"] = status["capacity"]
    taints = list(spec.get("taints") or ())
    not_ready = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    if not_ready not in taints:
        spec["taints"] = [*taints, not_ready]


def grace(pod: Manifest, asked: int | None) -> int:
    """Seconds of grace that a deletion leaves a pod; none unless it is bound and unfinished."""
    spec, status = pod["spec"], pod.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    seconds = spec.get("terminationGracePeriodSeconds", 30) if asked is None else asked
    return 1 if seconds < 0 else int(seconds)


def content(obj: Manifest) -> Manifest:
    """What ``metadata.generation`` counts the changes of."""
    return {key: value for key, value in obj.items() if key not in ("metadata", "status")}


def suffix(uid: str) -> str:
    """Five letters for generateName, the same for the same uid."""
    number = zlib.crc32(uid.encode())
    letters = []
    for _ in range(5):
        number, index = divmod(number, len(_SUFFIX_LETTERS))
        letters.append(_SUFFIX_LETTERS[index])
    return "".join(letters)
