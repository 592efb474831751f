"""The columns stay what a recount gives, whatever order events come in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from extender.core import objects as o
from extender.core.cluster import Cluster
from extender.core.errors import InvalidObject, InvariantViolated, QuantityError
from extender.core.resources import CPU
from extender.core.shape import shape_of
from extender.core.snapshot import Snapshot
from tests.builders import GPU, namespace, node, pod

NODES = ("n0", "n1", "n2")
UIDS = ("a", "b", "c", "d")


class Story(RuleBasedStateMachine):
    """Random events beside a dictionary of what was said last."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster()
        self.nodes: dict[str, o.Node] = {}
        self.pods: dict[str, tuple[str, int]] = {}
        self.held: dict[str, tuple[str, int]] = {}
        self.bad: set[str] = set()

    @rule(name=st.sampled_from(NODES), gpus=st.integers(0, 8), cordoned=st.booleans())
    def node_seen(self, name, gpus, cordoned):
        self.nodes[name] = node(name, gpus=gpus, unschedulable=cordoned)
        self.cluster.upsert_node(self.nodes[name])

    @rule(name=st.sampled_from(NODES))
    def node_gone(self, name):
        self.nodes.pop(name, None)
        self.held = {key: held for key, held in self.held.items() if held[0] != name}
        self.cluster.remove_node(name)

    @rule(
        uid=st.sampled_from(UIDS),
        name=st.sampled_from(NODES),
        gpus=st.integers(0, 3),
        deleting=st.booleans(),
    )
    def pod_bound(self, uid, name, gpus, deleting):
        self.pods[uid] = (name, gpus)
        self.held.pop(uid, None)
        self.bad.discard(uid)
        self.cluster.upsert_pod(pod(uid, uid=uid, node=name, gpus=gpus, deleting=deleting))

    @rule(uid=st.sampled_from(UIDS), name=st.sampled_from(NODES))
    def pod_unreadable(self, uid, name):
        self.pods[uid] = (name, 0)
        self.held.pop(uid, None)
        self.bad.add(uid)
        with pytest.raises(QuantityError):
            self.cluster.upsert_pod(pod(uid, uid=uid, node=name, requests={GPU: "many"}))

    @rule(uid=st.sampled_from(UIDS), name=st.sampled_from(NODES))
    def pod_ended(self, uid, name):
        self.pods.pop(uid, None)
        self.held.pop(uid, None)
        self.bad.discard(uid)
        self.cluster.upsert_pod(pod(uid, uid=uid, node=name, phase="Failed"))

    @rule(uid=st.sampled_from(UIDS))
    def pod_gone(self, uid):
        self.pods.pop(uid, None)
        self.bad.discard(uid)
        self.cluster.remove_pod(uid)

    @rule(key=st.sampled_from(UIDS), name=st.sampled_from(NODES), gpus=st.integers(0, 3))
    def reserved(self, key, name, gpus):
        row = self.cluster.row_of(name)
        if row is None:
            return
        self.cluster.reserve(key, shape_of(pod("r", gpus=gpus)), row)
        if key not in self.pods:
            self.held[key] = (name, gpus)

    @rule(key=st.sampled_from(UIDS))
    def released(self, key):
        self.held.pop(key, None)
        self.cluster.release(key)

    @invariant()
    def columns_are_a_recount(self):
        self.cluster.verify()
        cluster, gpu = self.cluster, self.cluster.resources.get(GPU)
        assert {name for name in cluster.names if name} == self.nodes.keys()
        assert cluster.reserved_keys == self.held.keys()
        for name in self.nodes:
            row = cluster.row_of(name)
            used = sum(gpus for at, gpus in self.pods.values() if at == name)
            held = sum(gpus for at, gpus in self.held.values() if at == name)
            if gpu is not None:
                assert cluster.used[row, gpu] == used
                assert cluster.reserved[row, gpu] == held
            full = any(self.pods[uid][0] == name for uid in self.bad)
            assert (cluster.unreadable[row] > 0) == full
            assert not full or (Snapshot(cluster).free[row] <= 0).all()


Story.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestStory = Story.TestCase


def cluster_of(*names: str) -> Cluster:
    cluster = Cluster()
    for name in names:
        cluster.upsert_node(node(name, gpus=8))
    return cluster


def test_many_rows_and_names():
    cluster = cluster_of(*(f"n{i}" for i in range(200)))
    assert cluster.rows == 200
    assert cluster.row_of("n150") == 150
    assert cluster.name_of(150) == "n150"
    assert cluster.row_of("other") is None
    assert cluster.allocatable.flags.c_contiguous


def test_generations_change_with_nodes_and_pods_only():
    cluster = cluster_of("n0", "n1")
    first = cluster.generation.copy()
    cluster.upsert_node(node("n0", gpus=8))
    cluster.reserve("key", shape_of(pod("p")), 0)
    cluster.release("key")
    assert np.array_equal(cluster.generation, first), "nothing about the node has changed"
    for change in (
        lambda: cluster.upsert_node(node("n0", gpus=7)),
        lambda: cluster.upsert_node(node("n0", gpus=7, labels={"a": "b"})),
        lambda: cluster.upsert_node(node("n0", gpus=7, taints=["a:NoSchedule"])),
        lambda: cluster.upsert_node(node("n0", gpus=7, unschedulable=True)),
        lambda: cluster.upsert_pod(pod("p", node="n0")),
        lambda: cluster.remove_pod("default/p"),
    ):
        before = cluster.generation.copy()
        change()
        assert (cluster.generation != before).tolist() == [True, False]


