"""Plans equal brute force on small instances, and prefer what they should."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.core import stepwise
from extender.core.cluster import Cluster
from extender.core.planner import Placement, Role, plan
from extender.core.preference import Preference
from extender.core.reasons import Code, Refusal
from extender.core.session import Enabled, Session
from extender.core.shape import PodShape, shape_of
from extender.core.snapshot import Snapshot
from extender.settings import Settings
from plugins.predicates import Predicates
from tests.builders import GPU, HOST, ZONE, node, pod

SESSION = Settings().session()


def cluster(*nodes, pods=()) -> Cluster:
    made = Cluster()
    for each in nodes:
        made.upsert_node(each)
    for each in pods:
        made.upsert_pod(each)
    return made


def shape(gpus=1, **more) -> PodShape:
    return shape_of(pod("w", gpus=gpus, **more))


def role(required, gpus=1, optional=0, name="worker", **more) -> Role:
    return Role(name, shape(gpus, **more), required, optional)


def names(view: Snapshot, found: Placement | Refusal) -> list[list[str]]:
    assert isinstance(found, Placement), found.render()
    return [[view.names[row] for row in rows] for rows in found.rows]


def placed(made: Cluster, *roles: Role, peers=()) -> list[list[str]]:
    view = Snapshot(made)
    return names(view, plan(SESSION, view, roles, peers=peers))


def refused(made: Cluster, *roles: Role) -> str:
    found = plan(SESSION, Snapshot(made), roles)
    assert isinstance(found, Refusal)
    return found.render()


def gpu_nodes(**gpus: int):
    return [node(name, gpus=count) for name, count in gpus.items()]


def busy(on: str, gpus: int):
    return pod(f"busy-{on}", node=on, gpus=gpus)


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


def test_a_tight_mix_that_no_simple_order_solves():
    # 6 = 3 + 3 and 4 + 2 in two nodes: largest first fills 4 + ... and must be undone.
    made = cluster(node("a", cpu=6), node("b", cpu=7))
    roles = [role(1, 0, cpu="4"), role(2, 0, cpu="3"), role(1, 0, cpu="3001m")]
    found = plan(SESSION, Snapshot(made), roles[:2])
    assert isinstance(found, Placement)
    assert "3 of 4" in refused(made, *roles)


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
    made = cluster(*gpu_nodes(a=8), pods=[busy("a", 8)])
    assert refused(made, role(2, gpus=8)).startswith(
        "1 of 2 pods would fit even if every node were empty"
    )
    assert refused(made, role(1, gpus=8)).startswith("0 of 1 pods fit")
    assert refused(made, role(1, gpus=16)).startswith("0 of 1 pods would fit")


def test_a_cluster_without_nodes():
    assert refused(cluster(), role(2)).startswith("0 of 2 pods would fit even if")


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


def test_the_snapshot_is_left_as_found():
    made = cluster(*gpu_nodes(a=2, b=2))
    for roles in ([role(3)], [role(5)], [role(2, spec=PORT)], [role(3, spec=PORT)]):
        view = Snapshot(made)
        free, mark = view.free.copy(), view.checkpoint()
        plan(SESSION, view, roles)
        assert (view.free == free).all()
        assert view.checkpoint() == mark


# members that restrict each other

PORT = {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]}


def apart(key):
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "x"}}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"affinity": {"podAntiAffinity": required}}


def together(key):
    required = apart(key)["affinity"]["podAntiAffinity"]
    return {"affinity": {"podAffinity": required}}


def spread(key, skew=1):
    return {
        "topologySpreadConstraints": [
            {
                "maxSkew": skew,
                "topologyKey": key,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "x"}},
            }
        ]
    }


def zones(**zone_of: str):
    return [node(name, gpus=4, labels={ZONE: zone}) for name, zone in zone_of.items()]


APP = {"app": "x"}


def test_host_ports_take_a_node_each():
    made = cluster(*gpu_nodes(a=8, b=8, c=8))
    assert placed(made, role(3, spec=PORT)) == [["a", "b", "c"]]
    assert refused(made, role(4, spec=PORT)).startswith(
        "3 of 4 pods would fit even if every node were empty; 3 nodes: room for 1"
    )


def test_anti_affinity_between_members():
    made = cluster(*zones(a="1", b="1", c="2"))
    [rows] = placed(made, role(2, labels=APP, spec=apart(ZONE)))
    assert rows == ["a", "c"]


def test_affinity_keeps_members_in_one_zone():
    made = cluster(*zones(a="1", b="2", c="2"))
    [rows] = placed(made, role(6, labels=APP, spec=together(ZONE)))
    assert Counter(rows) == {"b": 4, "c": 2}


def test_affinity_backs_out_of_a_zone_that_is_too_small():
    made = cluster(*zones(a="1", b="2", c="2"), pods=[busy("b", 1), busy("c", 1)])
    [rows] = placed(made, role(6, labels=APP, spec=together(ZONE)))
    assert Counter(rows) == {"b": 3, "c": 3}


def test_spread_between_zones():
    made = cluster(*zones(a="1", b="2"))
    [rows] = placed(made, role(4, labels=APP, spec=spread(ZONE)))
    assert Counter(rows) == {"a": 2, "b": 2}


def test_a_role_that_must_be_beside_another_waits_for_it():
    beside = {"affinity": {"podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": HOST, "labelSelector": {"matchLabels": {"role": "ps"}}}
        ]
    }}}  # fmt: skip
    made = cluster(*gpu_nodes(a=4, b=4))
    worker = role(4, gpus=1, spec=beside)
    ps = role(1, gpus=0, name="ps", labels={"role": "ps"})
    assert placed(made, worker, ps) == [["a"] * 4, ["a"]]


# brute force


def brute_force(view: Snapshot, roles: list[Role]) -> bool:
    """Try every sequence of members and rows; the snapshot's filters judge each step."""

    def go(left: tuple[int, ...]) -> bool:
        if not any(left):
            return True
        for index, count in enumerate(left):
            if not count:
                continue
            shape = roles[index].shape
            rest = (*left[:index], count - 1, *left[index + 1 :])
            for row in np.flatnonzero(view.feasible(shape)):
                mark = view.checkpoint()
                view.place(shape, int(row))
                found = go(rest)
                view.rollback(mark)
                if found:
                    return True
        return False

    return go(tuple(role.required for role in roles))


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


