"""Members that ask for something else than they were planned for hold what they ask for now, or nothing."""

from __future__ import annotations

import pytest

from extender.core.api import PODS
from tests.builders import GPU, HOST
from tests.core import machine_stories as do
from tests.core.machine import Machine

SECOND = (PODS, "default", "g-1")


def planned() -> Machine:
    """A gang of two on n0, whose second pod has not been come for; n1 is free."""
    m = Machine()
    do.node(m, "n0", 2)
    do.node(m, "n1", 2)
    m.scheduler.held_back.add("g-1")
    do.gang(m, "g", 2)
    m.flush()
    assert places(m) == {"g-0": "n0", "g-1": "n0"}
    assert reserved(m) == {"n0": 2}
    return m


def places(m: Machine) -> dict[str, str]:
    return {slot.name: slot.node for slot in do.of(m, "g").members.values() if slot.node}


def reserved(m: Machine) -> dict[str, int]:
    """GPUs that plans hold, by node."""
    assert m.leader is not None
    cluster = m.leader.state.cluster
    column = cluster.resources[GPU]
    rows = {cluster.name_of(row): int(held) for row, held in enumerate(cluster.reserved[:, column])}
    return {name: held for name, held in rows.items() if held}


def change(m: Machine, **spec: object) -> None:
    m.api.change(SECOND, spec=spec)
    m.flush()


def gpus(amount: str) -> list[object]:
    return [{"name": "main", "resources": {"requests": {GPU: amount}}}]


def test_one_that_may_not_be_on_its_node_any_more_is_planned_on_another() -> None:
    m = planned()
    change(m, nodeSelector={HOST: "n1"})
    assert places(m)["g-1"] == "n1"
    assert reserved(m) == {"n0": 1, "n1": 1}
    m.scheduler.held_back.clear()
    m.rest(30)
    assert m.bound() == {"g-0": "n0", "g-1": "n1"}
    m.finish()


def test_where_one_asks_for_more_than_is_left_there_they_are_parted() -> None:
    m = planned()
    change(m, containers=gpus("2"))
    assert sorted(reserved(m).values()) == [1, 2]
    m.scheduler.held_back.clear()
    m.rest(30)
    assert set(m.bound().values()) == {"n0", "n1"}
    m.finish()


def test_one_that_asks_for_less_holds_no_more_than_that() -> None:
    m = planned()
    change(m, containers=gpus("0"))
    assert places(m) == {"g-0": "n0", "g-1": "n0"}
    assert reserved(m) == {"n0": 1}


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"containers": gpus("1e99")}, "InvalidObject"),
        ({"schedulingGates": [{"name": "example.com/quota"}]}, "PodsGated"),
        ({"nodeSelector": {HOST: "nowhere"}}, None),
    ],
)
def test_one_that_cannot_be_placed_holds_nothing_and_neither_does_its_gang(spec, reason) -> None:
    m = planned()
    change(m, **spec)
    assert places(m) == {}
    assert reserved(m) == {}
    if reason is not None:
        assert do.reason(m, "g") == reason
    do.gang(m, "h", 4)
    m.rest(30)
    assert set(m.bound()) == {f"h-{index}" for index in range(4)}
