"""S5: what happens to the planned node between plan and bind moves the gang, whole."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from extender.core import api
from extender.runtime import Service
from tests.controlplane.gangs import (
    check_landed_whole,
    nominated,
    scheduler_stopped,
    until_planned,
    until_refused,
)
from tests.controlplane.world import World, pod

Damage = Callable[[World, str], Awaitable[None]]


async def cordoned(world: World, node: str) -> None:
    await world.client.patch(api.NODES, None, node, {"spec": {"unschedulable": True}})


async def tainted(world: World, node: str) -> None:
    taint = {"key": "example.com/broken", "value": "gpu", "effect": "NoSchedule"}
    await world.client.patch(api.NODES, None, node, {"spec": {"taints": [taint]}})


async def deleted(world: World, node: str) -> None:
    await world.client.delete(api.NODES, None, node)


async def shrunk(world: World, node: str) -> None:
    """A GPU fell off the bus."""
    none = {"nvidia.com/gpu": "0"}
    body = {"status": {"capacity": none, "allocatable": none}}
    await world.client.patch(api.NODES, None, node, body, "status")


async def filled(world: World, node: str) -> None:
    """Another scheduler, which knows nothing of Muster's plan, binds a pod there."""
    await world.create([pod("intruder", scheduler="another")])
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "intruder"}}
    path = api.Resource("", "v1", "pods", "Binding")
    await world.client.create(
        path, world.namespace, {**body, "target": target}, name="intruder", subresource="binding"
    )


#: What is done to the node, and the words that then say why the gang waits.
DAMAGES = (
    (cordoned, "1 node: cordoned"),
    (tainted, "1 node: taint example.com/broken=gpu:NoSchedule is not tolerated"),
    (deleted, "3 of 4 pods"),
    (shrunk, "1 node: 0 nvidia.com/gpu in all, 1 asked"),
    (filled, "1 node: 0 of 1 nvidia.com/gpu free"),
)
CASES = [pytest.param(damage, words, id=damage.__name__) for damage, words in DAMAGES]


@pytest.mark.parametrize(("damage", "words"), CASES)
async def test_the_member_goes_to_the_spare_node(
    world: World, muster: Service, damage: Damage, words: str
) -> None:
    await world.nodes("n1", "n2", "n3", "n4", "n5")
    await world.group("train", 4)
    with scheduler_stopped(world):
        await world.gang("train", 4)
        plan = await until_planned(world, "train", 4)
        victim = plan["train-0"]
        await damage(world, victim)
        await world.until(
            lambda: (
                len(nominated(world, "train")) == 4
                and victim not in nominated(world, "train").values()
            ),
            "a plan without the node",
        )
    await world.until(lambda: world.phases("train") == ["Running"] * 4, "four running pods")
    spare = {"n1", "n2", "n3", "n4", "n5"} - {victim}
    assert set(world.bound("train").values()) == spare
    check_landed_whole(world, "train", 4)


@pytest.mark.parametrize(("damage", "words"), CASES)
async def test_without_a_spare_node_nothing_is_bound(
    world: World, muster: Service, damage: Damage, words: str
) -> None:
    await world.nodes("n1", "n2", "n3", "n4")
    await world.group("train", 4)
    with scheduler_stopped(world):
        await world.gang("train", 4)
        plan = await until_planned(world, "train", 4)
        await damage(world, plan["train-2"])
    why = await until_refused(world, "train", words)
    await world.until(
        lambda: all(why["message"] in world.scheduled_message(f"train-{i}") for i in range(4)),
        "the reason on each pod",
    )
    assert world.ever_bound("train") == set()
    await world.nodes("n5")
    await world.until(lambda: world.phases("train") == ["Running"] * 4, "four running pods")
    check_landed_whole(world, "train", 4)


async def test_a_member_deleted_before_its_bind_lets_nobody_through(
    world: World, muster: Service
) -> None:
    await world.nodes("n1", "n2", "n3", "n4")
    await world.group("train", 4)
    with scheduler_stopped(world):
        await world.gang("train", 4)
        await until_planned(world, "train", 4)
        await world.delete_pod("train-1")
        await world.until(lambda: len(nominated(world, "train")) == 3, "its end")
    await until_refused(world, "train", "3 of at least 4 pods exist")
    assert world.ever_bound() == set()
    await world.create([pod("train-1", annotations={"scheduling.k8s.io/group-name": "train"})])
    await world.until(lambda: world.phases() == ["Running"] * 4, "four running pods")
    check_landed_whole(world, "train", 4)


async def test_a_podgroup_deleted_before_the_bind_lets_nobody_through(
    world: World, muster: Service
) -> None:
    await world.nodes("n1", "n2", "n3", "n4")
    await world.group("train", 4)
    with scheduler_stopped(world):
        await world.gang("train", 4)
        await until_planned(world, "train", 4)
        await world.client.delete(api.VOLCANO_GROUPS, world.namespace, "train")
    await world.until(
        lambda: "does not exist" in world.scheduled_message("train-0"), "the reason on a pod"
    )
    assert world.ever_bound() == set()
    await world.group("train", 4)
    await world.until(lambda: world.phases() == ["Running"] * 4, "four running pods")
    check_landed_whole(world, "train", 4)
