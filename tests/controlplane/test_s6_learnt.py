"""S6: what Muster does not model is learnt from kube-scheduler's refusal, and planned around."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from extender.core import api
from extender.core.api import Resource
from extender.core.objects import Manifest
from extender.runtime import Service
from tests.controlplane.gangs import (
    check_landed_whole,
    scheduler_stopped,
    until_planned,
    until_refused,
)
from tests.controlplane.world import World, pod

STORAGE_CLASSES = Resource(
    "storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False
)
ZONE = "topology.kubernetes.io/zone"
#: kube-scheduler's word to the provisioner: make the volume for this node.
SELECTED = "volume.kubernetes.io/selected-node"


@pytest.fixture
async def zonal(world: World) -> AsyncIterator[str]:
    """A StorageClass that makes volumes in zone b only, once a pod has got a node; its name."""
    terms = [{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}]
    body = {
        "metadata": {"name": "zonal"},
        "provisioner": "example.com/zonal",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": terms,
    }
    await world.client.create(STORAGE_CLASSES, None, body)
    provisioning = asyncio.create_task(provision(world))
    try:
        yield "zonal"
    finally:
        provisioning.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await provisioning
        await world.client.delete(STORAGE_CLASSES, None, "zonal")


async def provision(world: World) -> None:
    """What provisioner and volume controller do: a volume for a claim that has its node, bound."""
    done: set[str] = set()
    async for _, claims in world.client.follow(api.CLAIMS, world.namespace):
        for claim in claims:
            meta = claim["metadata"]
            if SELECTED in (meta.get("annotations") or {}) and meta["name"] not in done:
                done.add(meta["name"])
                await bind_claim(world, claim)


async def bind_claim(world: World, claim: Manifest) -> None:
    meta = claim["metadata"]
    name = f"pv-{world.namespace}-{meta['name']}"
    where = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["b"]}]}
    owner = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": world.namespace,
        "name": meta["name"],
        "uid": meta["uid"],
    }
    volume = {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "zonal",
            "claimRef": owner,
            "nodeAffinity": {"required": {"nodeSelectorTerms": [where]}},
            "hostPath": {"path": "/scratch"},
        },
    }
    await world.client.create(api.VOLUMES, None, volume)
    bound = {"phase": "Bound"}
    await world.client.patch(api.VOLUMES, None, name, {"status": bound}, "status")
    marks = {"pv.kubernetes.io/bind-completed": "yes"}
    await world.client.patch(
        api.CLAIMS,
        world.namespace,
        meta["name"],
        {"metadata": {"annotations": marks}, "spec": {"volumeName": name}},
    )
    await world.client.patch(api.CLAIMS, world.namespace, meta["name"], {"status": bound}, "status")


async def gang_with_claims(world: World, storage_class: str, count: int) -> None:
    """Each member has a claim of its own, which is not bound."""
    await world.group("train", count)
    for i in range(count):
        claim = {
            "metadata": {"name": f"scratch-{i}"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": storage_class,
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        await world.client.create(api.CLAIMS, world.namespace, claim)
    await world.create(
        pod(
            f"train-{i}",
            annotations={"scheduling.k8s.io/group-name": "train"},
            volumes=[{"name": "scratch", "persistentVolumeClaim": {"claimName": f"scratch-{i}"}}],
        )
        for i in range(count)
    )


async def nodes_in(world: World, zone: str, *names: str) -> None:
    await world.nodes(*names, labels={ZONE: zone})


async def test_the_gang_goes_where_its_volumes_can_be_made(
    world: World, muster: Service, zonal: str
) -> None:
    await nodes_in(world, "a", "a1", "a2", "a3")
    await nodes_in(world, "b", "b1", "b2", "b3")
    with scheduler_stopped(world):
        await gang_with_claims(world, zonal, 3)
        plan = await until_planned(world, "train", 3)
    assert set(plan.values()) == {"a1", "a2", "a3"}, "the first plan knows nothing of the volumes"
    await world.until(lambda: world.phases() == ["Running"] * 3, "three running pods")
    assert set(world.bound().values()) == {"b1", "b2", "b3"}
    assert muster.view.state()["counters"]["evidence"] >= 1
    check_landed_whole(world, "train", 3)


def check_refused_in(nodes: int, why: Manifest) -> None:
    """A member that came as far as /bind has its volume already, and Muster reads that one's zone."""
    who = ("kube-scheduler refused it there: ", "volume of claim scratch-")
    assert any(f"{nodes} nodes: {words}" in why["message"] for words in who), why["message"]


async def test_without_room_in_the_zone_it_waits_and_says_who_refused(
    world: World, muster: Service, zonal: str
) -> None:
    await nodes_in(world, "a", "a1", "a2", "a3")
    await nodes_in(world, "b", "b1", "b2")
    await gang_with_claims(world, zonal, 3)
    why = await until_refused(world, "train", "2 of 3 pods", "2 nodes: room for 1")
    check_refused_in(3, why)
    assert muster.view.state()["counters"]["evidence"] >= 1
    assert world.ever_bound() == set()
    await nodes_in(world, "b", "b3")
    await world.until(lambda: world.phases() == ["Running"] * 3, "three running pods")
    assert set(world.bound().values()) == {"b1", "b2", "b3"}
    check_landed_whole(world, "train", 3)


async def test_one_look_teaches_all_nodes_of_the_zone(
    world: World, muster: Service, zonal: str
) -> None:
    """Forty nodes that cannot be used, and are tried first, are not tried one after the other."""
    usable = [f"b{i:02}" for i in range(41)]
    await nodes_in(world, "a", *(f"a{i:02}" for i in range(40)))
    await nodes_in(world, "b", *usable)
    await gang_with_claims(world, zonal, 2)
    await world.until(lambda: world.phases() == ["Running"] * 2, "two running pods")
    assert set(world.bound().values()) <= set(usable)
    assert 1 <= muster.view.state()["counters"]["evidence"] <= 6
    check_landed_whole(world, "train", 2)


async def test_a_neighbour_without_claims_uses_the_nodes_that_were_refused(
    world: World, muster: Service, zonal: str
) -> None:
    """What was learnt is about pods of that shape alone."""
    await nodes_in(world, "a", "a1", "a2")
    await nodes_in(world, "b", "b1")
    await gang_with_claims(world, zonal, 2)
    check_refused_in(2, await until_refused(world, "train", "1 of 2 pods", "1 node: room for 1"))
    await world.group("plain", 2)
    await world.gang("plain", 2)
    await world.until(lambda: world.phases("plain") == ["Running"] * 2, "the neighbour")
    assert world.ever_bound("train") == set()
