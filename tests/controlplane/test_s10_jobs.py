"""S10: PyTorchJobs as people submit them run from apply to the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from extender.core import api
from extender.core.objects import Manifest
from extender.runtime import Service
from tests.controlplane.world import World

ROOT = Path(__file__).parents[2]


def conditions(job: Manifest) -> dict[str, str]:
    """Condition types with their status."""
    return {c["type"]: c["status"] for c in job.get("status", {}).get("conditions", ())}


def job(name: str, workers: int, **template: Any) -> Manifest:
    """1 master and some workers, one GPU each, that run for a moment."""
    body = yaml.safe_load((ROOT / "manifests/examples/pytorchjob.yaml").read_text())
    body["metadata"] = {"name": name}
    specs = body["spec"]["pytorchReplicaSpecs"]
    specs["Worker"]["replicas"] = workers
    for role in specs.values():
        meta = role["template"].setdefault("metadata", {})
        meta.setdefault("annotations", {})["sim.muster.dev/run-seconds"] = "0.5"
        role["template"]["spec"].update(template)
    return body


async def test_a_job_waits_whole_lands_whole_and_ends(world: World, muster: Service) -> None:
    await world.nodes("n1", "n2", "n3")
    await world.client.create(api.PYTORCH_JOBS, world.namespace, job("ddp", 3))
    event = await world.until_event("ddp", "3 of 4 pods would fit")
    assert event["reason"] == "Unschedulable"
    waiting = await world.client.get(api.PYTORCH_JOBS, world.namespace, "ddp")
    assert conditions(waiting) == {"Created": "True"}
    assert world.seen == [] or world.ever_bound() == set()

    await world.nodes("n4")
    await world.until(lambda: len(world.bound()) == 4, "four bound pods")
    assert sorted(world.bound()) == ["ddp-master-0", "ddp-worker-0", "ddp-worker-1", "ddp-worker-2"]
    done = await world.until_object(
        api.PYTORCH_JOBS,
        "ddp",
        lambda j: conditions(j).get("Succeeded") == "True",
        "the job to succeed",
    )
    assert conditions(done) == {"Created": "True", "Running": "False", "Succeeded": "True"}
    table = world.plane.kubectl("get", "pytorchjobs", "-n", world.namespace).stdout
    assert table.splitlines()[0].split() == ["NAME", "STATE", "AGE"]
    assert table.splitlines()[1].split()[:2] == ["ddp", "Succeeded"]
