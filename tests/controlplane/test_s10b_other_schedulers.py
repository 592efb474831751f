"""S10b: which schedulers carry the extender is configuration; a gang of others is not placed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import yaml

from extender.core import api
from extender.runtime import Service, running
from tests.controlplane.conftest import check_service, leading, scheduler_config, settings_for
from tests.controlplane.gangs import (
    CONVENTIONS,
    Convention,
    check_landed_whole,
    scheduler_stopped,
    until_planned,
    until_refused,
)
from tests.controlplane.rights import account
from tests.controlplane.world import World, pod

VOLCANO = {"scheduling.k8s.io/group-name": "train"}


@pytest.fixture(scope="session")
def trainer(plane, extender_port) -> str:
    """A second kube-scheduler with two names of its own, both of which carry the extender."""
    config = yaml.safe_load(scheduler_config("scheduler-own.yaml", extender_port))
    config["profiles"] = [{"schedulerName": "trainer"}, {"schedulerName": "tuner"}]
    plane.start_scheduler(config, "trainer")
    return "trainer"


@pytest.fixture
async def renamed(world: World, trainer: str, extender_port: int) -> AsyncIterator[Service]:
    """A Muster for the names ``trainer`` and ``tuner``, and not for ``muster``."""
    settings = settings_for(extender_port, schedulerNames=["trainer", "tuner"])
    async with running(settings, account(world.plane)) as service:
        await leading(service)
        yield service
        check_service(service)


@pytest.mark.parametrize("convention", CONVENTIONS, ids=lambda c: c.name)
async def test_one_member_of_another_scheduler_stops_the_gang(
    world: World, muster: Service, convention: Convention
) -> None:
    await world.nodes("n1", "n2", "n3", "n4", "n5", "n6")
    if convention.recorded:
        await world.client.create(
            convention.resource, world.namespace, convention.record("train", 4)
        )
    members = convention.pods("train", 4, 4)
    members[2]["spec"]["schedulerName"] = "somebody-else"
    await world.create(members)
    words = (
        "pod train-2 names scheduler somebody-else, which does not carry Muster's extender",
        "those that do: muster",
    )
    why = await until_refused(world, "train", *words, resource=convention.resource)
    await world.until_event("train", why["message"])
    # Its neighbour is placed; nothing of it is, before and after.
    await world.group("near", 2)
    await world.gang("near", 2)
    await world.until(lambda: world.phases("near") == ["Running"] * 2, "the neighbour")
    assert world.ever_bound("train") == set()
    # Once the member is made anew with the right name, the gang is whole.
    await world.delete_pod("train-2")
    await world.create([convention.pods("train", 3, 4)[2]])
    await world.until(lambda: world.phases("train") == ["Running"] * 4, "the gang")
    check_landed_whole(world, "train", 4)


async def test_a_member_of_another_scheduler_that_comes_between_plan_and_bind(
    world: World, muster: Service
) -> None:
    await world.nodes("n1", "n2", "n3", "n4")
    await world.group("train", 3)
    with scheduler_stopped(world):
        await world.gang("train", 3)
        await until_planned(world, "train", 3)
        await world.create([pod("train-3", scheduler="somebody-else", annotations=VOLCANO)])
        await until_refused(world, "train", "names scheduler somebody-else")
    await world.until(
        lambda: all("somebody-else" in world.scheduled_message(f"train-{i}") for i in range(3)),
        "the reason on each pod",
    )
    assert world.ever_bound() == set()


async def test_a_group_of_other_schedulers_alone_is_left_alone(
    world: World, muster: Service
) -> None:
    await world.nodes("n1")
    group = await world.group("train", 2)
    await world.gang("train", 2, scheduler="somebody-else")
    await world.group("near", 1)
    await world.gang("near", 1)
    await world.until(lambda: world.phases("near") == ["Running"], "the neighbour")
    theirs = (await world.client.list(api.VOLCANO_GROUPS, world.namespace))["items"]
    (same,) = [each for each in theirs if each["metadata"]["name"] == "train"]
    assert same["metadata"]["resourceVersion"] == group["metadata"]["resourceVersion"]
    assert await world.events("train") == []


async def test_the_names_are_configuration(world: World, renamed: Service) -> None:
    """Members may be spread over the configured names; ``muster`` is not one of them here."""
    await world.nodes("n1", "n2", "n3", "n4", "n5", "n6")
    await world.group("train", 4)
    await world.create(
        pod(f"train-{i}", scheduler="trainer" if i % 2 else "tuner", annotations=VOLCANO)
        for i in range(4)
    )
    await world.until(lambda: world.phases("train") == ["Running"] * 4, "the gang")
    check_landed_whole(world, "train", 4)
    await world.group("strange", 2)
    await world.create(
        pod(
            f"strange-{i}",
            scheduler=("trainer", "muster")[i],
            annotations={"scheduling.k8s.io/group-name": "strange"},
        )
        for i in range(2)
    )
    await until_refused(
        world, "strange", "pod strange-1 names scheduler muster", "those that do: trainer, tuner"
    )
    assert "strange-0" not in world.ever_bound()
