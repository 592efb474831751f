"""What Muster keeps does not grow with the gangs that have lived (the long run: tests.bench lives)."""

from __future__ import annotations

import pytest

from extender.core.state import State
from extender.loop import CROWDED
from tests.bench import lives, load

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setattr(load, "say", lambda _: None)


def test_nothing_grows_with_the_lives_of_gangs():
    report = lives.simulate(90, 30, seed=1)
    assert report["faults"] == []
    assert report["grown"] == {}
    # They lived: all ends were there, and nobody was left out.
    assert sum(report["ends"].values()) == 90
    assert report["ends"].keys() >= {"Succeeded", "job Succeeded", "job Failed", "never fitted"}
    for sample in report["samples"]:
        longest = sample["longest"]
        assert longest.keys() == {"inbox", "commands", "open /bind", "notices"}
        assert 0 < longest["inbox"] < CROWDED


def test_what_grows_is_found(monkeypatch):
    monkeypatch.setattr(State, "forget_notices", lambda self, place: None)
    grown = lives.simulate(24, 12, seed=1)["grown"]
    assert "loop.coordinator.state._noticed" in grown
