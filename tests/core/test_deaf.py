"""A watch that says nothing for a while: what Muster has done itself it knows all the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from extender.core import events as e
from extender.core.api import PODS
from tests.core import machine_stories as do
from tests.core.machine import Fault, Machine
from tests.core.machine_api import Place


def deaf(m: Machine, *names: str) -> Callable[[], None]:
    """The leader is told nothing more of these pods, until what is returned is called."""
    told, late = m.replicas[0].saw, list[tuple[Place, e.Event]]()
    places = {(PODS, "default", name) for name in names}

    def saw(place: Place, event: e.Event) -> None:
        if place in places:
            late.append((place, event))
        else:
            told(place, event)

    def hears() -> None:
        places.clear()
        for place, event in late:
            told(place, event)

    m.api.watchers[-1] = saw
    return hears


@pytest.mark.parametrize("form", ["gang", "plain"])
def test_what_it_has_bound_keeps_its_place_when_it_loses_the_lease(form: str) -> None:
    """I2, chaos seeds 11178 and 14062: it leads again before its watch shows the pod bound."""
    m = Machine()
    do.nodes(m, 1)
    do.gang(m, "a", 1) if form == "gang" else do.pod(m, "a-0")
    for place in list(m.replicas[0].backlog):
        m.replicas[0].deliver(place)
    hears = deaf(m, "a-0")
    m.flush()
    assert m.bound() == {"a-0": "n0"}
    plans = m.replicas[0].state.counters.get("plans")
    m.lose()
    m.gain(m.replicas[0])
    do.gang(m, "b", 1)
    m.flush()
    assert m.replicas[0].state.counters.get("plans") == plans
    m.rest(60)
    assert m.bound() == {"a-0": "n0"}
    hears()
    m.api.remove((PODS, "default", "a-0"))
    m.rest()
    assert m.bound() == {"b-0": "n0"}
    m.finish()


@pytest.mark.parametrize("form", ["gang", "plain"])
@pytest.mark.parametrize("outcome", ["lost", "unsent"])
def test_what_became_of_a_binding_is_asked_by_who_leads_again(form: str, outcome: str) -> None:
    """I2, chaos seed 14062: its answer came after the Lease was lost."""
    m = Machine()
    do.nodes(m, 1)
    do.gang(m, "a", 1) if form == "gang" else do.pod(m, "a-0")
    for place in list(m.replicas[0].backlog):
        m.replicas[0].deliver(place)
    hears = deaf(m, "a-0")
    hold = Fault("hold", verb="Bind")
    m.faults.append(hold)
    m.flush()
    (key,) = m.replicas[0].chains
    if outcome == "lost":
        m.replicas[0].carry_out(key, "lost")
        m.replicas[0].replies.clear()
    m.lose()
    m.faults.clear()
    m.gain(m.replicas[0])
    plans = m.replicas[0].state.counters.get("plans")
    do.gang(m, "b", 1)
    m.flush()
    assert outcome == "unsent" or m.replicas[0].state.counters.get("plans") == plans
    m.rest(60)
    assert len(m.bound()) == 1
    hears()
    m.rest(60)
    (first,) = m.bound()
    m.api.remove((PODS, "default", first))
    m.rest()
    assert m.bound().keys() == {"a-0", "b-0"} - {first}
    m.finish()


def test_nobody_is_placed_beside_what_is_being_rolled_back() -> None:
    """I4, chaos seed 11672: it counted as bound until its watch showed it gone."""
    m = Machine()
    do.nodes(m, 3)
    fault = Fault("403", verb="Bind", name="g-2")
    m.faults.append(fault)
    do.gang(m, "g", 3, delete=True)
    m.flush()
    assert set(m.bound()) == {"g-0", "g-1"}
    hears = deaf(m, "g-0", "g-1")
    m.advance(m.rules.plan_deadline)
    m.flush()
    assert m.bound() == {}
    m.faults.clear()
    m.rest(120)
    assert m.bound() == {}
    assert do.reason(m, "g") == "PodsBeingStopped"
    hears()
    for name in ("g-0", "g-1"):
        do.pod(m, name, "g")
    m.rest()
    assert set(m.bound()) == {"g-0", "g-1", "g-2"}
    m.finish()


def test_what_could_not_be_deleted_is_deleted_when_it_leads_again() -> None:
    """The Lease was lost between the decision to roll back and its carrying out."""
    m = Machine()
    do.nodes(m, 3)
    m.faults += [Fault("403", verb="Bind", name="g-2"), Fault("hold", verb="Delete")]
    do.gang(m, "g", 3, delete=True)
    m.flush()
    m.advance(m.rules.plan_deadline)
    m.flush()
    m.lose()
    del m.faults[1]
    m.gain(m.replicas[0])
    m.rest(120)
    assert m.bound() == {}


def test_a_pod_whose_name_another_has_is_gone() -> None:
    """Its deletion answers 409, as its uid is a precondition: nobody is placed beside it (I4)."""
    m = Machine()
    do.nodes(m, 3)
    m.faults += [Fault("403", verb="Bind", name="g-1"), Fault("hold", verb="Delete")]
    do.gang(m, "g", 2, delete=True)
    m.flush()
    hears = deaf(m, "g-0")
    m.advance(m.rules.plan_deadline)
    m.flush()
    m.api.remove((PODS, "default", "g-0"))
    do.pod(m, "g-0", "g")
    m.faults.clear()
    m.rest(120)
    assert m.bound() == {}
    hears()
    m.rest()
    assert set(m.bound()) == {"g-0", "g-1"}
    m.finish()
