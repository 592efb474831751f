"""What agents publish of nodes' GPUs: health, holders and the kubelet's policy decide where gangs go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from extender.core import api
from extender.core.objects import Manifest
from extender.core.topology import annotation, catalogue, devices
from extender.core.topology.devices import Devices
from extender.runtime import Service
from tests.controlplane.gangs import read, read_nodes, until_refused
from tests.controlplane.world import GPU, World, pod

PAIRS = "NVIDIA-H100-NVL"


def told(
    *,
    sick: Mapping[int, str] | None = None,
    held: Mapping[str, Sequence[int]] | None = None,
    policy: str = "single-numa-node",
) -> dict[str, str]:
    """The annotations of eight GPUs in bridged pairs, four on each socket."""
    shape = catalogue.shape(PAIRS, 8)
    assert shape is not None
    holders = held or {}
    known = Devices(
        ids=("",) * 8,
        health=tuple((sick or {}).get(at, devices.OK) for at in range(8)),
        held=tuple(tuple(who for who in holders if at in holders[who]) for at in range(8)),
        memory=(None,) * 8,
        policy=policy,
    )
    return {
        annotation.KEY: annotation.encode(shape.topology),
        devices.KEY: devices.encode(known),
    }


async def tell(world: World, node: str, annotations: Mapping[str, str]) -> None:
    await world.client.patch(api.NODES, None, node, {"metadata": {"annotations": annotations}})


def shown(muster: Service, node: str) -> Manifest:
    """A node as Muster knows it; empty before it does."""
    return next((each for each in muster.view.nodes() if each["name"] == node), {})


async def test_a_gang_that_waits_for_a_gpu_is_planned_when_that_works_again(
    world: World, muster: Service
) -> None:
    await world.nodes("a", gpus=8, annotations=told(sick={3: "reset"}, policy=""))
    await world.group("train", 2)
    await world.gang("train", 1, gpus=8)
    await world.create(
        [pod("train-1", gpus=0, annotations={"scheduling.k8s.io/group-name": "train"})]
    )
    await until_refused(world, "train", f"7 of 7 {GPU} free, 8 asked; not working: reset")
    assert world.ever_bound("train") == set()
    await tell(world, "a", told(policy=""))
    await world.until(lambda: len(world.bound("train")) == 2, "all eight")


async def test_holders_that_are_told_keep_a_pod_from_two_halves(
    world: World, muster: Service
) -> None:
    """Whoever reads of the gang has read of those who run: they are of one watch."""
    runs = {f"{world.namespace}/runs-{at}": [at, 4 + at] for at in range(2)}
    await world.nodes("a", gpus=8, annotations=told(held=runs))
    await world.create(
        pod(f"runs-{at}", gpus=2, scheduler="other", nodeName="a") for at in range(2)
    )
    await world.nodes("b", gpus=8, annotations=told())
    await world.group("four", 3)
    await world.gang("four", 3, gpus=4)
    # Two sockets of b; of a's four free GPUs two are on each.
    words = f"1 node: no NUMA node has 4 {GPU} free together (2+2)"
    await until_refused(world, "four", "2 of 3 pods", words)
    assert world.ever_bound("four") == set()
    await world.delete_pod("runs-0")
    await world.delete_pod("runs-1")
    await world.until(lambda: len(world.bound("four")) == 3, "a socket of a")


async def test_a_node_that_surprises_is_remembered(world: World, muster: Service) -> None:
    await world.nodes("a", "b", gpus=8, annotations=told())
    await read_nodes(muster, "a", "b")
    await world.group("one", 1)
    await world.gang("one", 1, gpus=2)
    await world.until(lambda: world.phases("one") == ["Running"], "the first, by name")
    assert world.bound("one") == {"one-0": "a"}
    # A reservation has no name yet that the agent could tell.
    await read(lambda: GPU in shown(muster, "a")["used"], "that it is bound")
    # Not the pair that the device plugin was to give it.
    await tell(world, "a", told(held={f"{world.namespace}/one-0": [1, 2]}))
    await read(lambda: shown(muster, "a")["devices"]["surprise"], "what it got")
    surprise = shown(muster, "a")["devices"]["surprise"]
    assert list(surprise["pods"]) == [f"{world.namespace}/one-0"]
    assert surprise["got_gbs"] < surprise["expected_gbs"]
    assert muster.view.state()["counters"]["device_surprises"] == 1
    await world.group("two", 1)
    await world.gang("two", 1, gpus=2)
    await world.until(lambda: world.bound("two") == {"two-0": "b"}, "the node that is believed")