def test_capacity_generation_moves_when_somebody_might_fit_now():
    cluster = cluster_of("n0")
    cluster.upsert_pod(pod("p", node="n0", gpus=2))

    def moved(change) -> bool:
        before = cluster.capacity_generation
        change()
        return cluster.capacity_generation != before

    assert not moved(lambda: cluster.upsert_node(node("n0", gpus=8)))
    assert not moved(lambda: cluster.upsert_pod(pod("q", node="n0")))
    assert not moved(lambda: cluster.upsert_pod(pod("q", node="n0")))
    assert not moved(lambda: cluster.upsert_pod(pod("waits")))
    assert moved(lambda: cluster.upsert_pod(pod("p", node="n0", gpus=1)))
    assert moved(lambda: cluster.upsert_pod(pod("p", node="n0", phase="Succeeded")))
    assert moved(lambda: cluster.remove_pod("default/q"))
    assert not moved(lambda: cluster.reserve("default/r", shape_of(pod("r")), 0))
    assert not moved(lambda: cluster.upsert_pod(pod("r", node="n0"))), "its own place"
    assert not moved(lambda: cluster.release("default/r"))
    assert moved(lambda: cluster.upsert_node(node("n0", gpus=9)))
    assert moved(lambda: cluster.upsert_namespace(namespace("x", team="a")))
    assert not moved(lambda: cluster.upsert_namespace(namespace("x", team="a")))
    assert moved(lambda: cluster.remove_namespace("x"))
    assert moved(lambda: cluster.remove_node("n0"))
    assert not moved(lambda: cluster.remove_node("n0"))


def test_a_new_pod_may_make_room_for_one_that_wants_company():
    cluster = cluster_of("n0")
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    shape = shape_of(pod("p", spec={"affinity": {"podAffinity": required}}))
    assert not Snapshot(cluster).feasible(shape).any()
    before = cluster.capacity_generation
    cluster.upsert_pod(pod("q", node="n0", labels={"a": "b"}))
    assert cluster.capacity_generation > before
    assert Snapshot(cluster).feasible(shape).all()


def test_a_reservation_becomes_the_pod_under_its_uid_or_its_name():
    cluster = cluster_of("n0", "n1")
    shape = shape_of(pod("p", gpus=4))
    for key in ("uid-1", "default/p"):
        cluster.reserve(key, shape, 0)
        assert cluster.reservation(key) == 0
        before = cluster.capacity_generation
        cluster.upsert_pod(pod("p", uid="uid-1", node="n1", gpus=4))
        assert cluster.reservation(key) is None
        assert cluster.capacity_generation > before, "bound elsewhere: n0 is free again"
        assert cluster.row_of_pod("uid-1") == 1
        cluster.remove_pod("uid-1")
        cluster.verify()


def test_a_counted_pod_holds_its_place_only_once():
    cluster = cluster_of("n0")
    cluster.upsert_pod(pod("p", uid="u", node="n0", gpus=4))
    cluster.reserve("u", shape_of(pod("p", gpus=4)), 0)
    assert not cluster.reserved.any()
    cluster.verify()


def test_over_commitment_is_told_not_raised():
    cluster = cluster_of("n0", "n1")
    cluster.upsert_pod(pod("p", node="n0", gpus=5))
    cluster.reserve("k", shape_of(pod("q", gpus=3, cpu="1500m")), 0)
    assert cluster.over_committed() == []
    cluster.upsert_node(node("n0", gpus=7, cpu="2"))
    cluster.verify()
    assert [over.render() for over in cluster.over_committed()] == [
        "n0: 2500m cpu taken of 2",
        "n0: 8 nvidia.com/gpu taken of 7",
    ]


def test_a_node_that_cannot_be_read_has_nothing_to_give():
    cluster = cluster_of("n0")
    shape = shape_of(pod("p"))
    for _ in range(2):
        with pytest.raises(QuantityError, match=r"status\.allocatable\[cpu\]"):
            cluster.upsert_node(node("n0", cpu="lots"))
        assert not Snapshot(cluster).feasible(shape).any()
    cluster.upsert_node(node("n0"))
    assert Snapshot(cluster).feasible(shape).all()


def test_a_bound_pod_that_cannot_be_read_fills_its_node_until_it_can_be():
    cluster = cluster_of("n0", "n1")
    wrong = {"topologySpreadConstraints": [{"topologyKey": "z", "maxSkew": 0}]}
    with pytest.raises(InvalidObject):
        cluster.upsert_pod(pod("p", node="n0", spec=wrong))
    shape = shape_of(pod("q", cpu=None))
    assert Snapshot(cluster).feasible(shape).tolist() == [False, True]
    assert Snapshot(cluster).emptied().feasible(shape).all()
    cluster.upsert_pod(pod("p", node="n0"))
    assert Snapshot(cluster).feasible(shape).all()


def test_giant_requests_cannot_wrap_around():
    cluster = cluster_of("n0")
    for index in range(4):
        cluster.upsert_pod(pod(f"p{index}", node="n0", memory=str(2**63 - 1)))
    assert not Snapshot(cluster).feasible(shape_of(pod("q", memory="1"))).any()
    assert Snapshot(cluster).feasible(shape_of(pod("q"))).all()


def test_verify_finds_a_wrong_column():
    cluster = cluster_of("n0")
    cluster.upsert_pod(pod("p", node="n0"))
    cluster.nodes.used[0, cluster.resources[CPU]] += 1
    with pytest.raises(InvariantViolated, match="used"):
        cluster.verify()


def test_shapes_of_gone_pods_are_forgotten():
    cluster = cluster_of("n0")
    for index in range(50):
        cluster.upsert_pod(pod("p", node="n0", labels={"job": str(index)}))
        Snapshot(cluster)
    assert len(cluster.occupancy) == 1
    cluster.remove_pod("default/p")
    assert len(cluster.occupancy) == 0
