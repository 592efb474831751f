"""Parts of gangs on random clusters, beside counting; and members that come later."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import msgspec
import pytest

from extender.core import events as e
from extender.core import objects as o
from extender.core.api import VOLCANO_GROUPS
from extender.core.coordinator import Coordinator
from extender.core.podgroups import VolcanoGroup, VolcanoGroupSpec
from extender.core.state import Rules
from extender.core.topology.domains import Level
from extender.settings import Settings
from tests.builders import node, pod

LEVELS = (Level("net/block", "block", 2.0), Level("net/rack", "rack"))
NOW = 1_800_000_000.0
SLICE = "kueue.x-k8s.io/podset-slice-required-topology"


def core(room: list[int]) -> Coordinator:
    """Nodes n0, n1 … with so many free GPUs, two in a rack and four in a block."""
    made = Coordinator(Rules(levels=LEVELS), Settings().session(), {})
    made.apply(e.LeaderGained(1), NOW)
    for at, gpus in enumerate(room):
        labels = {"net/block": f"b{at // 4}", "net/rack": f"r{at // 2}"}
        made.apply(e.NodeSeen(node(f"n{at}", gpus=gpus, labels=labels)), NOW)
    made.apply(e.Synced(), NOW)
    return made


def group(least: int, **spec) -> e.GroupSeen:
    meta = o.Meta(name="g", namespace="default", uid="g")
    read = msgspec.convert({"minMember": least, **spec}, VolcanoGroupSpec)
    return e.GroupSeen(VOLCANO_GROUPS, VolcanoGroup(metadata=meta, spec=read))


def rack(name: str) -> str:
    return f"r{int(name[1:]) // 2}"


def planned(made: Coordinator, count: int) -> list[str]:
    (gang,) = made.state.gangs.values()
    return [gang.members[f"w-{at}"].node for at in range(count)]


@pytest.mark.parametrize("seed", range(40))
def test_slices_are_placed_where_there_is_a_way_and_nowhere_else(seed: int) -> None:
    rng = random.Random(seed)
    room = [rng.choice((0, 1, 2, 3, 4)) for _ in range(rng.randint(3, 8))]
    size, count = rng.randint(1, 4), rng.randint(1, 4)
    made = core(room)
    made.apply(group(size * count), NOW)
    marks = {
        "scheduling.k8s.io/group-name": "g",
        SLICE: "net/rack",
        "kueue.x-k8s.io/podset-slice-size": str(size),
    }
    order = list(range(size * count))
    rng.shuffle(order)
    for at in order:
        made.apply(e.PodSeen(pod(f"w-{at}", gpus=1, annotations=marks)), NOW)
    made.step(NOW)
    racks = Counter({f"r{at // 2}": 0 for at in range(len(room))})
    for at, gpus in enumerate(room):
        racks[f"r{at // 2}"] += gpus
    fits = sum(gpus // size for gpus in racks.values())
    where = planned(made, size * count)
    if fits < count:
        assert where == [""] * len(where)
        (gang,) = made.state.gangs.values()
        assert gang.refusal is not None
        text = gang.refusal.render()
        assert sum(room) < len(where) or text.startswith(f"{fits} of {count} parts of {size} pods")
        return
    for at in range(0, len(where), size):
        assert len({rack(each) for each in where[at : at + size]}) == 1
    assert all(Counter(where)[f"n{at}"] <= gpus for at, gpus in enumerate(room))
    made.state.cluster.verify()


def test_a_member_that_comes_later_goes_to_the_rest_of_its_part() -> None:
    made = core([2, 2, 2, 2])
    policy = {
        "name": "s",
        "subGroupSize": 2,
        "matchLabelKeys": ["part"],
        "networkTopology": {"highestTierAllowed": 1},
    }
    made.apply(group(2, subGroupPolicy=[policy]), NOW)
    marks = {"scheduling.k8s.io/group-name": "g"}
    for at, (part, on) in enumerate((("a", "n0"), ("b", "n3"))):
        labels = {"part": part}
        bound = pod(f"w-{at}", gpus=1, annotations=marks, labels=labels, node=on, phase="Running")
        made.apply(e.PodSeen(bound), NOW)
    made.step(NOW)
    for at, part in ((2, "b"), (3, "a")):
        made.apply(e.PodSeen(pod(f"w-{at}", gpus=1, annotations=marks, labels={"part": part})), NOW)
    made.step(NOW)
    assert [rack(each) for each in planned(made, 4)] == ["r0", "r1", "r1", "r0"]


def test_a_gang_is_whole_when_as_many_parts_are_as_have_to_be() -> None:
    made = core([2, 2, 2, 2])
    policy = {"name": "s", "subGroupSize": 2, "minSubGroups": 2, "matchLabelKeys": ["part"]}
    made.apply(group(1, subGroupPolicy=[policy]), NOW)
    marks = {"scheduling.k8s.io/group-name": "g"}

    def see(name: str, part: str, on: str = "") -> None:
        labels = {"part": part}
        seen = pod(name, gpus=1, annotations=marks, labels=labels, node=on)
        made.apply(e.PodSeen(seen), NOW)

    for name, part, on in (("w-0", "a", "n0"), ("w-1", "a", "n0"), ("w-2", "b", "n1")):
        see(name, part, on)
    (gang,) = made.state.gangs.values()
    assert (gang.placed(), gang.satisfied()) == (3, False)
    made.step(NOW)
    assert gang.refusal is not None
    assert gang.refusal.render() == "1 of at least 2 subGroups s of 2 pods exist"
    see("w-3", "c")
    see("w-4", "b")
    made.step(NOW)
    # The one that makes a part whole has to be, the other may.
    assert gang.members["w-4"].node
    see("w-4", "b", "n1")
    assert gang.satisfied()


def fits(parts: list[list[int]], room: list[int], *, racks: bool) -> bool:
    """Whether there is a place for all members (GPUs of each), each part in one rack. Slow."""
    if not parts:
        return True
    first, *rest = parts
    if not first:
        return fits(rest, room, racks=racks)
    for homes in [[0, 1], [2, 3], [4, 5]] if racks else [list(range(len(room)))]:
        here = [at for at in homes if at < len(room)]
        for rows in itertools.product(here, repeat=len(first)):
            left = list(room)
            for row, gpus in zip(rows, first, strict=True):
                left[row] -= gpus
            if min(left) >= 0 and fits(rest, left, racks=racks):
                return True
    return False


@pytest.mark.parametrize("racks", [True, False], ids=["in racks", "anywhere"])
@pytest.mark.parametrize("seed", range(60))
def test_a_gang_that_fits_under_some_choice_of_parts_is_placed(seed: int, racks: bool) -> None:
    """Slow search over choices, orders and places, beside the planner."""
    rng = random.Random(seed)
    room = [rng.choice((0, 1, 2, 3, 4)) for _ in range(rng.randint(2, 5))]
    size, count = rng.randint(1, 3), rng.randint(2, 4)
    least = rng.randint(1, count - 1)
    kinds = [[rng.choice((1, 1, 2, 3)) for _ in range(size)] for _ in range(count)]
    made = core(room)
    policy = {
        "name": "s",
        "subGroupSize": size,
        "minSubGroups": least,
        "matchLabelKeys": ["part"],
        **({"networkTopology": {"highestTierAllowed": 1}} if racks else {}),
    }
    made.apply(group(1, subGroupPolicy=[policy]), NOW)
    marks = {"scheduling.k8s.io/group-name": "g"}
    for number, members in enumerate(kinds):
        for at, gpus in enumerate(members):
            name, labels = f"w-{number * size + at}", {"part": str(number)}
            made.apply(e.PodSeen(pod(name, gpus=gpus, annotations=marks, labels=labels)), NOW)
    made.step(NOW)
    where = planned(made, size * count)
    placed = [where[at : at + size] for at in range(0, len(where), size)]
    whole = [at for at, part in enumerate(placed) if all(part)]
    choices = itertools.combinations(kinds, least)
    possible = any(fits(list(chosen), room, racks=racks) for chosen in choices)
    assert (len(whole) >= least) == possible
    assert possible or not any(where)
    used = Counter[str]()
    for part, nodes in zip(kinds, placed, strict=True):
        for gpus, name in zip(part, nodes, strict=True):
            used[name] += gpus
        assert not racks or len({rack(each) for each in nodes if each}) <= 1
    assert all(used[f"n{at}"] <= gpus for at, gpus in enumerate(room))
    made.state.cluster.verify()
