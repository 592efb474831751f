"""`muster simulate openb`: the protocol, the policies against slow ones, and what a user sees."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from extender import cli
from extender.commands import openb as command
from extender.core.errors import ConfigError
from extender.traces import openb
from extender.traces.policies import POLICIES, Fleet, Gradient, Muster, typical
from extender.traces.replay import RATIO, replay
from tests.fragmentation.oracle import Room, Want, after, fits, step

HERE = Path(__file__).parent / "data"
NODES, PODS = HERE / "nodes.csv", HERE / "pods.csv"


@pytest.fixture
def nodes() -> openb.Nodes:
    return openb.read_nodes(NODES)


@pytest.fixture
def tasks(nodes) -> openb.Tasks:
    return openb.read_tasks(PODS, nodes)


def want(tasks: openb.Tasks, shape: int) -> Want:
    kinds = frozenset(np.flatnonzero(tasks.reach[shape]).tolist())
    host = tuple(tasks.hosts[shape].tolist())
    return Want(host, int(tasks.shares[shape]), int(tasks.counts[shape]), kinds)


def rooms_of(nodes: openb.Nodes) -> list[Room]:
    return [
        Room(tuple(host), tuple(devices), kind)
        for host, devices, kind in zip(
            nodes.host.tolist(), nodes.devices.tolist(), nodes.model.tolist(), strict=True
        )
    ]


def test_the_columns_are_the_files(nodes, tasks):
    assert nodes.names == tuple(f"node-{i:02}" for i in range(9))
    assert nodes.models == ("H8", "L4", "P2")
    assert nodes.total == 33_000
    assert nodes.devices.shape == (9, 8)
    assert nodes.host[0].tolist() == [64_000, 262_144]
    assert len(tasks.shape) == 40
    assert len(tasks.shares) == 11
    limited = want(tasks, int(np.flatnonzero(tasks.shares == 320)[0]))
    assert limited == Want((2000, 4096), 320, 1, frozenset({1, 2}))
    assert Counter(tasks.counts[tasks.shape].tolist()) == {1: 28, 0: 7, 2: 2, 4: 2, 8: 1}


def test_other_forms_of_the_same_files(tmp_path, nodes, tasks):
    """Another order of columns, Windows' line ends, a byte order mark, floats, gzip; a CPU node."""
    with NODES.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    columns = ["model", "memory_mib", "rack", "sn", "gpu", "cpu_milli"]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="r1", lineterminator="\r\n")
    writer.writeheader()
    writer.writerows({**row, "memory_mib": f" {row['memory_mib']}.0 "} for row in rows)
    writer.writerow({"sn": "node-99", "cpu_milli": 64_000, "memory_mib": 1, "gpu": 0, "model": ""})
    file = tmp_path / "nodes.csv"
    file.write_text(text.getvalue(), encoding="utf-8-sig", newline="")
    found = openb.read_nodes(file)
    assert found.names == (*nodes.names, "node-99")
    assert found.host[:-1].tolist() == nodes.host.tolist()
    assert found.devices[:-1].tolist() == nodes.devices.tolist()
    assert [found.models[kind] for kind in found.model[:-1]] == [
        nodes.models[kind] for kind in nodes.model
    ]
    packed = tmp_path / "pods.csv.gz"
    packed.write_bytes(gzip.compress(PODS.read_bytes()))
    assert openb.read_tasks(packed, nodes).shape.tolist() == tasks.shape.tolist()
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(ConfigError, match=r"pods\.csv\.gz: gzip: "):
        openb.read_tasks(packed, nodes)


def test_arrivals_are_the_trace_shuffled_and_then_more_of_it(nodes, tasks):
    order = openb.arrivals(tasks, nodes, RATIO, 42)
    again, other = (openb.arrivals(tasks, nodes, RATIO, seed) for seed in (42, 43))
    assert order.tolist() == again.tolist()
    assert order[:40].tolist() != other[:40].tolist()
    assert sorted(order[:40]) == sorted(tasks.shape)
    asked = int(tasks.asked[order].sum())
    assert RATIO * nodes.total - tasks.asked.max() < asked <= RATIO * nodes.total


def test_a_trace_that_is_too_large_loses_pods(nodes, tasks):
    order = openb.arrivals(tasks, nodes, 0.5, 42)
    whole = openb.arrivals(tasks, nodes, RATIO, 42)
    assert 0 < len(order) < 40
    assert order.tolist() == whole[: len(order)].tolist()
    assert tasks.asked[order].sum() <= 0.5 * nodes.total
    assert tasks.asked[whole[: len(order) + 1]].sum() > 0.5 * nodes.total


