"""tests/cases/upstream.yaml: jobs as other projects' examples have them, from apply to success."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from extender import cli
from extender.core import api
from extender.core.objects import Manifest
from extender.runtime import Service
from tests.controlplane.test_kinds import replicas
from tests.controlplane.test_s10_jobs import conditions
from tests.controlplane.test_sdk import all_active, end
from tests.controlplane.world import World

FILE = Path(__file__).parents[1] / "cases/upstream.yaml"
CASES: dict[str, Manifest] = {
    each["metadata"]["name"]: each for each in yaml.safe_load_all(FILE.read_text())
}
RESOURCES = {each.kind: each for each in api.JOBS if each.version == "v1"}
#: Jobs that run beside each other in one test: a control plane takes longer to start than they to run.
TOGETHER = {
    "pytorch": ("simple", "imagenet", "echo", "mnist-nccl", "deepspeed"),
    "tensorflow": ("tf-simple", "dist-mnist", "multi-worker"),
    "others": ("iris", "lightgbm", "paddle-cpu", "paddle-gpu", "jax-simple"),
    "kueue": ("queued", "queued-paddle"),
}


def test_all_of_them_are_played() -> None:
    assert sorted(name for names in TOGETHER.values() for name in names) == sorted(CASES)


def test_muster_check_says_nothing_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "--json", str(FILE)]) == 0
    assert json.loads(capsys.readouterr().out) == {"objects": len(CASES), "problems": []}


async def claim(world: World) -> None:
    """A volume that every node reaches, bound to the claim that the jobs share."""
    spec = {"accessModes": ["ReadWriteMany"], "storageClassName": "shared"}
    ref = {"namespace": world.namespace, "name": "models"}
    volume = {
        "metadata": {"name": "models"},
        "spec": {
            **spec,
            "capacity": {"storage": "1Gi"},
            "claimRef": ref,
            "nfs": {"server": "nfs.example.com", "path": "/"},
        },
    }
    await world.client.create(api.VOLUMES, None, volume)
    bound = {"pv.kubernetes.io/bind-completed": "yes"}
    body = {
        "metadata": {"name": "models", "annotations": bound},
        "spec": {**spec, "volumeName": "models", "resources": {"requests": {"storage": "1Gi"}}},
    }
    await world.client.create(api.CLAIMS, world.namespace, body)
    phase = {"status": {"phase": "Bound"}}
    await world.client.patch(api.CLAIMS, world.namespace, "models", phase, "status")


@pytest.mark.parametrize("group", TOGETHER)
async def test_they_run_and_succeed(world: World, muster: Service, group: str) -> None:
    jobs = [CASES[name] for name in TOGETHER[group]]
    await claim(world)
    await world.nodes(*(f"n{i}" for i in range(6)), gpus=4, cpu="16")
    for job in jobs:
        await world.client.create(RESOURCES[job["kind"]], world.namespace, job)
    for job in jobs:
        resource, name = RESOURCES[job["kind"]], job["metadata"]["name"]
        if job["spec"].get("runPolicy", {}).get("suspend"):
            held = await world.until_object(
                resource, name, lambda j: conditions(j).get("Suspended") == "True", "suspension"
            )
            assert conditions(held) == {"Created": "True", "Suspended": "True"}
            assert world.ever_bound(name) == set()
            patch = {"spec": {"runPolicy": {"suspend": False}}}
            await world.client.patch(resource, world.namespace, name, patch)
    # They are held until all run, so that each is seen to.
    names = sorted(name for job in jobs for name in replicas(job))
    await world.until(lambda: sorted(world.bound()) == names, "all of them bound")
    for job in jobs:
        resource, name = RESOURCES[job["kind"]], job["metadata"]["name"]
        await all_active(world, resource, name, len(replicas(job)))
        running = await world.client.get(resource, world.namespace, name)
        assert conditions(running)["Running"] == "True"
    await end(world, names)
    for job in jobs:
        resource, name = RESOURCES[job["kind"]], job["metadata"]["name"]
        done = await world.until_object(
            resource, name, lambda j: conditions(j).get("Succeeded") == "True", "success"
        )
        assert (conditions(done)["Running"], "Failed" in conditions(done)) == ("False", False)
