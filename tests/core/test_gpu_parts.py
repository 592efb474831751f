"""Gangs of pods that ask for parts of GPUs: each on one device that has room, counted by device."""

from __future__ import annotations

import pytest
from msgspec import convert
from msgspec.structs import replace

from extender.core import commands as c
from extender.core import events as e
from extender.core import inspecting
from extender.core.answers import StateView
from extender.core.api import NODES, PODS
from extender.core.cluster import Cluster
from extender.core.coordinator import Coordinator
from extender.core.objects import Node, Pod
from extender.core.planner import Placement, Role, plan
from extender.core.shape import PodShape, shape_of
from extender.core.snapshot import Snapshot
from extender.core.state import Rules
from extender.core.topology import devices, equipment
from extender.core.topology.kubelet_shares import COUNT_ANNOTATION, MILLI_ANNOTATION
from tests.builders import GPU, node, pod
from tests.core import machine_stories as do
from tests.core.machine import Machine
from tests.core.planning import SESSION, placed, refused

CORES, MEMORY = "nvidia.com/gpucores", "nvidia.com/gpumem"
REGISTER, ALLOCATED = "hami.io/node-nvidia-register", "hami.io/vgpu-devices-allocated"


def hami(name: str, devices: int) -> Node:
    """Devices of 80 GB, of which ten pods may share each."""
    text = "".join(f"{name}-{at},10,80000,100,H100,0,true:" for at in range(devices))
    made = node(name, gpus=10 * devices)
    return replace(made, metadata=replace(made.metadata, annotations={REGISTER: text}))


def alibaba(name: str, devices: int) -> Node:
    return node(name, resources={COUNT_ANNOTATION: str(devices)})


def cluster(*nodes: Node) -> Cluster:
    made = Cluster()
    for each in nodes:
        found, wrong = equipment.read(each.metadata.annotations, each.status.allocatable)
        assert wrong == []
        made.upsert_node(each, found)
    return made


def part(cores: int, memory: int = 8000, gpus: int = 1) -> dict[str, str]:
    return {GPU: str(gpus), CORES: str(cores), MEMORY: str(memory)}


def share(cores: int, memory: int = 8000, gpus: int = 1) -> PodShape:
    return shape_of(pod("w", requests=part(cores, memory, gpus)))


def gang(want: int, cores: int, memory: int = 8000, gpus: int = 1) -> Role:
    return Role("worker", share(cores, memory, gpus), want)


def run(made: Cluster, name: str, on: str, cores: int, *, device: str = "", memory=8000) -> None:
    """A pod that is bound; ``device``: the one that it is told to have."""
    marks = {ALLOCATED: f"{device},NVIDIA,{memory},{cores}:;"} if device else {}
    made.upsert_pod(pod(name, node=on, requests=part(cores, memory), annotations=marks))


def test_what_is_free_of_two_devices_is_no_share() -> None:
    made = cluster(hami("a", 2))
    for at in range(2):
        run(made, f"runs-{at}", "a", 60, device=f"a-{at}")
    # 80 % of a device is free in all.
    assert refused(made, gang(1, 50)) == (
        "0 of 1 pods fit; 1 node: no one of its GPUs has 8000 MiB and 50 % of its cores free"
    )
    assert placed(made, gang(2, 40)) == [["a", "a"]]
    made.verify()


def test_memory_counts_by_device_as_well() -> None:
    made = cluster(hami("a", 2))
    for at in range(2):
        run(made, f"runs-{at}", "a", 10, device=f"a-{at}", memory=60000)
    assert "no one of its GPUs has 30000 MiB and 10 % of its cores" in refused(
        made, gang(1, 10, 30000)
    )
    assert placed(made, gang(1, 10, 20000)) == [["a"]]


def test_two_shares_are_not_promised_the_same_room() -> None:
    made = cluster(hami("a", 2))
    made.reserve("default/x", share(60), 0)
    made.reserve("default/y", share(60), 0)
    assert Snapshot(made).capacity(share(50)).tolist() == [0]
    assert Snapshot(made).capacity(share(40)).tolist() == [2]
    made.release("default/y")
    assert Snapshot(made).capacity(share(50)).tolist() == [2]
    made.verify()


