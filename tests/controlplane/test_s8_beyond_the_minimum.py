"""S8: a gang that is whole takes further members, and replacements of lost ones, without a barrier."""

from __future__ import annotations

import pytest

from extender.core import api
from extender.runtime import Service
from tests.controlplane.gangs import (
    CONVENTIONS,
    Convention,
    check_landed_whole,
    scheduler_stopped,
    until_refused,
)
from tests.controlplane.world import World


@pytest.fixture
async def whole(world: World, muster: Service) -> World:
    """Four members of at least four run, one GPU is free beside each of them."""
    await world.nodes("n1", "n2", "n3", gpus=2)
    await world.group("train", 4)
    await world.gang("train", 4)
    await world.until(lambda: world.phases() == ["Running"] * 4, "four running pods")
    return world


def member(name: str, **options: object) -> dict[str, object]:
    """A pod of the gang ``train`` under another name than its first four."""
    (body,) = CONVENTIONS[0].pods("train", 1, 4, **options)
    body["metadata"]["name"] = name
    return body


async def test_a_fifth_member_is_bound_alone(whole: World) -> None:
    await whole.create([member("train-4")])
    await whole.until(lambda: "train-4" in whole.bound(), "the fifth member")
    await whole.create([member("train-5")])
    await whole.until(lambda: "train-5" in whole.bound(), "the sixth member")
    assert len(whole.bound()) == 6
    check_landed_whole(whole, "train", 6)


async def test_a_member_without_room_waits_and_the_next_one_does_not(whole: World) -> None:
    await whole.create([member("train-4", gpus=8)])
    await whole.until(
        lambda: "Insufficient nvidia.com/gpu" in whole.scheduled_message("train-4"),
        "its wait",
    )
    await whole.create([member("train-5"), member("train-6"), member("train-7")])
    await whole.until(lambda: len(whole.bound()) == 6, "what there is room for")
    await whole.until(
        lambda: whole.phases() == ["Pending"] * 2 + ["Running"] * 6, "six of eight run"
    )
    assert "train-4" not in whole.ever_bound()
    await whole.until_object(
        api.VOLCANO_GROUPS,
        "train",
        lambda g: g.get("status", {}).get("phase") == "Running",
        "phase Running",
    )


async def test_a_replacement_lands_alone(whole: World) -> None:
    node = whole.bound()["train-2"]
    await whole.delete_pod("train-2")
    await whole.until(lambda: "train-2" not in whole.bound(), "its end")
    assert whole.phases() == ["Running"] * 3
    await whole.create([member("replacement")])
    await whole.until(lambda: "replacement" in whole.bound(), "the replacement")
    assert node in whole.bound().values()
    await whole.until(lambda: whole.phases() == ["Running"] * 4, "four running pods")


async def test_a_replacement_of_the_same_name_lands_alone(whole: World) -> None:
    with scheduler_stopped(whole):
        await whole.delete_pod("train-2")
        await whole.until(lambda: "train-2" not in whole.bound(), "its end")
        await whole.create([member("train-2")])
    await whole.until(lambda: "train-2" in whole.bound(), "the replacement")
    await whole.until(lambda: whole.phases() == ["Running"] * 4, "four running pods")


async def test_below_the_minimum_the_lost_come_back_together(whole: World) -> None:
    """With two of four left, one more would be a third of a gang of four (I1)."""
    for name in ("train-2", "train-3"):
        await whole.delete_pod(name)
    await whole.until(lambda: len(whole.bound()) == 2, "their end")
    await whole.create([member("big", gpus=4), member("small")])
    await whole.until(
        lambda: "1 of 2 pods would fit" in whole.scheduled_message("small"), "why both wait"
    )
    assert not {"big", "small"} & whole.ever_bound()
    await whole.nodes("n4", gpus=4)
    await whole.until(lambda: {"big", "small"} <= set(whole.bound()), "both")
    await whole.until(lambda: whole.phases() == ["Running"] * 4, "four running pods")


@pytest.mark.parametrize(
    "convention", [each for each in CONVENTIONS if not each.recorded], ids=lambda c: c.name
)
async def test_a_gang_by_label_alone_grows_too(
    world: World, muster: Service, convention: Convention
) -> None:
    await world.nodes("n1", gpus=8)
    members = convention.pods("train", 6, 4)
    await world.create(members[:3])
    await until_refused(world, "train", "3 of at least 4 pods exist")
    assert world.ever_bound() == set()
    await world.create(members[3:4])
    await world.until(lambda: len(world.bound()) == 4, "four bound pods")
    await world.create(members[4:])
    await world.until(lambda: len(world.bound()) == 6, "six bound pods")
