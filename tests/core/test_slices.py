"""What a step has no room for is done by the next ones: what happens between two of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.core import commands as c
from extender.core import coordinator, jobwrites
from extender.core.api import NODES, PODS, VOLCANO_GROUPS
from tests.core import machine_stories as do
from tests.core.machine import Machine, Replica


@pytest.fixture(autouse=True, scope="module")
def one_at_a_time():
    """A step lets one member through, sends one Binding, asks for one Service."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coordinator, "RELEASES_A_STEP", 1)
        patch.setattr(coordinator, "BINDS_A_STEP", 1)
        patch.setattr(jobwrites, "SERVICES_A_STEP", 1)
        yield


def half_sent(members: int = 3) -> tuple[Machine, Replica]:
    """All members of a gang are at /bind, and the first Binding is sent."""
    m = Machine()
    do.nodes(m, members + 1)
    m.scheduler.held_back = {f"g-{i}" for i in range(members)}
    do.gang(m, "g", members)
    m.flush()
    m.scheduler.held_back.clear()
    for place in m.scheduler.ready():
        m.scheduler.cycle(place)
    replica = m.leader
    assert replica is not None
    replica.turn(*replica.inbox)
    replica.inbox.clear()
    assert bindings(replica) == ["g-0"]
    return m, replica


def bindings(replica: Replica) -> list[str]:
    return sorted(each.name for each in replica.pending() if isinstance(each, c.Bind))


def leave(m: Machine, name: str) -> None:
    """kube-scheduler hangs up."""
    m.scheduler.abandon(next(t for t, b in m.scheduler.open.items() if b.place[2] == name))


def lose_node(m: Machine, name: str) -> None:
    m.api.delete((NODES, "", do.of(m, "g").members[name].node))


HAPPENS: dict[str, Callable[[Machine], None]] = {
    "a caller hangs up": lambda m: leave(m, "g-2"),
    "a planned node goes": lambda m: lose_node(m, "g-2"),
    "a pod is deleted": lambda m: m.api.delete((PODS, "default", "g-2")),
    "the group is deleted": lambda m: m.api.delete((VOLCANO_GROUPS, "default", "g")),
}


@pytest.mark.parametrize("happens", HAPPENS)
def test_between_two_slices_of_a_commit(happens: str) -> None:
    """What was not sent is not sent any more: I1 is judged by what is known when it is sent."""
    m, replica = half_sent()
    HAPPENS[happens](m)
    events = [*replica.inbox, *(each for waiting in replica.backlog.values() for each in waiting)]
    replica.inbox.clear()
    replica.backlog.clear()
    replica.turn(*events)
    m.advance(0.0)
    m.advance(0.0)
    assert bindings(replica) == ["g-0"]


def test_a_commit_that_nothing_disturbs_is_sent_to_the_end() -> None:
    m, replica = half_sent()
    m.advance(0.0)
    assert bindings(replica) == ["g-0", "g-1"]
    m.advance(0.0)
    assert bindings(replica) == ["g-0", "g-1", "g-2"]
    m.rest()
    m.finish()
    assert len(m.bound("g")) == 3


def test_a_caller_that_has_left_comes_back_and_the_rest_is_sent() -> None:
    m, _ = half_sent()
    leave(m, "g-2")
    m.rest()
    m.finish()
    assert len(m.bound("g")) == 3


def test_what_was_not_sent_when_leadership_ended_is_the_next_leaders_to_send() -> None:
    m, replica = half_sent()
    replica.carry_out(next(key for key, chain in replica.chains.items()))
    m.lose()
    assert m.scheduler.open == {}
    m.flush()
    m.gain(replica)
    m.rest()
    m.finish()
    assert len(m.bound("g")) == 3


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), steps=st.integers(50, 500))
def test_any_story(seed: int, steps: int) -> None:
    """Random stories, in which anything goes wrong between two slices."""
    do.Chaos(seed).run(steps)
