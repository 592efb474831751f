"""Stories of the gang machine as logs: written, redacted, read, and told to a fresh core."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from extender.core import codec
from extender.core import commands as c
from extender.core import events as e
from extender.core.coordinator import Coordinator
from extender.core.redact import Redactor
from extender.core.replaying import Difference, Replay, Turn, at_rest
from extender.core.told import Told
from extender.jobs import KINDS
from tests.core import machine_stories as do
from tests.core.machine import RULES, SESSION, Machine, Replica
from tests.core.machine_stories import Chaos
from tests.core.recording import listen

REDACTOR = Redactor(b"the key of these tests")
#: Logs by replica of the machine that a test has.
Logs = dict[Replica, list["Written"]]


class Written(NamedTuple):
    """A turn as a log holds it."""

    now: float
    events: list[bytes]
    commands: list[bytes]
    rest: bool

    def read(self) -> Turn:
        return Turn(
            self.now,
            tuple(map(codec.decode_event, self.events)),
            tuple(map(codec.decode_command, self.commands)),
            rest=self.rest,
        )


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Logs:
    """What every replica of every machine is told and answers."""
    found: Logs = {}

    def write(replica: Replica, events: Sequence[e.Event], commands: Sequence[c.Command]) -> None:
        lines = [codec.encode(REDACTOR.event(event)) for event in events]
        given = [codec.encode(REDACTOR.command(command)) for command in commands]
        written = Written(replica.machine.now, lines, given, at_rest(replica.state))
        found.setdefault(replica, []).append(written)

    listen(monkeypatch, write)
    return found


def fresh() -> Coordinator:
    return Coordinator(RULES, SESSION, {kind.resource: kind for kind in KINDS})


def replay(log: list[Written], coordinator: Coordinator | None = None) -> Replay:
    told = Replay(coordinator or fresh())
    for each in log:
        told.turn(each.read())
    return told


def replay_from(log: list[Written], cut: int) -> Replay:
    """As a file that begins with the objects of the first ``cut`` turns."""
    told = Told()
    for each in log[:cut]:
        for line in each.events:
            told.tell(codec.decode_event(line), line)
    beginning = map(codec.decode_event, told.again())
    again = Replay(fresh(), beginning, rest=log[cut - 1].rest)
    for each in log[cut:]:
        again.turn(each.read())
    return again


@pytest.mark.parametrize("seed", range(8))
def test_a_story_of_faults_replays_identically(logs: Logs, seed: int) -> None:
    Chaos(seed).run(300)
    for log in logs.values():
        told = replay(log)
        assert told.difference is None
        assert told.commands == told.judged == sum(len(each.commands) for each in log)
        assert told.events == sum(len(each.events) for each in log)


class Hasty(Coordinator):
    """A core of another opinion: it gives no Binding."""

    def step(self, now: float) -> list[c.Command]:
        return [each for each in super().step(now) if not isinstance(each, c.Bind)]


def test_another_core_differs_where_it_differs(logs: Logs) -> None:
    m = Machine()
    do.nodes(m, 2)
    do.gang(m, "g", 2)
    m.rest()
    (log,) = logs.values()
    told = replay(log, Hasty(RULES, SESSION, {kind.resource: kind for kind in KINDS}))
    assert isinstance(told.difference, Difference)
    first = next(n for n, x in enumerate(log) if any(b'"Bind"' in y for y in x.commands))
    assert told.difference.event == sum(len(each.events) for each in log[: first + 1])
    assert isinstance(told.difference.expected, c.Bind)
    assert not isinstance(told.difference.got, c.Bind)
    assert told.events == sum(len(each.events) for each in log)


def test_a_command_too_many_is_a_difference_too(logs: Logs) -> None:
    m = Machine()
    do.nodes(m, 1)
    do.gang(m, "g", 1)
    m.rest()
    (log,) = logs.values()
    short = [each._replace(commands=each.commands[:-1]) for each in log]
    told = replay(short)
    assert told.difference is not None
    assert told.difference.expected is None
    assert told.difference.got is not None


def lives(m: Machine) -> int:
    """Two gangs and a job, one after the other, with rest between. Returns the turns until then."""
    do.nodes(m, 4, gpus=2)
    do.gang(m, "old", 2)
    do.job(m, "job", 2)
    m.rest()
    return len(m.replicas[0].log)


def test_a_log_that_begins_with_objects_is_judged_from_when_all_was_at_rest(logs: Logs) -> None:
    m = Machine()
    cut = lives(m)
    do.gang(m, "new", 3)
    do.gang(m, "waits", 9)
    m.rest(30)
    (log,) = logs.values()
    told = replay_from(log, cut)
    assert told.difference is None
    binds = [x for each in log[cut:] for x in each.commands if b'"Bind"' in x]
    assert len(binds) == 3
    assert told.judged >= len(binds)


def test_where_it_begins_under_way_nothing_is_judged_before_rest(logs: Logs) -> None:
    m = Machine()
    do.nodes(m, 2)
    do.gang(m, "g", 2)
    do.gang(m, "waits", 5)
    m.rest(30)
    (log,) = logs.values()
    under_way = next(n for n, x in enumerate(log) if any(b'"Bind"' in y for y in x.commands))
    told = replay_from(log, under_way)
    assert not told.judges
    assert (told.judged, told.difference) == (0, None)


def test_a_log_that_begins_with_objects_shows_another_core_too(logs: Logs) -> None:
    m = Machine()
    cut = lives(m)
    do.gang(m, "new", 3)
    m.rest(30)
    (log,) = logs.values()
    late = [
        each._replace(commands=[line.replace(b'"node":"n', b'"node":"m') for line in each.commands])
        for each in log
    ]
    told = replay_from(late, cut)
    assert told.difference is not None
    assert isinstance(told.difference.expected, c.Bind)
    assert isinstance(told.difference.got, c.Bind)


def test_a_replica_that_follows_takes_over_as_it_did(logs: Logs) -> None:
    m = Machine(replicas=2)
    do.nodes(m, 4)
    do.gang(m, "g", 2)
    m.rest()
    leader, standby = m.replicas
    cut = len(logs[standby])
    m.lose()
    m.gain(standby)
    do.gang(m, "h", 2)
    m.rest()
    assert len(m.bound()) == 4
    told = replay_from(logs[standby], cut)
    assert (told.difference, told.judges) == (None, True)
    assert told.judged > 2
    assert leader is not standby


def test_stories_cut_anywhere_differ_nowhere(logs: Logs) -> None:
    for seed in range(10):
        Chaos(seed).run(300)
    begun = 0
    for log in logs.values():
        for cut in range(len(log) // 6, len(log), max(1, len(log) // 6)):
            told = replay_from(log, cut)
            assert told.difference is None
            begun += told.judged > 0
    assert begun > 3
