"""`muster simulate philly`: the rules beside what is told of them, and what a user sees."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from extender import cli
from extender.commands import philly as command
from extender.core.errors import ConfigError
from extender.traces import gangs, philly
from extender.traces.rules import rule

HERE = Path(__file__).parent / "data"
JOBS, TOPO = HERE / "jobs.csv", HERE / "topo.txt"


def plant(nodes: int = 8, per_leaf: int = 2, over: float = 2.0) -> philly.Plant:
    return philly.plant([TOPO], nodes, per_leaf, over)


def lands(name: str, free: str, workers: int, each: int = 1, per_leaf: int = 2) -> str:
    """Workers by node, where so many GPUs are free on each."""
    room = [int(n) for n in free.replace(" ", "")]
    made = plant(len(room), per_leaf)
    fleet = philly.Fleet(made)
    for node, size in enumerate(room):
        fleet.masks[node] = (1 << size) - 1
        fleet.free[node] = size
    counts = rule(name, made)(fleet, workers, each)
    if counts is None:
        return "waits"
    text = "".join(map(str, counts.tolist()))
    return " ".join(text[at : at + per_leaf] for at in range(0, len(text), per_leaf))


@pytest.mark.parametrize(
    ("name", "free", "workers", "where"),
    [
        ("bestfit", "83 48", 4, "03 10"),  # one by one, the fullest; not together
        ("spread", "83 48", 4, "20 02"),
        # facts of KAI: zones of 5 and 6 free, a gang of 3 goes to the 5, racks 2 + 1, the fuller last
        ("kai", "32 33", 4, "31 00"),
        ("kai", "44 44", 4, "40 00"),  # one node takes it: the nearest level
        ("kai", "42 44", 6, "42 00"),
        ("tas", "33 21", 7, "33 01"),  # facts of KEP-2724: 3 + 3 and the 1-node
        ("tas", "33 22", 4, "00 22"),  # the smallest domain that takes all
        ("tas", "44 42", 5, "00 41"),
        ("muster", "44 44", 4, "40 00"),
        ("muster", "83 88", 10, "00 55"),  # the slowest node sends five, not two
        ("muster", "88 44", 9, "45 00"),
    ],
)
def test_a_rule_puts_a_gang_where_it_is_told(
    name: str, free: str, workers: int, where: str
) -> None:
    assert lands(name, free, workers) == where


@pytest.mark.parametrize("name", command.RULES)
def test_what_has_no_room_waits(name: str) -> None:
    assert lands(name, "30 30", 7) == "waits"
    assert lands(name, "32 12", 2, each=4) == "waits"
    assert sum(map(int, lands(name, "30 30", 6).replace(" ", ""))) == 6


@pytest.mark.parametrize("name", command.RULES)
@pytest.mark.parametrize("worker", [1, 8])
def test_every_job_runs_once_and_nothing_is_given_twice(name: str, worker: int) -> None:
    made, jobs = plant(), philly.read_jobs(JOBS)
    outcome = gangs.replay(name, rule(name, made), made, jobs, worker)
    assert (outcome.jobs, outcome.too_large) == (60, 1)
    assert outcome.waiting_hours >= 0
    assert outcome.makespan_hours >= float(jobs.duration.max()) / gangs.HOUR
    assert 1 <= outcome.nodes <= 8
    assert outcome.leaves >= 1


def test_devices_are_given_once_and_taken_back() -> None:
    fleet = philly.Fleet(plant(2))
    first = fleet.give(np.array([3, 8]))
    assert [mask.bit_count() for mask in first.values()] == [3, 8]
    second = fleet.give(np.array([5, 0]))
    assert first[0] & second[0] == 0
    fleet.take_back(first)
    fleet.take_back(second)
    assert fleet.masks == [255, 255]
    assert fleet.free.tolist() == [8, 8]


def test_bandwidth_is_the_slowest_of_links_ports_and_uplinks() -> None:
    fleet = philly.Fleet(plant())
    model = fleet.plant.models[0]
    pair = fleet.give(np.array([2, 0, 0, 0, 0, 0, 0, 0]))
    assert fleet.bandwidth(pair) == model.bandwidth[3]
    one_leaf, two_leaves = {0: 1, 1: 1}, {0: 1, 2: 1}
    # A device's share of its port, and half of that where it leaves the leaf.
    assert fleet.bandwidth(one_leaf) == 2 * fleet.bandwidth(two_leaves) > 0


def test_what_a_user_sees(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["simulate", "philly", "--jobs", str(JOBS), "--topo", str(TOPO), "--nodes", "8"]
    assert cli.main([*given, "--json"]) == 0
    rules = json.loads(capsys.readouterr().out)["rules"]
    assert [each["rule"] for each in rules] == list(command.RULES)
    best = {each["rule"]: each["bandwidth_gbs"] for each in rules}
    assert best["muster"] >= max(best.values()) * 0.99
    assert cli.main(given) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(command.RULES)


@pytest.mark.parametrize(
    ("option", "says"),
    [
        (["--nodes", "0"], "--nodes: 0 is not allowed: 1 to 10000"),
        (["--per-leaf", "0"], "--per-leaf: 0 is not allowed: 1 to 10000"),
        (["--oversubscription", "0.5"], "--oversubscription: 0.5 is not allowed: 1 to 1000"),
        (["--topo", "none.txt"], "none.txt: cannot be read"),
        (["--topo", str(JOBS)], "dump"),
        (["--jobs", str(TOPO)], "no column 'job_id'"),
    ],
)
def test_a_mistake_is_said(
    capsys: pytest.CaptureFixture[str], option: list[str], says: str
) -> None:
    given = ["simulate", "philly", "--jobs", str(JOBS), "--topo", str(TOPO)]
    assert cli.main([*given, *option]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("a,0,0,1", "num_gpu: '0' is not allowed: 1 to 4096"),
        ("a,1,0,0", "duration: '0' is not allowed: at least 1 millisecond"),
        ("a,1,-1,1", "submit_time: '-1' is not allowed"),
        (",1,0,1", "job_id: '' is not allowed: a name"),
        ("", "no jobs"),
    ],
)
def test_a_line_that_is_wrong_is_named(tmp_path: Path, line: str, says: str) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text(f"job_id,num_gpu,submit_time,duration\n{line}\n".rstrip() + "\n")
    with pytest.raises(ConfigError, match=says.replace("(", r"\(")):
        philly.read_jobs(file)
