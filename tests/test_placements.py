"""What the log says of gangs: placed, or rolled back and why; each once."""

from __future__ import annotations

from typing import Any

import pytest
import structlog

from extender.core import commands as c
from extender.obs.metrics import Metrics
from extender.obs.placements import Placements
from tests.core import machine_stories as do
from tests.core.machine import Machine

Line = dict[str, Any]


@pytest.fixture
def machine(monkeypatch) -> Machine:
    """A machine whose first replica's commands and state a Placements follows."""
    m, placements = Machine(), Placements(Metrics())
    (replica,) = m.replicas
    take, turn = replica._take, replica.turn

    def taken(command: c.Command) -> None:
        placements.sent(command, m.now)
        take(command)

    def turned(*events: Any) -> None:
        turn(*events)
        placements.look(replica.state, m.now)

    monkeypatch.setattr(replica, "_take", taken)
    monkeypatch.setattr(replica, "turn", turned)
    return m


def test_a_gang_that_lands_is_one_line(machine: Machine) -> None:
    with structlog.testing.capture_logs() as lines:
        do.gang(machine, "g", 3)
        do.nodes(machine, 2, gpus=2)
        machine.flush()
    assert len(machine.bound("g")) == 3
    (line,) = lines
    assert (line["event"], line["gang"], line["members"]) == ("placed", "default/g", 3)
    assert line["nodes"] == len(set(machine.bound("g").values()))
    assert line["seconds"] >= 0


def test_an_attempt_that_is_given_up_says_why(machine: Machine) -> None:
    with structlog.testing.capture_logs() as lines:
        do.nodes(machine, 2)
        machine.scheduler.held_back.add("g-1")
        do.gang(machine, "g", 2)
        machine.flush()
        machine.rest()
        told = [(line["event"], line["gang"]) for line in lines]
        assert told[0] == ("rolled back", "default/g")
        assert "did not reach the barrier" in lines[0]["why"]
        machine.scheduler.held_back.clear()
        machine.rest()
    assert len(machine.bound("g")) == 2
    assert [line["event"] for line in lines].count("placed") == 1
    assert lines[-1]["event"] == "placed"


def test_a_gang_that_waits_is_no_line(machine: Machine) -> None:
    with structlog.testing.capture_logs() as lines:
        do.nodes(machine, 1)
        do.gang(machine, "g", 2)
        machine.flush()
        machine.rest()
    assert lines == []
