"""Fields and types by the object's own definition: what ``kubectl apply`` refuses, and what an
API server would drop in silence.

The definitions are those of ``manifests/crds`` and, for Kubernetes' own kinds, the models of the
``kubernetes`` package.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

import yaml

import extender

#: In a checkout beside the packages; where the wheel puts them; the first that exists is used.
_PLACES = (
    Path(extender.__file__).parent.parent / "manifests" / "crds",
    Path(sys.prefix) / "share" / "muster" / "crds",
)
Schema = dict[str, Any]

#: Values of text fields of a pod that are one of few words, by model and field.
#: Source: k8s.io/api core/v1 types.go.
_WORDS = {
    ("V1PodSpec", "restartPolicy"): ("Always", "OnFailure", "Never"),
    ("V1PodSpec", "dnsPolicy"): ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
    ("V1PodSpec", "preemptionPolicy"): ("PreemptLowerPriority", "Never"),
    ("V1Container", "imagePullPolicy"): ("Always", "IfNotPresent", "Never"),
    ("V1ContainerPort", "protocol"): ("TCP", "UDP", "SCTP"),
    ("V1Toleration", "effect"): ("NoSchedule", "PreferNoSchedule", "NoExecute", ""),
    ("V1Toleration", "operator"): ("Exists", "Equal", "Lt", "Gt"),
    ("V1TopologySpreadConstraint", "whenUnsatisfiable"): ("DoNotSchedule", "ScheduleAnyway"),
    ("V1NodeSelectorRequirement", "operator"): (
        "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt",
    ),
    ("V1LabelSelectorRequirement", "operator"): ("In", "NotIn", "Exists", "DoesNotExist"),
}  # fmt: skip
#: Text to the models, but quantities: numbers are as good.
_QUANTITIES = frozenset({"divisor", "sizeLimit"})


@dataclass(frozen=True)
class Strange:
    """Something that the definition does not have."""

    field: str
    message: str
    #: The field that was meant, as far as one can tell.
    meant: str = ""


def definition(group: str, version: str, kind: str) -> Schema | None:
    """The schema of a custom resource; None where no definition file is found."""
    return _definitions().get((group, version, kind))


def found() -> bool:
    """Whether the definition files are where they should be."""
    return bool(_definitions())


@cache
def _definitions() -> dict[tuple[str, str, str], Schema]:
    known = {}
    place = next((place for place in _PLACES if place.is_dir()), _PLACES[0])
    for file in sorted(place.glob("*_*.yaml")):
        spec = yaml.safe_load(file.read_text(encoding="utf-8"))["spec"]
        for version in spec["versions"]:
            key = (spec["group"], version["name"], spec["names"]["kind"])
            known[key] = version["schema"]["openAPIV3Schema"]
    return known


def model(name: str) -> Schema:
    """The schema of a kind of Kubernetes' own, by its model's name, e.g. ``V1Pod``."""
    import kubernetes.client.models as models

    kind = getattr(models, name, None)
    if kind is None:
        return {}
    names = kind.attribute_map
    properties = {names[key]: _of_type(type_) for key, type_ in kind.openapi_types.items()}
    for key in properties.keys() & _QUANTITIES:
        properties[key] = {}
    for key, schema in properties.items():
        if (name, key) in _WORDS:
            schema["enum"] = _WORDS[name, key]
    return {"type": "object", "properties": properties}


def _of_type(text: str) -> Schema:
    """``List[V1Container]``, ``Dict[str, str]``, ``int`` as a schema; models stay names."""
    if text.startswith("List["):
        return {"type": "array", "items": _of_type(text[5:-1])}
    if text.startswith("Dict["):
        return {"type": "object"}
    if re.match(r"V\d", text):
        return {"model": text}
    return {"type": _TYPES[text]} if text in _TYPES else {}


_TYPES = {"int": "integer", "str": "string", "bool": "boolean"}
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "object": ((dict,), "a map of fields"),
    "array": ((list,), "a list"),
    "integer": ((int,), "a whole number"),
    # YAML reads a bare date as one; as JSON it is text.
    "string": ((str, date), "text (in quotes, where it looks like a number)"),
    "boolean": ((bool,), "true or false"),
}


def strange(schema: Schema, value: Any, path: str = "") -> Iterator[Strange]:
    """What ``value`` has and ``schema`` has not."""
    if "model" in schema:
        schema = model(schema["model"])
    type_ = schema.get("type")
    if value is None or type_ not in _KINDS:
        return
    kinds, allowed = _KINDS[type_]
    fits = isinstance(value, kinds) and (isinstance(value, bool) == (type_ == "boolean"))
    if not fits:
        yield Strange(path, f"{value!r} is not allowed: {allowed}")
        return
    if "enum" in schema and value not in schema["enum"]:
        words = ", ".join(word for word in schema["enum"] if word)
        yield Strange(
            path, f"{value!r} is not allowed: one of {words}{_meant(value, schema['enum'])}"
        )
    if type_ == "array":
        for index, item in enumerate(value):
            yield from strange(schema.get("items", {}), item, f"{path}[{index}]")
    elif type_ == "object":
        yield from _map(schema, value, path)


def _map(schema: Schema, value: dict[Any, Any], path: str) -> Iterator[Strange]:
    properties, others = schema.get("properties"), schema.get("additionalProperties")
    for key, item in value.items():
        field = f"{path}.{key}" if path else str(key)
        if properties is not None and key in properties:
            yield from strange(properties[key], item, field)
        elif others is not None:
            yield from strange(others, item, field)
        elif properties and not schema.get("x-kubernetes-preserve-unknown-fields"):
            yield _unknown(str(key), sorted(properties), path)


def _unknown(key: str, allowed: Sequence[str], path: str) -> Strange:
    field = f"{path}.{key}" if path else key
    near = nearest(key, allowed)
    if near:
        meant = f"{path}.{near}" if path else near
        return Strange(field, f"no such field; did you mean {near}?", meant)
    return Strange(field, f"no such field; allowed: {', '.join(allowed)}")


def _meant(value: str, words: Sequence[str]) -> str:
    near = nearest(value, words)
    return f"; did you mean {near}?" if near else ""


def nearest(word: str, words: Sequence[str], *, cutoff: float = 0.75) -> str:
    """The one of ``words`` that was meant, or nothing; a difference in case is none."""
    lower = {each.lower(): each for each in words}
    near = get_close_matches(word.lower(), list(lower), n=1, cutoff=cutoff)
    return lower[near[0]] if near else ""
