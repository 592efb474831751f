"""Which pods are alike."""

from __future__ import annotations

from typing import Any

import pytest

from extender.core.errors import InvalidObject, QuantityError
from extender.core.shape import HostPort, pinned_node, shape_of
from tests.builders import GPU, pod

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

APART = f"spec.affinity.podAntiAffinity.{REQUIRED}"
TERMS = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"


def nodes(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}}


def name_is(name: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}


ZONE_A = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
ZONE_B = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}


def test_replicas_are_alike_whatever_their_name_and_index():
    shapes = {
        shape_of(
            pod(
                f"w-{index}",
                gpus=4,
                labels={
                    "job": "j",
                    "training.kubeflow.org/replica-index": str(index),
                    "batch.kubernetes.io/job-completion-index": str(index),
                },
            )
        )
        for index in range(3)
    }
    assert len(shapes) == 1
    (shape,) = shapes
    assert shape.labels == (("job", "j"),)
    assert shape.requests == (("cpu", 1000), (GPU, 4), ("pods", 1))


@pytest.mark.parametrize(
    "other",
    [
        pod("p", gpus=1),
        pod("p", namespace="other"),
        pod("p", labels={"a": "b"}),
        pod("p", priority=5),
        pod("p", node="n0"),
        pod("p", spec={"nodeSelector": {"a": "b"}}),
        pod("p", spec={"tolerations": [{"operator": "Exists"}]}),
        pod("p", spec=nodes(ZONE_A)),
        pod("p", spec={"volumes": [{"persistentVolumeClaim": {"claimName": "c"}}]}),
    ],
)
def test_what_decides_a_place_makes_a_difference(other):
    assert shape_of(other) != shape_of(pod("p"))


def test_the_pin_makes_no_difference_when_it_is_ignored():
    plain, pinned = pod("p"), pod("p", spec=nodes(name_is("n1")))
    assert pinned_node(pinned.spec) == "n1"
    assert pinned_node(plain.spec) is None
    assert shape_of(pinned) != shape_of(plain)
    assert shape_of(pinned, ignore_pin=True) == shape_of(plain)


def test_a_pin_beside_the_users_own_terms():
    users = pod("p", spec=nodes(ZONE_A, ZONE_B))
    pinned = pod("p", spec=nodes(ZONE_A | name_is("n1"), ZONE_B | name_is("n1")))
    assert pinned_node(pinned.spec) == "n1"
    assert shape_of(pinned, ignore_pin=True) == shape_of(users)


@pytest.mark.parametrize(
    "spec",
    [
        nodes(ZONE_A),
        nodes(name_is("n1"), name_is("n2")),
        nodes(name_is("n1"), ZONE_A),
        nodes({"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}),
        nodes({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]}),
        nodes(),
    ],
)
def test_what_is_no_pin_stays(spec):
    assert pinned_node(pod("p", spec=spec).spec) is None
    assert shape_of(pod("p", spec=spec), ignore_pin=True) == shape_of(pod("p", spec=spec))


def test_a_bound_pod_is_like_its_unbound_siblings_when_its_node_is_ignored():
    assert shape_of(pod("p", node="n0"), ignore_node=True) == shape_of(pod("q"))


def test_host_ports_are_those_of_containers_and_sidecars():
    spec = {
        "containers": [{"ports": [{"containerPort": 1, "hostPort": 80}, {"containerPort": 2}]}],
        "initContainers": [
            {"ports": [{"hostPort": 81}]},
            {"ports": [{"hostPort": 82, "protocol": "UDP"}], "restartPolicy": "Always"},
        ],
    }
    shape = shape_of(pod("p", spec=spec))
    assert shape.host_ports == (HostPort(80, "TCP", "0.0.0.0"), HostPort(82, "UDP", "0.0.0.0"))
    assert shape.interacts
    network = shape_of(pod("p", spec={**spec, "hostNetwork": True}))
    assert [port.port for port in network.host_ports] == [2, 80, 82]


def test_label_keys_are_resolved_by_the_pods_own_labels():
    term = {
        "topologyKey": "zone",
        "labelSelector": {"matchLabels": {"app": "x"}},
        "matchLabelKeys": ["hash", "absent"],
        "mismatchLabelKeys": ["tier"],
    }
    spec = {"affinity": {"podAntiAffinity": {REQUIRED: [term]}}}
    (resolved,) = shape_of(pod("p", labels={"hash": "1", "tier": "t"}, spec=spec)).anti_affinity
    assert resolved.namespaces == ("default",)
    assert [(r.key, r.operator, r.values) for r in resolved.selector or ()] == [
        ("app", "In", ("x",)),
        ("hash", "In", ("1",)),
        ("tier", "NotIn", ("t",)),
    ]


def spreading(**fields: Any) -> dict[str, Any]:
    each = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **fields}
    return {"topologySpreadConstraints": [each]}


def test_soft_spread_decides_nothing():
    shape = shape_of(pod("p", spec=spreading(whenUnsatisfiable="ScheduleAnyway")))
    assert shape == shape_of(pod("p"))
    assert not shape.interacts
    assert shape_of(pod("p", spec=spreading())).interacts


def apart(**term: Any) -> dict[str, Any]:
    return {"affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": "zone", **term}]}}}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (spreading(maxSkew=0), "spec.topologySpreadConstraints[0].maxSkew"),
        (spreading(whenUnsatisfiable="x"), "spec.topologySpreadConstraints[0].whenUnsatisfiable"),
        (apart(topologyKey=""), f"{APART}[0].topologyKey"),
        (
            apart(labelSelector={"matchExpressions": [{"key": "a", "operator": "Gt"}]}),
            f"{APART}[0].labelSelector.matchExpressions[0].operator",
        ),
        (
            nodes({"matchExpressions": [{"key": "a", "operator": "Like"}]}),
            f"{TERMS}[0].matchExpressions[0].operator",
        ),
        (
            nodes({"matchFields": [{"key": "spec.x", "operator": "In", "values": ["a"]}]}),
            f"{TERMS}[0].matchFields[0].key",
        ),
        (
            {"containers": [{"resources": {"requests": {"cpu": "1x"}}}]},
            "spec.containers[0].resources.requests[cpu]",
        ),
    ],
)
def test_wrong_fields_are_named(spec, field):
    with pytest.raises(InvalidObject) as error:
        shape_of(pod("p", spec=spec))
    assert error.value.field == field
    assert error.value.allowed


def test_every_wrong_part_is_named_at_once():
    spec: dict[str, Any] = {
        "affinity": apart(topologyKey="")["affinity"]
        | nodes({"matchExpressions": [{"key": "a", "operator": "Like"}]})["affinity"],
        "containers": [{"resources": {"requests": {"cpu": "1x"}}}],
        **spreading(maxSkew=0),
    }
    slices = {"kueue.x-k8s.io/podset-slice-size": "many"}
    with pytest.raises(InvalidObject) as error:
        shape_of(pod("p", spec=spec, annotations=slices))
    assert [each.field for each in error.value.each] == [
        f"{APART}[0].topologyKey",
        "spec.topologySpreadConstraints[0].maxSkew",
        "spec.containers[0].resources.requests[cpu]",
        f"{TERMS}[0].matchExpressions[0].operator",
        "metadata.annotations[kueue.x-k8s.io/podset-slice-required-topology]",
    ]


def test_a_quantity_that_two_readers_look_at_is_told_once() -> None:
    with pytest.raises(QuantityError) as found:
        shape_of(pod("p", requests={GPU: "many"}))
    (only,) = found.value.each
    assert only.field == "spec.containers[0].resources.requests[nvidia.com/gpu]"
