"""Parts of a gang that are not of one shape: a leader and workers, in a rack each; parts of several sizes."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from extender.core import events as e
from extender.core.coordinator import Coordinator
from tests.builders import node, pod
from tests.topology.test_parts import NOW, core, fits, group, planned, rack


def seen(made: Coordinator, parts: list[list[int]], *, least: int = 0) -> list[list[str]]:
    """The nodes of parts whose members ask for so many GPUs; the first of each is its leader. So many
    have to be whole at ``least``, 0: all.
    """
    size = len(parts[0])
    policy = {
        "name": "s",
        "subGroupSize": size,
        "minSubGroups": least,
        "matchLabelKeys": ["part"],
        "networkTopology": {"highestTierAllowed": 1},
    }
    made.apply(group(1 if least else size * len(parts), subGroupPolicy=[policy]), NOW)
    for at, gpus in enumerate(each for part in parts for each in part):
        task = "worker" if at % size else "leader"
        marks = {"scheduling.k8s.io/group-name": "g", "volcano.sh/task-spec": task}
        labels = {"part": str(at // size)}
        made.apply(e.PodSeen(pod(f"w-{at}", gpus=gpus, annotations=marks, labels=labels)), NOW)
    made.step(NOW)
    where = planned(made, size * len(parts))
    made.state.cluster.verify()
    return [where[at : at + size] for at in range(0, len(where), size)]


@pytest.mark.parametrize("seed", range(60))
def test_like_parts_have_a_node_each_as_far_as_there_are_any(seed: int) -> None:
    """Beside a slow search for places, and beside counting."""
    rng = random.Random(seed)
    room = [rng.choice((0, 1, 2, 3, 4)) for _ in range(rng.randint(2, 6))]
    part = [rng.choice((0, 1)), *[rng.choice((1, 2))] * rng.randint(1, 2)]
    parts = [part] * rng.randint(2, 3)
    where = seen(core(room), parts)
    if not fits([[gpus for gpus in part if gpus] for part in parts], room, racks=True):
        assert not any(map(any, where))
        return
    assert all(map(all, where))
    used = Counter[str]()
    for nodes in where:
        assert len({rack(name) for name in nodes}) == 1
        used.update(dict.fromkeys(nodes, 0))
        for gpus, name in zip(part, nodes, strict=True):
            used[name] += gpus
    assert all(used[f"n{at}"] <= gpus for at, gpus in enumerate(room))
    # A leader without GPUs goes to a node without, where its rack has one.
    alone = sum(len(set(nodes if part[0] else nodes[1:])) == 1 for nodes in where)
    assert alone >= min(len(parts), sum(gpus // sum(part) for gpus in room))


def test_like_parts_are_near_each_other() -> None:
    # One after the other, each went to the fullest rack that took it: to r4, then to r0.
    made = core([2, 2, 2, 2, 1, 1, 1, 1, 2, 1])
    for at in (4, 5, 6, 7, 9):
        made.apply(e.PodSeen(pod(f"old-{at}", gpus=1, node=f"n{at}", phase="Running")), NOW)
    where = seen(made, [[0, 2], [0, 2]])
    blocks = {int(name[1:]) // 4 for nodes in where for name in nodes}
    assert blocks == {0}
    assert len({rack(name) for nodes in where for name in nodes}) == 1


def test_leaders_without_gpus_do_not_take_the_places_of_workers() -> None:
    made = core([2, 2, 2, 2])
    for at in (1, 3):
        labels = {"net/block": "b0", "net/rack": f"r{at // 2}"}
        made.apply(e.NodeSeen(node(f"n{at}", labels=labels)), NOW)
    where = seen(made, [[0, 2], [0, 2]])
    assert sorted(tuple(nodes) for nodes in where) == [("n1", "n0"), ("n3", "n2")]


@pytest.mark.parametrize(
    ("room", "parts"),
    [
        ([3, 3], [[1, 1], [2, 2]]),
        ([4, 1], [[1], [1], [3]]),
        ([0, 0, 3, 4], [[1], [3], [3]]),
        ([0, 1, 1, 2], [[1], [1], [2]]),
        ([0, 2, 2, 3], [[2], [3], [2]]),
    ],
)
def test_parts_of_several_sizes_are_tried_in_other_orders(
    room: list[int], parts: list[list[int]]
) -> None:
    """In the first order one part takes what another needs."""
    where = seen(core(room), parts)
    assert all(map(all, where))


@pytest.mark.parametrize("seed", range(40))
def test_as_many_parts_beyond_the_minimum_as_fit_are_placed(seed: int) -> None:
    rng = random.Random(seed)
    room = [rng.choice((0, 1, 2, 3, 4)) for _ in range(rng.randint(2, 6))]
    part = rng.choice(([1, 1], [1, 1, 1], [0, 2], [0, 1, 1]))
    parts = [part] * 5
    where = seen(core(room), parts, least=1)
    whole = [nodes for nodes in where if all(nodes)]
    assert all(any(nodes) == all(nodes) for nodes in where)
    used = Counter[str]()
    for nodes in where:
        for gpus, name in zip(part, nodes, strict=True):
            used[name] += gpus
    left = [gpus - used[f"n{at}"] for at, gpus in enumerate(room)]
    assert min(left) >= 0
    asked = [gpus for gpus in part if gpus]
    assert len(whole) == len(parts) or not fits([asked], left, racks=True)
    assert bool(whole) == fits([asked], room, racks=True)


def test_a_part_beyond_the_minimum_says_why_it_waits() -> None:
    made = core([2, 1])
    policy = {
        "name": "s",
        "subGroupSize": 2,
        "minSubGroups": 1,
        "matchLabelKeys": ["part"],
        "networkTopology": {"highestTierAllowed": 1},
    }
    made.apply(group(2, subGroupPolicy=[policy]), NOW)
    marks = {"scheduling.k8s.io/group-name": "g"}
    for at, (part, on) in enumerate((("a", "n0"), ("a", "n0"), ("b", ""), ("b", ""))):
        phase = "Running" if on else "Pending"
        member = pod(
            f"w-{at}", gpus=1, annotations=marks, labels={"part": part}, node=on, phase=phase
        )
        made.apply(e.PodSeen(member), NOW)
    made.step(NOW)
    (gang,) = made.state.gangs.values()
    assert planned(made, 4) == ["n0", "n0", "", ""]
    assert gang.satisfied()
    assert gang.refusal is not None
    assert gang.refusal.render().startswith("1 of 2 pods fit")


def test_a_member_of_no_part_does_not_wait_for_a_part_beyond_the_minimum() -> None:
    made = core([2, 1])
    policy = {
        "name": "s",
        "subGroupSize": 2,
        "minSubGroups": 1,
        "labelSelector": {"matchExpressions": [{"key": "part", "operator": "Exists"}]},
        "matchLabelKeys": ["part"],
        "networkTopology": {"highestTierAllowed": 1},
    }
    made.apply(group(2, subGroupPolicy=[policy]), NOW)
    marks = {"scheduling.k8s.io/group-name": "g"}
    for at, part in enumerate(("a", "a", "b", "b", "")):
        labels = {"part": part} if part else {}
        gpus = 2 if part == "b" else 1
        made.apply(e.PodSeen(pod(f"w-{at}", gpus=gpus, annotations=marks, labels=labels)), NOW)
    made.step(NOW)
    assert planned(made, 5) == ["n0", "n0", "", "", "n1"]
