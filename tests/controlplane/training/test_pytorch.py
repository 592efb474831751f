"""PyTorchJobs that train through Muster and kube-scheduler."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

from extender.core import api
from extender.core.objects import Manifest
from extender.jobs.restarts import RECORD
from extender.runtime import Service
from tests.controlplane.training import jobs
from tests.controlplane.training.kubelet import ProcessKubelet
from tests.controlplane.world import World

PYTHON = "/usr/bin/python3"
DDP = "/programs/ddp.py"
#: torch 1.13's torchrun needs -r and -t under Python 3.11.
TORCHRUN = ["/usr/bin/torchrun", "-r", "1", "-t", "1", "--log_dir", "/logs"]


def training(shared: Path, steps: int, pause: float, workers: int = 2) -> Manifest:
    command = [PYTHON, DDP, "/shared/model.pt", str(steps), str(pause)]
    pod = jobs.template("pytorch", command, shared)
    return jobs.job("ddp", "pytorchReplicaSpecs", {"Master": (1, pod), "Worker": (workers, pod)})


async def test_ddp_trains_to_its_end(
    world: World, muster: Service, kubelet: ProcessKubelet, tmp_path: Path
) -> None:
    await world.nodes("n1", "n2", cpu="2")
    await world.client.create(api.PYTORCH_JOBS, world.namespace, training(tmp_path, 30, 0.0))
    await world.until_object(api.PYTORCH_JOBS, "ddp", jobs.holds("Succeeded"), "its end")
    for name, rank in (("ddp-master-0", 0), ("ddp-worker-0", 1), ("ddp-worker-1", 2)):
        said = kubelet.log(name)
        assert f"rank {rank} ended: 3 ranks, weight 3.00 bias 1.00" in said, said


async def test_torchrun_goes_on_when_a_worker_is_killed(
    world: World, muster: Service, kubelet: ProcessKubelet, tmp_path: Path
) -> None:
    """Elastic: the kubelet starts the worker again, and the others meet it where they left off."""
    await world.nodes("n1", "n2", cpu="2")
    command = [*TORCHRUN, DDP, "/shared/model.pt", "40", "0.2"]
    pod = jobs.template("pytorch", command, tmp_path)
    # The store that all meet at is worker 0's, which is not killed.
    elastic = {"minReplicas": 2, "maxReplicas": 3, "maxRestarts": 10, "rdzvId": "run"}
    roles = {"Worker": (3, pod)}
    body = jobs.job("elastic", "pytorchReplicaSpecs", roles, elasticPolicy=elastic)
    await world.client.create(api.PYTORCH_JOBS, world.namespace, body)
    async with asyncio.timeout(60):
        while "step 5 " not in "".join(kubelet.log(f"elastic-worker-{i}") for i in range(3)):
            await kubelet.printed()
    kubelet.boxes["elastic-worker-2"].signal(signal.SIGKILL)
    await world.until_object(
        api.PYTORCH_JOBS, "elastic", jobs.holds("Succeeded"), "its end", patience=90
    )
    said = "".join(kubelet.log(f"elastic-worker-{i}") for i in range(3))
    assert "weight 3.00 bias 1.00" in said, said
    # All began at step 0, and after the loss at a later one.
    starts = {
        line.partition("starts at step ")[2]
        for line in said.splitlines()
        if "starts at step" in line
    }
    assert "0" in starts
    assert len(starts) > 1, starts


async def test_a_killed_worker_is_one_restart_of_the_gang_from_its_checkpoint(
    world: World, muster: Service, kubelet: ProcessKubelet, tmp_path: Path
) -> None:
    """The kubelet would start it alone, and its peers would wait for it in vain."""
    await world.nodes("n1", "n2", "n3", cpu="1")
    await world.client.create(api.PYTORCH_JOBS, world.namespace, training(tmp_path, 40, 0.2))
    async with asyncio.timeout(60):
        while "step 5 " not in kubelet.log("ddp-master-0"):
            await kubelet.printed()
    kubelet.boxes["ddp-worker-1"].signal(signal.SIGKILL)
    job = await world.until_object(
        api.PYTORCH_JOBS, "ddp", jobs.holds("Succeeded"), "its end", patience=90
    )
    assert json.loads(job["metadata"]["annotations"][RECORD])["number"] == 1
    assert len(world.lives()) == 2 * 3
    for rank, name in enumerate(("ddp-master-0", "ddp-worker-0", "ddp-worker-1")):
        said = kubelet.log(name)
        starts = [line for line in said.splitlines() if "starts at step" in line]
        assert int(starts[-1].rpartition(" ")[2]) >= 5, said
        assert f"rank {rank} ended: 3 ranks, weight 3.00 bias 1.00" in said, said