def test_typical_pods_are_told_apart_by_all_but_memory(nodes, tasks):
    mix = typical(tasks)
    counts = Counter(
        (want(tasks, s).host[0], want(tasks, s).share, want(tasks, s).count, want(tasks, s).kinds)
        for s in tasks.shape.tolist()
    )
    # 38 of 40 are the first that make up 95 %; 39 remain without the rarest shape
    assert mix.hosts[:, 1].tolist() == [0] * len(mix.shares)
    assert mix.popularity.sum() == pytest.approx(1 - 7 / 39)
    assert len(mix.shares) == len([key for key in counts if key[2]]) - 1
    assert mix.counts.max() == 4, "the only pod of 8 is not typical"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_fgd_goes_where_a_slow_one_goes(nodes, tasks, seed):
    fleet = Fleet(nodes, tasks)
    policy = Gradient(fleet, seed)
    mix = policy.losses.mix
    slow = [
        (Want(tuple(host), share, count, frozenset(np.flatnonzero(reach).tolist())), part)
        for host, share, count, reach, part in zip(
            mix.hosts.tolist(), mix.shares.tolist(), mix.counts.tolist(), mix.reach,
            mix.popularity.tolist(), strict=True,
        )
    ]  # fmt: skip
    slow.append((Want((0, 0), 0, 0), 1 - mix.popularity.sum()))
    rooms = rooms_of(nodes)
    refused = 0
    for shape in openb.arrivals(tasks, nodes, RATIO, seed).tolist():
        place, expected = policy.choose(shape), step(rooms, want(tasks, shape), slow)
        if place is None or expected is None:
            assert place is None
            assert expected is None
            refused += 1
            continue
        before = fleet.devices[place[0]].copy()
        fleet.place(shape, *place)
        taken = np.flatnonzero(fleet.devices[place[0]] != before).tolist()
        assert (place[0], taken) == (expected[0], sorted(expected[1]) if taken else taken)
        rooms[place[0]] = after(rooms[place[0]], want(tasks, shape), expected[1])
        assert tuple(fleet.devices[place[0]].tolist()) == rooms[place[0]].devices
    assert refused


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", [1, 2])
def test_every_policy_places_all_that_fits_and_nothing_twice(nodes, tasks, policy, seed):
    fleet = Fleet(nodes, tasks)
    chooses = POLICIES[policy](fleet, seed)
    rooms = rooms_of(nodes)
    given = 0
    for shape in openb.arrivals(tasks, nodes, RATIO, seed).tolist():
        pod = want(tasks, shape)
        possible = [n for n, room in enumerate(rooms) if fits(room, pod)]
        place = chooses.choose(shape)
        if place is None:
            assert possible == []
            continue
        assert place[0] in possible
        before = fleet.devices[place[0]].copy()
        fleet.place(shape, *place)
        chooses.placed(place[0])
        taken = np.flatnonzero(fleet.devices[place[0]] != before).tolist()
        assert len(taken) == pod.count
        rooms[place[0]] = after(rooms[place[0]], pod, taken)
        assert rooms[place[0]] == Room(
            tuple(fleet.free[place[0]].tolist()),
            tuple(fleet.devices[place[0]].tolist()),
            int(nodes.model[place[0]]),
        )
        assert min(*rooms[place[0]].free, *rooms[place[0]].devices) >= 0
        given += pod.share * pod.count
    outcome = replay(policy, nodes, tasks, seed)
    assert outcome.allocated_percent_at_130 == pytest.approx(100 * given / nodes.total)
    assert outcome.allocated_percent_at_100 <= outcome.allocated_percent_at_130


def test_muster_keeps_count_of_what_each_shape_can_use(nodes, tasks):
    """What it keeps from step to step equals what it would see if it looked anew."""
    fleet = Fleet(nodes, tasks)
    policy = Muster(fleet, 0)
    looks = 0
    for shape in openb.arrivals(tasks, nodes, RATIO, 5).tolist():
        place = policy.choose(shape)
        if place is not None:
            fleet.place(shape, *place)
            policy.placed(place[0])
        kept, losses = policy.room.copy(), policy.losses
        fresh = Muster(fleet, 0)
        fresh.seen = policy.seen.copy()
        mix, _ = fresh._observe()
        if len(mix.shares) == len(losses.mix.shares) and (mix.hosts == losses.mix.hosts).all():
            assert kept.tolist() == fresh.room.tolist()
            looks += 1
    assert looks > 10


def test_muster_does_not_look_ahead(nodes, tasks):
    """The same beginning leads to the same places, whatever comes after."""
    order = openb.arrivals(tasks, nodes, RATIO, 9).tolist()

    def places(shapes):
        fleet = Fleet(nodes, tasks)
        policy = Muster(fleet, 0)
        found = []
        for shape in shapes:
            found.append(policy.choose(shape))
            if found[-1] is not None:
                fleet.place(shape, *found[-1])
                policy.placed(found[-1][0])
        return found

    assert places(order)[:25] == places(order[:25] + order[:25])[:25]


