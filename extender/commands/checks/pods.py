"""Pods and their templates: what their members of gangs say, and what kube-apiserver refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from extender.commands.checks import schema
from extender.commands.checks.decoding import decoded, without_nulls
from extender.commands.checks.problem import Document, Problem
from extender.commands.checks.together import Together
from extender.core import groups
from extender.core import objects as o
from extender.core.api import PODS
from extender.core.errors import MOST_FAULTS, InvalidObject
from extender.core.identity import (
    ACK_MIN,
    ACK_NAME,
    KOORDINATOR_MIN,
    KOORDINATOR_NAME,
    SIGS_LABEL,
    VOLCANO_ANNOTATIONS,
    membership,
)
from extender.core.reasons import Refusal
from extender.core.shape import shape_of
from extender.jobs import podspec
from extender.jobs.advice.subject import listed
from extender.jobs.fields import dig
from extender.jobs.lifecycle import TrainingKind
from extender.jobs.wrong import Wrong
from extender.settings import Muster

#: Kinds whose spec.template is a pod, with the apiVersion they have.
TEMPLATES: Final = {
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "ReplicaSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "Job": "batch/v1",
}
_LABELS = (SIGS_LABEL, ACK_NAME, ACK_MIN)
_ANNOTATIONS = (*VOLCANO_ANNOTATIONS, KOORDINATOR_NAME, KOORDINATOR_MIN)


def refused(document: Document, kind: TrainingKind | None) -> Iterator[Problem]:
    """What kube-apiserver would refuse of its pod, or of its template's pods. ``kind``: the job's."""
    body = without_nulls(document.body)
    templates = listed(dig(body, "spec", "volumeClaimTemplates"))
    names = [dig(each, "metadata", "name") for _, each in templates]
    claims = [name for name in names if isinstance(name, str)]
    found: list[Wrong] = []
    for path, pod in _pods(document, body, kind):
        under = f"{path}." if path else ""
        found += podspec.wrong_metadata(dig(pod, "metadata"), f"{under}metadata")
        found += podspec.wrong(dig(pod, "spec"), f"{under}spec", claims)
    for each in found[:MOST_FAULTS]:
        yield document.problem(each.field, each.render())
    more = len(found) - MOST_FAULTS
    if more > 0:
        yield document.problem("", f"{more} more values of its pods are not allowed")


def _pods(document: Document, body: Any, kind: TrainingKind | None) -> Iterator[tuple[str, Any]]:
    """Each pod or template that a document holds, after its path."""
    if document.kind == (PODS.api_version, PODS.kind):
        yield "", body
    elif TEMPLATES.get(document.kind[1]) == document.kind[0]:
        yield "spec.template", dig(body, "spec", "template")
    elif kind is not None:
        roles = dig(body, "spec", kind.facts.specs_key)
        for key, role in roles.items() if isinstance(roles, dict) else ():
            yield f"spec.{kind.facts.specs_key}.{key}.template", dig(role, "template")


def check(
    document: Document,
    body: o.Manifest,
    under: str,
    muster: Muster,
    together: Together,
    *,
    member: bool = False,
) -> Iterator[Problem]:
    pod = decoded(document, body, o.Pod, under)
    if isinstance(pod, Problem):
        yield pod
        return
    try:
        shape_of(pod)
    except InvalidObject as error:
        yield from document.invalid(error, under)
    at = f"{under}.metadata" if under else "metadata"
    yield from _marks(document, pod, at)
    claim = membership(pod)
    if isinstance(claim, Refusal):
        yield from document.refused(claim, at)
        return
    if claim is not None and claim.min_available is not None:
        record = groups.wanted_record(claim.key, claim)
        if isinstance(record, Refusal):
            yield from document.refused(record, at)
    if claim is not None and not member:
        together.pod(document, claim.key, at, claim.min_available)
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


def _marks(document: Document, pod: o.Pod, at: str) -> Iterator[Problem]:
    """Labels and annotations that are nearly a convention's name of a group."""
    meta = pod.metadata
    for given, what, marks in (
        (meta.labels, "labels", _LABELS),
        (meta.annotations, "annotations", _ANNOTATIONS),
    ):
        for key in given:
            others = _ANNOTATIONS if marks is _LABELS else _LABELS
            near = schema.nearest(key, [each for each in marks if each not in given], cutoff=0.9)
            if key in others:
                right = "annotation" if marks is _LABELS else "label"
                message = f"names no group here: it is read as {right} only"
                yield document.problem(f"{at}.{what}[{key}]", message, "warning")
            elif key not in marks and near:
                message = f"names no group; did you mean {near}?"
                yield document.problem(f"{at}.{what}[{key}]", message, "warning")
