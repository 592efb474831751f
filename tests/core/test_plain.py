"""Pods of no group beside places that are held for a gang."""

from __future__ import annotations

from msgspec import convert

from extender.core.api import PODS
from extender.core.objects import Pod
from tests.builders import GPU
from tests.core import machine_stories as do
from tests.core.machine import RULES, Machine


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


def test_a_pod_is_not_bound_onto_a_node_that_is_full_by_what_was_shown() -> None:
    """A kube-scheduler that has just started may not know of a pod that Muster has bound."""
    m = Machine()
    do.nodes(m, 1)
    do.gang(m, "g", 1)
    m.rest(10)
    m.scheduler.held_back.add("plain")
    raw = do.pod(m, "plain")
    m.flush()
    assert m.leader is not None
    uid = raw["metadata"]["uid"]
    m.scheduler.ask_to_bind(m.leader, (PODS, "default", "plain"), uid, "n0")
    m.flush()
    assert m.scheduler.open  # the place may have become free, and the watch be behind
    m.rest(10)
    assert not m.scheduler.open
    assert m.bound() == {"g-0": "n0"}


def test_a_pod_waits_for_the_watch_to_show_that_its_place_is_free() -> None:
    m = Machine()
    do.nodes(m, 1)
    do.gang(m, "g", 1)
    m.rest(10)
    m.scheduler.held_back.add("plain")
    raw = do.pod(m, "plain")
    m.flush()
    assert m.leader is not None
    uid = raw["metadata"]["uid"]
    m.scheduler.ask_to_bind(m.leader, (PODS, "default", "plain"), uid, "n0")
    m.flush()
    m.api.remove((PODS, "default", "g-0"))
    m.flush()
    assert m.bound() == {"plain": "n0"}


def test_one_that_the_watch_does_not_show_is_answered_after_a_while() -> None:
    """It is gone, or somebody calls /bind by hand: not held for as long as a gang's barrier may be."""
    m = Machine()
    do.nodes(m, 1)
    m.flush()
    assert m.leader is not None
    m.scheduler.ask_to_bind(m.leader, (PODS, "default", "ghost"), "no-such-uid", "n0")
    asked_at = m.now
    m.rest(RULES.patience - 1)
    assert m.scheduler.open
    m.rest(RULES.patience)
    assert not m.scheduler.open
    assert m.now == asked_at + RULES.patience
    assert m.leader.state.counters["unseen_binds_refused"] == 1
