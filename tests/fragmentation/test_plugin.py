"""The plugin on small clusters: what it keeps together, and for whom."""

from __future__ import annotations

import math

import numpy as np
import pytest

from extender.core.cluster import Cluster
from extender.core.shape import shape_of
from extender.core.snapshot import Snapshot
from plugins import BUILT_IN, build_session, complete
from plugins.fragmentation import Fragmentation, Mix, popular, weigh
from tests.builders import GPU, node, pod

PRODUCT = "nvidia.com/gpu.product"


def view(nodes, pods=()) -> Snapshot:
    cluster = Cluster()
    for each in nodes:
        cluster.upsert_node(each)
    for each in pods:
        cluster.upsert_pod(each)
    return Snapshot(cluster)


def scores(nodes, pods, task, **arguments) -> dict[str, float]:
    given = {f"fragmentation.{key}": value for key, value in arguments.items()}
    plugin = Fragmentation(complete(Fragmentation.arguments, given, "arguments"))
    snapshot = view(nodes, pods)
    found = plugin.score(snapshot, shape_of(task))
    return dict(zip(snapshot.names, found.tolist(), strict=True))


def on(where: str, number: int, **shape):
    """``number`` pods of one shape that run on a node."""
    return [pod(f"{where}-{shape.get('gpus', 0)}-{i}", node=where, **shape) for i in range(number)]


def test_a_whole_node_is_kept_for_those_who_take_whole_nodes():
    nodes = [node(name, gpus=8) for name in ("idle", "used", "full")]
    pods = on("full", 1, gpus=8) + on("used", 2, gpus=1)
    found = scores(nodes, pods, pod("p", gpus=1))
    assert found["used"] > found["idle"] > found["full"] == 0


def test_without_those_who_take_whole_nodes_nothing_is_broken():
    nodes = [node(name, gpus=8) for name in ("idle", "used")]
    found = scores(nodes, on("used", 2, gpus=1), pod("p", gpus=1))
    assert found["used"] == pytest.approx(found["idle"])


def test_cpu_is_left_to_those_who_need_it_beside_a_gpu():
    """A pod without a GPU goes where cpu is more than the GPUs can use."""
    nodes = [node("a-scarce", cpu=16, gpus=4), node("rich", cpu=64, gpus=4)]
    pods = on("rich", 1, cpu="4", gpus=1)
    found = scores(nodes, pods, pod("p", cpu="8"))
    assert found["rich"] > found["a-scarce"]
    # FGD does not see it while one more task fits
    found = scores(nodes, pods, pod("p", cpu="8"), depth=0, scarcity=0)
    assert found["rich"] == pytest.approx(found["a-scarce"])


def test_memory_counts_as_cpu_does():
    nodes = [node("a-scarce", memory=40, gpus=4), node("rich", memory=80, gpus=4)]
    found = scores(nodes, on("rich", 1, memory=10, gpus=1), pod("p", memory=20))
    assert found["rich"] > found["a-scarce"]


def test_what_few_nodes_can_give_is_kept_for_those_who_cannot_go_elsewhere():
    nodes = [
        node("a100", gpus=8, labels={PRODUCT: "A100"}),
        *(node(f"t4-{i}", gpus=8, labels={PRODUCT: "T4"}) for i in range(3)),
    ]
    pods = [
        *on("a100", 1, gpus=1, spec={"nodeSelector": {PRODUCT: "A100"}}),
        *on("t4-0", 3, gpus=1, spec={"nodeSelector": {PRODUCT: "T4"}}),
    ]
    # as popular on a T4 as three times on an A100, so that by popularity an A100 is the place
    by_popularity = scores(nodes, pods, pod("p", gpus=1), scarcity=0)
    assert by_popularity["a100"] > by_popularity["t4-1"]
    # yet for one A100 that is wanted there are 7, and for three T4s 21 and a bit
    fair = scores(nodes, pods, pod("p", gpus=1), scarcity=1)
    assert fair["a100"] == pytest.approx(fair["t4-1"], abs=1.0)
    keen = scores(nodes, pods, pod("p", gpus=1), scarcity=2)
    assert keen["t4-1"] > keen["a100"]


