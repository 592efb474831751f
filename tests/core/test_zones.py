"""Nodes that tell their NUMA zones: kubelets that would refuse a pod get none."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
import yaml

from extender.core import commands as c
from extender.core import events as e
from extender.core import inspecting
from extender.core.alignment import alignment_of
from extender.core.answers import StateView
from extender.core.api import NODE_TOPOLOGIES, OLD_NODE_TOPOLOGIES, VOLCANO_GROUPS
from extender.core.cluster import Cluster
from extender.core.coordinator import Coordinator
from extender.core.errors import InvariantViolated
from extender.core.nodes import CEILING
from extender.core.objects import Meta
from extender.core.places import worth
from extender.core.planner import Placement, Role, plan
from extender.core.podgroups import VolcanoGroup, VolcanoGroupSpec
from extender.core.reasons import Code
from extender.core.shape import shape_of
from extender.core.snapshot import Snapshot
from extender.core.state import Rules
from extender.core.topology import nrt
from extender.core.topology.kubelet import APP, INIT, SIDECAR, Container
from tests.builders import GPU, node, pod
from tests.core.planning import SESSION, role

CASES = yaml.safe_load((Path(__file__).parent / "zoned.yaml").read_text())


def topology(name: str, of, free=None, policy="single-numa-node", cpus=None, memory_only=0):
    """A NodeResourceTopology: GPUs of each zone, and what is free of them."""
    left = of if free is None else free
    zones = []
    for number, (count, rest) in enumerate(zip(of, left, strict=True)):
        resources = [nrt.ZoneResource(GPU, count, count, rest)]
        if cpus is not None:
            resources.append(nrt.ZoneResource("cpu", 16, 16, cpus[number]))
        zones.append(nrt.Zone(f"node-{number}", "Node", resources=tuple(resources)))
    memory = (nrt.ZoneResource("memory", 10, 10, 10),)
    zones += [
        nrt.Zone(f"node-{number}", "Node", resources=memory)
        for number in range(len(of), len(of) + memory_only)
    ]
    return nrt.NodeResourceTopology(
        Meta(name=name),
        attributes=(nrt.Attribute("topologyManagerPolicy", policy),),
        zones=tuple(zones),
    )


def tell(made: Cluster, told: nrt.NodeResourceTopology) -> bool:
    return made.tell_zones(told.metadata.name, "v1alpha2", nrt.zones_of(told))


def cluster_of(nodes) -> Cluster:
    made = Cluster()
    for name, has in nodes.items():
        gpus = has.get("silent") or sum(has["of"])
        made.upsert_node(node(name, gpus=gpus))
        if "silent" in has:
            continue
        of, free = has["of"], has.get("free", has["of"])
        pods = has.get("pods", [1] * (sum(of) - sum(free)))
        told = has.get("told", free)
        tell(made, topology(name, of, told, has.get("policy", "single-numa-node"),
                            has.get("cpus"), has.get("memoryOnly", 0)))  # fmt: skip
        for number, count in enumerate(pods):
            made.upsert_pod(pod(f"runs-{name}-{number}", node=name, gpus=count))
    made.verify()
    return made


def asked(gpus: int, members: int, cpus: int = 0) -> Role:
    if not cpus:
        return role(members, gpus=gpus)
    limits = {"cpu": str(cpus), "memory": "1Gi", GPU: str(gpus)}
    spec = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
    return Role("worker", shape_of(pod("w", spec=spec)), members)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_what_kubelets_would_refuse(case) -> None:
    made = cluster_of(case["nodes"])
    view = Snapshot(made)
    found = plan(SESSION, view, [asked(**case["ask"])])
    if isinstance(case["expected"], str):
        assert not isinstance(found, Placement)
        assert case["expected"] in found.render()
    else:
        assert isinstance(found, Placement), found.render()
        assert [view.names[row] for row in found.rows[0]] == case["expected"]


def test_nothing_is_different_where_nobody_tells() -> None:
    made = Cluster()
    made.upsert_node(node("a", gpus=8))
    view = Snapshot(made)
    view.request_vector(asked(4, 1).shape)
    assert view.zones is None
    assert view.zone_columns == {}
    assert list(view.resources) == list(made.resources)


def test_what_a_plan_holds_is_held_by_zone() -> None:
    made = cluster_of({"a": {"of": [4, 4]}})
    shape = asked(3, 1).shape
    row = made.row_of("a")
    assert row is not None
    made.reserve("default/w", shape, row)
    # 1 + 4 are left: one more.
    assert Snapshot(made).capacity(shape).tolist() == [1]
    made.release("default/w")
    assert Snapshot(made).capacity(shape).tolist() == [2]


def test_placing_and_rolling_back() -> None:
    made = cluster_of({"a": {"of": [4, 4]}})
    view, three, two = Snapshot(made), asked(3, 1).shape, asked(2, 1).shape
    mark = view.checkpoint()
    view.place(three, 0)
    assert view.capacity(three).tolist() == [1]
    # 1 + 4 are left: two, and never more than there are.
    assert view.capacity(two).tolist() == [2]
    view.rollback(mark)
    assert view.capacity(two).tolist() == [4]
    assert view.capacity(three).tolist() == [2]


def test_a_plan_that_the_kubelet_would_refuse_now_does_not_fit_any_more() -> None:
    made = cluster_of({"a": {"of": [4, 4]}})
    shape = asked(4, 1).shape
    made.reserve("default/w", shape, 0)
    view = Snapshot(made)
    view.remove(shape, 0)
    assert view.fits(shape, 0)
    for number in range(2):
        made.upsert_pod(pod(f"p{number}", node="a", gpus=1))
    assert tell(made, topology("a", [4, 4], [3, 3]))
    view = Snapshot(made)
    view.remove(shape, 0)
    assert not view.fits(shape, 0)


def test_the_newer_version_of_the_api_counts_and_what_is_gone_does_not() -> None:
    made = cluster_of({"a": {"of": [4, 4], "free": [2, 2]}})
    shape = asked(4, 1).shape
    old = nrt.zones_of(topology("a", [4, 4]))
    assert not made.tell_zones("a", "v1alpha1", old)
    assert Snapshot(made).capacity(shape).tolist() == [0]
    assert made.zones.forget("a", "v1alpha2")
    # The old one has no pods in it: four of one each are assumed in zone 0.
    assert Snapshot(made).capacity(shape).tolist() == [1]
    assert made.zones.forget("a", "v1alpha1")
    assert not made.zones.forget("a", "v1alpha1")
    assert Snapshot(made).zones is None


def test_the_same_again_changes_nothing() -> None:
    made = cluster_of({"a": {"of": [4, 4], "free": [2, 2]}})
    before = made.capacity_generation
    assert not tell(made, topology("a", [4, 4], [2, 2]))
    assert made.capacity_generation == before
    view = Snapshot(made).zones
    assert view is Snapshot(made).zones


def test_zones_may_be_told_before_the_node_and_its_pods() -> None:
    made = Cluster()
    tell(made, topology("a", [4, 4], [0, 4]))
    made.upsert_pod(pod("runs", node="a", gpus=4))
    made.upsert_node(node("a", gpus=8))
    assert Snapshot(made).capacity(asked(4, 1).shape).tolist() == [1]


def test_events_and_wrong_zones() -> None:
    brain = Coordinator(Rules(), SESSION, {})
    for event in (e.NodeSeen(node("a", gpus=8)), e.Synced(), e.LeaderGained(1)):
        brain.apply(event, 1.0)
    cluster = brain.state.cluster
    brain.apply(e.ZonesSeen(NODE_TOPOLOGIES, topology("a", [4, 4])), 2.0)
    assert cluster.zone_view() is not None
    assert brain.state.touched == {"a"}
    twice = topology("a", [4, 4])
    twice = msgspec.structs.replace(twice, zones=(twice.zones[0], twice.zones[0]))
    brain.apply(e.ZonesSeen(NODE_TOPOLOGIES, twice), 3.0)
    assert cluster.zone_view() is None
    [notice] = [x for x in brain.step(3.0) if isinstance(x, c.Notice)]
    assert (notice.name, notice.reason) == ("a", "InvalidZones")
    assert "zones[1].name" in notice.message
    brain.apply(e.ZonesSeen(OLD_NODE_TOPOLOGIES, topology("a", [4, 4])), 4.0)
    assert cluster.zone_view() is not None
    brain.apply(e.InvalidSeen(OLD_NODE_TOPOLOGIES, "", "a", "u", "no object"), 5.0)
    assert cluster.zone_view() is None
    brain.apply(e.ZonesSeen(OLD_NODE_TOPOLOGIES, topology("a", [4, 4])), 6.0)
    brain.apply(e.ZonesGone(OLD_NODE_TOPOLOGIES, "a"), 7.0)
    assert cluster.zone_view() is None


def test_zones_that_nobody_could_have() -> None:
    made = Cluster()
    made.upsert_node(node("a", gpus=8))
    tell(made, topology("a", [2**40, 4]))
    assert Snapshot(made).capacity(asked(4, 1).shape).tolist() == [2]
    tell(made, topology("a", [1] * 40))
    zones = Snapshot(made).zones
    assert zones is not None
    assert zones.copies(asked(4, 1).shape.aligned).tolist() == [CEILING]


def test_nodes_that_look_the_same_are_one_class() -> None:
    made = cluster_of({f"n{at}": {"of": [4, 4], "free": [2, 2]} for at in range(5)})
    zones = made.zone_view()
    assert zones is not None
    assert zones.codes.tolist() == [0] * 5
    assert np.array_equal(zones.copies(asked(2, 1).shape.aligned), [2] * 5)
    assert zones.copies(asked(2, 1).shape.aligned, empty=True).tolist() == [4] * 5
    other = shape_of(pod("w", requests={"example.com/other": "1"})).aligned
    assert zones.copies(other).tolist() == [CEILING] * 5


def test_how_many_places_a_pod_takes_at_most() -> None:
    def of(gpus: int, cpus: int = 0) -> tuple[Container, ...]:
        return (Container(devices=((GPU, gpus),), cpus=cpus),)

    assert worth(of(4), of(4)) == 1
    assert worth(of(4), of(1)) == 4
    assert worth(of(1), of(4)) == 1
    assert worth(of(1, 16), of(4, 4)) == 4
    assert worth((), of(4)) == 0


def containers(*limits, **more):
    made = [{"name": f"c{at}", "resources": {"limits": each}} for at, each in enumerate(limits)]
    return {"containers": made, **more}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (containers({"cpu": "2"}), ()),
        (containers({"cpu": "2", GPU: 1}), (Container(APP, ((GPU, 1),)),)),
        (
            containers({"cpu": "2", "memory": "1k", GPU: 1}),
            (Container(APP, ((GPU, 1),), 2, (("memory", 1000),)),),
        ),
        (containers({"cpu": "1500m", "memory": "1k"}), (Container(APP, (), 0, (("memory", 1000),)),)),
        (
            containers(
                {GPU: 1},
                initContainers=[
                    {"name": "i", "resources": {"limits": {GPU: 2}}},
                    {"name": "s", "restartPolicy": "Always", "resources": {}},
                ],
            ),
            (Container(INIT, ((GPU, 2),)), Container(SIDECAR), Container(APP, ((GPU, 1),))),
        ),
        (
            {
                "containers": [
                    {
                        "name": "c",
                        "resources": {
                            "requests": {"cpu": "1", "memory": "1Gi"},
                            "limits": {"cpu": "1000m", "memory": "1Gi"},
                        },
                    }
                ]
            },
            (Container(APP, (), 1, (("memory", 2**30),)),),
        ),
        (containers({"cpu": "2", "memory": "1k"}, resources={"limits": {"cpu": "2"}}), ()),
    ],
    ids=["burstable", "devices", "guaranteed", "shared", "init", "equal", "pod-level"],
)  # fmt: skip
def test_what_is_aligned_of_a_pod(spec, expected) -> None:
    assert alignment_of(pod("w", spec=spec).spec) == expected


def failed(name: str, reason: str, on: str = "a"):
    made = pod(name, gpus=4, node=on, phase="Failed")
    status = msgspec.structs.replace(made.status, reason=reason)
    return msgspec.structs.replace(made, status=status)


def test_a_kubelet_that_failed_a_pod_gets_no_other_like_it() -> None:
    brain = Coordinator(Rules(), SESSION, {})
    for event in (e.NodeSeen(node("a", gpus=8)), e.Synced(), e.LeaderGained(1)):
        brain.apply(event, 1.0)
    state = brain.state
    # One that was not seen to run there failed long ago; one for another reason says nothing.
    brain.apply(e.PodSeen(failed("old", "TopologyAffinityError")), 2.0)
    brain.apply(e.PodSeen(pod("evicted", gpus=4, node="a")), 2.0)
    brain.apply(e.PodSeen(failed("evicted", "Evicted")), 3.0)
    assert len(state.evidence) == 0
    brain.apply(e.PodSeen(pod("one", gpus=4, node="a")), 4.0)
    brain.apply(e.PodSeen(failed("one", "TopologyAffinityError")), 5.0)
    assert state.evidence.next_end() == 5.0 + Rules().evidence_seconds
    view = Snapshot(state.cluster)
    state.evidence.ban(state.cluster, view)
    found = plan(SESSION, view, [asked(4, 1)])
    assert not isinstance(found, Placement)
    assert "1 node: its kubelet refused it there: TopologyAffinityError" in found.render()
    assert isinstance(plan(SESSION, view, [asked(2, 1)]), Placement)
    # Something else came to the node.
    brain.apply(e.PodSeen(pod("two", gpus=1, node="a", scheduler="other")), 6.0)
    assert len(state.evidence) == 0


def test_members_of_several_kinds_in_the_zones_of_one_node() -> None:
    """Each alone fits: 3, or 2 and 2; all of them do not, though 8 GPUs would do for 7."""
    brain = Coordinator(Rules(), SESSION, {})
    mark = {"scheduling.k8s.io/group-name": "train"}
    group = VolcanoGroup(
        Meta(name="train", namespace="default", uid="g"), VolcanoGroupSpec(min_member=4)
    )
    sizes = {"a": 3, "b": 3, "c": 2, "d": 2}
    for event in (
        e.NodeSeen(node("n1", gpus=10)),
        e.ZonesSeen(NODE_TOPOLOGIES, topology("n1", [5, 5], [5, 5])),
        e.Synced(),
        e.LeaderGained(1),
        e.GroupSeen(VOLCANO_GROUPS, group),
        *(e.PodSeen(pod(name, gpus=gpus, annotations=mark)) for name, gpus in sizes.items()),
    ):
        brain.apply(event, 1.0)
    brain.step(1.0)
    [gang] = brain.state.gangs.values()
    assert {slot.node for slot in gang.members.values()} == {"n1"}
    brain.state.cluster.verify()


def test_kinds_that_are_in_each_others_way_are_not_planned() -> None:
    made = cluster_of({"a": {"of": [4, 4]}, "b": {"of": [4, 4], "free": [0, 0]}})
    view = Snapshot(made)
    three, two = asked(3, 1).shape, asked(2, 1).shape
    for shape in (three, two):
        view.request_vector(shape)
    assert view.zones_take([(three, 0), (three, 0)])
    assert view.zones_take([(three, 0), (two, 0), (two, 0)])
    assert not view.zones_take([(three, 0), (three, 0), (two, 0)])
    view.zones_shared = True
    found = plan(SESSION, view, [asked(3, 2), Role("ps", two, 1)])
    assert not isinstance(found, Placement)
    assert found.code == Code.NO_ROOM


def test_what_debug_nodes_shows() -> None:
    brain = Coordinator(Rules(), SESSION, {})
    for event in (
        e.NodeSeen(node("a", gpus=8)),
        e.ZonesSeen(NODE_TOPOLOGIES, topology("a", [4, 4], [3, 4], cpus=[8, 16])),
        e.PodSeen(pod("told", node="a", gpus=1)),
        e.PodSeen(pod("new", node="a", gpus=2)),
        e.NodeSeen(node("b", gpus=8)),
    ):
        brain.apply(event, 1.0)
    told, silent = inspecting.nodes(brain.state)
    assert told["zones"] == {
        "policy": "single-numa-node",
        "scope": "container",
        "free": {GPU: [1, 4], "cpu": [8, 16]},
        "assumedPods": 1,
        "podsNotShown": 1,
    }
    assert "zones" not in silent


def test_a_kind_of_which_one_version_is_served_is_named_with_the_other() -> None:
    brain = Coordinator(Rules(), SESSION, {})
    brain.apply(e.KindServed(NODE_TOPOLOGIES, served=True), 1.0)
    brain.apply(e.KindServed(OLD_NODE_TOPOLOGIES, served=False), 1.0)
    told = inspecting.state(brain.state)["notServed"]
    assert told == ["noderesourcetopologies.v1alpha1.topology.node.k8s.io"]


def test_the_proof_looks_at_zones() -> None:
    made = cluster_of({"a": {"of": [4, 4], "free": [2, 2]}})
    made.zones.went("a", made.pods.slots["default/runs-a-0"])
    with pytest.raises(InvariantViolated, match="zones"):
        made.verify()


def test_a_pod_of_no_group_is_kept_from_the_zone_that_a_plan_counts_on() -> None:
    brain = Coordinator(Rules(), SESSION, {})
    mark = {"scheduling.k8s.io/group-name": "train"}
    meta = Meta(name="train", namespace="default", uid="g")
    for event in (
        e.NodeSeen(node("a", gpus=8)),
        e.PodSeen(pod("small", node="a", gpus=2, scheduler="other")),
        e.ZonesSeen(NODE_TOPOLOGIES, topology("a", [4, 4], [4, 2])),
        e.Synced(),
        e.LeaderGained(1),
        e.GroupSeen(VOLCANO_GROUPS, VolcanoGroup(meta, VolcanoGroupSpec(min_member=1))),
        e.PodSeen(pod("train-0", gpus=4, annotations=mark)),
    ):
        brain.apply(event, 1.0)
    brain.step(1.0)
    assert brain.state.slots["default", "train-0"][1].node == "a"
    view = StateView(brain.state, lambda: True)
    # Two are left, of the second socket; but the kubelet takes the first one where it can.
    two = pod("two", gpus=2)
    assert list(view.filter(two, ["a"]).passed) == []
    assert "reserved" in view.filter(two, ["a"]).message
    assert view.filter(pod("none", gpus=0), ["a"]).passed == ["a"]
    brain.apply(e.PodSeen(two), 2.0)
    brain.apply(e.BindAsked(7, "default", "two", "default/two", "a"), 2.0)
    [answer] = [x for x in brain.step(2.0) if isinstance(x, c.Answer)]
    assert "reserved" in answer.error
