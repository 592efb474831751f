"""Domains that objects tell: Volcano's HyperNodes and Kueue's Topology, where a cluster serves them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from extender.core import api
from extender.core.objects import Manifest
from extender.runtime import Service
from tests.controlplane.gangs import read, until_refused
from tests.controlplane.world import World, pod

CRDS = Path(__file__).parent / "hypernodes.yaml"


def hyper(name: str, tier: int, *members: Any) -> Manifest:
    """Members are names of nodes, or whole MemberSpecs."""
    return {
        "metadata": {"name": name},
        "spec": {
            "tier": tier,
            "members": [
                {"type": "Node", "selector": {"exactMatch": {"name": each}}}
                if isinstance(each, str)
                else each
                for each in members
            ],
        },
    }


def inside(name: str) -> Manifest:
    return {"type": "HyperNode", "selector": {"exactMatch": {"name": name}}}


@pytest.fixture
async def served(world: World) -> AsyncIterator[None]:
    """The two kinds, which no cluster has that does not run Volcano or Kueue."""
    kubectl = world.plane.kubectl
    await asyncio.to_thread(kubectl, "apply", "-f", str(CRDS))
    await asyncio.to_thread(
        kubectl, "wait", "--for=condition=Established", "--timeout=60s", "-f", str(CRDS)
    )
    yield
    await asyncio.to_thread(kubectl, "delete", "-f", str(CRDS))


async def test_a_gang_stays_in_a_hypernode_of_its_tier(
    world: World, served: None, muster: Service
) -> None:
    """By name n1 to n4 alternate; one tier holds two of three, the next one all (Volcano's own case)."""
    await world.nodes("n1", "n2", "n3", "n4", gpus=1)
    tree = [
        hyper("s0", 1, "n1", "n3"),
        hyper("s1", 1, {"type": "Node", "selector": {"regexMatch": {"pattern": "^n[24]$"}}}),
        hyper("s2", 2, inside("s0"), inside("s1")),
    ]
    for each in tree:
        await world.client.create(api.HYPER_NODES, None, each)
    await world.group("three", 3, networkTopology={"highestTierAllowed": 1})
    await world.gang("three", 3)
    await until_refused(
        world,
        "three",
        "no topology.volcano.sh/tier-1 has room for 3 pods together; s0 has room for 2",
    )
    assert world.ever_bound() == set()
    wider = {"spec": {"networkTopology": {"highestTierAllowed": 2}}}
    await world.client.patch(api.VOLCANO_GROUPS, world.namespace, "three", wider)
    await world.until(lambda: len(world.bound("three")) == 3, "three bound pods")
    of_ranks = [world.bound()[f"three-{at}"] for at in range(3)]
    assert of_ranks == ["n1", "n3", "n2"]


async def test_a_hypernode_that_changes_frees_who_waits_and_a_wrong_one_is_told_so(
    world: World, served: None, muster: Service
) -> None:
    await world.nodes("n1", "n2", gpus=1)
    await world.client.create(api.HYPER_NODES, None, hyper("s0", 1, "n1"))
    odd = {"type": "Node", "selector": {"regexMatch": {"pattern": "n("}}}
    await world.client.create(api.HYPER_NODES, None, hyper("odd", 1, odd))
    await world.group("two", 2, networkTopology={"highestTierAllowed": 1})
    await world.gang("two", 2)
    await until_refused(world, "two", "s0 has room for 1")
    event = await world.until_event("odd", "regexMatch.pattern: 'n('", namespace="default")
    assert (event["reason"], event["type"]) == ("InvalidHyperNode", "Warning")
    await world.client.patch(api.HYPER_NODES, None, "s0", hyper("s0", 1, "n1", "n2"))
    await world.until(lambda: len(world.bound("two")) == 2, "two bound pods")


async def test_a_level_that_only_a_topology_names_holds_a_gang(
    world: World, served: None, muster: Service
) -> None:
    shelf = "example.com/shelf"
    await world.nodes("n1", "n3", gpus=1, labels={shelf: "a"})
    await world.nodes("n2", gpus=1, labels={shelf: "b"})
    spec = {"levels": [{"nodeLabel": shelf}, {"nodeLabel": "kubernetes.io/hostname"}]}
    await world.client.create(api.TOPOLOGIES, None, {"metadata": {"name": "t"}, "spec": spec})
    await world.group("two", 2)
    marks = {
        "scheduling.k8s.io/group-name": "two",
        "kueue.x-k8s.io/podset-required-topology": shelf,
    }
    await world.create(pod(f"two-{at}", annotations=marks) for at in range(2))
    await world.until(lambda: len(world.bound("two")) == 2, "two bound pods")
    assert sorted(world.bound("two").values()) == ["n1", "n3"]


RACK = "cloud.provider.com/topology-rack"


async def racks(world: World) -> None:
    """Two racks of three GPUs; by name the nodes alternate between them."""
    await world.nodes("n1", "n3", "n5", gpus=1, labels={RACK: "a"})
    await world.nodes("n2", "n4", "n6", gpus=1, labels={RACK: "b"})


async def test_slices_of_a_gang_are_whole_in_their_racks(world: World, muster: Service) -> None:
    await racks(world)
    await world.group("train", 4)
    marks = {
        "scheduling.k8s.io/group-name": "train",
        "kueue.x-k8s.io/podset-slice-required-topology": RACK,
        "kueue.x-k8s.io/podset-slice-size": "2",
    }
    await world.create(pod(f"train-{at}", annotations=marks) for at in range(4))
    await world.until(lambda: len(world.bound("train")) == 4, "four bound pods")
    of = world.bound("train")
    odd = [int(of[f"train-{at}"][1:]) % 2 for at in range(4)]
    assert odd in ([0, 0, 1, 1], [1, 1, 0, 0])
    # A rack that has room for one slice only has none for the third.
    await world.group("more", 3)
    more = {
        **marks,
        "scheduling.k8s.io/group-name": "more",
        "kueue.x-k8s.io/podset-slice-size": "3",
    }
    await world.create(pod(f"more-{at}", annotations=more) for at in range(3))
    await until_refused(world, "more", "2 of 3 pods")
    assert world.ever_bound("more") == set()


async def test_subgroups_of_a_gang_are_each_in_one_tier(world: World, muster: Service) -> None:
    await racks(world)
    policy = {
        "name": "parts",
        "subGroupSize": 3,
        "matchLabelKeys": ["part"],
        "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
    }
    await world.group("train", 6, subGroupPolicy=[policy])
    marks = {"scheduling.k8s.io/group-name": "train"}
    await world.create(
        pod(f"train-{at}", annotations=marks, labels={"part": "pq"[at % 2]}) for at in range(6)
    )
    await world.until(lambda: len(world.bound("train")) == 6, "six bound pods")
    of = world.bound("train")
    for part in (0, 1):
        assert len({int(of[f"train-{at}"][1:]) % 2 for at in range(part, 6, 2)}) == 1


async def test_of_three_subgroups_the_two_that_fit_are_placed(
    world: World, muster: Service
) -> None:
    await racks(world)
    policy = {
        "name": "parts",
        "subGroupSize": 2,
        "minSubGroups": 2,
        "matchLabelKeys": ["part"],
        "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
    }
    await world.group("train", 4, subGroupPolicy=[policy])
    marks = {"scheduling.k8s.io/group-name": "train"}

    def part(name: str, gpus: int) -> list[Manifest]:
        labels = {"part": name}
        return [
            pod(f"train-{name}{at}", gpus=gpus, annotations=marks, labels=labels) for at in (0, 1)
        ]

    # The first part fits on no node; it lacks no more pods than the others.
    await world.create([*part("p", 2), *part("q", 1)])
    await until_refused(world, "train")
    assert world.ever_bound() == set()
    await world.create(part("r", 1))
    await world.until(lambda: len(world.bound("train")) == 4, "four bound pods")
    of = world.bound("train")
    for name in ("q", "r"):
        assert len({int(of[f"train-{name}{at}"][1:]) % 2 for at in (0, 1)}) == 1


async def test_subgroups_of_a_leader_and_workers_have_a_node_each(
    world: World, muster: Service
) -> None:
    await world.nodes("n1", "n3", gpus=2, labels={RACK: "a"})
    await world.nodes("n2", "n4", gpus=2, labels={RACK: "b"})
    policy = {
        "name": "parts",
        "subGroupSize": 3,
        "matchLabelKeys": ["part"],
        "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
    }
    await world.group("train", 6, subGroupPolicy=[policy])
    marks = {"scheduling.k8s.io/group-name": "train"}
    await world.create(
        pod(f"train-{part}{at}", gpus=min(at, 1), annotations=marks, labels={"part": part})
        for part in "pq"
        for at in range(3)
    )
    await world.until(lambda: len(world.bound("train")) == 6, "six bound pods")
    of = world.bound("train")
    nodes = [{of[f"train-{part}{at}"] for at in range(3)} for part in "pq"]
    assert [len(each) for each in nodes] == [1, 1]
    assert len({int(name[1:]) % 2 for each in nodes for name in each}) == 1


async def test_subgroups_beyond_the_minimum_are_placed_as_far_as_they_fit(
    world: World, muster: Service
) -> None:
    await racks(world)
    policy = {
        "name": "parts",
        "subGroupSize": 2,
        "minSubGroups": 1,
        "matchLabelKeys": ["part"],
        "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
    }
    # All pods are there when the group comes: a rack has room for one part, the third has none.
    marks = {"scheduling.k8s.io/group-name": "train"}
    await world.create(
        pod(f"train-{part}{at}", annotations=marks, labels={"part": part})
        for part in "pqr"
        for at in (0, 1)
    )
    gangs = muster.loop.coordinator.state.gangs
    await read(lambda: any(len(gang.members) == 6 for gang in gangs.values()), "six pods")
    await world.group("train", 2, subGroupPolicy=[policy])
    await world.until(lambda: len(world.bound("train")) == 4, "four bound pods")
    await world.nodes("n7", gpus=1, labels={RACK: "a"})
    await world.until(lambda: len(world.bound("train")) == 6, "six bound pods")
    of = world.bound("train")
    for part in "pqr":
        assert len({int(of[f"train-{part}{at}"][1:]) % 2 for at in (0, 1)}) == 1
