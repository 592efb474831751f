"""A log holds nothing of what users put into containers, volumes and annotations of their own."""

from __future__ import annotations

import typing
from typing import Any

import msgspec
import pytest

from extender.core import codec
from extender.core import commands as c
from extender.core import events as e
from extender.core import objects as o
from extender.core.api import (
    CONFIG_MAPS,
    GANG_PLANS,
    NODE_TOPOLOGIES,
    PODS,
    PYTORCH_JOBS,
    SERVICES,
    VOLCANO_GROUPS,
)
from extender.core.framework import Replica
from extender.core.podgroups import VolcanoGroup
from extender.core.redact import ENVIRONMENT, ENVIRONMENT_PREFIX, MARK, Redactor
from extender.core.topology.hypernodes import HyperNode
from extender.core.topology.network import Topology
from extender.core.topology.nrt import NodeResourceTopology
from extender.jobs import KINDS
from extender.jobs.meeting import OWN, WAIT
from tests import builders

SECRET = "hunter2"
REDACTOR = Redactor(b"the key of these tests")
MARKS = {"example.com/token": SECRET, "scheduling.k8s.io/group-name": "train"}
META = o.Meta(name="x", annotations=MARKS)
TEMPLATE: dict[str, Any] = {
    "metadata": {"annotations": MARKS, "managedFields": [{"manager": SECRET}]},
    "spec": {
        "containers": [
            {
                "name": "pytorch",
                "image": "train",
                "command": ["run", f"--token={SECRET}"],
                "args": [SECRET],
                "env": [
                    {"name": "PASSWORD", "value": SECRET},
                    {"name": "PIN", "value": 4711},
                    {"name": "RANK", "value": "0"},
                    {"name": "REF", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                ],
                "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "h", "value": SECRET}]}},
                "ports": [{"name": "p", "containerPort": 23456}],
                "resources": {"limits": {"nvidia.com/gpu": 1}},
            }
        ],
        "initContainers": [SECRET, {"name": "init", "env": SECRET}],
        "volumes": [
            {"name": "v", "csi": {"volumeAttributes": {"password": SECRET}}},
            {"name": "c", "persistentVolumeClaim": {"claimName": "data"}},
        ],
    },
}
JOB = {
    "metadata": {"name": "train", "annotations": MARKS},
    "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": TEMPLATE}}},
}
ENDED = o.ContainerStatus(state=o.ContainerState(o.Terminated(exit_code=1, message=SECRET)))
TOLD: list[e.Event] = [
    e.JobSeen(PYTORCH_JOBS, JOB),
    e.PodSeen(builders.pod("p", annotations=MARKS)),
    e.PodSeen(o.Pod(META, status=o.PodStatus(container_statuses=(ENDED,)))),
    e.PodSeen(
        o.Pod(META, o.PodSpec(volumes=(o.Volume("v", ephemeral={"x": {"annotations": MARKS}}),)))
    ),
    e.NodeSeen(o.Node(META)),
    e.ZonesSeen(NODE_TOPOLOGIES, NodeResourceTopology(META)),
    e.HyperNodeSeen(HyperNode(META)),
    e.TopologySeen(Topology(META)),
    e.GroupSeen(VOLCANO_GROUPS, VolcanoGroup(META)),
    e.PlanSeen({"metadata": {"annotations": MARKS}, "spec": {}}),
    e.ServiceSeen(META),
    e.NamespaceSeen(o.Namespace(META)),
    e.ClaimSeen(o.Claim(META)),
    e.VolumeSeen(o.PersistentVolume(META)),
    e.PriorityClassSeen(o.PriorityClass(META)),
    e.Done(1, 201, object=TEMPLATE),
]
GIVEN: list[c.Command] = [
    c.Create(1, c.Lane.JOB, PODS, "default", TEMPLATE),
    c.Patch(1, c.Lane.JOB, PODS, "default", "p", {"metadata": {"annotations": MARKS}}),
    c.Create(1, c.Lane.JOB, SERVICES, "default", {"kind": "Secret", "stringData": {"k": SECRET}}),
]


@pytest.mark.parametrize("event", TOLD, ids=[f"{type(x).__name__}{n}" for n, x in enumerate(TOLD)])
def test_no_event_holds_a_secret(event: e.Event) -> None:
    assert SECRET.encode() in codec.encode(event)
    redacted = REDACTOR.event(event)
    line = codec.encode(redacted)
    assert SECRET.encode() not in line
    assert b"4711" not in line
    assert codec.decode_event(line) == redacted


@pytest.mark.parametrize(
    "command", GIVEN, ids=[f"{type(x).__name__}{n}" for n, x in enumerate(GIVEN)]
)
def test_no_command_holds_a_secret(command: c.Command) -> None:
    assert SECRET.encode() in codec.encode(command)
    assert SECRET.encode() not in codec.encode(REDACTOR.command(command))


