"""A log that `serve --record` wrote beside the real control plane replays identically."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from extender.core import api
from extender.kube import credentials
from extender.runtime import running
from tests.controlplane.conftest import check_service, leading, settings_for
from tests.controlplane.test_s10_jobs import job
from tests.controlplane.world import World


async def test_a_run_beside_the_real_control_plane_replays_identically(
    world: World, extender_port: int, tmp_path: Path
) -> None:
    log = tmp_path / "muster.log"
    where = credentials.from_kubeconfig(str(world.plane.kubeconfig_path))
    await world.nodes("n1", "n2", gpus=2)
    async with running(settings_for(extender_port), where, record=log) as service:
        await leading(service)
        await world.group("waits", 9)
        await world.gang("waits", 9)
        await world.group("train", 2)
        await world.gang("train", 2)
        await world.until(lambda: len(world.bound("train-")) == 2, "the gang that fits")
        await world.client.create(api.PYTORCH_JOBS, world.namespace, job("ddp", 1))
        await world.until(lambda: len(world.bound("ddp-")) == 2, "the job")
        await world.delete_pod("train-0")
        await world.nodes("n3", gpus=8)
        await world.gang("later", 2, gpus=1)
        await world.group("later", 2)
        await world.until(lambda: len(world.bound("later-")) == 2, "the gang that came later")
        check_service(service)
    for seed in ("1", "2"):
        command = [sys.executable, "-m", "extender.cli", "replay", "--json", str(log)]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONHASHSEED": seed}
        )
        out, _ = await process.communicate()
        found = json.loads(out)
        assert (process.returncode, found["identical"]) == (0, True), found.get("difference")
        assert found["judged"] == found["commands"] > 30
