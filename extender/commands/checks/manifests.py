"""Jobs, PodGroups and pods, judged by the code that the service itself reads them with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from extender.commands.checks import network, pods, schema, volcano
from extender.commands.checks.decoding import decoded
from extender.commands.checks.pods import TEMPLATES
from extender.commands.checks.problem import Document, Problem
from extender.commands.checks.together import Together
from extender.core import groups
from extender.core.api import NATIVE_GROUPS, PODS, SIGS_GROUPS, VOLCANO_GROUPS, Resource
from extender.core.errors import InvalidObject, brief
from extender.core.events import GroupSeen
from extender.core.podgroups import NativeGroup, SigsGroup, VolcanoGroup
from extender.core.state import Rules, State
from extender.jobs import KINDS
from extender.jobs.advice import training
from extender.jobs.fields import dig
from extender.jobs.lifecycle import TrainingKind
from extender.settings import Muster, Settings

_GROUPS: dict[Resource, type[VolcanoGroup | SigsGroup | NativeGroup]] = {
    VOLCANO_GROUPS: VolcanoGroup,
    SIGS_GROUPS: SigsGroup,
    NATIVE_GROUPS: NativeGroup,
}
_TRAINING = tuple(kind for kind in KINDS if isinstance(kind, TrainingKind))
#: Kubernetes' own groups: what Muster does not read there is no gang's either. A group that ends in
#: .k8s.io is one too, unless it is a project's (.x-k8s.io, .sigs.k8s.io).
_OWN_GROUPS = frozenset({"", "apps", "batch", "autoscaling", "policy", "extensions"})
#: The Prometheus Operator's kinds, of which manifests/monitoring has some: no pods come of them.
_WITHOUT_PODS = frozenset({"monitoring.coreos.com"})
#: The one other controller that a job may name (runPolicy.managedBy), as the definitions say.
_MULTIKUEUE = "kueue.x-k8s.io/multikueue"


def check(document: Document, muster: Muster, together: Together) -> Iterator[Problem]:
    """Problems of one manifest; what it says about groups goes into ``together``."""
    together.surroundings(document)
    if document.kind == volcano.JOB:
        together.subject(document, volcano.subject(document.body))
    if wrong := _wrong_kind(document):
        yield wrong
        return
    strange = list(_strange(document))
    yield from (document.problem(each.field, each.message) for each in strange)
    # One mistake is told once: where a field has a wrong name, the right one is missing too.
    told = {field for each in strange for field in (each.field, each.meant)}
    run = next((kind for kind in _TRAINING if _is(document, kind.resource)), None)
    refused = [each for each in pods.refused(document, run) if each.field not in told]
    for problem in _read(document, run, muster, together, advise=not refused):
        if problem.field not in told:
            yield problem
        told.add(problem.field)
    yield from (each for each in refused if each.field not in told)
    if not strange:
        yield from _network(document, together)


def nameless(document: Document) -> Problem:
    """What lacks its apiVersion or kind, or both and so is no manifest at all."""
    api_version, kind = document.kind
    resources = (PODS, *_GROUPS, *network.TYPES, *(of.resource for of in KINDS))
    if kind:
        known = dict(TEMPLATES)
        for each in resources:
            known.setdefault(each.kind, each.api_version)
        near = schema.nearest(kind, list(known))
        meant = f": {known[near]}, if {near} is meant" if near else ""
        return document.problem("apiVersion", f"is missing{meant}")
    if api_version:
        kinds = {each.kind for each in resources if each.api_version == api_version}
        kinds |= {each for each, version in TEMPLATES.items() if version == api_version}
        meant = f"one of {', '.join(sorted(kinds))}" if kinds else f"one that {api_version} has"
        return document.problem("kind", f"is missing: {meant}")
    what = "a map of fields" if isinstance(document.body, dict) else f"{brief(document.body)}"
    return document.problem(
        "",
        f"is {what} without apiVersion and kind; a muster.yaml has actions, tiers or muster",
    )


def _read(
    document: Document,
    run: TrainingKind | None,
    muster: Muster,
    together: Together,
    *,
    advise: bool,
) -> Iterator[Problem]:
    """As the service reads it. ``run``: whose job it is; ``advise``: pods can come of it."""
    for resource, type_ in _GROUPS.items():
        if _is(document, resource):
            yield from _group(document, resource, type_, together)
    if run is not None:
        yield from _job(document, run, muster, together, advise=advise)
    if _is(document, PODS):
        yield from pods.check(document, document.body, "", muster, together)
    elif TEMPLATES.get(document.kind[1]) == document.kind[0]:
        template = dig(document.body, "spec", "template")
        if isinstance(template, dict):
            named = {**template, "metadata": {**_space(document), **(_meta(template))}}
            yield from pods.check(document, named, "spec.template", muster, together)


def _network(document: Document, together: Together) -> Iterator[Problem]:
    """An object that tells levels of the network is judged beside the others."""
    for resource, type_ in network.TYPES.items():
        if network.tells(document, resource):
            read = decoded(document, document.body, type_, "")
            if isinstance(read, Problem):
                yield read
            else:
                together.network.tell(document, read)


def _wrong_kind(document: Document) -> Problem | None:
    """A kind that Muster does not run, or one that does not exist."""
    api_version, kind = document.kind
    group, _, version = api_version.rpartition("/")
    kinds = [each.resource for each in _TRAINING]
    read = [*_GROUPS, *kinds]
    versions = [each for each in read if (group, kind) == (each.group, each.kind)]
    if versions and all(version != each.version for each in versions):
        right = " or ".join(each.api_version for each in versions)
        return document.problem(
            "apiVersion", f"{api_version!r} is not allowed: {right}, as Muster reads it"
        )
    known = {each.kind for each in (*read, *network.TYPES) if each.group == group}
    if group == PODS.group:
        known = {"Pod"} if schema.nearest(kind, ["Pod"]) and kind.lower() != "pod" else set()
    near = schema.nearest(kind, sorted(known)) if kind not in known else ""
    if near and not (group in _OWN_GROUPS and kind.endswith(("List", "Template"))):
        return document.problem("kind", f"{kind!r} is not allowed; did you mean {near}?")
    ours = known | {"GangPlan"}
    if kind in ours or group in _OWN_GROUPS | _WITHOUT_PODS or _is_kubernetes(group):
        return None
    runs = ", ".join(dict.fromkeys(each.kind for each in kinds))
    checked = "only advice is given" if document.kind == volcano.JOB else "nothing was checked"
    return document.problem(
        "", f"Muster does not run this kind (it runs {runs}); {checked}", "warning"
    )


def _is_kubernetes(group: str) -> bool:
    return group.endswith(".k8s.io") and not group.endswith(".sigs.k8s.io")


def _strange(document: Document) -> Iterator[schema.Strange]:
    """By the object's definition."""
    api_version, kind = document.kind
    group, _, version = api_version.rpartition("/")
    native = _is(document, PODS) or TEMPLATES.get(kind) == api_version
    if native or _is(document, NATIVE_GROUPS):
        yield from schema.strange(
            schema.model(f"V{version.removeprefix('v')}{kind}"), document.body
        )
        return
    for resource, spec in network.SPECS.items():
        if network.tells(document, resource):
            yield from schema.strange(spec, dig(document.body, "spec"), "spec")
    found = schema.definition(group, version, kind)
    if found is not None:
        yield from schema.strange(found, document.body)
    for run in _TRAINING:
        if _is(document, run.resource):
            yield from _strange_templates(document, run)