def reaches(kind: Any, seen: frozenset[Any] = frozenset()) -> bool:
    """Whether a value of this type may hold annotations or JSON that nobody has decoded."""
    if kind in (o.Meta, Any):
        return True
    inner = typing.get_args(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind not in seen:
        inner = tuple(typing.get_type_hints(kind).values())
    return any(reaches(each, seen | {kind}) for each in inner)


def test_events_that_hold_objects_are_all_among_those() -> None:
    """A new event with metadata or raw JSON in it has to be thought of here."""
    assert {kind for kind in codec.EVENTS if reaches(kind)} == {type(event) for event in TOLD}
    assert {kind for kind in codec.COMMANDS if reaches(kind)} == {type(x) for x in GIVEN}


def test_what_decides_is_kept() -> None:
    (container, *_) = REDACTOR.manifest(TEMPLATE)["spec"]["containers"]
    assert container["env"][2:] == TEMPLATE["spec"]["containers"][0]["env"][2:]
    for kept in ("name", "image", "ports", "resources"):
        assert container[kept] == TEMPLATE["spec"]["containers"][0][kept]
    redacted = REDACTOR.event(e.NodeSeen(o.Node(META)))
    assert isinstance(redacted, e.NodeSeen)
    found = redacted.node.metadata.annotations
    assert found["scheduling.k8s.io/group-name"] == "train"
    assert found["example.com/token"].startswith(MARK)


def test_what_has_nothing_to_hide_is_itself() -> None:
    node, plan = e.NodeSeen(builders.node("n")), c.Create(1, c.Lane.PLAN, GANG_PLANS, "d", {})
    seen = e.PodSeen(builders.pod("p", annotations={"volcano.sh/task-spec": "worker"}))
    assert REDACTOR.event(seen) == seen
    assert REDACTOR.event(node) == node
    assert REDACTOR.command(plan) is plan
    gone = e.NodeGone("n")
    assert REDACTOR.event(gone) is gone


def test_a_mark_tells_equal_from_different_and_nothing_without_the_key() -> None:
    def mark(redactor: Redactor, text: str) -> str:
        return str(redactor.manifest({"annotations": {"a": text}})["annotations"]["a"])

    assert mark(REDACTOR, "a") == mark(REDACTOR, "a") != mark(REDACTOR, "b")
    assert mark(REDACTOR, "a") != mark(Redactor(b"another"), "a")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: type(kind).__name__)
def test_the_environment_that_a_kind_sets_is_kept(kind: Any) -> None:
    """Ranks are what a log of a job is for: a kind that sets other names has to list them."""
    box = {"name": kind.facts.container or "main", "image": "i"}
    role = {"replicas": 1, "template": {"spec": {"containers": [box]}}}
    job = {
        "apiVersion": kind.resource.api_version,
        "kind": kind.resource.kind,
        "metadata": {"name": "j", "namespace": "d", "uid": "u", "annotations": {WAIT: OWN}},
        # Of a TFJob no two heads.
        "spec": {kind.facts.specs_key: {r: role for r in kind.facts.roles if r != "Chief"}},
    }
    job["spec"][kind.facts.specs_key]["Worker"] = {**role, "replicas": 2}
    counts = [
        (role.lower(), spec["replicas"]) for role, spec in job["spec"][kind.facts.specs_key].items()
    ]
    for name, index in ((name, index) for name, count in counts for index in range(count)):
        pod = kind.pod(job, Replica(name, index, f"j-{name}-{index}"))
        env = pod["spec"]["containers"][0]["env"]
        names = [each["name"] for each in env]
        assert names or (kind.facts.operator, name) == ("mpijob-controller", "worker")
        assert all(name in ENVIRONMENT or name.startswith(ENVIRONMENT_PREFIX) for name in names)
        # What a replay makes of the redacted job is what was recorded.
        assert REDACTOR.manifest(pod) == pod


def test_what_muster_writes_into_a_config_map_is_kept() -> None:
    """Names of pods, which a replay makes of the redacted job alike; others' data never is."""
    body = {"metadata": {"name": "j-config"}, "data": {"hostfile": "j-worker-0 slots=1"}}
    for given in (
        c.Create(1, c.Lane.JOB, CONFIG_MAPS, "ns", body),
        c.Patch(1, c.Lane.JOB, CONFIG_MAPS, "ns", "j-config", {"data": body["data"]}),
    ):
        assert REDACTOR.command(given) == given
    assert SECRET not in str(REDACTOR.event(e.Done(1, 201, object={"data": {"k": SECRET}})))
