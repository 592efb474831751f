"""Replicas whose pods are lost after their job: nobody makes them again, and they hold nothing."""

from __future__ import annotations

import pytest

from extender.core.api import PODS, PYTORCH_JOBS, VOLCANO_GROUPS
from tests.core import machine_stories as do
from tests.core.machine import Fault, Machine


def test_a_pod_that_is_lost_after_its_job_is_not_waited_for() -> None:
    """Its group's name has been taken by a group of other pods meanwhile (chaos seed 175)."""
    m = Machine()
    do.nodes(m, 2)
    m.scheduler.name = "nobody"
    do.job(m, "g", 2)
    m.flush()
    (replica,) = m.replicas
    pods = [place for place in m.api.objects if place[0] == PODS]
    assert len(pods) == 2
    m.api.remove((PYTORCH_JOBS, "default", "g"))
    m.api.remove((VOLCANO_GROUPS, "default", "g"))
    do.gang(m, "g", 2)
    for place in list(replica.backlog):
        if place not in pods:
            replica.deliver(place, 100)
    m.advance(0.1)
    while replica.chains:
        for key in list(replica.chains):
            replica.carry_out(key)
        replies = [*replica.replies]
        replica.replies.clear()
        replica.turn(*replies)
    assert set(do.of(m, "g").members) == {"g-0", "g-1", *(name for _, _, name in pods)}
    for place in pods:
        m.api.remove(place)
    m.flush()
    assert set(do.of(m, "g").members) == {"g-0", "g-1"}
    m.scheduler.name = "muster"
    m.rest()
    assert set(do.of(m, "g").members) == set(m.bound()) == {"g-0", "g-1"}
    m.finish()


def test_a_replica_whose_creation_is_refused_after_its_job_went_is_forgotten() -> None:
    m = Machine()
    do.nodes(m, 2)
    m.faults.append(Fault("hold", verb="Create", kind="Pod"))
    do.job(m, "g", 2)
    m.flush()
    m.faults.clear()
    m.faults.append(Fault("unsent", verb="Create", kind="Pod"))
    m.api.remove((PYTORCH_JOBS, "default", "g"))
    m.api.remove((VOLCANO_GROUPS, "default", "g"))
    (replica,) = m.replicas
    for place in list(replica.backlog):
        replica.deliver(place, 100)
    m.flush()
    m.faults.clear()
    do.gang(m, "g", 2)
    m.rest()
    assert set(do.of(m, "g").members) == set(m.bound()) == {"g-0", "g-1"}
    m.finish()


def test_a_job_takes_a_name_once_an_earlier_job_s_pod_has_left_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pod takes its time to go, and everything else is settled by then (chaos seed 951)."""
    m = Machine()
    do.nodes(m, 1)
    do.job(m, "g", 1)
    m.flush()
    assert m.bound("g-worker-0")
    with monkeypatch.context() as patch:
        patch.setattr(m, "_terminating", lambda: False)
        m.api.remove((PYTORCH_JOBS, "default", "g"))
        do.job(m, "g", 1)
        m.rest(30.0)
    assert m.binding_order == ["g-worker-0"]
    m.rest()
    assert m.binding_order == ["g-worker-0", "g-worker-0"]
    assert m.bound("g-worker-0")
    m.finish()