def test_shares_go_where_a_device_is_broken_already() -> None:
    made = cluster(hami("a", 4), hami("b", 2), hami("c", 1))
    run(made, "runs", "a", 30, device="a-2")
    assert placed(made, gang(2, 30)) == [["a", "a"]]
    # Nothing of a whole device is left there, and the node that would be full first has the rest.
    found = placed(made, gang(3, 30))
    assert found[0].count("a") == 2 or len(set(found[0])) == 1


def test_two_devices_of_a_pod_are_different_ones() -> None:
    made = cluster(hami("a", 1), hami("b", 2))
    assert placed(made, gang(1, 10, gpus=2)) == [["b"]]
    run(made, "runs", "b", 95, device="b-1")
    assert "no 2 of its GPUs have 8000 MiB and 10 % of its cores free" in refused(
        made, gang(1, 10, gpus=2)
    )


def test_a_pod_without_a_part_has_the_whole_device() -> None:
    made = cluster(hami("a", 2))
    made.upsert_pod(pod("whole", node="a", gpus=1))
    assert Snapshot(made).capacity(share(10)).tolist() == [10]
    assert Snapshot(made).capacity(shape_of(pod("w", gpus=1))).tolist() == [1]
    run(made, "runs", "a", 10, device="a-0")
    assert Snapshot(made).capacity(shape_of(pod("w", gpus=1))).tolist() == [0]


def test_what_a_pod_is_told_to_have_replaces_what_was_assumed() -> None:
    made = cluster(hami("a", 2))
    run(made, "one", "a", 60)
    run(made, "two", "a", 30)  # assumed beside the first
    assert Snapshot(made).capacity(share(90)).tolist() == [1]
    before = made.capacity_generation
    run(made, "two", "a", 30, device="a-1")
    run(made, "one", "a", 60, device="a-0")
    assert made.capacity_generation > before
    assert Snapshot(made).capacity(share(90)).tolist() == [0]
    made.remove_pod("default/two")
    assert Snapshot(made).capacity(share(90)).tolist() == [1]
    assert len(made.shared) == 1
    made.verify()


@pytest.mark.parametrize(
    "forged",
    [
        # Both devices whole, a device of another node, more of its own, all of it again and again.
        {ALLOCATED: "a-0,NVIDIA,80000,100:a-1,NVIDIA,80000,100:;"},
        {ALLOCATED: "b-0,NVIDIA,8000,30:;"},
        {ALLOCATED: "a-0,NVIDIA,80000,100:;"},
        {ALLOCATED: "a-0,NVIDIA,8000,30:;" * 100},
        {ALLOCATED: "a-0,NVIDIA,8000,30:" * 3 + ";"},
        {"volcano.sh/vgpu-ids-new": "a-0,NVIDIA,80000,100:a-1,NVIDIA,80000,100:"},
        {"alibabacloud.com/gpu-index": "0-1"},
    ],
)
def test_a_pod_that_says_it_has_more_takes_what_it_asks_for_and_is_told(forged) -> None:
    brain = Coordinator(Rules(), SESSION, {})
    for event in (e.NodeSeen(hami("a", 2)), e.Synced(), e.LeaderGained(1)):
        brain.apply(event, 1.0)
    brain.apply(e.PodSeen(pod("r", node="a", requests=part(30))), 1.0)
    made = brain.state.cluster
    before = [Snapshot(made).capacity(share(*ask)).tolist() for ask in ((70,), (80,), (100,), (0,))]
    assert before == [[2], [1], [1], [19]]
    brain.apply(e.PodSeen(pod("r", node="a", requests=part(30), annotations=forged)), 1.0)
    after = [Snapshot(made).capacity(share(*ask)).tolist() for ask in ((70,), (80,), (100,), (0,))]
    assert after == before
    # One that asks for none has none.
    brain.apply(e.PodSeen(pod("liar", node="a", annotations=forged)), 1.0)
    assert Snapshot(made).capacity(share(70)).tolist() == [2]
    said = {each.name: each for each in brain.step(2.0) if isinstance(each, c.Notice)}
    assert said.keys() == {"r", "liar"}
    (key,) = forged
    assert {each.reason for each in said.values()} == {"InvalidDevices"}
    assert all(each.message.startswith(f"metadata.annotations[{key}]") for each in said.values())
    made.verify()


