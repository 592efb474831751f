"""Services that no replica is told to dial wait for gangs that land, but not for ever."""

from __future__ import annotations

import pytest

from extender.core import jobwrites
from extender.core.api import SERVICES
from tests.core import machine_stories as do
from tests.core.machine import Machine


def services(m: Machine) -> list[str]:
    return sorted(name for resource, _, name in m.api.objects if resource == SERVICES)


def landed_beside_one_that_lands() -> Machine:
    m = Machine()
    do.nodes(m, 4, gpus=2)
    m.scheduler.held_back = {"b-master-0", "b-worker-0"}
    do.job(m, "a", 2)
    do.job(m, "b", 2)
    m.flush()
    m.rest(3.0)
    assert len(m.bound("a")) == 2
    assert not m.bound("b")
    return m


def test_those_that_are_dialled_are_made_at_once_and_the_others_when_no_gang_lands() -> None:
    m = landed_beside_one_that_lands()
    assert services(m) == ["a-master-0"]
    m.scheduler.held_back.clear()
    m.rest()
    assert len(m.bound("b")) == 2
    assert services(m) == ["a-master-0", "a-worker-0", "b-master-0", "b-worker-0"]
    m.finish()


@pytest.mark.parametrize(("seconds", "made"), [(4, False), (6, True)])
def test_they_do_not_wait_for_ever(
    seconds: int, made: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobwrites, "SPARE_SECONDS", 5.0)
    m = landed_beside_one_that_lands()
    for _ in range(seconds - 3):
        m.advance(1.0)
        m.flush()
    assert ("a-worker-0" in services(m)) == made
    assert not m.bound("b")
