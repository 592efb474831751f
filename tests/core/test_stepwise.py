"""Members that restrict each other: host ports, affinity, anti-affinity, spread."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.core import stepwise
from extender.core.cluster import Cluster
from extender.core.planner import Placement, Role, plan
from extender.core.preference import Preference
from extender.core.reasons import Refusal
from extender.core.snapshot import Snapshot
from tests.builders import HOST, ZONE, node, pod
from tests.core.planning import (
    SESSION,
    busy,
    cluster,
    gpu_nodes,
    placed,
    refused,
    role,
    shape,
)

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


def test_a_port_on_two_addresses_is_two_ports():
    def on(ip):
        ports = [{"containerPort": 80, "hostPort": 80, "hostIP": ip}]
        return {"containers": [{"name": "c", "ports": ports}]}

    made = cluster(*gpu_nodes(a=8))
    one, two = role(1, spec=on("10.0.0.1")), role(1, name="o", spec=on("10.0.0.2"))
    assert placed(made, one, two) == [["a"], ["a"]]
    assert refused(made, one, role(1, name="o", spec=PORT)).startswith("1 of 2 pods would fit")


def test_ports_of_two_roles_and_a_role_without():
    made = cluster(*gpu_nodes(a=8, b=8))
    master, worker = role(1, name="m", spec=PORT), role(1, name="w", spec=PORT, labels=APP)
    plain = role(3, name="p", gpus=4, cpu=None)
    assert [Counter(rows) for rows in placed(made, master, worker, plain)] == [
        {"a": 1}, {"b": 1}, {"a": 2, "b": 1}
    ]  # fmt: skip


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


def lets_through(view: Snapshot, roles: list[Role], rows: list[list[int]]) -> bool:
    """Whether the filters let the members through to their rows, each role in its own order."""
    if not any(rows):
        return True
    for index, planned in enumerate(rows):
        shape = roles[index].shape
        if planned and view.feasible(shape)[planned[0]]:
            mark = view.checkpoint()
            view.place(shape, planned[0])
            rest = [*rows[:index], planned[1:], *rows[index + 1 :]]
            found = lets_through(view, roles, rest)
            view.rollback(mark)
            if found:
                return True
    return False


@pytest.mark.parametrize(
    ("nodes", "members"),
    [
        ([(2, "2"), (2, "2"), (3, "1")], [(1, 3, together(ZONE), APP), (3, 1, {}, APP)]),
        (
            [(3, "1"), (1, "1"), (2, "1"), (2, "2")],
            [(2, 1, {}, APP), (1, 1, together(HOST), APP), (1, 1, apart(ZONE), {})],
        ),
        (
            [(3, "1"), (1, "2"), (2, "1"), (1, "2")],
            [(1, 2, apart(HOST), {}), (2, 1, {}, APP), (3, 1, together(ZONE), {})],
        ),
        ([(2, "1"), (1, "2"), (3, "1")], [(2, 2, spread(HOST), APP), (1, 2, together(HOST), APP)]),
        (
            [(2, "1"), (3, "2"), (2, "1"), (3, "1")],
            [(3, 1, apart(ZONE), APP), (1, 1, together(ZONE), APP), (3, 1, {}, {})],
        ),
        (
            [(2, "1"), (2, "2"), (3, "1"), (3, "2")],
            [(3, 1, spread(ZONE), APP), (3, 1, together(HOST), APP), (2, 1, {}, APP)],
        ),
    ],
)
def test_what_greed_gets_wrong_is_searched_for(nodes, members, monkeypatch):
    made, roles = instance(nodes, members)
    view = Snapshot(made)
    found = plan(SESSION, view, roles)
    assert isinstance(found, Placement)
    assert lets_through(Snapshot(made), roles, [rows.tolist() for rows in found.rows])
    monkeypatch.setattr("extender.core.stepwise.MAX_STATES", 0)
    assert isinstance(plan(SESSION, view, roles), Refusal)


def instance(nodes, members, resident=False) -> tuple[Cluster, list[Role]]:
    """``nodes`` are (gpus, zone), ``members`` (gpus, count, spec, labels) by role."""
    made = cluster(
        *(node(f"n{i}", gpus=g, labels={ZONE: zone}) for i, (g, zone) in enumerate(nodes)),
        pods=[pod("r", node="n0", gpus=1, labels=APP)] if resident else [],
    )
    roles = [
        role(count, gpus, name=f"r{i}", labels=labels, spec=spec, cpu=None)
        for i, (gpus, count, spec, labels) in enumerate(members)
    ]
    return made, roles


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
    made, roles = instance(nodes, members, resident)
    view = Snapshot(made)
    found = plan(SESSION, view, roles)
    assert isinstance(found, Placement) == brute_force(Snapshot(made), roles)
    if isinstance(found, Placement):
        assert [len(rows) for rows in found.rows] == [r.required for r in roles]
        assert lets_through(Snapshot(made), roles, [rows.tolist() for rows in found.rows])


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


def test_members_that_must_be_together_find_the_one_zone_of_many(monkeypatch):
    monkeypatch.setattr("extender.core.stepwise.MAX_STATES", 0)
    nodes = [
        node(f"z{zone}-{i}", gpus=4, labels={ZONE: str(zone)})
        for zone in range(6)
        for i in range(3)
    ]
    pods = [pod(f"p{z}", node=f"z{z}-0", gpus=1) for z in range(6) if z != 4]
    [rows] = placed(cluster(*nodes, pods=pods), role(12, labels=APP, spec=together(ZONE)))
    assert {name[:2] for name in rows} == {"z4"}


def test_the_snapshot_is_left_as_found():
    made = cluster(*gpu_nodes(a=2, b=2))
    for roles in ([role(3)], [role(5)], [role(2, spec=PORT)], [role(3, spec=PORT)]):
        view = Snapshot(made)
        free, mark = view.free.copy(), view.checkpoint()
        plan(SESSION, view, roles)
        assert (view.free == free).all()
        assert view.checkpoint() == mark
