"""Scripts: drawn, cut short, written to files and played again."""

from __future__ import annotations

import json
import re

import pytest
from msgspec import structs

from extender import cli
from extender.chaos import log, schedule
from extender.chaos.faults import Faults
from extender.chaos.judge import Violation
from extender.chaos.network import Shown
from extender.chaos.run import Outcome, play
from extender.chaos.schedule import ACTS, VARIANTS, Act, Script
from extender.chaos.shrink import shrink
from extender.core.errors import InvalidObject
from extender.core.gang import Gang
from extender.core.session import Session


def test_every_act_can_be_performed_and_is_drawn():
    assert [name for name in ACTS if not callable(getattr(Faults, name, None))] == []
    drawn = {act.name for seed in range(40) for act in schedule.draw(seed).acts}
    assert drawn == ACTS


def test_runs_without_variants_are_what_they_were(monkeypatch):
    with_variants = [schedule.draw(seed) for seed in range(40)]
    monkeypatch.setattr(schedule, "VARIED", 0.0)
    without = [schedule.draw(seed) for seed in range(40)]
    same = [one == other for one, other in zip(with_variants, without, strict=True)]
    assert 20 < sum(same) < 40
    for one, other in zip(with_variants, without, strict=True):
        for act, plain in zip(one.acts, other.acts, strict=True):
            assert act == plain or act.name in VARIANTS[plain.name]
            assert (act.at, act.draw) == (plain.at, plain.draw)


def test_a_script_is_its_seeds_and_in_order():
    script = schedule.draw(7)
    assert script == schedule.draw(7) != schedule.draw(8)
    times = [act.at for act in script.acts]
    assert times == sorted(times)
    assert len({act.draw for act in script.acts}) == len(script.acts)


def outcome(script, *invariants):
    violations = [Violation(1, invariant, "", 50.0) for invariant in invariants]
    return Outcome(script, 0, 0, 0.0, "", violations, [])


@pytest.mark.parametrize("guilty", [(3,), (0, 19), (4, 5, 11), ()])
def test_only_the_acts_that_matter_are_left(guilty):
    script = Script(1, 60.0, tuple(Act(float(n), "kill", n) for n in range(20)))
    runs = []

    def run(tried):
        runs.append(tried)
        draws = {act.draw for act in tried.acts}
        # Another invariant is no reason to go on with a cut.
        return outcome(tried, "I1") if draws.issuperset(guilty) else outcome(tried, "I2")

    least = shrink(outcome(script, "I1"), run)
    assert tuple(act.draw for act in least.script.acts) == guilty
    assert len(runs) < 100


def test_what_came_after_the_violation_goes_first():
    script = Script(1, 60.0, (Act(10.0, "kill", 0), Act(49.0, "kill", 1), Act(51.0, "kill", 2)))
    tried = []

    def run(script):
        tried.append([act.draw for act in script.acts])
        return outcome(script)

    shrink(outcome(script, "I1"), run)
    assert tried[0] == [0, 1]


@pytest.fixture
def no_barrier(monkeypatch):
    satisfied = Gang.satisfied
    monkeypatch.setattr(Gang, "satisfied", lambda self, *more: True if more else satisfied(self))
    monkeypatch.setattr(Session, "ready", lambda self, group, placed: True)


def test_a_failing_seed_becomes_a_file_that_fails_alike(no_barrier, monkeypatch, tmp_path):
    failed = next(tried for tried in map(play, map(schedule.draw, range(20))) if tried.violations)
    least = shrink(failed)
    assert len(least.script.acts) < len(failed.script.acts)
    assert least.violations[0].invariant == failed.violations[0].invariant == "I1"
    path = tmp_path / "chaos.jsonl"
    log.write(least, path)
    assert log.read(path)[1] == least.script
    again = log.replay(path)
    assert again["identical"] is True
    assert again["events"] == len(least.script.acts)
    assert again["violations"][0]["invariant"] == "I1"
    monkeypatch.undo()  # as after the fault has been mended
    mended = log.replay(path)
    assert (mended["identical"], mended["violations"]) == (False, [])


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("", "line 1"),
        ("nonsense", "line 1"),
        ('{"muster-log": "record", "version": 1}', "line 1"),
        ("HEADER\n{}", "line 2"),
        ('HEADER\n{"at": 1.0, "name": "explode", "draw": 1}', "explode"),
        ("HEADER2", "version 2"),
    ],
)
def test_another_file_is_refused(tmp_path, lines, said):
    path = tmp_path / "chaos.jsonl"
    log.write(outcome(Script(1, 1.0, ())), path)
    header = path.read_text().strip()
    later = header.replace('"version":1', '"version":2')
    path.write_text(lines.replace("HEADER2", later).replace("HEADER", header))
    with pytest.raises(InvalidObject, match=said):
        log.read(path)


def test_the_command_plays_a_file_again(tmp_path, capsys):
    path = tmp_path / "chaos.jsonl"
    log.write(play(schedule.draw(3)), path)
    assert cli.main(["replay", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["identical"] is True
    assert found["commands"] > 20
    before = path.read_text()
    path.write_text(re.sub('"add_(shared_)?node"', '"remove_node"', before, count=1))
    assert path.read_text() != before
    assert cli.main(["replay", str(path)]) == 1
    path.write_text('{"muster-log":"chaos","version":1}')
    assert cli.main(["replay", str(path)]) == 2


def test_a_seed_that_fails_is_written_to_the_directory(no_barrier, tmp_path, capsys):
    asked = ["simulate", "chaos", "--seeds", "1", "--logs", str(tmp_path), "--json"]
    assert cli.main(asked) == 1
    (path,) = tmp_path.iterdir()
    assert f"muster replay {path}" in capsys.readouterr().err
    assert cli.main(["replay", str(path)]) == 0
    assert cli.main([*asked[:-2], str(tmp_path / "made" / "for it")]) == 1
    assert cli.main([*asked[:-2], str(path)]) == 2, "it is a file"


def test_what_came_and_went_between_two_lists_was_not_shown():
    shown = Shown()
    shown.listed(10)
    shown.watched(14)
    shown.listed(30)
    assert shown.version == 30
    for since, until, seen in (
        (5, 10, False),  # over before the first list
        (5, 11, True),
        (5, None, True),
        (12, 13, True),  # watched
        (15, 29, False),  # between
        (15, 31, True),
        (31, None, False),
    ):
        assert shown.covers(since, until) is seen, (since, until)


def test_a_run_is_over_with_enough_violations(no_barrier):
    script = schedule.draw(next(s for s in range(20) if play(schedule.draw(s)).violations))
    assert len(play(structs.replace(script, enough=1)).violations) >= 1
    assert play(structs.replace(script, enough=1)).seconds <= play(script).seconds
