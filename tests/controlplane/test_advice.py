"""Advice on the real control plane: where a user looks, and gone once the job is edited."""

from __future__ import annotations

from extender.core import api
from extender.core.objects import Manifest
from extender.runtime import Service
from tests.controlplane.test_s10_jobs import conditions, job
from tests.controlplane.world import World


async def test_advice_is_an_event_and_a_condition_until_the_edit(
    world: World, muster: Service
) -> None:
    await world.nodes("n1", "n2", gpus=1)
    crowded = job("ddp", 1)
    for role in crowded["spec"]["pytorchReplicaSpecs"].values():
        del role["template"]["metadata"]  # it runs until it is deleted
    crowded["spec"]["nprocPerNode"] = "4"
    await world.client.create(api.PYTORCH_JOBS, world.namespace, crowded)
    event = await world.until_event("ddp", "spec.nprocPerNode is 4: the container has 1 GPUs")
    assert (event["type"], event["reason"]) == ("Warning", "ProcessesAndGPUs")

    def running(found: Manifest) -> bool:
        return conditions(found).get("Running") == "True"

    held = await world.until_object(api.PYTORCH_JOBS, "ddp", running, "the job to run")
    found = {each["type"]: each["message"] for each in held["status"]["conditions"]}
    # Created may have been written on its own or with Running: Advice stands beside it, never last.
    assert sorted(found) == ["Advice", "Created", "Running"]
    assert list(found)[-1] == "Running"
    assert "Write 1 (or auto)" in found["Advice"]
    table = world.plane.kubectl("get", "pytorchjobs", "-n", world.namespace).stdout
    assert table.splitlines()[1].split()[:2] == ["ddp", "Running"]

    patch = {"spec": {"nprocPerNode": "1"}}
    await world.client.patch(api.PYTORCH_JOBS, world.namespace, "ddp", patch)
    await world.until_object(
        api.PYTORCH_JOBS,
        "ddp",
        lambda found: conditions(found) == {"Created": "True", "Running": "True"},
        "the advice to go",
    )
    said = [each["reason"] for each in await world.events("ddp")]
    assert said.count("ProcessesAndGPUs") == 1
