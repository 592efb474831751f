"""A gang that is started again goes before those that came after it, although its pods end one by one."""

from __future__ import annotations

import msgspec
import pytest

from extender.core.api import NODES, PODS, PYTORCH_JOBS, VOLCANO_GROUPS
from extender.core.identity import GroupKey
from tests.core import machine_stories as do
from tests.core.machine import RULES, Machine
from tests.core.test_gang_restarts import fail, leader, record

RULES = msgspec.structs.replace(RULES, plan_deadline=120.0)
PEERS = ("j-master-0", "j-worker-0", "j-worker-1", "j-worker-2")


def stopping(later: int = 2, **policy: object) -> Machine:
    """A job of four that is being stopped for one that failed, whose pods take their time; a gang that
    came later waits for room.
    """
    m = Machine(RULES)
    do.nodes(m, 4)
    do.job(m, "j", 4, runPolicy={"schedulingPolicy": policy})
    m.rest(20)
    assert len(m.bound()) == 4
    m.advance(1)
    do.gang(m, "later", later)
    m.rest(5)
    m.lingering = True
    fail(m, "j-worker-1")
    m.rest(5)
    assert record(m)["number"] == 1
    return m


def end(m: Machine, *names: str) -> None:
    for name in names:
        m.api.remove((PODS, "default", name))
        m.rest(1)


def said(m: Machine) -> str:
    gang = leader(m).state.gangs[GroupKey(VOLCANO_GROUPS, "default", "later")]
    return "" if gang.refusal is None else gang.refusal.render()


@pytest.mark.parametrize("least", [2, 4])
def test_its_places_are_not_given_to_those_behind_it(least: int) -> None:
    m = stopping(minAvailable=least)
    end(m, *(name for name in PEERS if name in m.bound()))
    m.lingering = False
    m.rest(20)
    m.finish()
    assert sorted(m.bound()) == sorted(PEERS)
    assert leader(m).state.gangs[GroupKey(VOLCANO_GROUPS, "default", "j")].kept == {}


def test_they_are_told_why_they_wait() -> None:
    m = stopping()
    end(m, "j-master-0", "j-worker-0")
    assert said(m) == "fits, but j goes first"
    end(m, "j-worker-2")
    m.rest(20)
    assert "goes first" not in said(m)


def test_where_it_does_not_fit_any_more_they_are_placed() -> None:
    m = stopping()
    m.api.remove((NODES, "", m.bound()["j-worker-0"]))
    end(m, *(name for name in PEERS if name in m.bound()))
    m.rest(2)
    assert sorted(m.bound()) == ["later-0", "later-1"]
    m.finish()


def test_nobody_waits_longer_than_a_plan_may() -> None:
    m = stopping()
    end(m, "j-master-0", "j-worker-0")
    m.advance(110)
    m.flush()
    assert "later-0" not in m.bound()
    m.advance(10)
    m.rest(5)
    assert {"later-0", "later-1"} <= m.bound().keys()


@pytest.mark.parametrize("how", ["deleted", "suspended"])
def test_a_job_that_is_not_to_begin_anew_keeps_nothing(how: str) -> None:
    m = stopping()
    end(m, "j-master-0", "j-worker-0")
    place = (PYTORCH_JOBS, "default", "j")
    if how == "deleted":
        m.api.delete(place)
    else:
        m.api.change(place, spec={"runPolicy": {"suspend": True}})
    m.rest(5)
    assert {"later-0", "later-1"} <= m.bound().keys()


def test_of_two_that_move_the_second_has_as_many_places_as_the_first_takes_of_its() -> None:
    m = Machine(RULES)
    do.nodes(m, 4)
    for name in ("a", "b"):
        do.job(m, name, 2)
        m.rest(20)
    m.lingering = True
    for name in ("a", "b"):
        fail(m, f"{name}-worker-0")
    m.rest(5)
    do.gang(m, "later", 1)
    m.rest(2)
    end(m, "a-master-0")
    assert m.bound()["a-worker-0"] == "n3"  # where b was
    assert said(m) == "fits, but b goes first"
    end(m, "b-master-0")
    m.lingering = False
    m.rest(20)
    assert sorted(m.bound()) == ["a-master-0", "a-worker-0", "b-master-0", "b-worker-0"]
    m.finish()


def test_those_before_it_do_not_wait() -> None:
    m = stopping()
    do.group(m, "first", 2)
    for name in ("first-0", "first-1"):
        do.pod(m, name, "first", priority=5)
    end(m, "j-master-0", "j-worker-0")
    m.rest(5)
    assert {"first-0", "first-1"} <= m.bound().keys()


def test_the_place_of_the_member_that_failed_is_kept_too() -> None:
    """It is used again where there is no other."""
    m = stopping(later=1)
    assert "later-0" not in m.bound()
    end(m, *(name for name in PEERS if name in m.bound()))
    m.lingering = False
    m.rest(20)
    m.finish()
    assert sorted(m.bound()) == sorted(PEERS)


def test_what_is_free_beside_a_pod_that_is_being_stopped_is_no_place_of_its_own() -> None:
    m = Machine(RULES)
    do.node(m, "n0", 3)
    do.job(m, "j", 2)
    m.rest(20)
    m.lingering = True
    fail(m, "j-worker-0")
    m.rest(5)
    assert record(m)["number"] == 1
    do.gang(m, "later", 1)
    do.gang(m, "lower", 1)
    m.rest(5)
    assert sorted(m.bound()) == ["j-master-0", "later-0"]


def test_a_job_that_is_deleted_after_its_group_keeps_nothing() -> None:
    """Its gang is known by its pods alone meanwhile, and those behind it were refused for it."""
    m = stopping()
    end(m, "j-master-0", "j-worker-0")
    m.api.delete((VOLCANO_GROUPS, "default", "j"))
    m.rest(1)
    m.api.delete((PYTORCH_JOBS, "default", "j"))
    m.rest(5)
    assert {"later-0", "later-1"} <= m.bound().keys()
