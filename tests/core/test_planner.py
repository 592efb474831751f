"""What a plan prefers, what a refusal says, and that resources alone are decided exactly."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.core.cluster import Cluster
from extender.core.planner import Placement, Role, plan
from extender.core.reasons import Code, Refusal
from extender.core.search import Cover
from extender.core.session import Enabled, Session
from extender.core.snapshot import Snapshot
from plugins.predicates import Predicates
from tests.builders import GPU, HOST, node, pod
from tests.core.planning import (
    SESSION,
    busy,
    cluster,
    gpu_nodes,
    names,
    placed,
    refused,
    role,
)

# what is preferred


def test_fewest_nodes_and_neighbours_side_by_side():
    made = cluster(*gpu_nodes(a=2, b=4, c=4, d=1))
    assert placed(made, role(6)) == [["b", "b", "b", "b", "a", "a"]]


def test_the_rest_goes_where_it_fits_whole():
    made = cluster(*gpu_nodes(a=8, b=8), *gpu_nodes(c=4), pods=[busy("c", 2)])
    assert placed(made, role(10)) == [["a"] * 8 + ["c"] * 2]


def test_no_idle_node_is_broken_for_what_fits_on_a_used_one():
    made = cluster(*gpu_nodes(a=8, b=8, c=8), pods=[busy("b", 4)])
    assert placed(made, role(4)) == [["b"] * 4]


def test_the_tightest_of_the_used_ones():
    made = cluster(*gpu_nodes(a=8, b=8, c=8), pods=[busy("a", 2), busy("b", 5), busy("c", 3)])
    assert placed(made, role(3)) == [["b"] * 3]


def test_equal_nodes_by_name_whatever_the_order_of_arrival():
    assert placed(cluster(*gpu_nodes(b=1, a=1, c=1)), role(2)) == [["a", "b"]]
    assert placed(cluster(*gpu_nodes(c=1, b=1, a=1)), role(2)) == [["a", "b"]]


def test_near_peers_first():
    made = cluster(*gpu_nodes(a=8, b=8, c=8), pods=[busy("a", 4)])
    assert placed(made, role(2), peers=[made.row_of("c")]) == [["c", "c"]]


def test_roles_that_are_alike_are_placed_as_one():
    made = cluster(*gpu_nodes(a=3, b=4))
    master = role(1, name="master", labels={"role": "master"})
    assert placed(made, master, role(3)) == [["b"], ["b", "b", "b"]]


def test_a_small_role_goes_beside_the_big_one():
    made = cluster(*gpu_nodes(a=8, b=8))
    assert placed(made, role(1, gpus=0, name="launcher"), role(8)) == [["a"], ["a"] * 8]


def test_preferred_affinity_decides_between_equals():
    prefer = {
        "affinity": {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 1,
                        "preference": {
                            "matchExpressions": [
                                {"key": "disk", "operator": "In", "values": ["ssd"]}
                            ]
                        },
                    }
                ]
            }
        }
    }
    made = cluster(node("a", gpus=2), node("b", gpus=2, labels={"disk": "ssd"}))
    assert placed(made, role(2, spec=prefer)) == [["b", "b"]]


# optional members


def test_optional_members_as_many_as_fit():
    made = cluster(*gpu_nodes(a=3))
    assert placed(made, role(2, optional=5)) == [["a", "a", "a"]]


def test_optional_members_never_crowd_out_required_ones():
    made = cluster(*gpu_nodes(a=4))
    first = role(1, optional=9)
    assert placed(made, first, role(2, name="other", cpu="2")) == [["a", "a"], ["a", "a"]]


def test_required_and_optional_together_on_the_fewest_nodes():
    made = cluster(*gpu_nodes(a=4, b=8))
    assert placed(made, role(3, optional=5)) == [["b"] * 8]


def test_nobody_is_asked_for():
    assert placed(cluster(*gpu_nodes(a=1)), role(0)) == [[]]
    assert placed(cluster(), role(0)) == [[]]


# several roles


def packed(kinds: list[int], bins: list[list[int]]) -> tuple[Cluster, list[Role]]:
    """Nodes that the pods of ``bins`` (indices into ``kinds``, cpus) fill to the last cpu."""
    nodes = [node(f"n{i}", cpu=sum(kinds[k] for k in held)) for i, held in enumerate(bins)]
    counts = [sum(held.count(k) for held in bins) for k in range(len(kinds))]
    roles = [
        role(count, 0, name=f"r{k}", cpu=str(cpu))
        for k, (cpu, count) in enumerate(zip(kinds, counts, strict=True))
    ]
    return cluster(*nodes), roles


@pytest.mark.parametrize(
    ("kinds", "bins"),
    [
        ([2, 6, 7], [[2, 0], [2, 2], [2, 1, 0]]),
        ([6, 5, 1], [[1, 1, 1], [0, 1, 0]]),
        ([4, 5], [[1, 1, 1], [0, 1, 0], [0, 1, 0]]),
    ],
)
def test_a_tight_mix_that_no_simple_order_solves(kinds, bins, monkeypatch):
    made, roles = packed(kinds, bins)
    assert isinstance(plan(SESSION, Snapshot(made), roles), Placement)
    monkeypatch.setattr("extender.core.search.cover", lambda *_: Cover(None, exact=False))
    found = plan(SESSION, Snapshot(made), roles)
    assert isinstance(found, Refusal)
    assert found.code == Code.NO_ROOM  # what is not known for certain is not claimed


@given(
    st.lists(st.integers(1, 7), min_size=2, max_size=3),
    st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=3), min_size=2, max_size=4),
)
@settings(deadline=None, max_examples=100)
def test_what_was_packed_can_be_packed(kinds, bins):
    made, roles = packed(kinds, bins)
    assert isinstance(plan(SESSION, Snapshot(made), roles), Placement)


# reasons


def test_the_reason_counts_nodes_and_puts_room_first():
    made = cluster(*gpu_nodes(a=4, b=4, c=4, d=4), pods=[busy("d", 1)])
    assert refused(made, role(4, gpus=4)).startswith(
        f"3 of 4 pods fit; 3 nodes: room for 1; 1 node: 3 of 4 {GPU} free, 4 asked"
    )


def test_room_is_one_reason_whatever_the_sizes():
    made = cluster(*gpu_nodes(a=1, b=3, c=2))
    assert "; 3 nodes: room for 1 to 3" in refused(made, role(7))


def test_what_can_never_fit_is_said_so():
    made = cluster(*gpu_nodes(a=8, b=4), pods=[busy("a", 8), busy("b", 1)])
    # All of it is of empty nodes: what is free now has nothing to do with it.
    assert refused(made, role(2, gpus=8)) == (
        "1 of 2 pods would fit even if every node were empty; 1 node: room for 1; "
        f"1 node: 4 {GPU} in all, 8 asked"
    )
    assert refused(made, role(1, gpus=8)).startswith("0 of 1 pods fit")
    assert refused(made, role(1, gpus=16)).endswith(
        f"empty; 1 node: 8 {GPU} in all, 16 asked; 1 node: 4 {GPU} in all, 16 asked"
    )


def test_the_largest_quantities_are_said_as_they_are():
    most = str(2**63 - 1)
    asked = refused(cluster(*gpu_nodes(a=8)), role(1, requests={GPU: most}))
    assert f"8 {GPU} in all, {most} asked" in asked
    huge = cluster(node("a", resources={GPU: str(2**60)}))
    said = refused(huge, role(1, requests={GPU: most}))
    assert f"; 1 node: {2**52} or more {GPU} in all, {most} asked" in said
    asked = refused(cluster(node("a", memory="1Ti")), role(1, gpus=0, requests={"memory": "7Ei"}))
    assert "1Ti memory in all, 7Ei asked" in asked


def test_a_cluster_without_nodes():
    assert refused(cluster(), role(2)) == "0 of 2 pods fit; the cluster has no nodes"


def test_nodes_that_admit_nobody_are_not_told_of_as_if_emptying_them_would_help():
    tainted = [node(name, gpus=1, taints=["team=a:NoSchedule"]) for name in "abc"]
    assert refused(cluster(*tainted), role(4)) == (
        "0 of 4 pods fit, and no node admits the rest; "
        "3 nodes: taint team=a:NoSchedule is not tolerated"
    )
    # One that is only full is a matter of room again.
    assert refused(cluster(*tainted, *gpu_nodes(d=1)), role(4)).startswith("1 of 4 pods would fit")


def test_a_resource_that_no_node_has():
    strange = role(1, requests={"example.com/fpga": "1"})
    assert refused(cluster(*gpu_nodes(a=1)), strange).startswith("0 of 1 pods would fit")


def test_pods_that_run_may_be_needed_by_affinity():
    needs = {
        "affinity": {
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "cache"}}}
                ]
            }
        }
    }
    made = cluster(*gpu_nodes(a=2), pods=[pod("c", node="a", gpus=2, labels={"app": "cache"})])
    assert refused(made, role(1, spec=needs)).startswith("0 of 1 pods fit")


def arithmetic(sizes: list[int], needs: list[tuple[int, int]]) -> bool:
    """Whether pods of (cpu, count) fit into nodes of these sizes; plain integers only."""
    pods = [cpu for cpu, count in needs for _ in range(count)]
    for rows in itertools.product(range(len(sizes)), repeat=len(pods)):
        left = list(sizes)
        for cpu, row in zip(pods, rows, strict=True):
            left[row] -= cpu
        if min(left) >= 0:
            return True
    return False


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=3),
)
@settings(deadline=None, max_examples=150)
def test_resources_alone_equal_brute_force(sizes, needs):
    needs = [(cpu, count if sum(n for _, n in needs) <= 6 else 1) for cpu, count in needs]
    made = cluster(*(node(f"n{i}", cpu=size) for i, size in enumerate(sizes)))
    roles = [role(count, 0, name=f"r{i}", cpu=cpu) for i, (cpu, count) in enumerate(needs)]
    found = plan(SESSION, Snapshot(made), roles)
    assert isinstance(found, Placement) == arithmetic(sizes, needs)
    if isinstance(found, Placement):
        used: Counter[int] = Counter()
        for (cpu, count), rows in zip(needs, found.rows, strict=True):
            assert len(rows) == count
            used.update({int(row): 0 for row in rows})
            for row in rows:
                used[int(row)] += cpu
        assert all(used[row] <= sizes[row] for row in used)
    else:
        assert found.code == Code.NEVER_FITS  # nothing runs here


def test_the_same_question_has_the_same_answer():
    made = cluster(*gpu_nodes(a=3, b=3, c=2))
    roles = [role(3), role(2, name="other", cpu="2")]
    answers = {str(placed(made, *roles)) for _ in range(3)}
    assert len(answers) == 1


def test_a_predicate_of_a_third_party_is_heard():
    class Odd:
        name: ClassVar[str] = "odd"
        arguments: ClassVar[Mapping[str, str | int | float | bool]] = {}

        def __init__(self, arguments):
            pass

        def feasible(self, view, task):
            return np.arange(view.rows) % 2 == 1

        def explain(self, view, task):
            return []

    session = Session([[Enabled(Predicates({})), Enabled(Odd({}))]])
    view = Snapshot(cluster(*gpu_nodes(a=8, b=4)))
    assert names(view, plan(session, view, [role(2)])) == [["b", "b"]]
    assert isinstance(plan(session, view, [role(5)]), Refusal)


@pytest.mark.parametrize("members", [3, 40])
def test_a_search_that_gives_up_does_not_claim_never(members):
    made = cluster(*(node(f"n{i:02}", cpu=30) for i in range(members)))
    roles = [role(members * 2, 0, cpu="7"), role(members * 2, 0, name="r", cpu="11")]
    found = plan(SESSION, Snapshot(made), roles)
    assert isinstance(found, Refusal)
    assert found.code in (Code.NEVER_FITS, Code.NO_ROOM)
