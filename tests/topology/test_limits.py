"""How near gangs ask to be: tests/cases/topology_limits.yaml, through the coordinator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from extender.core import events as e
from extender.core import objects as o
from extender.core.api import NATIVE_GROUPS, VOLCANO_GROUPS
from extender.core.coordinator import Coordinator
from extender.core.podgroups import NativeGroup, NativeGroupSpec, VolcanoGroup, VolcanoGroupSpec
from extender.core.state import Rules
from extender.core.topology.domains import Level
from extender.settings import Settings
from tests.builders import node, pod
from tests.topology.test_network import hyper, topology

CASES = yaml.safe_load((Path(__file__).parents[1] / "cases" / "topology_limits.yaml").read_text())
LEVELS = (Level("net/zone"), Level("net/block", "block"), Level("net/rack", "rack"))
NOW = 1_800_000_000.0


@pytest.mark.parametrize("case", [pytest.param(x, id=x["case"]) for x in CASES["cases"]])
def test_limit(case: dict[str, Any]) -> None:
    core = Coordinator(Rules(levels=LEVELS), Settings().session(), {})
    core.apply(e.LeaderGained(1), NOW)
    for name, (block, rack, gpus, *shelf) in case.get("cluster", CASES["cluster"]).items():
        levels = ("net/block", block), ("net/rack", rack), *(("my/shelf", x) for x in shelf)
        labels = {key: x for key, x in levels if x}
        core.apply(e.NodeSeen(node(name, gpus=gpus, labels=labels)), NOW)
    for name, (tier, *members) in case.get("hypers", {}).items():
        core.apply(hyper(name, tier, *members, tier_name=f"tier {tier}"), NOW)
    for name, labels in case.get("topologies", {}).items():
        core.apply(topology(name, *labels), NOW)
    core.apply(group(case), NOW)
    for at in range(case["size"]):
        core.apply(e.PodSeen(member(at, case)), NOW)
    core.apply(e.Synced(), NOW)
    core.step(NOW)
    (gang,) = core.state.gangs.values()
    if "says" in case:
        assert gang.refusal is not None
        assert gang.refusal.render() == case["says"]
        assert not any(slot.node for slot in gang.members.values())
    else:
        assert gang.refusal is None, gang.refusal.render()
        lands = [gang.members[f"w-{at}"].node for at in range(case["size"])]
        assert " ".join(lands) == case["lands"]
    core.state.cluster.verify()


def group(case: dict[str, Any]) -> e.GroupSeen:
    meta = o.Meta(name="g", namespace="default", uid="g")
    if "native" not in case:
        spec = {"minMember": case["size"], **case.get("group", {})}
        volcano = VolcanoGroup(metadata=meta, spec=msgspec.convert(spec, VolcanoGroupSpec))
        return e.GroupSeen(VOLCANO_GROUPS, volcano)
    spec = {
        "schedulingPolicy": {"gang": {"minCount": case["size"]}},
        "schedulingConstraints": case["native"],
    }
    native = NativeGroup(metadata=meta, spec=msgspec.convert(spec, NativeGroupSpec))
    return e.GroupSeen(NATIVE_GROUPS, native)


def member(at: int, case: dict[str, Any]) -> o.Pod:
    """Labels have a letter for each member in turn."""
    labels = {key: letters[at] for key, letters in case.get("labels", {}).items()}
    if "native" in case:
        spec = {"schedulingGroup": {"podGroupName": "g"}}
        return pod(f"w-{at}", gpus=1, spec=spec, annotations=case.get("pods"))
    annotations = {"scheduling.k8s.io/group-name": "g", **case.get("pods", {})}
    return pod(f"w-{at}", gpus=1, annotations=annotations, labels=labels)
