"""The default scheduler with managedResources: pods without a GPU never reach the extender."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator

import pytest

from extender.core import api
from extender.runtime import Service, running
from tests.controlplane.conftest import check_service, leading, scheduler_config, settings_for
from tests.controlplane.rights import account
from tests.controlplane.test_s10_jobs import job
from tests.controlplane.world import GPU, World, pod


@pytest.fixture
async def managed(world: World, extender_port: int) -> AsyncIterator[Service]:
    """Muster for a default scheduler that sends it pods with GPUs only."""
    config = scheduler_config("scheduler-managed.yaml", extender_port)
    world.plane.start_scheduler(config, "default")
    try:
        settings = settings_for(
            extender_port, schedulerNames=["default-scheduler"], managedResources=[GPU]
        )
        async with running(settings, account(world.plane)) as service:
            await leading(service)
            yield service
            check_service(service)
    finally:
        world.plane.kill_scheduler("default")


async def test_a_master_without_gpu_is_gated_until_the_commit(
    world: World, managed: Service
) -> None:
    body = job("ddp", 2)
    roles = body["spec"]["pytorchReplicaSpecs"]
    roles["Master"] = copy.deepcopy(roles["Master"])
    roles["Master"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1"}}
    await world.nodes("n1")
    await world.client.create(api.PYTORCH_JOBS, world.namespace, body)
    await world.until_event("ddp", "2 of 3 pods")
    assert world.ever_bound() == set()
    await world.nodes("n2")
    await world.until(lambda: len(world.bound("ddp-")) == 3, "three bound pods")
    # The workers came to /bind; the master was let go together with them, not before.
    order = [each.name for each in world.seen if each.node]
    assert "ddp-master-0" in order


async def test_a_foreign_member_that_nothing_holds_is_refused(
    world: World, managed: Service
) -> None:
    await world.nodes("n1", gpus=2)
    await world.group("train", 2)
    marks = {"scheduling.k8s.io/group-name": "train"}
    await world.create([pod("train-0", annotations=marks, scheduler="default-scheduler")])
    loose = pod("train-1", gpus=0, annotations=marks, scheduler="default-scheduler")
    await world.create([loose])
    event = await world.until_event("train-1", GPU)
    assert event["reason"] == "MemberWithoutManagedResource"
    # kube-scheduler binds it all the same, at once; the rest of the gang only follows.
    await world.until(lambda: len(world.bound()) == 2, "both")
    order = [each.name for each in world.seen if each.node]
    assert order.index("train-1") < order.index("train-0")


async def test_pods_without_gpu_are_none_of_musters_business(
    world: World, managed: Service
) -> None:
    await world.nodes("n1")
    await world.create([pod("plain", gpus=0, scheduler="default-scheduler")])
    await world.until(lambda: world.bound() == {"plain": "n1"}, "the plain pod")
