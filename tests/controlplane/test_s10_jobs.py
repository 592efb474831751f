"""S10: PyTorchJobs as people submit them run from apply to the end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.core import api
from extender.core.advising import ADVICE
from extender.core.api import Resource
from extender.core.objects import Manifest
from extender.runtime import Service, running
from extender.sim import fleet
from tests.controlplane.conftest import check_service, leading, scheduler_config, settings_for
from tests.controlplane.rights import account
from tests.controlplane.world import GPU, World

ROOT = Path(__file__).parents[2]
#: The manifests that users apply, where this checkout has them beside it.
SHARED = ROOT.parent / "shared" / "manifests"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the users' manifests are not here")


def shared(number: str) -> Manifest:
    """One of the users' manifests, as it stands."""
    (path,) = SHARED.glob(f"{number}-*.yaml")
    return dict(yaml.safe_load(path.read_text()))


def conditions(job: Manifest) -> dict[str, str]:
    """Condition types with their status; advice says nothing of how a job fares."""
    conditions = job.get("status", {}).get("conditions", ())
    return {c["type"]: c["status"] for c in conditions if c["type"] != ADVICE}


def endless(body: Manifest) -> Manifest:
    """A job of :func:`job`, whose pods run until they are ended."""
    for role in body["spec"]["pytorchReplicaSpecs"].values():
        del role["template"]["metadata"]["annotations"]["sim.muster.dev/run-seconds"]
    return body


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


async def until_condition(
    world: World, name: str, kind: str, resource: Resource = api.PYTORCH_JOBS
) -> Manifest:
    """The job as soon as the condition is True."""
    return await world.until_object(
        resource, name, lambda j: conditions(j).get(kind) == "True", f"{name} {kind}"
    )


@pytest.fixture
async def storage(world: World) -> World:
    """The claims of manifests 07 and 08, bound to volumes that any node can use."""
    await fleet.add_namespace(world.client, "ml-training")
    for number in ("07", "08"):
        claim = shared(number)
        name = claim["metadata"]["name"]
        spec = claim["spec"]
        volume = {
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": spec["resources"]["requests"]["storage"]},
                "accessModes": spec["accessModes"],
                "storageClassName": spec["storageClassName"],
                "claimRef": {"namespace": "ml-training", "name": name},
                "nfs": {"server": "nfs.example.com", "path": "/"},
            },
        }
        await world.client.create(api.VOLUMES, None, volume)
        claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
        claim["spec"]["volumeName"] = name
        await world.client.create(api.CLAIMS, "ml-training", claim)
        bound = {"status": {"phase": "Bound"}}
        await world.client.patch(api.CLAIMS, "ml-training", name, bound, "status")
    return world


@needs_shared
async def test_manifest_04_with_its_claims(storage: World, muster: Service) -> None:
    world = storage
    world.namespace, world.run_seconds = "ml-training", 0.5
    await world.nodes("n1", "n2", "n3", gpus=2)
    await world.client.create(api.PYTORCH_JOBS, world.namespace, shared("04"))
    done = await world.until_object(
        api.PYTORCH_JOBS,
        "pytorch-ddp-mnist",
        lambda j: conditions(j).get("Succeeded") == "True",
        "success",
    )
    await world.until(lambda: len(world.ever_bound("pytorch-ddp-mnist-")) == 3, "all of them")
    # cleanPodPolicy is None by default: the pods stay, and count.
    assert done["status"]["replicaStatuses"]["Master"]["succeeded"] == 1


@needs_shared
async def test_manifest_17_where_the_default_scheduler_carries_the_extender(
    world: World, extender_port: int
) -> None:
    world.namespace, world.run_seconds = "default", 0.5
    config = scheduler_config("scheduler-default.yaml", extender_port)
    world.plane.start_scheduler(config, "default")
    try:
        await world.nodes("n1", gpus=0, cpu="8")
        settings = settings_for(extender_port, schedulerNames=["default-scheduler"])
        async with running(settings, account(world.plane)) as service:
            await leading(service)
            await world.client.create(api.PYTORCH_JOBS, "default", shared("17"))
            await world.until_object(
                api.PYTORCH_JOBS,
                "pytorch-test",
                lambda j: conditions(j).get("Succeeded") == "True",
                "success",
            )
            check_service(service)
        names = {f"pytorch-test-{name}" for name in ("master-0", "worker-0", "worker-1")}
        await world.until(lambda: world.ever_bound() == names, "all of them")
        assert {name for (ns, name) in world.pods if ns == "default"} == names
    finally:
        world.plane.kill_scheduler("default")


