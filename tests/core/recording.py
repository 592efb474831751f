"""The gang machine with somebody who writes down what its replicas are told and answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from extender.core import commands as c
from extender.core import events as e
from tests.core.machine import Replica

#: Called after each turn with the replica, its events and its commands.
Tell = Callable[[Replica, Sequence[e.Event], Sequence[c.Command]], None]


def listen(monkeypatch: pytest.MonkeyPatch, tell: Tell) -> None:
    """Tell of every turn of every replica from now on."""
    turn = Replica.turn

    def told(replica: Replica, *events: e.Event) -> None:
        given: list[c.Command] = []
        with monkeypatch.context() as patch:
            step = replica.coordinator.step

            def noted(now: float) -> list[c.Command]:
                given.extend(commands := step(now))
                return commands

            patch.setattr(replica.coordinator, "step", noted)
            turn(replica, *events)
        tell(replica, events, given)

    monkeypatch.setattr(Replica, "turn", told)
