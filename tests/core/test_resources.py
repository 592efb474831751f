"""What a pod takes: the cases of component-helpers' PodRequests, in our words."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.core import objects as o
from extender.core.errors import QuantityError
from extender.core.resources import pod_requests, render


def ask(spec: dict[str, Any], status: dict[str, Any] | None = None) -> dict[str, int]:
    return pod_requests(
        msgspec.convert(spec, o.PodSpec),
        None if status is None else msgspec.convert(status, o.PodStatus),
    )


def box(cpu: str, name: str = "", **more: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": {"cpu": cpu}}, **more}


def sidecar(cpu: str) -> dict[str, Any]:
    return box(cpu, restartPolicy="Always")


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"containers": [box("1"), box("500m")]}, 1500),
        ({"containers": [box("0.1m"), box("0.1m")]}, 1),
        ({"containers": [box("1")], "initContainers": [box("3"), box("2")]}, 3000),
        ({"containers": [box("4")], "initContainers": [box("3")]}, 4000),
        ({"containers": [box("1")], "initContainers": [sidecar("2")]}, 3000),
        ({"containers": [box("1")], "initContainers": [sidecar("2"), box("4")]}, 6000),
        ({"containers": [box("1")], "initContainers": [box("4"), sidecar("2")]}, 4000),
        ({"containers": [box("1")], "overhead": {"cpu": "250m"}}, 1250),
        ({"containers": [box("1"), box("1")], "resources": {"requests": {"cpu": "3"}}}, 3000),
        (
            {
                "containers": [box("1")],
                "resources": {"requests": {"cpu": "3"}},
                "overhead": {"cpu": "1"},
            },
            4000,
        ),
        ({"containers": [{}], "resources": {"limits": {"cpu": "3"}}}, 3000),
        ({"containers": [box("1")], "resources": {"limits": {"cpu": "3"}}}, 1000),
        ({"containers": [{"resources": {"limits": {"cpu": "2"}}}]}, 2000),
        ({"containers": [{"resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}}]}, 1000),
    ],
)
def test_cpu_of_a_pod(spec, cpu):
    assert ask(spec) == {"cpu": cpu, "pods": 1}


def test_nothing_asked_is_left_out():
    spec = {"containers": [{"resources": {"requests": {"cpu": "0", "nvidia.com/gpu": 0}}}]}
    assert ask(spec) == {"pods": 1}


def test_units():
    asked = {"memory": "1.5Gi", "nvidia.com/gpu": "2", "hugepages-2Mi": "4Mi"}
    spec = {"containers": [{"resources": {"requests": asked}}]}
    assert ask(spec) == {
        "memory": 3 * 2**29,
        "nvidia.com/gpu": 2,
        "hugepages-2Mi": 4 * 2**20,
        "pods": 1,
    }


def test_pod_level_has_only_what_the_api_allows_there():
    spec = {"containers": [box("1")], "resources": {"requests": {"nvidia.com/gpu": "4"}}}
    assert ask(spec) == {"cpu": 1000, "pods": 1}


def resizing(actual: str, allocated: str, **more: Any) -> dict[str, Any]:
    one = {
        "name": "main",
        "resources": {"requests": {"cpu": actual}},
        "allocatedResources": {"cpu": allocated},
    }
    return {"containerStatuses": [one], **more}


INFEASIBLE = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
DEFERRED = [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]


@pytest.mark.parametrize(
    ("wanted", "status", "cpu"),
    [
        ("2", resizing("1", "1"), 2000),
        ("1", resizing("2", "1"), 2000),
        ("1", resizing("1", "3"), 3000),
        ("9", resizing("1", "2", conditions=INFEASIBLE), 2000),
        ("9", resizing("1", "2", resize="Infeasible"), 2000),
        ("9", resizing("1", "2", conditions=DEFERRED), 9000),
        ("2", {"containerStatuses": [{"name": "main", "allocatedResources": {"cpu": "5"}}]}, 2000),
        ("2", {"containerStatuses": [{"name": "other"}]}, 2000),
    ],
)
def test_resize_counts_the_most_that_may_be_taken(wanted, status, cpu):
    assert ask({"containers": [box(wanted, "main")]}, status) == {"cpu": cpu, "pods": 1}


def test_resize_of_a_sidecar_and_of_the_pod_level():
    spec: dict[str, Any] = {"containers": [box("1")]}
    spec["initContainers"] = [box("1", "side", restartPolicy="Always")]
    one = {"name": "side", "resources": {"requests": {"cpu": "3"}}}
    assert ask(spec, {"initContainerStatuses": [one]})["cpu"] == 4000
    spec = {"containers": [box("1")], "resources": {"requests": {"cpu": "2"}}}
    assert ask(spec, {"allocatedResources": {"cpu": "5"}})["cpu"] == 5000
    assert ask(spec, {"resources": {"requests": {"cpu": "1"}}})["cpu"] == 2000


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"containers": [box("1"), box("x")]}, "spec.containers[1].resources.requests[cpu]"),
        ({"initContainers": [box("-1")]}, "spec.initContainers[0].resources.requests[cpu]"),
        ({"overhead": {"memory": "9Ei"}}, "spec.overhead[memory]"),
        ({"resources": {"limits": {"cpu": ""}}}, "spec.resources.limits[cpu]"),
    ],
)
def test_the_field_is_named(spec, field):
    with pytest.raises(QuantityError) as error:
        ask(spec)
    assert error.value.field == field


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("cpu", 3000, "3"),
        ("cpu", 1500, "1500m"),
        ("memory", 2**30, "1Gi"),
        ("memory", 3 * 2**29, "1536Mi"),
        ("memory", 1000, "1000"),
        ("memory", 0, "0"),
        ("nvidia.com/gpu", 1024, "1024"),
        ("hugepages-2Mi", 2**21, "2Mi"),
    ],
)
def test_render(name, value, text):
    assert render(name, value) == text
