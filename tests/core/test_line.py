"""kube-scheduler's line: who is late, and who only waits for his turn."""

from __future__ import annotations

import math

import pytest

from extender.core import events as e
from extender.core.line import Line
from tests.core import machine_stories as do
from tests.core.machine import RULES, Fault, Machine

PATIENCE = 3.0
LONGEST = 60.0
UNKNOWN = -math.inf


@pytest.mark.parametrize(
    ("came", "released_at", "now", "waits"),
    [
        pytest.param([], 0.0, 1.0, False, id="it has come for nobody"),
        pytest.param(
            [("a", 0, 0.0, 9.0)], 0.0, 10.0, True, id="it comes for those let through with it"
        ),
        pytest.param([("a", 0, 0.0, 6.0)], 0.0, 10.0, False, id="it has been quiet for too long"),
        pytest.param([("a", 0, 5.0, 9.0)], 0.0, 10.0, False, id="it came for one behind"),
        pytest.param(
            [("a", 0, 3.0, 9.0)], 0.0, 10.0, True, id="one behind may have overtaken a back-off"
        ),
        pytest.param([("a", 7, 5.0, 9.0)], 0.0, 10.0, True, id="a higher priority is served first"),
        pytest.param([("a", -7, 5.0, 9.0)], 0.0, 10.0, False, id="a lower priority is not"),
        pytest.param(
            [("a", 0, UNKNOWN, 9.0)], 0.0, 10.0, True, id="one that was held may have stood before"
        ),
        pytest.param(
            [("b", 0, 5.0, 9.0)], 0.0, 10.0, True, id="another scheduler's line is shorter"
        ),
        pytest.param(
            [("a", 0, 5.0, 8.0), ("a", 0, 1.0, 9.0)],
            0.0,
            10.0,
            False,
            id="what was reached stays reached",
        ),
        pytest.param(
            [("a", 7, float(at), float(at)) for at in range(60)],
            0.0,
            60.0,
            False,
            id="nobody stands in line for ever, whoever is served first",
        ),
    ],
)
def test_who_still_stands_in_line(came, released_at, now, waits):
    line = Line()
    for each in came:
        line.came(*each)
    assert line.holds("a", 0, released_at, now, patience=PATIENCE, longest=LONGEST) is waits


def held_back_worker() -> Machine:
    """A job of two: one is at /bind, to the other kube-scheduler does not come."""
    m = Machine()
    do.nodes(m, 9, gpus=8)
    m.scheduler.held_back.add("j-worker-0")
    do.job(m, "j", 2)
    m.flush()
    assert len(m.scheduler.open) == 1
    return m


def test_it_is_at_work_on_others() -> None:
    """Thousands of pods that wait, of Muster's gangs or of nobody's, are asked about first."""
    m = held_back_worker()
    assert m.leader is not None
    for _ in range(20):
        m.advance(0.5)
        m.leader.turn(e.FilterAsked("", full=False, planned_offered=True))
        m.flush()
    assert m.leader.state.counters.get("rollbacks", 0) == 0
    m.scheduler.held_back.clear()
    m.rest()
    m.finish()
    assert len(m.bound("j")) == 2


def test_a_member_that_is_never_reached_ends_the_attempt_while_others_are_served() -> None:
    """I3: what is reserved for it is not held beyond the deadline of /bind."""
    m = held_back_worker()
    for count in range(2 * int(RULES.bind_timeout)):
        m.advance(1.0)
        if not count % 2:
            do.job(m, f"high-{count}", 1)
        m.flush()
        # Jobs of a higher priority, as far as kube-scheduler's order goes.
        assert m.leader is not None
        m.leader.state.line.reached = {
            (whose, 7): at for (whose, _), at in m.leader.state.line.reached.items()
        }
        if m.leader.state.counters.get("rollbacks", 0):
            break
    assert RULES.bind_timeout - 3 <= count <= RULES.bind_timeout + 3


def test_a_member_whose_creation_is_still_waiting_is_not_missed() -> None:
    m = Machine()
    do.nodes(m, 3)
    m.faults.append(Fault("hold", verb="Create", kind="Pod", name="j-worker-1"))
    do.job(m, "j", 3)
    m.flush()
    assert len(m.scheduler.open) == 2
    for _ in range(12):
        m.advance(0.5)
        m.flush()
    assert m.leader is not None
    assert m.leader.state.counters.get("rollbacks", 0) == 0
    assert len(m.scheduler.open) == 2
    m.faults.clear()
    m.rest()
    m.finish()
    assert len(m.bound("j")) == 3
