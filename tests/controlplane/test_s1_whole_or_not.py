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
        lambda g: g.get("status", {}).get("phase") == "Running" and g["status"].get("running") == 4,
        "phase Running",
    )
    told = muster.view.gang(world.namespace, "train")
    assert told is not None
    assert (told["phase"], told["stage"]) == ("Running", None)
    sample = muster.metrics.registry.get_sample_value
    assert sample("muster_plan_seconds_count") == 1
    assert sample("muster_barrier_seconds_count") == 1
    assert "bind_failures" not in muster.view.state()["counters"]


async def test_a_gang_whose_pods_are_deleted_waits_for_pods(world: World, muster: Service) -> None:
    await world.group("train", 2)
    await world.gang("train", 2)
    why = "0 of 2 pods fit; the cluster has no nodes"
    await world.until(lambda: _waits(muster, world, why), "the reason")
    for name in ("train-0", "train-1"):
        await world.client.delete(api.PODS, world.namespace, name)
    await world.until_object(
        api.VOLCANO_GROUPS,
        "train",
        lambda g: any(
            c["message"] == "0 of at least 2 pods exist"
            for c in g.get("status", {}).get("conditions", ())
        ),
        "what it waits for now",
    )
    assert _waits(muster, world, "0 of at least 2 pods exist")


def _waits(muster: Service, world: World, why: str) -> bool:
    told = muster.view.gang(world.namespace, "train")
    return told is not None and why in told["message"]
