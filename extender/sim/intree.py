"""The stand-in scheduler's in-tree filters, in the order of kube-scheduler's default profile.

A filter's answer is the first plugin that refuses, with kube-scheduler's own words. See
:mod:`extender.sim.podfit` for what is modelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from msgspec import Struct

from extender.core.objects import Manifest
from extender.sim.podfit import Amounts, Row, host_ports

_CORDONED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


class Refused(Struct, frozen=True):
    """Why a node is refused. ``resolvable``: evicting pods might help (Unschedulable)."""

    plugin: str
    reasons: tuple[str, ...]
    resolvable: bool = False


def refuse(pod: Manifest, wanted: Amounts, row: Row, promised: Amounts) -> Refused | None:
    """Whether one node is refused, and why. ``promised`` is kept free for nominated pods."""
    spec, node = pod["spec"], row.node
    assert node is not None, "only nodes that exist are asked about"
    node_spec = node.get("spec") or {}
    tolerations = spec.get("tolerations") or ()
    if node_spec.get("unschedulable") and not _tolerated(_CORDONED, tolerations):
        return Refused("NodeUnschedulable", ("node(s) were unschedulable",))
    for taint in node_spec.get("taints") or ():
        if taint.get("effect") != "PreferNoSchedule" and not _tolerated(taint, tolerations):
            return Refused("TaintToleration", ("node(s) had untolerated taint(s)",))
    if not matches_affinity(spec, node):
        return Refused("NodeAffinity", ("node(s) didn't match Pod's node affinity/selector",))
    if any(_clash(port, row.ports) for port in host_ports(pod)):
        why = ("node(s) didn't have free ports for the requested pod ports",)
        return Refused("NodePorts", why, resolvable=True)
    return _refuse_resources(wanted, row, promised)


def pinned(spec: Manifest) -> set[str] | None:
    """Names of the only nodes that required affinity on ``metadata.name`` leaves; None for all."""
    names: set[str] = set()
    terms = _required_terms(spec)
    for term in terms:
        sets = [
            set(item.get("values") or ())
            for item in term.get("matchFields") or ()
            if item["key"] == "metadata.name" and item["operator"] == "In"
        ]
        if not sets:
            return None
        names |= set.intersection(*sets)
    return names if terms else None


def matches_affinity(spec: Manifest, node: Manifest) -> bool:
    """nodeSelector, and one of the required terms (an empty term matches nothing)."""
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    terms = _required_terms(spec)
    return not terms or any(_matches_term(term, node["metadata"]["name"], labels) for term in terms)


def _refuse_resources(wanted: Amounts, row: Row, promised: Amounts) -> Refused | None:
    reasons, resolvable = [], True
    for name, value in wanted.items():
        if value <= 0 or value <= row.free(name) - promised.get(name, Decimal(0)):
            continue
        reasons.append("Too many pods" if name == "pods" else f"Insufficient {name}")
        if value > row.allocatable.get(name, Decimal(0)):
            resolvable = False
    return Refused("NodeResourcesFit", tuple(reasons), resolvable) if reasons else None


def _tolerated(taint: Mapping[str, str], tolerations: tuple[Manifest, ...]) -> bool:
    return any(
        toleration.get("effect", "") in ("", taint["effect"])
        and toleration.get("key", "") in ("", taint["key"])
        and (
            toleration.get("operator") == "Exists"
            or (
                toleration.get("key")
                and toleration.get("operator", "Equal") in ("", "Equal")
                and toleration.get("value", "") == taint.get("value", "")
            )
        )
        for toleration in tolerations
    )


def _required_terms(spec: Manifest) -> list[Manifest]:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return list(required.get("nodeSelectorTerms") or ())


def _matches_term(term: Manifest, name: str, labels: Mapping[str, str]) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    return all(_holds(item, labels.get(item["key"])) for item in expressions) and all(
        item["key"] == "metadata.name" and _holds(item, name) for item in fields
    )


def _holds(requirement: Manifest, value: str | None) -> bool:
    values: list[str] = requirement.get("values") or []
    operator: str = requirement["operator"]
    if operator in ("Gt", "Lt"):
        try:
            have, limit = int(value or ""), int(values[0])
        except (ValueError, IndexError):
            return False  # what is no integer is neither greater nor less
        return have > limit if operator == "Gt" else have < limit
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    inside = value in values
    return inside == (operator == "In")


def _clash(port: tuple[str, int, str], used: Mapping[tuple[str, int, str], int]) -> bool:
    anywhere = "0.0.0.0"  # noqa: S104 - the API's word for every address
    return any(
        count > 0
        and other[:2] == port[:2]
        and (other[2] == port[2] or anywhere in (other[2], port[2]))
        for other, count in used.items()
    )
