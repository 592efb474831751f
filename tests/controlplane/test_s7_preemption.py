"""S7: kube-scheduler's preemption does not break a running gang where Muster is asked."""

from __future__ import annotations

from extender.core import api
from extender.runtime import Service
from tests.controlplane.world import World, pod


async def test_a_running_gang_is_not_broken(world: World, muster: Service) -> None:
    await world.priority_class("urgent", 1_000_000)
    await world.nodes("n1", "n2", gpus=2)
    await world.group("train", 4)
    await world.gang("train", 4)
    await world.until(lambda: world.phases("train-") == ["Running"] * 4, "the running gang")
    await world.create([pod("urgent", priorityClassName="urgent")])
    await world.until(lambda: world.scheduled_message("urgent"), "the preemptor's refusal")
    # A second round of preemption would come with any later cluster event.
    await world.client.patch(api.NODES, None, "n1", {"metadata": {"labels": {"changed": "yes"}}})
    await world.create([pod("later", gpus=0)])
    await world.until(lambda: "later" in world.bound(), "a pod that fits")
    assert world.phases("train-") == ["Running"] * 4
    assert "urgent" not in world.ever_bound()


async def test_a_member_beyond_the_minimum_may_go(world: World, muster: Service) -> None:
    await world.priority_class("urgent", 1_000_000)
    await world.nodes("n1", "n2", gpus=2)
    await world.group("train", 3)
    await world.gang("train", 4)
    await world.until(lambda: world.phases("train-") == ["Running"] * 4, "the running gang")
    await world.create([pod("urgent", priorityClassName="urgent")])
    await world.until(lambda: "urgent" in world.bound(), "the preemptor")
    assert world.phases("train-") == ["Running"] * 3


async def test_a_loss_that_nobody_could_veto_is_recovered_from(
    world: World, muster: Service
) -> None:
    """What a preemptor of another scheduler does: the member is gone; its replacement lands."""
    await world.nodes("n1", "n2", gpus=2)
    await world.group("train", 4)
    await world.gang("train", 4)
    await world.until(lambda: world.phases("train-") == ["Running"] * 4, "the running gang")
    await world.delete_pod("train-3")
    marks = {"scheduling.k8s.io/group-name": "train"}
    await world.create([pod("train-4", annotations=marks)])
    await world.until(lambda: len(world.bound("train-")) == 4, "the replacement")
