"""The plan's record: a GangPlan object, columnar, under 1 MiB at 10,000 members.

It is written before anything is released (write-ahead), only by Muster, and owned by the group's
own record so that it goes with it. ``spec.node`` and ``spec.role`` are indices into the tables
``spec.nodes`` and ``spec.roles``, one per entry of ``spec.members``.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from msgspec import Struct, ValidationError, convert

from extender.core.api import GANG_PLANS, MUSTER_GROUP, NATIVE_GROUPS, SIGS_GROUPS, VOLCANO_GROUPS
from extender.core.identity import GroupKey
from extender.core.objects import Manifest
from extender.core.quantity import COUNT_LIMIT

GROUP_LABEL = f"{MUSTER_GROUP}/group"
PLANNED, DONE, VOID = "Planned", "Done", "Void"
_KINDS = {r.api_version: r for r in (VOLCANO_GROUPS, SIGS_GROUPS, NATIVE_GROUPS)}


class PlannedMember(Struct, frozen=True):
    """One row of a plan."""

    name: str
    uid: str
    role: str
    node: str


class PlanRecord(Struct, frozen=True):
    """A plan as the API holds it."""

    key: GroupKey
    group_uid: str
    epoch: int
    attempt: int
    state: str
    min_member: int
    members: tuple[PlannedMember, ...]
    uid: str = ""
    resource_version: str = ""


def record_name(key: GroupKey) -> str:
    """A stable object name; kinds that share a group name do not share a plan."""
    digest = zlib.crc32(f"{key.resource.group}/{key.name}".encode())
    # What is cut off may leave a dot or a dash at the end, which no part of a name may begin with.
    return f"{key.name[:240].rstrip('.-')}-{digest:08x}"


def encode(plan: PlanRecord) -> Manifest:
    """The GangPlan object. A member without a uid does not exist yet."""
    nodes = _table(m.node for m in plan.members)
    roles = _table(m.role for m in plan.members)
    key = plan.key
    reference = {
        "apiVersion": key.resource.api_version,
        "kind": key.resource.kind,
        "name": key.name,
        "uid": plan.group_uid,
    }
    metadata: Manifest = {"name": record_name(key), "namespace": key.namespace}
    if plan.group_uid:
        metadata["ownerReferences"] = [reference]
    if plan.resource_version:
        metadata["resourceVersion"] = plan.resource_version
    return {
        "apiVersion": GANG_PLANS.api_version,
        "kind": GANG_PLANS.kind,
        "metadata": metadata,
        "spec": {
            "groupRef": reference,
            "epoch": plan.epoch,
            "attempt": plan.attempt,
            "minMember": plan.min_member,
            "state": plan.state,
            "memberCount": len(plan.members),
            "nodes": list(nodes),
            "roles": list(roles),
            "members": [m.name for m in plan.members],
            "uids": [m.uid for m in plan.members],
            "node": [nodes[m.node] for m in plan.members],
            "role": [roles[m.role] for m in plan.members],
        },
    }


def decode(raw: Manifest) -> PlanRecord | None:
    """Read a GangPlan; None when it is not one that Muster can have written."""
    try:
        shell = convert(raw, _Shell)
    except ValidationError:
        return None
    spec, ref = shell.spec, shell.spec.group_ref
    resource = _KINDS.get(ref.api_version)
    length = len(spec.members)
    indexes = all(0 <= i < len(spec.nodes) for i in spec.node) and all(
        0 <= i < len(spec.roles) for i in spec.role
    )
    if (
        resource is None
        or not indexes
        or not 0 <= spec.attempt < COUNT_LIMIT
        or {len(spec.uids), len(spec.node), len(spec.role)} != {length}
    ):
        return None
    rows = zip(spec.members, spec.uids, spec.role, spec.node, strict=True)
    return PlanRecord(
        key=GroupKey(resource, shell.metadata.namespace, ref.name),
        group_uid=ref.uid,
        epoch=spec.epoch,
        attempt=spec.attempt,
        state=spec.state,
        min_member=spec.min_member,
        members=tuple(
            PlannedMember(name, uid, spec.roles[role], spec.nodes[node])
            for name, uid, role, node in rows
        ),
        uid=shell.metadata.uid,
        resource_version=shell.metadata.resource_version,
    )


class _Ref(Struct, rename="camel"):
    api_version: str
    name: str
    uid: str = ""


class _Spec(Struct, rename="camel"):
    group_ref: _Ref
    epoch: int
    attempt: int
    state: str
    members: list[str]
    uids: list[str]
    node: list[int]
    role: list[int]
    nodes: list[str]
    roles: list[str]
    min_member: int = 1


class _Meta(Struct, rename="camel"):
    namespace: str
    uid: str = ""
    resource_version: str = ""


class _Shell(Struct):
    metadata: _Meta
    spec: _Spec


def _table(values: Iterable[str]) -> dict[str, int]:
    table: dict[str, int] = {}
    for value in values:
        table.setdefault(value, len(table))
    return table
