"""Jobs, PodGroups and pods, judged by the code that the service itself reads them with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from extender.commands.checks.problem import Document, Problem
from extender.core import groups
from extender.core import objects as o
from extender.core.api import NATIVE_GROUPS, PODS, SIGS_GROUPS, VOLCANO_GROUPS, Resource
from extender.core.errors import InvalidObject
from extender.core.events import GroupSeen
from extender.core.identity import membership
from extender.core.reasons import Refusal
from extender.core.shape import shape_of
from extender.core.state import Rules, State
from extender.jobs import KINDS
from extender.jobs.fields import dig
from extender.jobs.lifecycle import TrainingKind
from extender.settings import Muster, Settings

T = TypeVar("T")

_GROUPS: dict[Resource, type[o.VolcanoGroup | o.SigsGroup | o.NativeGroup]] = {
    VOLCANO_GROUPS: o.VolcanoGroup,
    SIGS_GROUPS: o.SigsGroup,
    NATIVE_GROUPS: o.NativeGroup,
}
#: Kinds whose spec.template is a pod.
_TEMPLATES = frozenset({"Deployment", "StatefulSet", "ReplicaSet", "Job", "DaemonSet"})


def check(document: Document, muster: Muster) -> Iterator[Problem]:
    """Problems of one manifest; kinds that Muster does not read have none."""
    for resource, type_ in _GROUPS.items():
        if _is(document, resource):
            yield from _group(document, resource, type_)
    for kind in KINDS:
        if isinstance(kind, TrainingKind) and _is(document, kind.resource):
            yield from _job(document, kind, muster)
    if _is(document, PODS):
        yield from _pod(document, document.body, "", muster)
    elif document.kind[1] in _TEMPLATES:
        template = dig(document.body, "spec", "template")
        if isinstance(template, dict):
            yield from _pod(document, template, "spec.template", muster)


def _is(document: Document, resource: Resource) -> bool:
    return document.kind == (resource.api_version, resource.kind)


def _group(
    document: Document,
    resource: Resource,
    type_: type[o.VolcanoGroup | o.SigsGroup | o.NativeGroup],
) -> Iterator[Problem]:
    group = _decoded(document, document.body, type_, "")
    if isinstance(group, Problem):
        yield group
        return
    state = State(Rules(), Settings().session(), {})
    groups.group_seen(state, GroupSeen(resource, group))
    for gang in state.gangs.values():
        if gang.fault is not None:
            yield document.refused(gang.fault)


def _job(document: Document, kind: TrainingKind, muster: Muster) -> Iterator[Problem]:
    meta = document.body.get("metadata")
    if not isinstance(meta, dict) or not isinstance(meta.get("name"), str):
        yield document.problem("metadata.name", "is missing")
        return
    # As the API server would give it; neither changes what is valid.
    whole = {**document.body, "metadata": {"namespace": "default", "uid": "unknown", **meta}}
    try:
        replicas = kind.replicas(whole)
    except InvalidObject as error:
        yield document.invalid(error)
        return
    for replica in replicas:
        # One replica speaks for its role.
        if replica.index == 0:
            body = kind.pod(whole, replica)
            # Muster gives its own where the template has none.
            body["spec"].setdefault("schedulerName", muster.scheduler_name)
            types = {name.lower(): name for name in kind.facts.roles}
            where = f"spec.{kind.facts.specs_key}.{types[replica.role]}.template"
            yield from _pod(document, body, where, muster, member=True)


def _pod(
    document: Document, body: o.Manifest, under: str, muster: Muster, *, member: bool = False
) -> Iterator[Problem]:
    pod = _decoded(document, body, o.Pod, under)
    if isinstance(pod, Problem):
        yield pod
        return
    try:
        shape_of(pod)
    except InvalidObject as error:
        yield document.invalid(error, under)
    claim = membership(pod)
    at = f"{under}.metadata" if under else "metadata"
    if isinstance(claim, Refusal):
        yield document.refused(claim, at)
        return
    if claim is not None and claim.min_available is not None:
        record = groups.wanted_record(claim.key, claim)
        if isinstance(record, Refusal):
            yield document.refused(record, at)
    scheduler = pod.spec.scheduler_name
    if scheduler not in muster.scheduler_names and (member or claim is not None):
        names = ", ".join(muster.scheduler_names)
        field = f"{under}.spec.schedulerName" if under else "spec.schedulerName"
        yield document.problem(
            field,
            f"{scheduler!r} is not one of muster.yaml's schedulerNames ({names}):"
            " the gang would not be placed by Muster",
            "warning",
        )


def _decoded(document: Document, body: Any, type_: type[T], under: str) -> T | Problem:
    """The object, read as from the API."""
    try:
        return msgspec.convert(_without_nulls(body), type_)
    except msgspec.ValidationError as error:
        # "Expected `int`, got `str` - at `$.spec.minMember`"
        message, _, path = str(error).partition(" - at `$.")
        field = ".".join(part for part in (under, path.rstrip("`")) if part)
        return document.problem(field, message.replace("`", ""))


def _without_nulls(value: Any) -> Any:
    """The API server drops them; and a key that is no text (``1: x``) is what JSON makes of it."""
    if isinstance(value, dict):
        return {str(k): _without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [_without_nulls(v) for v in value if v is not None]
    return value
