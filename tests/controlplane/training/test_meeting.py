"""Workers that wait for a master which is slow to listen."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

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


async def said_by_workers(
    kubelet: ProcessKubelet, sign: str, names: tuple[str, ...] = NAMES[1:]
) -> None:
    async with asyncio.timeout(90):
        while any(sign not in kubelet.log(name) for name in names):
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


@pytest.mark.parametrize("servers", [0, 1], ids=["collective", "servers"])
async def test_of_a_paddlejob_the_first_is_who_has_its_address(
    world: World, muster: Service, kubelet: ProcessKubelet, tmp_path: Path, servers: int
) -> None:
    """It is told its own by number, before it is known to anybody else; the others its name."""
    await world.nodes("n1", "n2", cpu="2")
    pod = jobs.template("paddle", ["/usr/bin/python3", "/programs/paddle_once.py"], tmp_path)
    roles = {"Master": (servers, pod)} if servers else {}
    body = jobs.job("slow", "paddleReplicaSpecs", roles | {"Worker": (3 - servers, pod)})
    body["metadata"]["annotations"] = {WAIT: "own-image"}
    await world.client.create(api.PADDLE_JOBS, world.namespace, body)
    workers = tuple(f"slow-worker-{index}" for index in range(3 - servers))
    first, *rest = ("slow-master-0", *workers) if servers else workers
    others = tuple(rest)
    await said_by_workers(kubelet, f"waiting for {first}:36543", others)
    assert kubelet.log(first) == ""
    (tmp_path / "door").touch()
    await world.until_object(
        api.PADDLE_JOBS, "slow", jobs.holds("Succeeded"), "its end", patience=90
    )
    role = (lambda name: [f"PADDLE_{name}_NUM"]) if servers else (lambda _: [])
    assert kubelet.log(first) == f"{first} {role('SERVER')} of slow heard {sorted(others)}\n"
    # With servers the job has ended with the first: they may be yet to print it.
    await said_by_workers(kubelet, "was heard", others)
    for name in others:
        said = kubelet.log(name)
        assert said.endswith(f"done\n{name} {role('TRAINER')} was heard by {first}\n"), said
    assert len(world.lives()) == 3


async def test_without_the_annotation_a_program_that_dials_once_ends_in_vain(
    world: World, muster: Service, kubelet: ProcessKubelet, tmp_path: Path
) -> None:
    await world.nodes("n1", "n2", cpu="2")
    await world.client.create(api.PYTORCH_JOBS, world.namespace, job(tmp_path))
    await said_by_workers(kubelet, "ConnectionRefusedError")