@needs_shared
async def test_manifest_02_with_four_plain_pods(world: World, muster: Service) -> None:
    world.namespace = "default"
    await world.priority_class("high-priority", 1000)
    await world.nodes("n1", gpus=4)
    group = shared("02")
    name = group["metadata"]["name"]
    await world.client.create(api.VOLCANO_GROUPS, "default", group)
    await world.gang(name, 4, run_seconds=0.5)
    done = await world.until_object(
        api.VOLCANO_GROUPS,
        name,
        lambda g: g.get("status", {}).get("phase") == "Completed",
        "completion",
    )
    assert done["spec"]["queue"] == "ml-research-queue"
    assert done["status"]["succeeded"] == 4
    table = world.plane.kubectl("get", "podgroups.scheduling.volcano.sh", name).stdout
    assert table.splitlines()[0].split() == ["NAME", "STATUS", "MINMEMBER", "RUNNINGS", "AGE"]
    seen = muster.view.gang("default", name)
    assert seen is not None
    assert seen["queue"] == "ml-research-queue"


@needs_shared
async def test_manifest_12_gets_the_clear_error(world: World, muster: Service) -> None:
    await fleet.add_namespace(world.client, "ml-training")
    world.namespace = "ml-training"
    (path,) = SHARED.glob("12-*.yaml")
    await asyncio.to_thread(world.plane.kubectl, "apply", "-f", str(path))
    event = await world.until_event("my-training-job", "spec.pytorchReplicaSpecs")
    assert event["type"] == "Warning"
    held = await world.until_object(api.PYTORCH_JOBS, "my-training-job", conditions, "a condition")
    assert "Failed" not in conditions(held)
    await world.nodes("n1", "n2")
    await world.client.create(api.PYTORCH_JOBS, "ml-training", job("neighbour", 1))
    await world.until(lambda: len(world.bound("neighbour")) == 2, "the neighbour")


async def test_a_job_without_its_container_name(world: World, muster: Service) -> None:
    bad = job("bad", 1)
    bad["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]["name"] = "x"
    await world.nodes("n1", "n2")
    await world.client.create(api.PYTORCH_JOBS, world.namespace, bad)
    event = await world.until_event("bad", "pytorch")
    assert event["type"] == "Warning"
    assert "containers" in event["message"]
    await world.client.create(api.PYTORCH_JOBS, world.namespace, job("good", 1))
    await world.until(lambda: len(world.bound("good")) == 2, "the neighbour")
    assert world.ever_bound("bad") == set()


async def test_a_job_waits_whole_lands_whole_and_ends(world: World, muster: Service) -> None:
    await world.nodes("n1", "n2", "n3")
    await world.client.create(api.PYTORCH_JOBS, world.namespace, endless(job("ddp", 3)))
    event = await world.until_event("ddp", "3 of 4 pods would fit")
    assert event["reason"] == "Unschedulable"
    waiting = await world.until_object(api.PYTORCH_JOBS, "ddp", conditions, "its conditions")
    assert conditions(waiting) == {"Created": "True"}
    assert world.seen == [] or world.ever_bound() == set()

    await world.nodes("n4")
    await world.until(lambda: len(world.bound()) == 4, "four bound pods")
    assert sorted(world.bound()) == ["ddp-master-0", "ddp-worker-0", "ddp-worker-1", "ddp-worker-2"]
    await until_condition(world, "ddp", "Running")
    await world.end("ddp-master-0")
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


async def test_a_job_that_is_edited_while_it_waits(world: World, muster: Service) -> None:
    """It is placed as it is now, and none of its pods is made for a scheduler that would bind it alone."""
    await world.nodes("n1", "n2")
    two = [{"name": "pytorch", "image": "none", "resources": {"limits": {GPU: 2}}}]
    body = job("ddp", 1, schedulerName="somebody-else", containers=two)
    await world.client.create(api.PYTORCH_JOBS, world.namespace, body)
    await world.until_event("ddp", "pod ddp-master-0 names scheduler somebody-else")
    await until_condition(world, "ddp", "Created")

    async def edit(**template: Any) -> None:
        spec = job("ddp", 1, schedulerName="muster", **template)["spec"]
        await world.client.patch(api.PYTORCH_JOBS, world.namespace, "ddp", {"spec": spec})

    await edit(containers=two)
    await world.until_event("ddp", "1 nvidia.com/gpu in all, 2 asked")
    assert world.seen == []
    await edit()
    await until_condition(world, "ddp", "Succeeded")
