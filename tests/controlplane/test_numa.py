"""Kubelets that would answer TopologyAffinityError are not asked: the zones that they tell decide."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from extender.core import api
from extender.core.objects import Manifest
from extender.runtime import Service
from tests.controlplane.gangs import read_nodes, until_refused
from tests.controlplane.world import GPU, World, pod

CRD = Path(__file__).parent / "noderesourcetopologies.yaml"


def topology(name: str, *free: int) -> Manifest:
    """A node of two sockets with four GPUs each, under single-numa-node."""
    return {
        "metadata": {"name": name},
        "attributes": [{"name": "topologyManagerPolicy", "value": "single-numa-node"}],
        "zones": [
            {
                "name": f"node-{zone}",
                "type": "Node",
                "resources": [
                    {"name": GPU, "capacity": "4", "allocatable": "4", "available": str(count)}
                ],
            }
            for zone, count in enumerate(free)
        ],
    }


@pytest.fixture
async def zones(world: World) -> AsyncIterator[None]:
    """Node used: four GPUs are in use, two of each socket. Node idle. A cluster that tells zones."""
    kubectl = world.plane.kubectl
    await asyncio.to_thread(kubectl, "apply", "-f", str(CRD))
    await asyncio.to_thread(
        kubectl, "wait", "--for=condition=Established", "--timeout=30s", "-f", str(CRD)
    )
    await world.nodes("idle", "used", gpus=8)
    await world.create(pod(f"runs-{at}", scheduler="other", nodeName="used") for at in range(4))
    await world.client.create(api.NODE_TOPOLOGIES, None, topology("idle", 4, 4))
    await world.client.create(api.NODE_TOPOLOGIES, None, topology("used", 2, 2))
    yield
    await asyncio.to_thread(kubectl, "delete", "-f", str(CRD))


async def test_a_pod_avoids_the_node_whose_sockets_have_two_free_each(
    world: World, zones: None, muster: Service
) -> None:
    await world.group("four", 1)
    await world.gang("four", 1, gpus=4)
    await world.until(lambda: world.bound("four") == {"four-0": "idle"}, "the node with a socket")

    # One socket is left, and two halves.
    await world.group("eight", 2)
    await world.gang("eight", 2, gpus=4)
    words = f"1 node: no NUMA node has 4 {GPU} free together (2+2), policy single-numa-node"
    await until_refused(world, "eight", "1 of 2 pods fit", words)
    assert world.ever_bound("eight") == set()

    # Two small pods have ended, and the node tells that a socket is free.
    for at in range(2):
        await world.delete_pod(f"runs-{at}")
    await world.client.patch(api.NODE_TOPOLOGIES, None, "used", topology("used", 4, 2))
    await world.until(
        lambda: (
            world.bound("eight") == {"eight-0": "idle", "eight-1": "used"}
            or world.bound("eight") == {"eight-0": "used", "eight-1": "idle"}
        ),
        "both sockets",
    )


async def test_a_node_that_tells_nothing_more_is_taken_as_before(
    world: World, zones: None, muster: Service
) -> None:
    await world.group("two", 2)
    await world.gang("two", 2, gpus=8)
    await until_refused(world, "two", f"has 8 {GPU} free together", "(4+4)")
    await world.client.delete(api.NODE_TOPOLOGIES, None, "idle")
    await world.delete_pod("two-1")
    await world.client.patch(api.VOLCANO_GROUPS, world.namespace, "two", {"spec": {"minMember": 1}})
    await world.until(lambda: world.bound("two") == {"two-0": "idle"}, "the whole node")


async def test_a_kubelet_that_failed_a_pod_gets_no_other_like_it(
    world: World, muster: Service
) -> None:
    await world.nodes("a", "b", gpus=8)
    await read_nodes(muster, "a", "b")
    await world.group("one", 1)
    await world.gang("one", 1, gpus=4)
    await world.until(lambda: world.phases("one") == ["Running"], "the first, by name")
    assert world.bound("one") == {"one-0": "a"}
    refused = {"phase": "Failed", "reason": "TopologyAffinityError", "message": "cannot be"}
    await world.client.patch(api.PODS, world.namespace, "one-0", {"status": refused}, "status")
    await world.until(lambda: world.phases("one") == ["Failed"], "its end")
    await world.group("other", 1)
    await world.gang("other", 1, gpus=4)
    await world.until(lambda: world.bound("other") == {"other-0": "b"}, "the other node")
    # One that asks for something else is no such pod.
    await world.group("small", 1)
    await world.gang("small", 1, gpus=6)
    await world.until(lambda: world.bound("small") == {"small-0": "a"}, "the node that is left")
