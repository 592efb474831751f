"""S1 in every convention: whole or not at all, gated or not, the PodGroup first or last."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from extender.core import api
from extender.core.ingest import GATE
from extender.runtime import Service
from tests.controlplane.gangs import (
    CONVENTIONS,
    Convention,
    check_landed_whole,
    describe,
    until_refused,
)
from tests.controlplane.world import World, pod

ADMISSION = Path(__file__).parents[2] / "manifests" / "admission"
RECORDED = [each for each in CONVENTIONS if each.recorded]


def name_of(convention: Convention) -> str:
    return convention.name


@pytest.fixture
async def gated_at_birth(world: World) -> AsyncIterator[None]:
    """manifests/admission as it stands, in force."""
    kubectl = world.plane.kubectl
    await asyncio.to_thread(kubectl, "apply", "-k", str(ADMISSION))
    try:
        await until_born_with(world, [{"name": GATE}])
        yield
    finally:
        await asyncio.to_thread(kubectl, "delete", "-k", str(ADMISSION))
        await until_born_with(world, None)


async def until_born_with(world: World, gates: list[dict[str, str]] | None) -> None:
    """The API server reads its policies a moment after they were written."""
    probe = json.dumps({"apiVersion": "v1", "kind": "Pod", **CONVENTIONS[0].pods("probe", 1, 1)[0]})
    command = ("create", "-f", "-", "--dry-run=server", "-o", "json", "-n", world.namespace)
    async with asyncio.timeout(30):
        while True:
            shown = await asyncio.to_thread(world.plane.kubectl, *command, stdin=probe)
            if json.loads(shown.stdout)["spec"].get("schedulingGates") == gates:
                return


def gates(world: World) -> list[list[dict[str, str]]]:
    return [
        pod["spec"].get("schedulingGates") or []
        for (namespace, _), pod in world.pods.items()
        if namespace == world.namespace
    ]


@pytest.mark.parametrize("convention", CONVENTIONS, ids=name_of)
async def test_a_gang_of_held_pods(world: World, muster: Service, convention: Convention) -> None:
    await world.nodes("n1", "n2", "n3")
    if convention.recorded:
        await world.client.create(
            convention.resource, world.namespace, convention.record("train", 4)
        )
    await world.create(convention.pods("train", 4, 4))
    why = await until_refused(world, "train", "3 of 4 pods", resource=convention.resource)
    await world.until(
        lambda: all(why["message"] in world.scheduled_message(f"train-{i}") for i in range(4)),
        "the reason on each pod",
    )
    assert why["message"] in await describe(world, "pod", "train-0")
    assert world.ever_bound() == set()

    await world.nodes("n4")
    await world.until(lambda: world.phases() == ["Running"] * 4, "four running pods")
    assert sorted(world.bound().values()) == ["n1", "n2", "n3", "n4"]
    check_landed_whole(world, "train", 4)


@pytest.mark.parametrize("convention", CONVENTIONS, ids=name_of)
async def test_a_gang_of_pods_gated_at_birth(
    world: World, muster: Service, gated_at_birth: None, convention: Convention
) -> None:
    await world.nodes("n1", "n2", "n3")
    if convention.recorded:
        await world.client.create(
            convention.resource, world.namespace, convention.record("train", 4)
        )
    await world.create(convention.pods("train", 4, 4))
    why = await until_refused(world, "train", "3 of 4 pods", resource=convention.resource)
    group = f"{convention.resource.plural}.{convention.resource.group}"
    assert why["message"] in await describe(world, group, "train")
    assert gates(world) == [[{"name": GATE}]] * 4
    assert world.ever_bound() == set()

    await world.nodes("n4")
    await world.until(lambda: world.phases() == ["Running"] * 4, "four running pods")
    assert sorted(world.bound().values()) == ["n1", "n2", "n3", "n4"]
    check_landed_whole(world, "train", 4)


@pytest.mark.parametrize("convention", RECORDED, ids=name_of)
async def test_the_podgroup_comes_after_its_pods(
    world: World, muster: Service, convention: Convention
) -> None:
    await world.nodes("n1", "n2", "n3", "n4")
    await world.create(convention.pods("train", 4, 4))
    kind = convention.resource.api_version
    why = f"PodGroup {world.namespace}/train does not exist in {kind}"
    await world.until_event("train-0", why)
    await world.until(lambda: why in world.scheduled_message("train-3"), "the reason on a pod")
    assert world.ever_bound() == set()
    await world.client.create(convention.resource, world.namespace, convention.record("train", 4))
    await world.until(lambda: world.phases() == ["Running"] * 4, "four running pods")
    check_landed_whole(world, "train", 4)


async def test_pods_come_one_by_one_and_none_is_bound_before_the_last(
    world: World, muster: Service
) -> None:
    await world.nodes("n1", gpus=8)
    await world.group("train", 4)
    members = CONVENTIONS[0].pods("train", 4, 4)
    for count, member in enumerate(members[:3], start=1):
        await world.create([member])
        await until_refused(world, "train", f"{count} of at least 4 pods exist")
    assert world.ever_bound() == set()
    await world.create(members[3:])
    await world.until(lambda: len(world.bound("train")) == 4, "four bound pods")
    check_landed_whole(world, "train", 4)


async def test_a_gang_that_never_ends_keeps_the_next_one_whole_in_waiting(
    world: World, muster: Service
) -> None:
    await world.nodes("n1", "n2", "n3", "n4")
    await world.group("first", 4)
    await world.gang("first", 4)
    await world.until(lambda: world.phases("first") == ["Running"] * 4, "the first gang")
    await world.group("second", 2)
    await world.gang("second", 2)
    await until_refused(world, "second", "0 of 2 pods", "4 nodes: 0 of 1 nvidia.com/gpu free")
    # A further pod of nobody's: the state changes, and the second gang is looked at again.
    await world.create([pod("cpu", gpus=0)])
    await world.until(lambda: "cpu" in world.bound(), "a pod without GPUs")
    assert world.ever_bound("second") == set()
    assert world.phases("first") == ["Running"] * 4
    for name in ("first-0", "first-1", "first-2", "first-3"):
        await world.delete_pod(name)
    await world.until(lambda: world.phases("second") == ["Running"] * 2, "the second gang")
    check_landed_whole(world, "second", 2)


async def test_a_group_without_a_pod_of_muster_is_left_alone(world: World, muster: Service) -> None:
    await world.nodes("n1")
    await world.group("theirs", 2)
    await world.group("ours", 1)
    await world.create([pod("ours-0", annotations={"scheduling.k8s.io/group-name": "ours"})])
    await world.until(lambda: "ours-0" in world.bound(), "the gang of one")
    await world.until_object(
        api.VOLCANO_GROUPS, "ours", lambda g: g.get("status", {}).get("running") == 1, "its counts"
    )
    theirs = await world.client.get(api.VOLCANO_GROUPS, world.namespace, "theirs")
    assert "conditions" not in theirs.get("status", {})
    assert all(entry["manager"] != "muster" for entry in theirs["metadata"]["managedFields"])
