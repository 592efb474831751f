"""S11: two replicas behind a Service that selects the leader; the leader dies, pauses, is rolled."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from tests.controlplane.processes import LEASE, Replica, replicas, service
from tests.controlplane.test_s3_kills import SIZE, bound_once, half_bound
from tests.controlplane.world import World

SECTION = {
    "podMaxBackoffSeconds": 1,
    "planDeadlineSeconds": 3,
    "leaderElection": LEASE,
    "concurrency": 1,
}


async def leader(made: list[Replica]) -> tuple[Replica, Replica]:
    """The replica that leads, and the other one."""
    async with asyncio.timeout(60):
        while True:
            for one, other in (made, made[::-1]):
                if (await one.state()).get("leading"):
                    return one, other
            await asyncio.sleep(0.05)


async def test_the_leader_is_killed_in_the_middle_of_a_gang(
    world: World, extender_port: int, tmp_path: Path
) -> None:
    await world.nodes("n1", "n2", "n3", gpus=8)
    async with (
        replicas(world.plane, tmp_path, 2, SECTION, 0) as made,
        service(made, extender_port),
    ):
        first, second = await leader(made)
        await world.group("train", SIZE)
        await world.gang("train", SIZE)
        await half_bound(world, 5)
        await first.kill()
        assert len(world.bound()) < SIZE
        await second.until_leading()
        await world.until(lambda: len(world.bound()) == SIZE, "the whole gang")
        assert (await second.state())["counters"]["adopted_plans"] == 1
        assert (await second.state())["overCommitted"] == []
    bound_once(world)


async def test_the_leader_is_paused_past_its_lease(
    world: World, extender_port: int, tmp_path: Path
) -> None:
    await world.nodes("n1", "n2", "n3", gpus=8)
    async with (
        replicas(world.plane, tmp_path, 2, SECTION, 0) as made,
        service(made, extender_port),
    ):
        first, second = await leader(made)
        await world.group("train", SIZE)
        await world.gang("train", SIZE)
        await half_bound(world, 5)
        first.signal(signal.SIGSTOP)
        await second.until_leading()
        first.signal(signal.SIGCONT)
        await world.until(lambda: len(world.bound()) == SIZE, "the whole gang")
        assert (await first.state())["leading"] is False
        assert (await second.state())["overCommitted"] == []
    bound_once(world)


async def test_a_rolling_update_under_load_loses_nothing(
    world: World, extender_port: int, tmp_path: Path
) -> None:
    await world.nodes("n1", "n2", "n3", gpus=8)
    section = {**SECTION, "concurrency": 16}
    async with (
        replicas(world.plane, tmp_path, 2, section, 0) as made,
        service(made, extender_port),
    ):
        await leader(made)
        for number in range(6):
            await world.group(f"g{number}", 4)
            await world.gang(f"g{number}", 4)
            replica = made[number % 2]
            if number in (1, 2):
                # As a Deployment does it: the new one is ready before the next one is stopped.
                await replica.stop()
                await replica.start()
        await world.until(lambda: len(world.bound()) == 24, "six whole gangs")
    bound_once(world)
