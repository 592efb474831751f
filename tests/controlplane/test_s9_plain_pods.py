"""S9: pods of no gang pass at once, but not onto capacity that a plan holds."""

from __future__ import annotations

import pytest

from extender.core.objects import Manifest
from extender.runtime import Service
from tests.controlplane.gangs import (
    check_landed_whole,
    nominated,
    scheduler_stopped,
    until_planned,
)
from tests.controlplane.world import World, pod


async def test_they_pass_beside_a_gang_that_waits(world: World, muster: Service) -> None:
    await world.nodes("n1", "n2", gpus=2)
    await world.group("train", 5)
    await world.gang("train", 5)
    await world.until(lambda: "4 of 5 pods" in world.scheduled_message("train-4"), "its wait")
    await world.create(pod(f"plain-{i}") for i in range(4))
    await world.create(pod(f"cpu-{i}", gpus=0) for i in range(3))
    await world.until(lambda: len(world.bound()) == 7, "seven bound pods")
    assert not world.ever_bound("train")


@pytest.mark.parametrize("priority", ["", "urgent"])
async def test_they_cannot_take_what_is_reserved(
    world: World, muster: Service, priority: str
) -> None:
    """Of equal priority kube-scheduler itself respects a nomination; of a higher one only Muster."""
    await world.priority_class("urgent", 1000)
    spec: Manifest = {"priorityClassName": priority} if priority else {}
    await world.nodes("n1", "n2", "n3", "n4")
    await world.group("train", 4)
    with scheduler_stopped(world):
        await world.gang("train", 4)
        await until_planned(world, "train", 4)
        await world.create([pod("plain", **spec), pod("cpu", gpus=0, **spec)])
    await world.until(lambda: world.phases("train") == ["Running"] * 4, "the gang")
    await world.until(lambda: "cpu" in world.bound(), "a pod that takes nothing reserved")
    check_landed_whole(world, "train", 4)
    assert "plain" not in world.ever_bound()
    await world.delete_pod("train-0")
    await world.until(lambda: "plain" in world.bound(), "the plain pod, once there is room")


async def test_one_that_waits_for_reserved_capacity_gets_it_when_the_plan_is_void(
    world: World, muster: Service
) -> None:
    await world.priority_class("urgent", 1000)
    await world.nodes("n1", "n2")
    await world.group("train", 2)
    with scheduler_stopped(world):
        await world.gang("train", 2)
        await until_planned(world, "train", 2)
        await world.create([pod("plain", priorityClassName="urgent")])
        await world.delete_pod("train-0")
        await world.until(lambda: len(nominated(world, "train")) == 1, "its end")
    await world.until(lambda: "plain" in world.bound(), "the plain pod")
    assert world.ever_bound("train") == set()
