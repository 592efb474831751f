"""S1: a gang is placed whole or not at all, and says why it waits."""

from __future__ import annotations

from extender.core import api
from extender.runtime import Service
from tests.controlplane.world import World


async def test_four_workers_wait_for_the_fourth_node(world: World, muster: Service) -> None:
    await world.nodes("n1", "n2", "n3")
    await world.group("train", 4)
    await world.gang("train", 4)
    await world.until(
        lambda: "3 of 4 pods would fit" in world.scheduled_message("train-0"),
        "the reason on a pod",
    )
    group = await world.until_object(
        api.VOLCANO_GROUPS,
        "train",
        lambda g: any("3 of 4" in c["message"] for c in g.get("status", {}).get("conditions", ())),
        "the condition Unschedulable",
    )
    (condition,) = group["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("Unschedulable", "NotEnoughResources")
    assert "3 nodes: room for 1" in condition["message"]
    assert condition["message"] in world.scheduled_message("train-0")
    assert world.ever_bound() == set()

    await world.nodes("n4")
    await world.until(lambda: len(world.bound()) == 4, "four bound pods")
    assert sorted(world.bound().values()) == ["n1", "n2", "n3", "n4"]
    await world.until(lambda: world.phases() == ["Running"] * 4, "four running pods")
    await world.until_object(
        api.VOLCANO_GROUPS,
        "train",
        lambda g: g["status"].get("phase") == "Running" and g["status"].get("running") == 4,
        "phase Running",
    )
