"""Whatever is planned on nodes that tell their zones, their kubelets admit."""

from __future__ import annotations

import random
from collections import Counter

from msgspec.structs import replace

from extender.core import events as e
from extender.core.api import NODE_TOPOLOGIES, VOLCANO_GROUPS
from extender.core.coordinator import Coordinator
from extender.core.objects import Meta
from extender.core.planner import Placement, Role, plan
from extender.core.podgroups import (
    NetworkTopology,
    SubGroupPolicy,
    VolcanoGroup,
    VolcanoGroupSpec,
)
from extender.core.shape import shape_of
from extender.core.snapshot import Snapshot
from extender.core.state import Rules
from extender.core.topology.domains import Level
from extender.core.topology.kubelet import admit
from tests.builders import node, pod
from tests.core.planning import SESSION
from tests.core.test_zones import tell, topology

RACK = "net/rack"
POLICIES = ("single-numa-node", "restricted", "best-effort")


def nodes(rng: random.Random):
    """(node, its topology, the pods that run there) of a few nodes of two sockets."""
    for name in "abc"[: rng.randint(1, 3)]:
        free = [rng.randint(0, 4), rng.randint(0, 4)]
        told = topology(name, [4, 4], free, rng.choice(POLICIES))
        runs = [pod(f"runs-{name}-{at}", node=name, gpus=1) for at in range(8 - sum(free))]
        yield node(name, gpus=8), told, runs


def test_one_kind_is_placed_if_and_only_if_the_kubelets_admit_so_many() -> None:
    outcomes: Counter[bool] = Counter()
    for number in range(300):
        rng = random.Random(number)
        brain = Coordinator(Rules(), SESSION, {})
        cluster = brain.state.cluster
        for each, told, runs in nodes(rng):
            cluster.upsert_node(each)
            tell(cluster, told)
            for one in runs:
                cluster.upsert_pod(one)
        shape = shape_of(pod("w", gpus=rng.randint(1, 5)))
        room = 0
        for row, name in enumerate(cluster.names):
            place = cluster.zones.place(name)
            assert place is not None
            stock = place.stock
            while not (verdict := admit(place.kubelet, stock, shape.aligned)).reason:
                stock, room = verdict.stock, room + 1
            assert Snapshot(cluster).capacity(shape)[row] <= 8
        want = rng.randint(1, 5)
        found = plan(SESSION, Snapshot(cluster), [Role("w", shape, want)])
        assert isinstance(found, Placement) == (want <= room), number
        outcomes[isinstance(found, Placement)] += 1
    assert min(outcomes[True], outcomes[False]) > 50


def test_gangs_of_several_kinds_are_admitted_in_the_order_of_their_names() -> None:
    placed: Counter[bool] = Counter()
    for number in range(300):
        rng = random.Random(number)
        brain = Coordinator(Rules(), SESSION, {})
        sizes = [rng.randint(1, 4) for _ in range(rng.randint(2, 5))]
        mark = {"scheduling.k8s.io/group-name": "g"}
        meta = Meta(name="g", namespace="default", uid="g")
        group = VolcanoGroup(meta, VolcanoGroupSpec(min_member=len(sizes)))
        events = [e.Synced(), e.LeaderGained(1), e.GroupSeen(VOLCANO_GROUPS, group)]
        for each, told, runs in nodes(rng):
            events += [e.NodeSeen(each), e.ZonesSeen(NODE_TOPOLOGIES, told)]
            events += [e.PodSeen(one) for one in runs]
        events += [
            e.PodSeen(pod(f"g-{at}", gpus=gpus, annotations=mark)) for at, gpus in enumerate(sizes)
        ]
        for event in events:
            brain.apply(event, 1.0)
        brain.step(1.0)
        cluster = brain.state.cluster
        cluster.verify()
        [gang] = brain.state.gangs.values()
        planned = {slot.node for slot in gang.members.values()}
        # Whole or not, and nobody would be refused.
        placed["" not in planned] += 1
        assert planned == {""} or "" not in planned
        for name in cluster.names:
            place = cluster.zones.place(name)
            assert place is not None
            assert place.refused == (), (number, name)
    assert min(placed[True], placed[False]) > 50


def test_parts_of_several_kinds_are_admitted_too() -> None:
    """Each part is a small pod and some larger ones, in one rack; the parts are like each other."""
    placed: Counter[bool] = Counter()
    for number in range(300):
        rng = random.Random(number)
        brain = Coordinator(Rules(levels=(Level(RACK),)), SESSION, {})
        small, large, size = rng.randint(0, 2), rng.randint(1, 3), rng.randint(2, 3)
        parts = rng.randint(2, 3)
        mark = {"scheduling.k8s.io/group-name": "g"}
        policy = SubGroupPolicy(
            network_topology=NetworkTopology(highest_tier_allowed=1),
            sub_group_size=size,
            match_label_keys=("part",),
        )
        spec = VolcanoGroupSpec(min_member=size * parts, sub_group_policy=(policy,))
        group = VolcanoGroup(Meta(name="g", namespace="default", uid="g"), spec)
        events = [e.Synced(), e.LeaderGained(1), e.GroupSeen(VOLCANO_GROUPS, group)]
        for each, told, runs in nodes(rng):
            labels = {**each.metadata.labels, RACK: rng.choice("xxy")}
            racked = replace(each, metadata=replace(each.metadata, labels=labels))
            events += [e.NodeSeen(racked), e.ZonesSeen(NODE_TOPOLOGIES, told)]
            events += [e.PodSeen(one) for one in runs]
        for at in range(size * parts):
            gpus, labels = large if at % size else small, {"part": str(at // size)}
            events.append(e.PodSeen(pod(f"g-{at}", gpus=gpus, annotations=mark, labels=labels)))
        for event in events:
            brain.apply(event, 1.0)
        brain.step(1.0)
        cluster = brain.state.cluster
        cluster.verify()
        [gang] = brain.state.gangs.values()
        planned = {slot.node for slot in gang.members.values()}
        placed["" not in planned] += 1
        assert planned == {""} or "" not in planned
        for name in cluster.names:
            place = cluster.zones.place(name)
            assert place is not None
            assert place.refused == (), (number, name)
    assert min(placed[True], placed[False]) > 30
