"""A node that goes and is back under its name, before anything was decided on its loss or while Bindings
to it are on their way: what is planned there holds its place (I2).
"""

from __future__ import annotations

import pytest

from extender.core.api import NODES
from tests.core import machine_stories as do
from tests.core.machine import RULES, Fault, Machine

PLACE = (NODES, "", "n0")


def planned(verb: str) -> Machine:
    """A gang of two, of which what ``verb`` writes for the member on n0 is under way."""
    m = Machine(RULES)
    do.nodes(m, 2)
    m.faults.append(Fault("hold", verb=verb, name="" if verb == "Create" else "g-0"))
    do.gang(m, "g", 2)
    m.flush()
    return m


def back(m: Machine, *, at_once: bool) -> None:
    m.api.remove(PLACE)
    do.node(m, "n0", 1)
    for count in (2,) if at_once else (1, 1):
        m.replicas[0].deliver(PLACE, count)


@pytest.mark.parametrize(
    ("verb", "at_once"), [("Create", True), ("Patch", True), ("Bind", True), ("Bind", False)]
)
def test_nobody_else_is_planned_into_the_place(verb: str, *, at_once: bool) -> None:
    m = planned(verb)
    back(m, at_once=at_once)  # each step is checked (I2): planned is reserved
    do.gang(m, "h", 1)
    m.flush()
    m.faults.clear()
    m.rest(60)
    assert m.bound() == {"g-0": "n0", "g-1": "n1"}
    assert m.leader is not None
    assert m.leader.state.unhoused == {}
    m.finish()


def test_a_plain_pod_s_place_as_well() -> None:
    m = Machine(RULES)
    do.nodes(m, 1)
    m.faults.append(Fault("hold", verb="Bind"))
    do.pod(m, "p")
    m.flush()
    back(m, at_once=True)
    assert m.leader is not None
    (key,) = m.leader.state.cluster.reserved_keys
    assert key.startswith("plain ")
    m.faults.clear()
    m.rest(60)
    assert m.bound() == {"p": "n0"}
    m.finish()


def test_what_was_bound_meanwhile_is_counted_once() -> None:
    m = planned("Bind")
    m.api.remove(PLACE)
    m.replicas[0].deliver(PLACE)
    do.node(m, "n0", 1)
    for key in list(m.replicas[0].chains):
        m.replicas[0].carry_out(key)
    for place in [each for each in m.replicas[0].backlog if each != PLACE]:
        m.replicas[0].deliver(place, 10)
    m.replicas[0].deliver(PLACE)
    assert m.leader is not None
    assert not list(m.leader.state.cluster.reserved_keys)
    m.faults.clear()
    m.rest(60)
    assert m.bound() == {"g-0": "n0", "g-1": "n1"}
    m.finish()


def test_a_node_that_stays_away_is_forgotten_with_what_was_planned_there() -> None:
    m = planned("Patch")
    m.api.remove(PLACE)
    m.replicas[0].deliver(PLACE)
    m.faults.clear()
    m.rest(60)
    assert m.leader is not None
    assert m.leader.state.unhoused == {}
    m.finish()
