"""S2: of two gangs that do not fit together one runs whole, and the other holds nothing meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from extender.runtime import Service
from tests.controlplane.gangs import bound_over_time, check_landed_whole, gone, until_refused
from tests.controlplane.world import World

ROUNDS = 30


async def both_at_once(world: World, first: str, second: str, **options: object) -> None:
    """Two gangs of four, created at the same instant, PodGroups and pods in any order."""
    async with asyncio.TaskGroup() as tasks:
        for name in (first, second):
            tasks.create_task(world.group(name, 4))
            tasks.create_task(world.gang(name, 4, **options))


async def both_ended(world: World, prefix: str) -> None:
    await world.until(lambda: world.phases(prefix) == ["Succeeded"] * 8, "both gangs' ends")


def winner_of(world: World, first: str, second: str) -> tuple[str, str]:
    """Of two gangs the one that was bound first, and the other."""
    bound = (
        each.name for each in world.seen if each.node and each.name.startswith((first, second))
    )
    winner = first if next(bound).startswith(first) else second
    return (winner, second if winner == first else first)


def check_round(world: World, first: str, second: str) -> None:
    """The history of one round: one gang after the other, each whole, never more than there is."""
    winner, loser = winner_of(world, first, second)
    check_landed_whole(world, winner, 4)
    check_landed_whole(world, loser, 4)
    together = bound_over_time(world, winner.rstrip("ab"))
    assert max(len(alive) for alive in together) <= 6
    begun = next(i for i, alive in enumerate(together) if any(n.startswith(loser) for n in alive))
    held = [sum(name.startswith(winner) for name in alive) for alive in together]
    assert max(held[:begun]) == 4, "the other began before the first was whole"
    assert held[begun] <= 2, "the other began while the first left no room for it"


@pytest.mark.timeout(300)
async def test_thirty_times_one_runs_whole_and_then_the_other(
    world: World, muster: Service
) -> None:
    await world.nodes("n1", "n2", "n3", gpus=2)
    for number in range(ROUNDS):
        first, second = f"r{number:02}a", f"r{number:02}b"
        await both_at_once(world, first, second, run_seconds=0.05)
        await both_ended(world, f"r{number:02}")
        check_round(world, first, second)
        await gone(world, first, second)


async def test_the_other_waits_as_long_as_the_first_runs_and_says_so(
    world: World, muster: Service
) -> None:
    await world.nodes("n1", "n2", "n3", gpus=2)
    await both_at_once(world, "xa", "xb")
    await world.until(lambda: world.phases("x").count("Running") == 4, "four running pods")
    winner, loser = winner_of(world, "xa", "xb")
    await until_refused(world, loser, "2 of 4 pods fit", "0 of 2 nvidia.com/gpu free")
    assert world.ever_bound(loser) == set()
    await gone(world, winner)
    await world.until(lambda: world.phases(loser) == ["Running"] * 4, "the other gang")
    check_landed_whole(world, loser, 4)


async def test_one_pod_of_four_gpus_each(world: World, muster: Service) -> None:
    """The same with whole-node members: 2 x 4 GPUs each, and three such nodes."""
    await world.nodes("n1", "n2", "n3", gpus=4)
    async with asyncio.TaskGroup() as tasks:
        for name in ("xa", "xb"):
            tasks.create_task(world.group(name, 2))
            tasks.create_task(world.gang(name, 2, gpus=4, run_seconds=0.2))
    await world.until(lambda: world.phases() == ["Succeeded"] * 4, "both gangs' ends")
    together = bound_over_time(world, "x")
    assert max(len(alive) for alive in together) <= 3
    for name in ("xa", "xb"):
        check_landed_whole(world, name, 2)
    winner, loser = winner_of(world, "xa", "xb")
    begun = next(i for i, alive in enumerate(together) if any(n.startswith(loser) for n in alive))
    assert sum(name.startswith(winner) for name in together[begun]) <= 1
