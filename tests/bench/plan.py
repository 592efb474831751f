"""One gang planned by the coordinator: plan_pass with each member's reservation and the record."""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from typing import Any

from extender.core import commands as c
from extender.core import events as e
from extender.core import objects as o
from extender.core import placing
from extender.core.api import GANG_PLANS, VOLCANO_GROUPS
from extender.core.coordinator import Coordinator
from extender.core.podgroups import NetworkTopology, SubGroupPolicy, VolcanoGroup, VolcanoGroupSpec
from extender.core.shape import SLICE_SIZE, SLICE_TOPOLOGY
from extender.core.state import Rules
from extender.core.topology.domains import Level
from extender.kernels.warm import compile_all
from extender.settings import Settings
from tests.builders import node, pod

HELP = "milliseconds to plan a gang on an idle cluster, after warm-up"
GPUS = 8
#: Members, nodes.
CELLS = ("1000x5000", "10000x10000")
#: Of one GPU; a master, and workers of one, two and four; slices of eight of one GPU in a rack each;
#: subGroups of a leader without GPUs and seven workers of one, in a rack each.
MIXES = ("alike", "roles", "slices", "teams")
#: No level of the network known; racks of 8 in blocks of 64 nodes, with 4:1 uplinks; the same where
#: a third of the GPUs are taken, one to seven of a node; the same where nodes differ: four kinds of
#: GPUs, four or eight of them, and three sizes.
NETWORKS = ("none", "levels", "worn", "mixed")
PRODUCTS = ("NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-80GB", "NVIDIA-L40S", "NVIDIA-H200")
#: Members of a slice or a subGroup.
PART = 8
RACK, BLOCK = "example.com/rack", "example.com/block"
LEVELS = (Level(BLOCK, "block", 4.0), Level(RACK, "rack", 4.0))
NOW = 1_800_000_000.0


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cells", nargs="+", default=CELLS, metavar="MEMBERSxNODES")
    parser.add_argument("--networks", nargs="+", default=NETWORKS, choices=NETWORKS)
    parser.add_argument("--mixes", nargs="+", default=MIXES, choices=MIXES)
    parser.add_argument("--repeat", type=int, default=5)


def run(args: argparse.Namespace) -> dict[str, Any]:
    compile_all()
    return {
        "cells": [
            _measure(int(members), int(nodes), mix, network, args.repeat)
            for members, nodes in (cell.split("x") for cell in args.cells)
            for network in args.networks
            for mix in args.mixes
            if network != "none" or mix not in ("slices", "teams")
        ]
    }


def _measure(members: int, nodes: int, mix: str, network: str, repeat: int) -> dict[str, Any]:
    rules = Rules(levels=() if network == "none" else LEVELS)
    brain = Coordinator(rules, Settings().session(), {})
    for at in range(nodes):
        labels = {RACK: f"rack-{at // 8}", BLOCK: f"block-{at // 64}"}
        name = f"n{at:05}"
        gpus, cpu, drawn = GPUS, 64, at * 2_654_435_761 >> 16
        if network == "mixed":
            gpus, cpu = (GPUS, GPUS, GPUS, GPUS // 2)[drawn & 3], (64, 96, 128)[drawn % 3]
            labels["nvidia.com/gpu.product"] = PRODUCTS[at // 64 % 4]
            labels["nvidia.com/gpu.count"] = str(gpus)
        brain.apply(e.NodeSeen(node(name, gpus=gpus, cpu=str(cpu), labels=labels)), NOW)
        taken = drawn & 15
        if network in ("worn", "mixed") and 0 < taken < gpus:
            brain.apply(e.PodSeen(pod(f"old-{at}", node=name, gpus=taken)), NOW)
    brain.apply(e.Synced(), NOW)
    brain.apply(e.LeaderGained(1), NOW)
    brain.step(NOW)
    took = [_plan(brain, f"g{turn}", members, mix) for turn in range(repeat + 1)]
    warm = [each[0] for each in took[1:]]
    return {
        "members": members,
        "nodes": nodes,
        "mix": mix,
        "network": network,
        "plan_ms_median": round(statistics.median(warm), 1),
        "plan_ms_least": round(min(warm), 1),
        "plan_ms_first": round(took[0][0], 1),
        "release_ms_median": round(statistics.median(each[1] for each in took[1:]), 1),
    }


def _plan(brain: Coordinator, name: str, members: int, mix: str) -> tuple[float, float]:
    """Milliseconds of the plan, and of its release; the gang is gone afterwards."""
    policy = SubGroupPolicy(
        network_topology=NetworkTopology(highest_tier_allowed=1),
        sub_group_size=PART,
        match_label_keys=("part",),
    )
    group = VolcanoGroup(
        metadata=o.Meta(name=name, namespace="default", uid=name),
        spec=VolcanoGroupSpec(
            min_member=members, sub_group_policy=(policy,) if mix == "teams" else ()
        ),
    )
    pods = [_member(name, at, mix) for at in range(members)]
    brain.apply(e.GroupSeen(VOLCANO_GROUPS, group), NOW)
    for each in pods:
        brain.apply(e.PodSeen(each), NOW)
    gc.collect()
    started = time.perf_counter()
    placing.plan_pass(brain.state, NOW)
    planned = time.perf_counter()
    written = [x for x in brain.state.take() if isinstance(x, c.Create)]
    assert [x.resource for x in written] == [GANG_PLANS], "the gang was not planned"
    record = {"metadata": {"uid": f"plan-{name}", "resourceVersion": "1"}}
    begun = time.perf_counter()
    brain.apply(e.Done(written[0].id, 201, "", "", record), NOW)
    released = 0
    while given := brain.step(NOW):  # a step lets so many through and no more
        released += sum(isinstance(x, c.Patch) for x in given)
        if released >= members:
            break
    ended = time.perf_counter()
    assert released >= members, "not all were released"
    for each in pods:
        meta = each.metadata
        brain.apply(e.PodGone(meta.namespace, meta.name, meta.uid), NOW)
    brain.apply(e.GroupGone(VOLCANO_GROUPS, "default", name, name), NOW)
    brain.step(NOW)
    return (planned - started) * 1000, (ended - begun) * 1000


def _member(gang: str, at: int, mix: str) -> o.Pod:
    task, gpus = "worker", 1
    if mix == "roles":
        task, gpus = ("master", 1) if at == 0 else (f"worker{at % 3}", (1, 2, 4)[at % 3])
    if mix == "teams":
        task, gpus = ("worker", 1) if at % PART else ("leader", 0)
    annotations = {"scheduling.k8s.io/group-name": gang, "volcano.sh/task-spec": task}
    labels = {"role": task}
    if mix == "slices":
        annotations |= {SLICE_TOPOLOGY: RACK, SLICE_SIZE: str(PART)}
    if mix == "teams":
        labels["part"] = str(at // PART)
    return pod(f"{gang}-{at}", gpus=gpus, annotations=annotations, labels=labels)
