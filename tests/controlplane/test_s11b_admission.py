"""S11b: admission changes the pod, or refuses it half way: planned as admitted, rolled back whole."""

from __future__ import annotations

from extender.core import api
from extender.core.api import Resource
from extender.runtime import Service
from tests.controlplane.test_s10_jobs import conditions, job
from tests.controlplane.world import World

LIMIT_RANGES = Resource("", "v1", "limitranges", "LimitRange")
QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)


async def test_a_limit_range_is_planned_for(world: World, muster: Service) -> None:
    default = {"type": "Container", "defaultRequest": {"cpu": "3"}, "default": {"cpu": "3"}}
    await world.client.create(
        LIMIT_RANGES, world.namespace, {"metadata": {"name": "cpu"}, "spec": {"limits": [default]}}
    )
    # Without the default of 3 cores all four would fit on one node.
    await world.nodes("n1", "n2", gpus=4, cpu="7")
    body = job("ddp", 3)
    for role in body["spec"]["pytorchReplicaSpecs"].values():
        role["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    await world.client.create(api.PYTORCH_JOBS, world.namespace, body)
    await world.until(lambda: len(world.bound()) == 4, "four bound pods")
    assert sorted(world.bound().values()) == ["n1", "n1", "n2", "n2"]
    assert muster.view.state()["counters"].get("evidence", 0) == 0


async def test_runtime_class_overhead_is_planned_for(world: World, muster: Service) -> None:
    overhead = {
        "metadata": {"name": f"sandbox-{world.namespace}"},
        "handler": "sandbox",
        "overhead": {"podFixed": {"cpu": "3"}},
    }
    await world.client.create(RUNTIME_CLASSES, None, overhead)
    await world.nodes("n1", "n2", gpus=4, cpu="15")
    body = job("ddp", 3, runtimeClassName=f"sandbox-{world.namespace}")
    await world.client.create(api.PYTORCH_JOBS, world.namespace, body)
    await world.until(lambda: len(world.bound()) == 4, "four bound pods")
    assert sorted(world.bound().values()) == ["n1", "n1", "n2", "n2"]
    assert muster.view.state()["counters"].get("evidence", 0) == 0


async def test_a_quota_refuses_the_seventh_of_ten(world: World, muster: Service) -> None:
    hard = {"pods": "6"}
    quota = {"metadata": {"name": "six"}, "spec": {"hard": hard}}
    await world.client.create(QUOTAS, world.namespace, quota)
    used = {"status": {"hard": hard, "used": {"pods": "0"}}}
    await world.client.patch(QUOTAS, world.namespace, "six", used, "status")
    await world.nodes("n1", gpus=16)
    await world.client.create(api.PYTORCH_JOBS, world.namespace, job("ddp", 9))
    event = await world.until_event("ddp", "exceeded quota")
    assert event["type"] == "Warning"
    await world.until(lambda: not world.pods, "everything rolled back")
    assert world.ever_bound() == set()

    hard = {"pods": "20"}
    await world.client.patch(QUOTAS, world.namespace, "six", {"spec": {"hard": hard}})
    used = {"status": {"hard": hard, "used": {"pods": "0"}}}
    await world.client.patch(QUOTAS, world.namespace, "six", used, "status")
    await world.until_object(
        api.PYTORCH_JOBS,
        "ddp",
        lambda j: conditions(j).get("Succeeded") == "True",
        "success once there is quota",
        patience=80,
    )
    await world.until(lambda: len(world.ever_bound("ddp-")) == 10, "all of them")
