"""Nodes on which gangs have failed: what jobs tell of it, whoever wrote that, and for how long it counts."""

from __future__ import annotations

import pytest

from extender.core.errors import InvalidObject
from extender.core.framework import Failure
from extender.core.health import FORGET_SECONDS, Avoid, Health, Loss, Notices
from extender.jobs.restarts import KEPT, RECORD, Restarts
from tests.retained import sizes

NOW = 1_790_000_000.0


def told(at: float, jobs: int = 3) -> Health:
    health = Health(Avoid(), Notices(), Loss())
    for job in range(jobs):
        health.note(Failure("n1", at), f"job-{job}")
    health.judge(NOW)
    return health


def test_a_node_on_which_several_gangs_failed_is_avoided_by_all_for_a_while() -> None:
    assert told(NOW - 1, jobs=2).avoided((), NOW) == []
    health = told(NOW - 1)
    assert health.avoided((), NOW) == ["n1"]
    assert health.next_end() == NOW + 1799
    assert health.judge(NOW + 1799) == []
    assert health.avoided((), NOW + 1799) == []


def test_what_is_still_to_come_says_nothing() -> None:
    far = [Failure("n1", 250_000_000_000.0)]
    assert told(NOW, jobs=1).avoided(far, NOW) == []


def test_one_job_is_one_gang_however_often_it_fails() -> None:
    health = Health(Avoid(), Notices(), Loss())
    for at in range(9):
        health.note(Failure("n1", NOW + at), "job-1")
    health.judge(NOW + 9)
    assert health.avoided((), NOW + 9) == []


def test_a_deletion_that_is_told_twice_counts_from_the_first() -> None:
    health = Health(Avoid(), Notices(), Loss(deleted=40.0))
    health.deleted("n1", NOW)
    health.deleted("n1", NOW + 30)
    assert not health.dead("n1")
    assert health.next_loss(NOW) == NOW + 40
    assert health.believe(NOW + 40) == ["n1"]
    assert health.dead("n1")
    assert health.believe(NOW + 50) == []


def test_what_is_too_old_is_kept_no_longer() -> None:
    health = told(NOW)
    for later in (NOW, NOW + 1800, NOW + 3600 + FORGET_SECONDS):
        health.judge(later)
    assert not sizes(health)


def test_a_job_tells_of_no_more_failures_than_are_kept() -> None:
    failures = ",".join(f'{{"node":"n{i}","at":1}}' for i in range(KEPT + 1))
    with pytest.raises(InvalidObject):
        Restarts.read({RECORD: f'{{"failures":[{failures}]}}'})