def _strange_templates(document: Document, kind: TrainingKind) -> Iterator[schema.Strange]:
    """The API server does not look into them; it drops what it does not know from the pods."""
    path = f"spec.{kind.facts.specs_key}"
    replicas = dig(document.body, "spec", kind.facts.specs_key)
    for key, replica in replicas.items() if isinstance(replicas, dict) else ():
        template = dig(replica, "template")
        of = schema.model("V1PodTemplateSpec")
        yield from schema.strange(of, template, f"{path}.{key}.template")


def _meta(body: Any) -> Mapping[str, Any]:
    meta = dig(body, "metadata")
    return meta if isinstance(meta, dict) else {}


def _space(document: Document) -> dict[str, Any]:
    return {"namespace": _meta(document.body).get("namespace") or "default"}


def _is(document: Document, resource: Resource) -> bool:
    return document.kind == (resource.api_version, resource.kind)


def _group(
    document: Document,
    resource: Resource,
    type_: type[VolcanoGroup | SigsGroup | NativeGroup],
    together: Together,
) -> Iterator[Problem]:
    group = decoded(document, document.body, type_, "")
    if isinstance(group, Problem):
        yield group
        return
    state = State(Rules(), Settings().session(), {})
    groups.group_seen(state, GroupSeen(resource, group))
    where = "schedulingPolicy.gang.minCount" if resource == NATIVE_GROUPS else "minMember"
    for gang in state.gangs.values():
        if gang.fault is not None:
            yield from document.refused(gang.fault)
        else:
            together.group(document, gang.key, f"spec.{where}", gang.min_member)


def _job(
    document: Document,
    kind: TrainingKind,
    muster: Muster,
    together: Together,
    *,
    advise: bool,
) -> Iterator[Problem]:
    meta = document.body.get("metadata")
    if not isinstance(meta, dict) or not isinstance(meta.get("name"), str):
        yield document.problem("metadata.name", "is missing")
        return
    # As the API server would give it; neither changes what is valid.
    whole = {**document.body, "metadata": {"namespace": "default", "uid": "unknown", **meta}}
    managed_by = dig(whole, "spec", "runPolicy", "managedBy") or kind.managed_by
    if managed_by not in (kind.managed_by, _MULTIKUEUE):
        field, allowed = "spec.runPolicy.managedBy", f"{kind.managed_by} or {_MULTIKUEUE}"
        yield document.problem(field, f"{managed_by!r} is not allowed: {allowed}")
    try:
        replicas = kind.replicas(whole)
    except InvalidObject as error:
        yield from document.invalid(error)
        return
    if advise:
        together.subject(document, training.subject(kind, whole))
    for replica in replicas:
        # One replica speaks for its role.
        if replica.index == 0:
            body = kind.pod(whole, replica)
            # Muster gives its own where the template has none.
            body["spec"].setdefault("schedulerName", muster.scheduler_name)
            given = {name.lower(): name for name in dig(whole, "spec", kind.facts.specs_key)}
            where = f"spec.{kind.facts.specs_key}.{given[replica.role]}"
            yield from _spelling(document, given[replica.role], kind.facts.roles, where)
            yield from pods.check(
                document, body, f"{where}.template", muster, together, member=True
            )


def _spelling(
    document: Document, given: str, roles: tuple[str, ...], where: str
) -> Iterator[Problem]:
    right = schema.nearest(given, roles)
    if given != right:
        yield document.problem(
            where, f"is read as {right}; write it so: kubectl scale knows no other", "warning"
        )
