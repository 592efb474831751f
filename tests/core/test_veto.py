"""Whose eviction /preempt allows."""

from __future__ import annotations

from msgspec import convert

from extender.core.objects import Pod
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
