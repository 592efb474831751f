"""Objects that nobody means, on the real control plane: each is told what is wrong with it, and its
neighbours run on. Every one of them once stopped the whole of Muster, or kept it busy for ever.
"""

from __future__ import annotations

import pytest

from extender.core import api
from extender.core.groups import TIMEOUT_ANNOTATION
from extender.core.identity import GroupKey
from extender.core.record import record_name
from extender.runtime import Service
from tests.controlplane.gangs import until_refused
from tests.controlplane.test_s10_jobs import job
from tests.controlplane.world import World, pod

KOORDINATOR = "gang.scheduling.koordinator.sh"
ACK = "pod-group.scheduling.sigs.k8s.io"
#: More digits than int() reads, and more than a float holds.
DIGITS = "9" * 5000


async def neighbours_run(world: World) -> None:
    """A gang of the usual kind is placed as ever."""
    await world.nodes("n1", "n2")
    await world.group("neighbour", 2)
    await world.gang("neighbour", 2)
    await world.until(lambda: len(world.bound("neighbour-")) == 2, "the neighbour's pods")


@pytest.mark.parametrize("least", [DIGITS, "-1", "three"], ids=["digits", "negative", "words"])
async def test_a_minimum_in_an_annotation(world: World, muster: Service, least: str) -> None:
    marks = {f"{KOORDINATOR}/name": "odd", f"{KOORDINATOR}/min-available": least}
    await world.create([pod("odd-0", annotations=marks)])
    event = await world.until_event("odd-0", f"metadata.annotations[{KOORDINATOR}/min-available]: ")
    assert event["message"].endswith("is not allowed: a whole number of at least 1")
    await neighbours_run(world)


@pytest.mark.parametrize("amount", ["-1", "1e99"])
async def test_min_resources(world: World, muster: Service, amount: str) -> None:
    await world.group("odd", 1, minResources={"memory": amount})
    await world.gang("odd", 1)
    await until_refused(world, "odd", "spec.minResources[memory]", amount)
    await neighbours_run(world)


async def test_a_schedule_timeout_longer_than_time(world: World, muster: Service) -> None:
    meta = {"name": "odd", "annotations": {TIMEOUT_ANNOTATION: DIGITS}}
    body = {"metadata": meta, "spec": {"minMember": 2}}
    await world.client.create(api.VOLCANO_GROUPS, world.namespace, body)
    await world.gang("odd", 1)
    await until_refused(world, "odd", "1 of at least 2 pods exist")
    await neighbours_run(world)


async def test_a_group_whose_name_is_no_objects_name(world: World, muster: Service) -> None:
    labels = {f"{ACK}/name": "My_Group", f"{ACK}/min-available": "1"}
    await world.create([pod("odd-0", labels=labels)])
    await world.until_event("odd-0", "the API server refuses to make PodGroup")
    refused = muster.metrics.commands.labels("Create", "refused")
    before = refused._value.get()
    await neighbours_run(world)
    assert refused._value.get() - before <= 1, "it is asked for again and again"


@pytest.mark.parametrize("name", ["a" * 239 + ".bcd", "a" * 253, "x.y.z"], ids=len)
async def test_a_group_of_a_long_or_dotted_name(world: World, muster: Service, name: str) -> None:
    await world.nodes("n1", "n2")
    await world.group(name, 2)
    marks = {"scheduling.k8s.io/group-name": name}
    await world.create([pod(f"odd-{i}", annotations=marks) for i in range(2)])
    await world.until(lambda: len(world.bound("odd-")) == 2, "both pods bound")


async def test_a_job_of_more_replicas_than_fit_in_memory(world: World, muster: Service) -> None:
    body = job("odd", 1)
    body["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 2_147_483_647
    await world.client.create(api.PYTORCH_JOBS, world.namespace, body)
    seen = await world.until_object(
        api.PYTORCH_JOBS, "odd", lambda o: o.get("status", {}).get("conditions"), "a condition"
    )
    assert "at most 10000 replicas" in seen["status"]["conditions"][-1]["message"]
    await neighbours_run(world)


async def test_numbers_with_thousands_of_digits_in_a_job(world: World, muster: Service) -> None:
    await world.nodes("n1", "n2")
    body = job("odd", 1)
    body["spec"]["nprocPerNode"] = DIGITS
    for role in body["spec"]["pytorchReplicaSpecs"].values():
        role["template"]["metadata"]["annotations"]["scheduling.muster.dev/restarts"] = DIGITS
    await world.client.create(api.PYTORCH_JOBS, world.namespace, body)
    await world.until(lambda: len(world.ever_bound("odd-")) == 2, "both replicas")


async def test_a_plan_that_somebody_else_wrote(world: World, muster: Service) -> None:
    name = record_name(GroupKey(api.VOLCANO_GROUPS, world.namespace, "neighbour"))
    reference = {
        "apiVersion": api.VOLCANO_GROUPS.api_version,
        "kind": "PodGroup",
        "name": "other",
        "uid": "forged",
    }
    numbers = {"epoch": 1, "attempt": 1, "minMember": 1, "state": "Planned"}
    body = {"metadata": {"name": name}, "spec": {"groupRef": reference, **numbers}}
    await world.client.create(api.GANG_PLANS, world.namespace, body)
    await neighbours_run(world)
    plan = await world.client.get(api.GANG_PLANS, world.namespace, name)
    assert plan["spec"]["groupRef"]["name"] == "neighbour"


async def test_pod_groups_that_muster_made_are_made_again(world: World, muster: Service) -> None:
    marks = {f"{KOORDINATOR}/name": "bare", f"{KOORDINATOR}/min-available": "2"}
    await world.create([pod(f"bare-{i}", annotations=marks) for i in range(2)])
    await world.client.create(api.PYTORCH_JOBS, world.namespace, job("ddp", 1))
    for name in ("bare", "ddp"):
        first = await until_group(world, name, but="")
        await world.client.delete(api.VOLCANO_GROUPS, world.namespace, name)
        await until_group(world, name, but=first)
    await world.nodes("n1", "n2", "n3", "n4")
    await world.until(lambda: len(world.ever_bound()) == 4, "both gangs")


async def until_group(world: World, name: str, but: str) -> str:
    """Wait until there is a PodGroup of this name and another uid; returns its uid."""
    seen = await world.until_object(
        api.VOLCANO_GROUPS, name, lambda o: o["metadata"]["uid"] != but, f"PodGroup {name}"
    )
    return str(seen["metadata"]["uid"])
