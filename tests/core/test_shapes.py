"""Shapes made once are those that would be made each time."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import msgspec
import pytest

from extender.core import objects as o
from extender.core import shapes
from extender.core.errors import InvalidObject
from extender.core.shape import PREFERRED_TOPOLOGY, REQUIRED_TOPOLOGY, PodShape, shape_of
from extender.core.shapes import Shapes
from tests.core.test_shape import REQUIRED, ZONE_A, apart, name_is, nodes, spreading

INDEX = "training.kubeflow.org/replica-index"
BASE: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"app": "a", INDEX: "0"}},
    "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]},
}
TERM = {"labelSelector": {"matchLabels": {"app": "x"}}, "matchLabelKeys": [INDEX]}
BESIDE = {"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "zone", **TERM}]}}}


ACTUAL = {"name": "main", "resources": {"requests": {"cpu": "3"}}}


def resources(**requests: o.Quantity) -> dict[str, Any]:
    return {"containers": [{"name": "main", "resources": {"requests": requests}}]}


def resized(where: str, **more: Any) -> dict[str, Any]:
    return {where: [{**ACTUAL, "allocatedResources": {"cpu": "2"}}], **more}


REFUSED = {"type": "PodResizePending", "reason": "Infeasible", "status": "True"}
PORT = {"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}
POD_LEVEL = {"resources": {"requests": {"cpu": "7"}}}

#: Changes of BASE that give another shape.
OTHER: dict[str, dict[str, Any]] = {
    "namespace": {"metadata": {"namespace": "other"}},
    "label": {"metadata": {"labels": {"app": "b"}}},
    "requests": {"spec": resources(cpu="2")},
    "limits": {"spec": {"containers": [{"resources": {"limits": {"cpu": "5"}}}]}},
    "init container": {"spec": {"initContainers": [{"resources": {"requests": {"cpu": "4"}}}]}},
    "overhead": {"spec": {"overhead": {"cpu": "1"}}},
    "pod level": {"spec": POD_LEVEL},
    "priority": {"spec": {"priority": 5}},
    "node selector": {"spec": {"nodeSelector": {"disk": "ssd"}}},
    "node affinity": {"spec": nodes(ZONE_A)},
    "preferred nodes": {
        "spec": {
            "affinity": {
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 1, "preference": ZONE_A}
                    ]
                }
            }
        }
    },
    "toleration": {"spec": {"tolerations": [{"key": "gpu", "operator": "Exists"}]}},
    "devices": {"spec": resources(cpu="1", **{"nvidia.com/gpu": "1"})},
    "host port": {"spec": {"containers": [PORT]}},
    "host network": {
        "spec": {"hostNetwork": True, "containers": [{"ports": [{"containerPort": 9}]}]}
    },
    "affinity": {"spec": BESIDE},
    "affinity of another index": {"spec": BESIDE, "metadata": {"labels": {"app": "a", INDEX: "1"}}},
    "anti-affinity": {"spec": apart(**TERM)},
    "spread": {"spec": spreading(**TERM)},
    "spread of another index": {
        "spec": spreading(**TERM),
        "metadata": {"labels": {"app": "a", INDEX: "1"}},
    },
    "claim": {"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}},
    "near": {"metadata": {"annotations": {REQUIRED_TOPOLOGY: "rack"}}},
    "near, if it can be": {"metadata": {"annotations": {PREFERRED_TOPOLOGY: "rack"}}},
    "resized": {"status": resized("containerStatuses")},
    "allocated": {
        "status": {"containerStatuses": [{**ACTUAL, "allocatedResources": {"cpu": "6"}}]}
    },
    "resized, refused": {
        "spec": resources(cpu="8"),
        "status": resized("containerStatuses", conditions=[REFUSED]),
    },
    "pod level, actual": {
        "spec": POD_LEVEL,
        "status": {"resources": {"requests": {"cpu": "9"}}},
    },
    "pod level, allocated": {"spec": POD_LEVEL, "status": {"allocatedResources": {"cpu": "8"}}},
    "pod level, refused": {
        "spec": POD_LEVEL,
        "status": {"allocatedResources": {"cpu": "2"}, "resize": "Infeasible"},
    },
    "sidecar, resized": {
        "spec": {"initContainers": [{"name": "main", "restartPolicy": "Always"}]},
        "status": resized("initContainerStatuses"),
    },
}

#: Changes of BASE that are nobody's business.
SAME: dict[str, dict[str, Any]] = {
    "name and uid": {"metadata": {"name": "q", "uid": "v", "resourceVersion": "9"}},
    "index": {"metadata": {"labels": {"app": "a", INDEX: "1"}}},
    "annotation": {"metadata": {"annotations": {"checksum": "1"}}},
    "node": {"spec": {"nodeName": "n0"}},
    "pin": {"spec": nodes(name_is("n0"))},
    "token": {"spec": {"volumes": [{"name": "kube-api-access-x7k2p", "ephemeral": {"a": 1}}]}},
    "restarts": {"status": {"containerStatuses": [{"name": "main", "restartCount": 3}]}},
    "conditions": {"status": {"conditions": [{"type": "Ready", "lastTransitionTime": "2026"}]}},
}


def made(change: dict[str, Any]) -> o.Pod:
    raw = {
        part: {**BASE.get(part, {}), **change.get(part, {})}
        for part in ("metadata", "spec", "status")
    }
    return msgspec.convert(raw, o.Pod)


def anew(pod: o.Pod) -> PodShape:
    return shape_of(pod, ignore_pin=True, ignore_node=True)


def test_each_is_what_it_would_be_if_it_were_made_anew() -> None:
    known = Shapes()
    pods = {name: made(change) for name, change in {"base": {}, **OTHER, **SAME}.items()}
    for _ in range(2):
        assert {name: known.of(pod) for name, pod in pods.items()} == {
            name: anew(pod) for name, pod in pods.items()
        }
    assert known.of(pods["base"]) not in [known.of(pods[name]) for name in OTHER]


def test_the_table_has_a_change_of_each_part_of_a_shape() -> None:
    base = anew(made({}))
    others = [anew(made(change)) for change in OTHER.values()]
    unseen = {"_hash", "node_name"}
    parts = {each.name for each in fields(PodShape)} - unseen
    assert {
        part for part in parts if any(getattr(o, part) != getattr(base, part) for o in others)
    } == parts


def test_what_is_nobodys_business_costs_no_other_shape() -> None:
    known = Shapes()
    first = known.of(made({}))
    assert all(known.of(made(change)) is first for change in SAME.values())
    assert len(known._known) == 1


@pytest.mark.parametrize("amount", ["1x", 10**30])
def test_what_cannot_be_read_is_said_each_time(amount) -> None:
    known, pod = Shapes(), made({"spec": resources(cpu=amount)})
    for _ in range(2):
        with pytest.raises(InvalidObject, match=r"spec.containers\[0\].resources.requests\[cpu\]"):
            known.of(pod)


def test_they_are_kept_up_to_a_bound(monkeypatch) -> None:
    monkeypatch.setattr(shapes, "KEPT", 3)
    known = Shapes()
    for number in range(10):
        assert known.of(made({"spec": {"priority": number}})).priority == number
        assert len(known._known) <= 3
