"""Scores of binpack and nodeorder, worked out by hand from the upstream formulas."""

from __future__ import annotations

import pytest

from extender.core.cluster import Cluster
from extender.core.shape import shape_of
from extender.core.snapshot import Snapshot
from plugins import BUILT_IN, complete
from plugins.binpack import Binpack
from plugins.nodeorder import NodeOrder
from plugins.predicates import Predicates
from tests.builders import GPU, node, pod


def view(*nodes, pods=()) -> Snapshot:
    cluster = Cluster()
    for each in nodes:
        cluster.upsert_node(each)
    for each in pods:
        cluster.upsert_pod(each)
    return Snapshot(cluster)


def binpack(**arguments):
    given = {f"binpack.{key}": value for key, value in arguments.items()}
    return Binpack(complete(Binpack.arguments, given, "arguments"))


def nodeorder(**weights):
    """All weights 0 but those given."""
    given = dict.fromkeys(NodeOrder.arguments, 0)
    given |= {f"{key}.weight": value for key, value in weights.items()}
    return NodeOrder(complete(NodeOrder.arguments, given, "arguments"))


TWO = (node("a", cpu=10, memory=100, gpus=4), node("b", cpu=10, memory=100, gpus=4))
BUSY = pod("busy", node="a", cpu="5", memory=20, gpus=1)


def test_binpack_is_the_weighted_mean_of_what_would_be_used():
    task = shape_of(pod("p", cpu="1", memory=10, gpus=2))
    found = binpack(cpu=2, memory=1).score(view(*TWO, pods=[BUSY]), task)
    # of a: cpu twice 6 of 10, memory 30 of 100; of b: twice 1 of 10, 10 of 100
    assert found.tolist() == pytest.approx([50, 10])


def test_binpack_counts_listed_resources_and_its_own_weight():
    task = shape_of(pod("p", cpu="1", gpus=2))
    found = binpack(weight=10, cpu=0, memory=0, resources=f"x.io/y, {GPU}").score(
        view(*TWO, pods=[BUSY]), task
    )
    assert found.tolist() == pytest.approx([750, 500])
    heavier = binpack(cpu=1, memory=0, resources=GPU, **{f"resources.{GPU}": 3})
    found = heavier.score(view(*TWO, pods=[BUSY]), task)
    assert found.tolist() == pytest.approx([100 * (0.6 + 3 * 0.75) / 4, 100 * (0.1 + 1.5) / 4])


def test_binpack_gives_nothing_where_it_would_overflow():
    task = shape_of(pod("p", cpu="6", memory=10))
    assert binpack().score(view(*TWO, pods=[BUSY]), task).tolist() == pytest.approx([0, 35])


def test_binpack_has_no_opinion_without_a_listed_resource():
    task = shape_of(pod("p", cpu=None, gpus=1))
    assert binpack().score(view(*TWO), task).tolist() == [0, 0]


def test_least_and_most_requested_are_opposites():
    task = shape_of(pod("p", cpu="1", memory=10))
    now = view(*TWO, pods=[BUSY])
    # a: cpu 0.6, memory 0.3; b: 0.1 and 0.1
    assert nodeorder(leastrequested=1).score(now, task).tolist() == pytest.approx([55, 90])
    assert nodeorder(mostrequested=2).score(now, task).tolist() == pytest.approx([90, 20])


def test_balanced_resources():
    task = shape_of(pod("p", cpu="1", memory=10))
    found = nodeorder(balancedresource=1).score(view(*TWO, pods=[BUSY]), task)
    assert found.tolist() == pytest.approx([85, 100])


def test_preferred_node_affinity_is_normalised_to_the_best_row():
    def term(weight, key):
        expression = {"key": key, "operator": "Exists"}
        return {"weight": weight, "preference": {"matchExpressions": [expression]}}

    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [term(3, "x"), term(1, "y")]}
    task = shape_of(pod("p", spec={"affinity": {"nodeAffinity": preferred}}))
    now = view(
        node("a", labels={"x": "", "y": ""}), node("b", labels={"y": ""}), node("c"),
    )  # fmt: skip
    assert nodeorder(nodeaffinity=1).score(now, task).tolist() == pytest.approx([100, 25, 0])
    assert nodeorder(nodeaffinity=1).score(view(node("a")), task).tolist() == [0]


def test_taints_that_are_only_preferred():
    tolerate = {"tolerations": [{"key": "b", "operator": "Exists"}]}
    task = shape_of(pod("p", spec=tolerate))
    now = view(
        node("a", taints=["x:PreferNoSchedule", "y:PreferNoSchedule"]),
        node("b", taints=["b:PreferNoSchedule", "y:PreferNoSchedule"]),
        node("c", taints=["z:NoSchedule"]),
    )
    assert nodeorder(tainttoleration=3).score(now, task).tolist() == pytest.approx([0, 150, 300])


def test_a_node_without_cpu_or_memory_counts_as_full():
    task = shape_of(pod("p", cpu="1"))
    assert nodeorder(leastrequested=1).score(view(node("a", cpu=0, memory=0)), task).tolist() == [0]


def test_no_nodes_no_scores():
    task = shape_of(pod("p", gpus=1))
    for plugin in (binpack(), nodeorder(leastrequested=1, tainttoleration=1, nodeaffinity=1)):
        assert plugin.score(view(), task).shape == (0,)


def test_predicates_are_the_snapshots():
    now = view(node("a", gpus=1), node("b"))
    task = shape_of(pod("p", gpus=1))
    plugin = Predicates({})
    assert plugin.feasible(now, task).tolist() == [True, False]
    assert list(plugin.explain(now, task)) == now.explain(task)


def test_the_registry_knows_each_plugin_by_its_own_name():
    assert {name: kind.name for name, kind in BUILT_IN.items()} == {n: n for n in BUILT_IN}