MISTAKES = {
    "nodes.csv": [
        ("sn,cpu_milli,memory_mib,gpu\n", "no column 'model'"),
        ("sn,cpu_milli,memory_mib,gpu,model\n", "no node has a GPU"),
        (
            "sn,cpu_milli,memory_mib,gpu,model\na,1,1,-2,T4\n",
            ":2: gpu: '-2' is not allowed: a whole",
        ),
        (
            "sn,cpu_milli,memory_mib,gpu,model\na,1.5,1,2,T4\n",
            ":2: cpu_milli: '1.5' is not allowed",
        ),
        ("sn,cpu_milli,memory_mib,gpu,model\na,1,1,2,\n", ":2: model: '' is not allowed: a name"),
        ("sn,cpu_milli,memory_mib,gpu,model\na,1,1,2\n", ":2: model: '' is not allowed"),
        ("sn,cpu_milli,memory_mib,gpu,model\na,1,1,2,T4,x\n", ":2: more fields than the header"),
        ("sn,cpu_milli,memory_mib,gpu,model\na,1,1,65,T4\n", "a whole number of 0 to 64"),
        ("sn,cpu_milli,memory_mib,gpu,model\na,1,1,2,T4\na,1,1,2,T4\n", "two nodes have the same"),
    ],
    "pods.csv": [
        ("name,cpu_milli,memory_mib,num_gpu,gpu_milli\n", "no pods"),
        ("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,1,0\n", "asks for 1 to 1000"),
        (
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,2,500\n",
            ":2: gpu_milli: '500' is not",
        ),
        ("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,1,1001\n", "0 to 1000"),
        ("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,0,0\n", "no pod of the trace asks"),
    ],
}


@pytest.mark.parametrize(
    ("name", "text", "said"), [(name, *case) for name, cases in MISTAKES.items() for case in cases]
)
def test_a_mistake_in_a_file_is_named(tmp_path, capsys, name, text, said):
    files = {"nodes.csv": str(NODES), "pods.csv": str(PODS)}
    files[name] = str(tmp_path / name)
    Path(files[name]).write_text(text)
    code = cli.main(
        ["simulate", "openb", "--nodes", files["nodes.csv"], "--pods", files["pods.csv"], "--json"]
    )
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert said in err
    assert str(tmp_path) in err or "asks for a GPU" in err


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", None])
def test_no_csv_at_all(tmp_path, content):
    file = tmp_path / "nodes.csv"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"nodes\.csv: "):
        openb.read_nodes(file)


@pytest.mark.parametrize(
    ("text", "found"), [("42", (42,)), ("42-44", (42, 43, 44)), ("1,5-6,5", (1, 5, 6))]
)
def test_seeds(text, found):
    assert command.seeds(text) == found


@pytest.mark.parametrize("text", ["", "x", "5-3", "1-", "-1", "1-5000", "1,,2", "99999999999"])
def test_seeds_that_are_none(text, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["simulate", "openb", "--nodes", "n", "--pods", "p", f"--seed={text}"])
    assert stopped.value.code == 2
    assert "seeds" in capsys.readouterr().err


def test_the_command_knows_every_policy():
    assert tuple(POLICIES) == command.POLICIES


def test_one_run_as_json(capsys, nodes, tasks):
    arguments = ["--nodes", str(NODES), "--pods", str(PODS), "--policy", "fgd", "--seed", "7"]
    assert cli.main(["simulate", "openb", *arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    expected = replay("fgd", nodes, tasks, 7)
    assert found.pop("seconds") > 0
    assert found == {
        "policy": "fgd",
        "seed": 7,
        "allocated_percent_at_100": round(expected.allocated_percent_at_100, 3),
        "allocated_percent_at_130": round(expected.allocated_percent_at_130, 3),
        "pods": expected.pods,
        "refused": expected.refused,
    }


def test_all_policies_and_several_seeds(capsys):
    arguments = ["--nodes", str(NODES), "--pods", str(PODS), "--policy", "all", "--seed", "1-3"]
    assert cli.main(["simulate", "openb", *arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(run["policy"], run["seed"]) for run in found["runs"]] == [
        (policy, seed) for policy in POLICIES for seed in (1, 2, 3)
    ]
    assert [mean["policy"] for mean in found["means"]] == list(POLICIES)
    for mean in found["means"]:
        own = [
            run["allocated_percent_at_130"]
            for run in found["runs"]
            if run["policy"] == mean["policy"]
        ]
        assert mean["seeds"] == 3
        assert mean["allocated_percent_at_130"] == pytest.approx(sum(own) / 3, abs=0.001)
        assert [mean["lowest_at_130"], mean["highest_at_130"]] == [min(own), max(own)]
    assert cli.main(["simulate", "openb", *arguments]) == 0
    table = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in table] == ["policy", *POLICIES]
