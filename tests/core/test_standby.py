"""A standby, whose watch may show it one pod sooner than another."""

from __future__ import annotations

from extender.core import events as e
from extender.core.api import PODS
from tests.core import machine_stories as do
from tests.core.machine import Machine
from tests.core.machine_api import Place


def test_a_place_that_seems_given_twice_is_none_that_muster_gave() -> None:
    """Seed 238747: the standby sees who took a place before it sees that the last one has ended."""
    m = Machine(replicas=2)
    standby = m.replicas[1]
    told, late = standby.saw, list[tuple[Place, e.Event]]()
    ended: Place = (PODS, "default", "a-0")
    lags = False

    def saw(place: Place, event: e.Event) -> None:
        if place == ended and lags:
            late.append((place, event))
        else:
            told(place, event)

    m.api.watchers[-1] = saw
    do.nodes(m, 1)
    do.gang(m, "a", 1, 1)
    m.flush()
    lags = True
    m.api.change(ended, status={"phase": "Failed"})
    do.gang(m, "b", 1, 1)
    m.flush()
    assert m.bound("b-0")
    assert [over.node for over in standby.state.cluster.over_committed()] == ["n0"]
    assert m.taken() == {"n0": (1, 1)}
    for place, event in late:
        told(place, event)
    m.flush()
    assert standby.state.cluster.over_committed() == []
    m.lose()
    m.gain(standby)
    m.rest()
    m.finish()
