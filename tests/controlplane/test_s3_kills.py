"""S3 and S4: Muster, kube-scheduler or the API server is killed in the middle of a gang.

Afterwards every gang is whole or rolled back, and no pod was ever bound twice.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from extender.core import api
from tests.controlplane.processes import replicas
from tests.controlplane.test_s10_jobs import job
from tests.controlplane.wire import wired
from tests.controlplane.world import World

SIZE = 24
#: One Binding at a time, so that a kill finds a gang half bound.
SLOW = {
    "podMaxBackoffSeconds": 1,
    "planDeadlineSeconds": 3,
    "leaderElection": {"enabled": False},
    "concurrency": 1,
}


async def half_bound(world: World, count: int, name: str = "train") -> None:
    """Wait until so many members are bound."""
    await world.until(lambda: len(world.bound(f"{name}-")) >= count, f"{count} bound pods")


def bound_once(world: World) -> None:
    """No pod (by uid) was ever seen on two nodes."""
    nodes: dict[str, set[str]] = {}
    for each in world.seen:
        if each.node:
            nodes.setdefault(each.uid, set()).add(each.node)
    assert all(len(where) == 1 for where in nodes.values())


@pytest.mark.parametrize("bound", [0, 1, 7, SIZE - 1])
async def test_muster_is_killed_between_binds(
    world: World, extender_port: int, tmp_path: Path, bound: int
) -> None:
    await world.nodes("n1", "n2", "n3", gpus=8)
    async with wired(world.plane, tmp_path, [extender_port], SLOW) as ((muster, way),):
        await muster.until_leading()
        way.shut_after(bound)
        await world.group("train", SIZE)
        await world.gang("train", SIZE)
        await way.until_sent(1)
        await muster.kill()
        await half_bound(world, bound)
        assert len(world.bound()) == bound
        way.lose()
        await muster.start()
        await world.until(lambda: len(world.bound()) == SIZE, "the whole gang")
        await muster.until(lambda state: state["overCommitted"] == [])
    bound_once(world)


async def test_a_jobs_gang_survives_the_kill(
    world: World, extender_port: int, tmp_path: Path
) -> None:
    await world.nodes("n1", "n2", "n3", gpus=8)
    async with replicas(world.plane, tmp_path, 1, SLOW, extender_port) as (muster,):
        await muster.until_leading()
        wanted = job("ddp", SIZE - 1)
        for role in wanted["spec"]["pytorchReplicaSpecs"].values():
            del role["template"]["metadata"]["annotations"]["sim.muster.dev/run-seconds"]
        await world.client.create(api.PYTORCH_JOBS, world.namespace, wanted)
        await world.until(lambda: len(world.pods) >= SIZE // 2, "half of its pods")
        await muster.kill()
        await muster.start()
        await world.until(lambda: len(world.bound("ddp-")) == SIZE, "the whole gang")
    bound_once(world)


async def test_kube_scheduler_is_killed(world: World, extender_port: int, tmp_path: Path) -> None:
    await world.nodes("n1", "n2", "n3", gpus=8)
    async with replicas(world.plane, tmp_path, 1, SLOW, extender_port) as (muster,):
        await muster.until_leading()
        await world.group("train", SIZE)
        await world.gang("train", SIZE)
        await half_bound(world, 3)
        world.plane.kill_scheduler("muster", signal.SIGKILL)
        restart_scheduler(world)
        await world.until(lambda: len(world.bound()) == SIZE, "the whole gang")
    bound_once(world)


async def test_the_api_server_is_killed(world: World, extender_port: int, tmp_path: Path) -> None:
    await world.nodes("n1", "n2", "n3", gpus=8)
    async with replicas(world.plane, tmp_path, 1, SLOW, extender_port) as (muster,):
        await muster.until_leading()
        await world.group("train", SIZE)
        await world.gang("train", SIZE)
        await half_bound(world, 3)
        world.plane.kill_apiserver()
        await asyncio.to_thread(world.plane.restart_apiserver)
        await world.until(lambda: len(world.bound()) == SIZE, "the whole gang", patience=90)
        await muster.until(lambda state: state["overCommitted"] == [])
    bound_once(world)


def restart_scheduler(world: World) -> None:
    """Start kube-scheduler again with the configuration it had."""
    config = (world.plane.work_dir / "scheduler-muster.yaml").read_text()
    world.plane.start_scheduler(config, "muster")