def test_a_score_worked_out_by_hand():
    """FGD's: one node of 4 with 1 used. Mix: 1 GPU (2 of 3 tasks with the one asked about), 2 (1)."""
    nodes = [node("n", cpu=64, gpus=4)]
    pods = on("n", 1, gpus=1)[:1]
    found = scores(nodes, pods, pod("p", gpus=2), depth=0, scarcity=0, weight=3)
    # 3 GPUs are left, and usable by both shapes; then 1, by the first only: it loses 2, the other 3.
    lost = 0.5 * 2 + 0.5 * 3
    assert found["n"] == pytest.approx(3 * 100 / (1 + math.exp(lost - 2)))


def test_no_opinion_without_tasks_that_ask_for_devices():
    nodes = [node("a", gpus=4), node("b", gpus=4), node("c")]
    assert scores(nodes, on("c", 2), pod("p")) == {"a": 0, "b": 0, "c": 0}
    assert scores([node("c")], [], pod("p", gpus=1)) == {"c": 0}


def test_the_resource_can_be_another():
    nodes = [node(name, resources={"amd.com/gpu": "8"}) for name in ("idle", "used", "full")]
    pods = [
        *on("full", 1, requests={"amd.com/gpu": "8"}),
        *on("used", 2, requests={"amd.com/gpu": "1"}),
    ]
    task = pod("p", requests={"amd.com/gpu": "1"})
    assert set(scores(nodes, pods, task).values()) == {0}
    found = scores(nodes, pods, task, resource="amd.com/gpu")
    assert found["used"] > found["idle"] > 0


def test_over_committed_and_odd_rows_do_no_harm():
    nodes = [node("over", cpu=4, gpus=2), node("fine", cpu=4, gpus=2), node("none", cpu=4)]
    pods = on("over", 2, cpu="4", gpus=2)
    found = scores(nodes, pods, pod("p", cpu="1", gpus=1))
    assert found["fine"] > 0
    assert found["over"] == found["none"] == 0
    impossible = scores(nodes, pods, pod("p", cpu="1", requests={GPU: str(2**62)}))
    assert set(impossible.values()) == {0}


def test_it_can_be_configured_by_its_name():
    assert BUILT_IN["fragmentation"] is Fragmentation
    from extender.core.session import PluginConf

    session = build_session([[PluginConf("fragmentation", {"fragmentation.weight": 2})]])
    nodes = view([node("a", gpus=4)], on("a", 1, gpus=1))
    assert 0 < session.score(nodes, shape_of(pod("p", gpus=1)))[0] <= 200


def test_popular_shapes_make_up_95_percent():
    kept, parts = popular([1, 60, 0, 35, 4])
    assert kept.tolist() == [1, 3]
    assert parts.tolist() == pytest.approx([60 / 95, 35 / 95])
    assert popular([])[0].tolist() == popular([0, 0])[0].tolist() == []
    # of equals the earlier
    assert popular([5, 5, 5])[0].tolist() == [0, 1, 2]


def test_weights_by_scarcity():
    one = np.ones(2, dtype=np.int64)
    mix = Mix(
        hosts=np.ones((2, 2), dtype=np.int64),
        shares=one * 1000,
        counts=one,
        reach=np.array([[True, True], [False, True]]),
        popularity=np.array([0.5, 0.25]),
    )
    room = np.array([8000.0, 1000.0])
    assert weigh(mix, room, 10_000, 0.0).tolist() == [[0.5, 0.0], [0.5, 0.25]]
    # 0.5 / 8 to 0.25 / 1 is 1 to 4, and together they are still 0.75
    assert weigh(mix, room, 10_000, 1.0) == pytest.approx(np.array([[0.15, 0], [0.15, 0.6]]))
    # one that fits nowhere is as if it could use one part of a hundred
    nowhere = weigh(mix, np.array([8000.0, 0.0]), 10_000, 1.0)
    assert nowhere == pytest.approx(weigh(mix, np.array([8000.0, 100.0]), 10_000, 1.0))
