"""Gangs and the network: which racks they land in, and their ranks there."""

from __future__ import annotations

from extender.core import api
from extender.runtime import Service
from tests.controlplane.gangs import read_nodes, until_refused
from tests.controlplane.test_s10_jobs import job
from tests.controlplane.world import World

BLOCK, RACK = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"


async def rack(world: World, name: str, *nodes: str, gpus: int = 2) -> None:
    await world.nodes(*nodes, gpus=gpus, labels={BLOCK: "block-1", RACK: name})


async def test_ranks_of_a_job_are_neighbours_in_node_and_rack(
    world: World, muster: Service
) -> None:
    """Names are no help here: by name n1 to n4 alternate between the racks."""
    await rack(world, "rack-c", "n0")
    await rack(world, "rack-b", "n1", "n3")
    await rack(world, "rack-a", "n2", "n4")
    await rack(world, "rack-d", "n5")
    await read_nodes(muster, *(f"n{at}" for at in range(6)))
    await world.client.create(api.PYTORCH_JOBS, world.namespace, job("train", workers=7))
    await world.until(lambda: len(world.bound("train")) == 8, "eight bound pods")
    ranks = ["train-master-0", *(f"train-worker-{i}" for i in range(7))]
    assert [world.bound()[pod] for pod in ranks] == [
        "n2", "n2", "n4", "n4", "n1", "n1", "n3", "n3",
    ]  # fmt: skip


async def test_a_hard_limit_waits_for_its_rack_and_says_which_is_nearest(
    world: World, muster: Service
) -> None:
    await rack(world, "rack-a", "n1", "n2", gpus=1)
    await rack(world, "rack-b", "n3", gpus=1)
    hard = {"mode": "hard", "highestTierAllowed": 1}
    await world.group("train", 3, networkTopology=hard)
    await world.gang("train", 3)
    why = await until_refused(
        world,
        "train",
        f"no {RACK} has room for 3 pods together; block-1/rack-a has room for 2",
    )
    assert why["reason"] == "NotEnoughRoomTogether"
    assert world.ever_bound() == set()
    await rack(world, "rack-a", "n4", gpus=1)
    await world.until(lambda: len(world.bound("train")) == 3, "three bound pods")
    assert sorted(world.bound("train").values()) == ["n1", "n2", "n4"]


async def test_a_tier_that_there_is_not_is_said_on_the_group(world: World, muster: Service) -> None:
    await rack(world, "rack-a", "n1", "n2", gpus=1)
    await world.group("train", 2, networkTopology={"highestTierAllowed": 9})
    await world.gang("train", 2)
    await until_refused(
        world,
        "train",
        "spec.networkTopology.highestTierAllowed: 9 is no level of this cluster's network;"
        " allowed: 0 (one node) to 3",
    )
    assert world.ever_bound() == set()
