"""Workers that wait for a master which is slow to listen."""

from __future__ import annotations

import asyncio
from pathlib import Path

from extender.core import api
from extender.core.objects import Manifest
from extender.jobs.history import HISTORY
from extender.jobs.meeting import WAIT
from extender.jobs.restarts import RECORD
from extender.runtime import Service
from tests.controlplane.training import jobs
from tests.controlplane.training.kubelet import ProcessKubelet
from tests.controlplane.world import World

NAMES = ("slow-master-0", "slow-worker-0", "slow-worker-1")


def job(shared: Path) -> Manifest:
    pod = jobs.template("pytorch", ["/usr/bin/python3", "/programs/dial_once.py"], shared)
    return jobs.job("slow", "pytorchReplicaSpecs", {"Master": (1, pod), "Worker": (2, pod)})


async def said_by_workers(kubelet: ProcessKubelet, sign: str) -> None:
    async with asyncio.timeout(90):
        while any(sign not in kubelet.log(name) for name in NAMES[1:]):
            await kubelet.printed()


async def test_workers_wait_until_the_master_listens(
    world: World, muster: Service, kubelet: ProcessKubelet, tmp_path: Path
) -> None:
    """They are placed together, and none of them ends in vain."""
    await world.nodes("n1", "n2", cpu="2")
    body = job(tmp_path)
    body["metadata"]["annotations"] = {WAIT: "own-image"}
    await world.client.create(api.PYTORCH_JOBS, world.namespace, body)
    await said_by_workers(kubelet, "waiting for slow-master-0:23456")
    (tmp_path / "door").touch()
    done = await world.until_object(
        api.PYTORCH_JOBS, "slow", jobs.holds("Succeeded"), "its end", patience=90
    )
    assert "rank 0 heard [1, 2]" in kubelet.log("slow-master-0")
    # The job has ended with its master: they may be yet to print it.
    await said_by_workers(kubelet, "was heard")
    for rank, name in enumerate(NAMES[1:], 1):
        assert kubelet.log(name).endswith(f"done\nrank {rank} was heard\n")
    marks = done["metadata"].get("annotations") or {}
    assert RECORD not in marks
    assert "restarts" not in marks.get(HISTORY, ""), kubelet.log("slow-master-0")
    assert len(world.lives()) == len(NAMES)


async def test_without_the_annotation_a_program_that_dials_once_ends_in_vain(
    world: World, muster: Service, kubelet: ProcessKubelet, tmp_path: Path
) -> None:
    await world.nodes("n1", "n2", cpu="2")
    await world.client.create(api.PYTORCH_JOBS, world.namespace, job(tmp_path))
    await said_by_workers(kubelet, "ConnectionRefusedError")
