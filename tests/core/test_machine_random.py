"""Random stories of the gang machine: invariants after every step, liveness at the end, replay."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from extender.core.coordinator import Coordinator
from extender.jobs import KINDS
from tests.core.machine import SESSION, Machine, Replica, encoded
from tests.core.machine_stories import Chaos

ROOT = Path(__file__).parents[2]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), steps=st.integers(50, 300))
def test_calm_story(seed: int, steps: int) -> None:
    """Commands go well, but watch, answers and cycles come in any order."""
    Chaos(seed, faulty=False).run(steps)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), steps=st.integers(50, 800))
@example(seed=238747, steps=214)
def test_faulty_story(seed: int, steps: int) -> None:
    """Anything goes wrong: commands, nodes, pods, groups, calls, leaders."""
    Chaos(seed).run(steps)


def test_stories_reach_what_they_are_for() -> None:
    """The random stories would prove nothing if they never got to a commit, a fault, a takeover."""
    counters: dict[str, int] = {}
    bound = 0
    for seed in range(40):
        machine = Chaos(seed).run(400)
        bound += len(machine.binding_order)
        for replica in machine.replicas:
            for name, count in replica.state.counters.items():
                counters[name] = counters.get(name, 0) + count
    assert bound > 100
    retried, failed = (counters.get(f"bind_{each}", 0) for each in ("retries", "failures"))
    assert min(retried, failed) > 0, counters
    counters["binds_that_failed"] = retried + failed
    wanted = {
        "plans",
        "rollbacks",
        "binds_that_failed",
        "adopted_plans",
        "evidence",
        "replanned_members",
    }
    assert {name for name in wanted if counters.get(name, 0) < 5} == set(), counters


def again(replica: Replica, machine: Machine) -> str:
    """Digest of the commands that a fresh core gives for the same log."""
    copy = Coordinator(machine.rules, SESSION, {kind.resource: kind for kind in KINDS})
    digest = hashlib.sha256()
    for now, events in replica.log:
        for event in events:
            copy.apply(event, now)
        digest.update(encoded(now, events, copy.step(now)))
    return digest.hexdigest()


@pytest.mark.parametrize("seed", [11, 12, 13])
def test_equal_logs_give_equal_commands(seed: int) -> None:
    machine = Chaos(seed).run(600)
    for replica in machine.replicas:
        assert len(replica.log) > 50
        assert again(replica, machine) == replica.digest.hexdigest()


def test_commands_do_not_depend_on_the_hash_seed() -> None:
    """The whole story is told again by a process that orders its sets otherwise."""
    assert story_elsewhere(hash_seed="1") == digests(11)


def digests(seed: int) -> str:
    return " ".join(replica.digest.hexdigest() for replica in Chaos(seed).run(600).replicas)


def story_elsewhere(hash_seed: str) -> str:
    code = "from tests.core.test_machine_random import digests; print(digests(11))"
    env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