def test_what_was_not_believed_before_this_replica_led_is_said_when_it_does() -> None:
    brain = Coordinator(Rules(), SESSION, {})
    unknown = {ALLOCATED: "b-0,NVIDIA,8000,30:;"}
    # Of the pod's node nothing is known yet.
    brain.apply(e.PodSeen(pod("r", node="a", requests=part(30), annotations=unknown)), 1.0)
    for event in (e.NodeSeen(hami("a", 2)), e.Synced(), e.LeaderGained(1)):
        brain.apply(event, 1.0)
    [said] = [each for each in brain.step(2.0) if isinstance(each, c.Notice)]
    assert (said.namespace, said.name, said.reason) == ("default", "r", "InvalidDevices")
    assert said.message.endswith("devices that its node registers")


def test_two_pods_that_say_they_have_the_same_room_take_it_twice() -> None:
    made = cluster(hami("a", 2))
    for at in range(2):
        run(made, f"runs-{at}", "a", 60, device="a-0")
    assert Snapshot(made).capacity(share(50)).tolist() == [0]
    assert Snapshot(made).capacity(share(40)).tolist() == [2]


def test_nodes_that_register_nothing_have_no_parts() -> None:
    made = cluster(node("plain", gpus=8), alibaba("other", 8))
    words = refused(made, gang(1, 50))
    assert "1 node: 0 nvidia.com/gpucores in all, 50 asked" in words
    assert placed(cluster(node("plain", gpus=8), hami("shared", 1)), gang(2, 50)) == [
        ["shared", "shared"]
    ]


def test_parts_by_annotation() -> None:
    made = cluster(alibaba("a", 2), node("plain", gpus=8))

    def annotated(milli: int, **more) -> Pod:
        return pod("w", annotations={MILLI_ANNOTATION: str(milli)}, **more)

    for at in range(2):
        marks = {MILLI_ANNOTATION: "600", "alibabacloud.com/gpu-index": str(at)}
        made.upsert_pod(pod(f"runs-{at}", node="a", annotations=marks))
    half = Role("worker", shape_of(annotated(500)), 1)
    assert refused(made, half).startswith(
        "0 of 1 pods fit; 1 node: 0 of 0 alibabacloud.com/gpu-milli free, 500 asked"
    )
    assert "no one of its GPUs has 50 % of its cores free" in refused(made, half)
    assert placed(made, Role("worker", shape_of(annotated(400)), 2)) == [["a", "a"]]


def test_members_of_two_kinds_on_one_node() -> None:
    made = cluster(hami("a", 2))
    view = Snapshot(made)
    roles = [gang(2, 60), Role("ps", share(40), 2)]
    found = plan(SESSION, view, roles)
    assert isinstance(found, Placement)
    on = [(role.shape, row) for role, rows in zip(roles, found.rows, strict=True) for row in rows]
    assert view.zones_take(on)
    assert not view.zones_take([*on, (share(10), 0)])
    assert not view.zones_take([(share(60), 0), (share(60), 0), (share(50), 0)])


def test_a_gang_that_never_fits_is_said_so() -> None:
    made = cluster(hami("a", 2))
    run(made, "runs", "a", 100, device="a-0")
    assert "would fit even if every node were empty" in refused(made, gang(3, 60))
    assert "1 of 2 pods fit" in refused(made, gang(2, 60))


def test_a_wrong_annotation_takes_nobodys_node() -> None:
    brain = Coordinator(Rules(), SESSION, {})
    brain.apply(e.NodeSeen(node("a", gpus=8)), 1.0)
    wrong = pod("w", node="a", gpus=1, annotations={MILLI_ANNOTATION: "half"})
    brain.apply(e.PodSeen(wrong), 1.0)
    assert brain.state.counters["invalid_pods"] == 1
    cluster = brain.state.cluster
    assert cluster.unreadable.tolist() == [0]
    assert cluster.used[0, cluster.resources[GPU]] == 1
    # Requests that cannot be read still do.
    brain.apply(e.PodSeen(pod("x", node="a", requests={GPU: "many"})), 1.0)
    assert cluster.unreadable.tolist() == [1]