SPECS = st.sampled_from(
    [{}, PORT, apart(HOST), apart(ZONE), together(HOST), together(ZONE), spread(ZONE), spread(HOST)]
)
MEMBERS = st.tuples(st.integers(1, 2), st.integers(1, 2), SPECS, st.sampled_from([{}, APP]))


@given(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from("12")), min_size=1, max_size=3),
    st.lists(MEMBERS, min_size=1, max_size=2),
    st.booleans(),
)
@settings(deadline=None, max_examples=150)
def test_members_that_restrict_each_other_equal_brute_force(nodes, members, resident):
    made = cluster(
        *(node(f"n{i}", gpus=g, labels={ZONE: zone}) for i, (g, zone) in enumerate(nodes)),
        pods=[pod("r", node="n0", gpus=1, labels=APP)] if resident else [],
    )
    roles = [
        role(count, gpus, name=f"r{i}", labels=labels, spec=spec, cpu=None)
        for i, (gpus, count, spec, labels) in enumerate(members)
    ]
    view = Snapshot(made)
    found = plan(SESSION, view, roles)
    assert isinstance(found, Placement) == brute_force(Snapshot(made), roles)
    if isinstance(found, Placement):
        assert [len(rows) for rows in found.rows] == [r.required for r in roles]


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


@given(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from("123")), min_size=1, max_size=4),
    st.integers(1, 4),
    st.sampled_from([PORT, apart(HOST), apart(ZONE), spread(ZONE), spread(HOST), spread(ZONE, 2)]),
    st.booleans(),
    st.booleans(),
)
@settings(deadline=None, max_examples=150)
def test_one_role_under_one_key_needs_no_search(nodes, members, spec, own, resident):
    made = cluster(
        *(node(f"n{i}", gpus=g, labels={ZONE: zone}) for i, (g, zone) in enumerate(nodes)),
        pods=[pod("r", node="n0", gpus=1, labels=APP)] if resident else [],
    )
    one = Role("w", shape(1, labels=APP if own else {}, spec=spec), members)
    view = Snapshot(made)
    found = stepwise.plan(SESSION, view, [one], Preference(view), budget=0)
    assert found.exact
    assert (found.missing([one]) == 0) == brute_force(Snapshot(made), [one])


def test_members_that_must_be_together_find_the_one_zone_of_many():
    nodes = [
        node(f"z{zone}-{i}", gpus=4, labels={ZONE: str(zone)})
        for zone in range(6)
        for i in range(3)
    ]
    pods = [pod(f"p{z}", node=f"z{z}-0", gpus=1) for z in range(6) if z != 4]
    [rows] = placed(cluster(*nodes, pods=pods), role(12, labels=APP, spec=together(ZONE)))
    assert {name[:2] for name in rows} == {"z4"}
