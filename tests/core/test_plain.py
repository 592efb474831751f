"""Pods of no group beside places that are held for a gang."""

from __future__ import annotations

from msgspec import convert

from extender.core.api import PODS
from extender.core.objects import Pod
from tests.builders import GPU
from tests.core import machine_stories as do
from tests.core.machine import Machine


def test_a_pod_refused_for_a_held_place_is_woken_when_that_is_given_back() -> None:
    m = Machine()
    do.nodes(m, 1)
    m.scheduler.held_back.add("g-0")
    do.gang(m, "g", 1)
    m.flush()
    do.pod(m, "plain")
    m.flush()
    assert m.leader is not None
    assert m.leader.state.refused
    assert not m.bound()
    m.rest(10)
    assert m.bound() == {"plain": "n0"}
    assert not m.leader.state.refused


def test_a_pod_that_went_away_is_not_remembered() -> None:
    m = Machine()
    do.nodes(m, 1)
    m.scheduler.held_back.add("g-0")
    do.gang(m, "g", 1)
    m.flush()
    do.pod(m, "plain")
    m.flush()
    assert m.leader is not None
    assert len(m.leader.state.refused) == 1
    m.api.delete((PODS, "default", "plain"))
    m.flush()
    assert not m.leader.state.refused
    assert not m.leader.state.plain


def test_a_resource_that_nobody_has_named_before_is_no_fault() -> None:
    m = Machine()
    do.nodes(m, 1)
    m.scheduler.held_back.add("g-0")
    do.gang(m, "g", 1)
    m.flush()
    raw = do.pod(m, "plain")
    raw["spec"]["containers"][0]["resources"]["requests"] = {"example.com/new": "1", GPU: "1"}
    assert m.leader is not None
    assert m.leader.view.filter(convert(raw, Pod), ["n0"]).passed == []