@pytest.mark.parametrize(
    ("health", "room"),
    [
        (("ok", "ok"), 2),
        (("ok", "?"), 2),
        (("ok", "ecc"), 1),
        (("reset", "ecc"), 0),
        (("ok", "lost"), 0),
    ],
)
@pytest.mark.parametrize("convention", ["HAMi", "Alibaba"])
def test_a_device_that_does_not_work_has_no_part_to_give(convention, health, room) -> None:
    """As its agent tells; with one that is lost no container of the node starts."""
    if convention == "HAMi":
        ids, on, asks = ("a-0", "a-1"), hami("a", 2), share(100)
    else:
        marks = {MILLI_ANNOTATION: "1000"}
        ids, on, asks = ("GPU-x", "GPU-y"), alibaba("a", 2), shape_of(pod("w", annotations=marks))
    known = devices.Devices(ids=ids, health=health, held=(None, None), memory=(None, None))
    told = {**on.metadata.annotations, devices.KEY: devices.encode(known)}
    made = cluster(replace(on, metadata=replace(on.metadata, annotations=told)))
    assert Snapshot(made).capacity(asks).tolist() == [room]


def test_a_register_that_cannot_be_read_is_said_on_the_node() -> None:
    brain = Coordinator(Rules(), SESSION, {})
    broken = hami("a", 2)
    broken.metadata.annotations[REGISTER] = "GPU-0,10"
    brain.apply(e.NodeSeen(broken), 1.0)
    assert brain.state.counters["invalid_equipment"] == 1
    assert Snapshot(brain.state.cluster).capacity(share(10)).tolist() == [0]


def test_what_debug_nodes_shows_and_who_prefers_what() -> None:
    brain = Coordinator(Rules(), SESSION, {})
    brain.apply(e.NodeSeen(hami("a", 2)), 1.0)
    brain.apply(e.NodeSeen(hami("b", 2)), 1.0)
    marks = {ALLOCATED: "b-1,NVIDIA,8000,30:;"}
    brain.apply(e.PodSeen(pod("r", node="b", requests=part(30), annotations=marks)), 1.0)
    told = inspecting.nodes(brain.state)[1]["parts"]
    assert told == [
        {"pods": 0, "freeSlots": 10, "freeMiB": 80000, "freeMilli": 1000},
        {"pods": 1, "freeSlots": 9, "freeMiB": 72000, "freeMilli": 700},
    ]
    view = StateView(brain.state, lambda: True)
    scores = view.prioritize(pod("p", requests=part(30)), ["a", "b"])
    assert scores[1] > scores[0]


@pytest.mark.parametrize(("free", "passes"), [(40, True), (50, False)])
def test_a_pod_of_no_group_leaves_a_plan_its_room(free: int, passes: bool) -> None:
    brain = Coordinator(Rules(), SESSION, {})
    brain.apply(e.NodeSeen(hami("a", 1)), 1.0)
    cluster = brain.state.cluster
    cluster.reserve("default/w", share(60), 0)
    zones = cluster.zone_view()
    assert zones is not None
    assert zones.spares(share(free).aligned).tolist() == [passes]


def shared(m: Machine, *counts: int) -> None:
    """Nodes with so many devices that are given away in parts."""
    do.nodes(m, len(counts))
    for at, count in enumerate(counts):
        size = {"allocatable": {COUNT_ANNOTATION: str(count), "cpu": "8"}}
        m.api.change((NODES, "", f"n{at}"), status=size)
    m.flush()


def plain(m: Machine, name: str, milli: int, devices: int = 1) -> None:
    marks = {MILLI_ANNOTATION: str(milli), COUNT_ANNOTATION: str(devices)}
    do.pod(m, name, gpus=0, annotations=marks)


def test_a_pod_of_no_group_goes_where_a_device_has_its_part() -> None:
    """Chaos seeds 75 and 166: kube-scheduler, which does not know of parts, chose a node without."""
    m = Machine()
    shared(m, 0, 1, 2)
    plain(m, "two", 300, devices=2)
    m.rest(10)
    assert m.bound() == {"two": "n2"}
    for name in ("a", "b", "c"):
        plain(m, name, 600)
    m.rest(10)
    assert sorted(m.bound().values()) == ["n1", "n2", "n2", "n2"]
    plain(m, "waits", 600)
    m.rest(60)
    assert "waits" not in m.bound()
    assert m.leader is not None
    assert len(m.leader.state.refused) == 1
    raw = m.api.get(PODS, "waits")
    assert raw is not None
    answer = m.leader.view.filter(convert(raw, Pod), ["n0", "n1", "n2"])
    assert (answer.passed, answer.message) == (
        [],
        "Muster: no one of its GPUs has 60 % of its cores free",
    )
    m.api.delete((PODS, "default", "a"))
    m.rest(10)
    assert "waits" in m.bound()
    m.finish()
