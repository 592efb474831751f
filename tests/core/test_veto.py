"""Whose eviction /preempt allows."""

from __future__ import annotations

from msgspec import convert

from extender.core.api import PODS
from extender.core.events import PreemptAllowed
from extender.core.objects import Pod
from extender.core.routing import GIVEN_AWAY_SECONDS
from tests.core import machine_stories as do
from tests.core.machine import Machine


def test_a_minimum_of_a_task_is_kept_as_minmember_is() -> None:
    m = Machine()
    do.nodes(m, 3)
    do.group(m, "g", 1, minTaskMember={"ps": 1})
    for name, task in (("g-0", "ps"), ("g-1", "worker"), ("g-2", "worker")):
        do.pod(m, name, "g", task=task)
    m.rest(20)
    assert len(m.bound()) == 3
    urgent = convert(do.pod(m, "urgent", priority=100), Pod)
    assert m.leader is not None
    uids = {raw["metadata"]["name"]: raw["metadata"]["uid"] for raw in m.api.pods()}
    victims = {name: [uids[name]] for name in ("g-0", "g-1", "g-2")}
    assert set(m.leader.view.preempt(urgent, victims)) == {"g-1", "g-2"}


def test_two_preemptors_in_a_row_do_not_take_a_member_each() -> None:
    """The second asks before the watch shows the eviction, and while the evicted pod still ends."""
    m = Machine()
    do.nodes(m, 3)
    do.gang(m, "g", 3, least=2)
    m.rest(20)
    urgent = convert(do.pod(m, "urgent", priority=100), Pod)
    assert m.leader is not None
    uids = {raw["metadata"]["name"]: raw["metadata"]["uid"] for raw in m.api.pods()}
    first, second = {"n0": [uids["g-0"]]}, {"n1": [uids["g-1"]]}
    assert m.leader.view.preempt(urgent, second) == second
    m.leader.turn(PreemptAllowed((uids["g-0"],)))
    assert m.leader.view.preempt(urgent, second) == {}
    assert m.leader.view.preempt(urgent, first) == first
    m.rest(GIVEN_AWAY_SECONDS + 0.1)
    assert m.leader.view.preempt(urgent, second) == second

    m.api.delete((PODS, "default", "g-0"))
    m.leader.deliver((PODS, "default", "g-0"))
    assert m.leader.view.preempt(urgent, second) == {}
