"""Gangs of pods that share GPUs land whole, by device: no part of one is given twice."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from extender.core import api
from extender.core.objects import Manifest
from extender.runtime import Service
from extender.sim import fleet
from tests.controlplane.gangs import gone, read, read_nodes, until_refused
from tests.controlplane.world import World, pod

GROUP = "scheduling.k8s.io/group-name"
MILLI, COUNT = "alibabacloud.com/gpu-milli", "alibabacloud.com/gpu-count"
VGPU = "volcano.sh/vgpu"
IDS, REGISTER = f"{VGPU}-ids-new", "volcano.sh/node-vgpu-register"


async def nodes(world: World, *names: str, **more: object) -> None:
    """Nodes with resources beside those that all have, as a device plugin offers them."""
    bodies = []
    for name in names:
        body = fleet.node(name, annotations={REGISTER: _register(name)} if VGPU in more else None)
        amounts = {key: str(value) for key, value in more.items() if key != VGPU}
        for part in ("capacity", "allocatable"):
            body["status"][part] = body["status"][part] | amounts
        bodies.append(body)
    await fleet.add_nodes(world.client, bodies)


def _register(node: str) -> str:
    """Two devices of 24 GB, of which ten pods may share each."""
    return "".join(f"{node}-{at},10,24576,NVIDIA-A10,true,hami-core:" for at in range(2))


async def milli(world: World, name: str, count: int, amount: int) -> None:
    """A gang of pods with so many thousandths of a GPU each."""
    await world.group(name, count)
    marks = {GROUP: name, MILLI: str(amount)}
    await world.create(pod(f"{name}-{at}", gpus=0, annotations=marks) for at in range(count))


def vgpu(name: str, memory: int, *, group: str = "", **more: object) -> Manifest:
    """A pod with so many MiB of one device."""
    limits = {f"{VGPU}-number": "1", f"{VGPU}-memory": str(memory)}
    containers = [{"name": "main", "image": "none", "resources": {"limits": limits}}]
    marks = {GROUP: group} if group else {}
    return pod(name, annotations=marks, containers=containers, **more)  # type: ignore[arg-type]


def there_is_a_way(amounts: Sequence[int], devices: int) -> bool:
    """Whether each amount can be of one device, of which each has 1000."""
    ways = itertools.product(range(devices), repeat=len(amounts))
    return any(
        all(sum(a for a, at in zip(amounts, way, strict=True) if at == d) <= 1000 for d in way)
        for way in ways
    )


def by_node(world: World, amounts: Mapping[str, int]) -> dict[str, list[int]]:
    """What the bound pods of gangs ask for, of which each member asks for so much."""
    found: dict[str, list[int]] = {}
    for name, node in world.bound().items():
        found.setdefault(node, []).append(amounts[name.rpartition("-")[0]])
    return found


async def test_gangs_of_shares_land_whole_and_by_device(world: World, muster: Service) -> None:
    await nodes(world, "a", "b", **{COUNT: 2})
    await read_nodes(muster, "a", "b")
    amounts = {"one": 600, "two": 300, "three": 200}
    await milli(world, "one", 4, 600)
    await world.until(lambda: len(world.bound("one")) == 4, "one on each device")
    await milli(world, "two", 4, 300)
    await world.until(lambda: len(world.bound("two")) == 4, "one beside each")
    assert by_node(world, amounts) == {"a": [600, 600, 300, 300], "b": [600, 600, 300, 300]}
    # 400 of 4000 are free, 100 of each device.
    await milli(world, "three", 2, 200)
    words = "no one of its GPUs has 20 % of its cores free"
    await until_refused(world, "three", "0 of 2 pods fit", words)
    assert world.ever_bound("three") == set()
    await gone(world, "two")
    await world.until(lambda: len(world.bound("three")) == 2, "the rest of a device each")
    assert all(there_is_a_way(each, 2) for each in by_node(world, amounts).values())


async def test_what_a_pod_is_told_to_have_counts_and_no_more_than_it_asks_for(
    world: World, muster: Service
) -> None:
    offered = {f"{VGPU}-number": 20, f"{VGPU}-memory": 2 * 24576, f"{VGPU}-cores": 200}
    await nodes(world, "a", **offered, **{VGPU: True})
    await read_nodes(muster, "a")
    await world.group("one", 2)
    await world.create(vgpu(f"one-{at}", 8000, group="one") for at in range(2))
    await world.until(lambda: len(world.bound("one")) == 2, "two on a device, as is assumed")
    # Whoever gives the devices has put them on both.
    for at in range(2):
        told = {IDS: f"a-{at},NVIDIA,8000,0:"}
        await _annotate(world, f"one-{at}", told)
    await read(lambda: _free(muster) == [16576, 16576], "who has which")

    await world.group("whole", 1)
    await world.create([vgpu("whole-0", 24576, group="whole")])
    await until_refused(world, "whole", "no one of its GPUs has 24576 MiB free")
    assert world.ever_bound("whole") == set()

    # A pod of nobody's says that all of the node is its own.
    all_of_it = "a-0,NVIDIA,24576,100:a-1,NVIDIA,24576,100:"
    await world.create([vgpu("liar", 1000, nodeName="a", scheduler="other")])
    await _annotate(world, "liar", {IDS: all_of_it})
    event = await world.until_event("liar", "1 different devices of Volcano")
    assert event["reason"] == "InvalidDevices"
    await world.group("two", 2)
    await world.create(vgpu(f"two-{at}", 15576, group="two") for at in range(2))
    await world.until(lambda: len(world.bound("two")) == 2, "the rest of both devices")
    assert _free(muster) == [0, 1000]


async def _annotate(world: World, name: str, marks: Mapping[str, str]) -> None:
    await world.client.patch(
        api.PODS, world.namespace, name, {"metadata": {"annotations": dict(marks)}}
    )


def _free(muster: Service) -> list[int]:
    """MiB that each device of the one node has left."""
    (node,) = muster.view.nodes()
    return sorted(each["freeMiB"] for each in node["parts"])
