"""kube-scheduler with nodeCacheCapable false, its default: whole Nodes go over the wire, and whole victims."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import yaml

from extender.runtime import Service, running
from tests.controlplane.conftest import check_service, leading, scheduler_config, settings_for
from tests.controlplane.gangs import check_landed_whole, until_refused
from tests.controlplane.rights import account
from tests.controlplane.world import World, pod

MARKS = {"scheduling.k8s.io/group-name": "train"}


@pytest.fixture
async def whole(world: World, extender_port: int) -> AsyncIterator[Service]:
    """A Muster that a scheduler ``whole`` sends whole Nodes."""
    config = yaml.safe_load(scheduler_config("scheduler-own.yaml", extender_port))
    config["profiles"] = [{"schedulerName": "whole"}]
    for entry in config["extenders"]:
        entry["nodeCacheCapable"] = False
    world.plane.start_scheduler(config, "whole")
    try:
        settings = settings_for(extender_port, schedulerNames=["whole"])
        async with running(settings, account(world.plane)) as service:
            await leading(service)
            yield service
            check_service(service)
    finally:
        world.plane.kill_scheduler("whole")


async def test_a_gang_waits_whole_lands_whole_and_is_no_victim(
    world: World, whole: Service
) -> None:
    await world.priority_class("urgent", 1_000_000)
    await world.nodes("n1", "n2", "n3")
    await world.group("train", 4)
    await world.gang("train", 4, scheduler="whole")
    condition = await until_refused(world, "train", "3 of 4 pods would fit", "3 nodes: room for 1")
    await world.until(
        lambda: condition["message"] in world.scheduled_message("train-0"), "the reason on a pod"
    )
    assert world.ever_bound() == set()
    await world.nodes("n4")
    await world.until(lambda: world.phases("train") == ["Running"] * 4, "the gang")
    check_landed_whole(world, "train", 4)

    await world.create([pod("urgent", scheduler="whole", priorityClassName="urgent")])
    await world.until(lambda: world.scheduled_message("urgent"), "the preemptor's refusal")
    asked = whole.metrics.registry.get_sample_value
    labels = {"verb": "preempt", "result": "refused"}
    assert asked("muster_verb_results_total", labels)
    assert not asked("muster_malformed_bodies_total", {"verb": "preempt"})
    # A member beyond the minimum may go.
    await world.nodes("n5")
    await world.until(lambda: "urgent" in world.bound(), "the preemptor on a node of its own")
    await world.create([pod("train-4", scheduler="whole", annotations=MARKS)])
    await world.nodes("n6")
    await world.until(lambda: "train-4" in world.bound(), "the fifth member")
    await world.create([pod("second", scheduler="whole", priorityClassName="urgent")])
    await world.until(lambda: "second" in world.bound(), "the second preemptor")
    assert world.phases("train") == ["Running"] * 4
