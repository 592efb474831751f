"""A Binding of which nobody knows whether it took effect, and one that has to be sent once more."""

from __future__ import annotations

import pytest

from extender.core import commands as c
from extender.core.api import PODS
from extender.core.binding import CALL_OFF_TRIES
from extender.core.gang import Member
from extender.core.standing import stands
from tests.core import machine_stories as do
from tests.core.machine import Fault, Machine
from tests.core.machine_api import Place

G0: Place = (PODS, "default", "g-0")


def sent(m: Machine) -> list[c.Bind]:
    """Bindings that the API server has not been shown."""
    assert m.leader is not None
    return [command for command in m.leader.pending() if isinstance(command, c.Bind)]


@pytest.mark.parametrize("form", ["gang", "plain"])
@pytest.mark.parametrize("outcome", ["unsent", "500", "504"])
def test_a_binding_without_an_answer_is_not_sent_again_onto_a_full_node(
    form: str, outcome: str
) -> None:
    """I2, chaos seed 200712: another scheduler filled the node meanwhile."""
    m = Machine()
    do.nodes(m, 1)
    hold = Fault("hold", verb="Bind")
    m.faults.append(hold)
    name = "g-0" if form == "gang" else "p"
    do.gang(m, "g", 1) if form == "gang" else do.pod(m, "p")
    m.flush()
    (bind,) = sent(m)
    assert m.leader is not None
    assert stands(m.leader.state, bind, again=True)
    do.foreign(m, "taker", on="n0")
    m.flush()
    assert not stands(m.leader.state, bind, again=True)
    hold.outcome, hold.times = outcome, 1
    m.flush()
    assert m.leader.state.counters["bindings_called_off"] == 1
    assert name not in m.bound()
    assert not m.leader.state.cluster.reservations
    m.api.remove((PODS, "default", "taker"))
    m.rest()
    assert m.bound() == {name: "n0"}
    # The first, as late as may be, cannot take effect any more.
    m.api.change((PODS, "default", name), spec={"nodeName": None})
    assert m.api.carry_out(bind)[0] == 409
    m.api.change((PODS, "default", name), spec={"nodeName": "n0"})


@pytest.mark.parametrize("name", ["g-0", "p"])
def test_a_binding_that_took_effect_without_an_answer_is_a_success(name: str) -> None:
    m = Machine()
    do.nodes(m, 1)
    m.faults.append(Fault("lost", verb="Bind", times=1))
    do.gang(m, "g", 1) if name == "g-0" else do.pod(m, "p")
    m.flush()
    assert m.bound() == {name: "n0"}
    assert not m.scheduler.open
    assert m.leader is not None
    assert m.leader.state.counters["bindings_called_off"] == 1
    assert "bind_failures" not in m.leader.state.counters


def test_what_is_called_off_is_called_off_until_that_is_answered() -> None:
    m = Machine()
    do.nodes(m, 1)
    m.faults += [
        Fault("unsent", verb="Bind", times=1),
        Fault("unsent", verb="Patch", kind="Pod", skip=1, times=CALL_OFF_TRIES - 1),
    ]
    do.gang(m, "g", 1)
    m.flush()
    assert m.bound() == {"g-0": "n0"}
    assert m.leader is not None
    assert m.leader.state.counters["bindings_called_off"] == CALL_OFF_TRIES


def test_a_pod_that_went_away_meanwhile_holds_nothing() -> None:
    m = Machine()
    do.nodes(m, 1)
    hold = Fault("hold", verb="Bind")
    m.faults.append(hold)
    do.gang(m, "g", 1)
    m.flush()
    m.api.delete(G0)
    hold.outcome, hold.times = "unsent", 1
    m.flush()
    assert m.leader is not None
    assert not m.leader.state.cluster.reservations
    assert not m.scheduler.open


def test_a_member_beyond_the_minimum_whose_binding_conflicts_looks_at_its_node_again() -> None:
    """I2: its gang is whole, so the barrier does not look, and rows are looked at as they change,
    but for members whose Binding is on its way.
    """
    m = Machine()
    do.nodes(m, 2)
    hold = Fault("hold", verb="Bind", name="g-1")
    m.faults.append(hold)
    do.gang(m, "g", 2, least=1)
    m.flush()
    (bind,) = sent(m)
    do.foreign(m, "taker", on=bind.node)
    m.api.change((PODS, "default", "g-1"), metadata={"annotations": {"by": "somebody"}})
    m.flush()
    m.faults.clear()
    m.flush()
    assert set(m.bound("g")) == {"g-0"}
    do.node(m, "n9", 1)
    m.rest()
    assert m.bound()["g-1"] == "n9"


def test_a_member_that_has_failed_is_not_bound_again_when_bind_is_called_again() -> None:
    """I1, chaos seed 1133: two that had failed made a third, which nobody was left beside, whole."""
    m = Machine()
    do.nodes(m, 2)
    do.gang(m, "g", 3, 2)
    m.rest()
    bound = m.bound()
    assert len(bound) == 2
    (left,) = {"g-0", "g-1", "g-2"} - bound.keys()
    for name in bound:
        m.api.change((PODS, "default", name), status={"phase": "Failed"})
    m.flush()
    m.scheduler.held_back.add(left)
    assert m.leader is not None
    for name, node in bound.items():
        raw = m.api.get(PODS, name)
        assert raw is not None
        uid = raw["metadata"]["uid"]
        m.scheduler.ask_to_bind(m.leader, (PODS, "default", name), uid, node)
    m.flush()
    assert not m.scheduler.open
    states = {name: slot.state for name, slot in do.of(m, "g").members.items()}
    assert [states[name] for name in bound] == [Member.FAILED] * 2
    m.scheduler.held_back.clear()
    m.rest(30)
    assert left not in m.bound()
    m.finish()
