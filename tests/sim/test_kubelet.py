from __future__ import annotations

import asyncio

import pytest

from extender.core import api
from extender.sim import fleet
from extender.sim.kubelet import EXIT_CODE, RUN_SECONDS, Kubelet, Outcome
from tests.sim.behaviour import binding, pod
from tests.sim.conftest import pod_when


async def put(client, name, node="n1", **more):
    await client.create(api.PODS, "default", pod(name, **more))
    await client.create(api.PODS, "default", binding(name, node), name=name, subresource="binding")


def phase(*wanted):
    return lambda obj: obj is not None and obj["status"]["phase"] in wanted


async def test_a_bound_pod_runs_and_one_without_a_node_does_not(client):
    await client.create(api.PODS, "default", pod("idle"))
    await put(client, "a")
    async with Kubelet(client):
        seen = await pod_when(client, "a", phase("Running"))
    status = seen["status"]
    assert status["podIP"] == status["podIPs"][0]["ip"]
    assert {item["type"] for item in status["conditions"] if item["status"] == "True"} >= {
        "PodScheduled", "Initialized", "ContainersReady", "Ready",
    }  # fmt: skip
    assert "running" in status["containerStatuses"][0]["state"]
    assert (await client.get(api.PODS, "default", "idle"))["status"]["phase"] == "Pending"


@pytest.mark.parametrize(
    ("annotations", "wanted", "code"),
    [
        ({RUN_SECONDS: "0"}, "Succeeded", 0),
        ({RUN_SECONDS: "0", EXIT_CODE: "137"}, "Failed", 137),
        ({EXIT_CODE: "1"}, "Failed", 1),
        ({RUN_SECONDS: "soon"}, "Failed", 2),
    ],
)
async def test_annotations_say_how_it_ends(client, annotations, wanted, code):
    await put(client, "a", metadata={"annotations": annotations})
    async with Kubelet(client):
        seen = await pod_when(client, "a", phase("Succeeded", "Failed"))
    assert seen["status"]["phase"] == wanted
    terminated = seen["status"]["containerStatuses"][0]["state"]["terminated"]
    assert terminated["exitCode"] == code
    ready = next(item for item in seen["status"]["conditions"] if item["type"] == "Ready")
    assert ready["status"] == "False"


async def test_the_policy_and_the_clock_are_the_callers(client):
    slept = []
    done = asyncio.Event()

    async def sleep(seconds):
        slept.append(seconds)
        if seconds == 600:
            await done.wait()

    await put(client, "a")
    async with Kubelet(client, policy=lambda _: Outcome(600, 3), start_seconds=7, sleep=sleep):
        await pod_when(client, "a", phase("Running"))
        done.set()
        seen = await pod_when(client, "a", phase("Failed"))
    assert slept == [7, 600]
    assert seen["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


async def test_a_deleted_pod_goes_after_its_grace(client):
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    await put(client, "a", terminationGracePeriodSeconds=3)
    async with Kubelet(client, stop_seconds=10, sleep=sleep):
        await pod_when(client, "a", phase("Running"))
        await client.delete(api.PODS, "default", "a")
        assert await pod_when(client, "a", lambda obj: obj is None) is None
    assert slept == [3]


async def test_a_pod_that_does_not_fit_its_node_is_rejected(client):
    await fleet.add_node(client, fleet.node("n1", gpus=2))
    async with Kubelet(client):
        for name, gpus in (("a", 1), ("b", 2), ("c", 1)):
            await put(client, name, resources={"limits": {fleet.GPU: gpus}})
            seen = await pod_when(client, name, phase("Running", "Failed"))
            if name == "b":
                assert seen["status"]["reason"] == f"OutOf{fleet.GPU}"
            else:
                assert seen["status"]["phase"] == "Running"
        await client.delete(api.PODS, "default", "a")
        await pod_when(client, "a", lambda obj: obj is None)
        await put(client, "d", resources={"limits": {fleet.GPU: 1}})
        await pod_when(client, "d", phase("Running"))


async def test_a_new_kubelet_takes_over_what_runs(client):
    await put(client, "a", metadata={"annotations": {RUN_SECONDS: "0"}})
    async with Kubelet(client, policy=lambda _: None):
        await pod_when(client, "a", phase("Running"))
    async with Kubelet(client):
        await pod_when(client, "a", phase("Succeeded"))


async def test_it_keeps_trying_while_the_server_is_away(server, client):
    await put(client, "a")
    refused: list[str] = []

    def fault(request):
        if request.method != "PATCH" or len(refused) >= 3:
            return None
        from aiohttp import web

        refused.append(request.path)
        return web.json_response({"reason": "TooManyRequests", "message": "later"}, status=429)

    server.fault = fault

    async def sleep(_):
        await asyncio.sleep(0)

    async with Kubelet(client, sleep=sleep):
        await pod_when(client, "a", phase("Running"))
    assert len(refused) == 3


async def test_a_fleet_is_ready_labelled_and_untainted(client):
    nodes = fleet.racks(10, per_rack=4, gpus=8, product="NVIDIA-A100-SXM4-80GB")
    await fleet.add_nodes(client, nodes)
    await fleet.add_nodes(client, nodes[:1])
    listed = (await client.list(api.NODES))["items"]
    assert [node["metadata"]["name"] for node in listed] == [f"node-{i:02}" for i in range(1, 11)]
    labels = [node["metadata"]["labels"] for node in listed]
    assert [label[fleet.RACK_LABEL] for label in labels] == ["rack-1"] * 4 + ["rack-2"] * 4 + [
        "rack-3"
    ] * 2
    assert all("taints" not in node["spec"] for node in listed)
    await fleet.add_priority_class(client, "high", 7)
    await fleet.add_namespace(client, "team")
    made = await client.create(api.PODS, "team", pod("p", priorityClassName="high"))
    assert made["spec"]["priority"] == 7
