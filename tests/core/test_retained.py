"""Gangs come and go for ever: what is known of one that has gone is nothing."""

from __future__ import annotations

import pytest

from extender.core.api import NODES, PODS, PYTORCH_JOBS, VOLCANO_GROUPS
from tests.core import machine_stories as do
from tests.core.machine import Machine
from tests.retained import grown, sizes

#: Lives before and after the first look. Rows, slots and free lists have their size by then.
WARM, MORE = 10, 40


def life(m: Machine, name: str) -> None:
    """A gang of bare pods, and a job; placed, and deleted by their owners."""
    do.gang(m, name, 3)
    do.job(m, f"{name}-job", 3)
    m.rest(10)
    assert len(m.bound(name)) == 6
    for index in range(3):
        m.api.change((PODS, "default", f"{name}-{index}"), status={"phase": "Succeeded"})
    m.api.delete((PYTORCH_JOBS, "default", f"{name}-job"))
    m.flush()
    _delete(m, name)


def unlucky(m: Machine, name: str) -> None:
    """One that waits, is refused, loses a node under it, and is deleted before it is bound."""
    do.gang(m, name, 9)
    m.rest(5)
    assert not m.bound(name)
    do.node(m, f"{name}-node", 3)
    m.scheduler.held_back.add(f"{name}-0")
    m.flush()
    m.api.delete((NODES, "", f"{name}-node"))
    m.rest(40)
    m.scheduler.held_back.clear()
    do.foreign(m, f"{name}-other", "n0")
    m.flush()
    m.api.delete((PODS, "default", f"{name}-other"))
    _delete(m, name)


def _delete(m: Machine, name: str) -> None:
    m.api.delete((VOLCANO_GROUPS, "default", name))
    for place in [p for p in m.api.objects if p[0] == PODS and p[2].startswith(name)]:
        m.api.delete(place)
    m.rest(90)
    assert not [place for place in m.api.objects if name in place[2]]


@pytest.mark.parametrize("story", [life, unlucky])
def test_nothing_is_kept_of_gangs_that_have_gone(story) -> None:
    m = Machine()
    do.nodes(m, 6)
    for number in range(WARM):
        story(m, f"w{number:03}")
    (replica,) = m.replicas
    before = sizes(replica.state)
    assert before["cluster.nodes.names"] >= 6
    for number in range(MORE):
        story(m, f"x{number:03}")
    m.finish()
    for taken in (replica.state.barriers, replica.state.holds):
        # The loop takes them after each step.
        taken.clear()
    assert grown(before, sizes(replica.state)) == {}


def test_what_is_kept_is_found() -> None:
    m = Machine()
    do.nodes(m, 6)
    (replica,) = m.replicas
    before = sizes(replica.state)
    life(m, "g")
    replica.state.faults["forgotten"] = None  # type: ignore[assignment]
    assert grown(before, sizes(replica.state))["faults"] == (0, 1)
