"""S11: two replicas behind a Service that selects the leader; the leader dies, pauses, is rolled."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from extender.sim.daemon import free_port
from tests.controlplane.gangs import check_landed_whole
from tests.controlplane.processes import LEASE, Replica, replicas, service
from tests.controlplane.test_s3_kills import SIZE, bound_once, half_bound
from tests.controlplane.wire import Wire, wired
from tests.controlplane.world import World

SECTION = {
    "podMaxBackoffSeconds": 1,
    "planDeadlineSeconds": 3,
    # Longer than a busy machine keeps a process waiting: nobody but the test takes the lease away.
    "leaderElection": {**LEASE, "leaseDurationSeconds": 6, "renewDeadlineSeconds": 4},
    "concurrency": 1,
}

#: Members that are bound when something befalls the leader.
BOUND = 5


async def leader(made: list[Replica]) -> tuple[Replica, Replica]:
    """The replica that leads, and the other one."""
    async with asyncio.timeout(60):
        while True:
            for one, other in (made, made[::-1]):
                if (await one.state()).get("leading"):
                    return one, other
            await asyncio.sleep(0.05)


@asynccontextmanager
async def half_bound_by_two(
    world: World, folder: Path, port: int
) -> AsyncIterator[tuple[Replica, Replica, Wire]]:
    """Leader, standby and the leader's wire: BOUND members are bound, the next Binding is on the way."""
    await world.nodes("n1", "n2", "n3", gpus=8)
    ports = [free_port() for _ in range(2)]
    async with wired(world.plane, folder, ports, SECTION) as made:
        both = [replica for replica, _ in made]
        async with service(both, port):
            first, second = await leader(both)
            (way,) = (way for replica, way in made if replica is first)
            way.shut_after(BOUND)
            await world.group("train", SIZE)
            await world.gang("train", SIZE)
            await way.until_sent(1)
            yield first, second, way


async def test_the_leader_is_killed_in_the_middle_of_a_gang(
    world: World, extender_port: int, tmp_path: Path
) -> None:
    async with half_bound_by_two(world, tmp_path, extender_port) as (first, second, way):
        await first.kill()
        way.lose()
        await half_bound(world, BOUND)
        assert len(world.bound()) == BOUND
        await second.until_leading()
        await world.until(lambda: len(world.bound()) == SIZE, "the whole gang")
        state = await second.until(lambda state: state["overCommitted"] == [])
        assert state["counters"]["adopted_plans"] == 1
    bound_once(world)


async def test_the_leader_is_paused_past_its_lease(
    world: World, extender_port: int, tmp_path: Path
) -> None:
    async with half_bound_by_two(world, tmp_path, extender_port) as (first, second, way):
        first.signal(signal.SIGSTOP)
        await half_bound(world, BOUND)
        assert len(world.bound()) == BOUND
        await second.until_leading()
        await way.until_answered()
        first.signal(signal.SIGCONT)
        await world.until(lambda: len(world.bound()) == SIZE, "the whole gang")
        await first.until(lambda state: not state["leading"])
        await second.until(lambda state: state["leading"] and state["overCommitted"] == [])
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
    for number in range(6):
        check_landed_whole(world, f"g{number}", 4)
