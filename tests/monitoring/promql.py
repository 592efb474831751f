"""What an expression in PromQL asks for, by the parser that Prometheus' own grammar was ported to."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import promql_parser
from prometheus_client.metrics import MetricWrapperBase

from extender.obs.metrics import Metrics

#: Labels that Prometheus gives to what it scrapes.
TARGET = frozenset({"job", "pod", "instance", "namespace"})
#: Series that Prometheus makes itself, and the process collector's.
OTHERS = {
    "up": "gauge",
    "process_resident_memory_bytes": "gauge",
    "process_cpu_seconds_total": "counter",
}
#: Functions whose argument is a counter's course.
OF_COUNTERS = frozenset({"rate", "increase"})


@dataclass
class Series:
    """A name that can be asked for: its labels, and whether it only grows."""

    labels: frozenset[str]
    counts: bool


@dataclass
class Asked:
    """One selector: the name, what it says of labels, and the functions around it."""

    name: str
    matchers: list[tuple[str, str]]
    within: frozenset[str]


@dataclass
class Expression:
    selectors: list[Asked] = field(default_factory=list)
    #: Labels by which it aggregates or joins.
    by: set[str] = field(default_factory=set)


def exported(metrics: Metrics) -> dict[str, Series]:
    """Every series that the service can have, those of labels that nobody counted yet included."""
    found = {name: Series(frozenset(), counts=kind == "counter") for name, kind in OTHERS.items()}
    for each in vars(metrics).values():
        if not isinstance(each, MetricWrapperBase):
            continue
        labels = frozenset(each._labelnames)
        match each._type:
            case "counter":
                found[f"{each._name}_total"] = Series(labels, counts=True)
            case "histogram":
                found[f"{each._name}_bucket"] = Series(labels | {"le"}, counts=True)
                found[f"{each._name}_sum"] = found[f"{each._name}_count"] = Series(labels, True)
            case _:
                found[each._name] = Series(labels, counts=False)
    return found


def read(text: str) -> Expression:
    """Raises ValueError for what Prometheus would not take."""
    # Grafana's own variable.
    root = promql_parser.parse(text.replace("$__rate_interval", "5m"))
    found, around = Expression(), list[str]()

    def enter(node: Any) -> None:
        if isinstance(node, promql_parser.Call):
            around.append(node.func.name)
        modifier = getattr(node, "modifier", None)
        matching = getattr(modifier, "matching", modifier)
        found.by.update(getattr(matching, "labels", None) or ())
        if isinstance(node, promql_parser.VectorSelector):
            matchers = [(each.name, each.value) for each in node.matchers.matchers]
            found.selectors.append(Asked(node.name or "", matchers, frozenset(around)))

    def leave(node: Any) -> None:
        if isinstance(node, promql_parser.Call):
            around.pop()

    promql_parser.walk(root, enter, leave)
    return found


def problems(text: str, series: dict[str, Series], words: set[str]) -> list[str]:
    """What is wrong with an expression. ``words``: every text that the service's code holds."""
    expression, wrong = read(text), list[str]()
    known = {"le"} | TARGET
    for asked in expression.selectors:
        one = series.get(asked.name)
        if one is None:
            wrong.append(f"{asked.name}: no such metric")
            continue
        known |= one.labels
        if one.counts != bool(asked.within & OF_COUNTERS):
            wrong.append(f"{asked.name}: a counter is for rate and increase, a gauge is not")
        for label, value in asked.matchers:
            if label not in one.labels | TARGET:
                wrong.append(f"{asked.name}: no label {label}")
            elif label not in TARGET and label != "code":
                wrong += [
                    f"{asked.name}: nothing sets {label} to {each}"
                    for each in value.split("|")
                    if each not in words
                ]
    wrong += [f"no label {label} in any of its metrics" for label in expression.by - known]
    return wrong


def labels_of(text: str, series: dict[str, Series]) -> set[str]:
    """The labels that the result may have: those it is aggregated by, else the series' own."""
    expression = read(text)
    own = {label for each in expression.selectors for label in series[each.name].labels}
    return expression.by | (set() if expression.by else own | TARGET)


def quoted(source: str) -> set[str]:
    """Texts in quotes."""
    return set(re.findall(r'"([A-Za-z_]+)"', source))
