"""What users reported of other schedulers, tests/cases/topology_reports.yaml, through the coordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from extender.core import commands as c
from extender.core import events as e
from extender.core import objects as o
from extender.core.answers import StateView
from extender.core.api import NODE_TOPOLOGIES, VOLCANO_GROUPS
from extender.core.coordinator import Coordinator
from extender.core.inspecting import nodes as debug_nodes
from extender.core.podgroups import VolcanoGroup, VolcanoGroupSpec
from extender.core.state import Rules
from extender.core.topology import annotation, catalogue, devices
from extender.core.topology.devices import Devices
from extender.core.topology.domains import Level
from tests.builders import GPU, node, pod
from tests.core.planning import SESSION
from tests.core.test_zones import topology

CASES = yaml.safe_load((Path(__file__).parents[1] / "cases/topology_reports.yaml").read_text())
LEVELS = (Level("net/rack"), Level("nvidia.com/gpu.clique"))


class Story:
    """One coordinator, and the API that its pods would live in."""

    def __init__(self) -> None:
        self.core = Coordinator(Rules(levels=LEVELS), SESSION, {})
        self.pods: dict[str, o.Pod] = {}
        self.now = 1.0
        self.names: Iterator[int] = count()
        self.steps: dict[str, Callable[[Any], None]] = {
            "nodes": self.nodes,
            "run": self.run,
            "gone": self.gone,
            "fail": self.fail,
            "gang": self.gang,
            "placed": self.placed,
            "surprises": self.surprises,
            "scores": self.scores,
            "unshown": self.unshown,
        }
        self.tell(e.Synced(), e.LeaderGained(1))

    def tell(self, *events: e.Event) -> list[c.Command]:
        self.now += 1.0
        for event in events:
            self.core.apply(event, self.now)
        given = list(self.core.step(self.now))
        self.core.state.cluster.verify()
        return given

    def nodes(self, told: dict[str, Any]) -> None:
        for name, has in told.items():
            zones = has.get("zones")
            if zones is not None:
                said = topology(
                    name, zones["of"], zones.get("free"), zones.get("policy", "single-numa-node"),
                    zones.get("cpus"), zones.get("memoryOnly", 0),
                )  # fmt: skip
                self.tell(e.ZonesSeen(NODE_TOPOLOGIES, said))
            self.tell(e.NodeSeen(machine(name, has)))

    def run(self, told: dict[str, Any]) -> None:
        for name, (on, gpus) in told.items():
            self.pods[name] = pod(name, node=on, gpus=gpus, scheduler="other")
            self.tell(e.PodSeen(self.pods[name]))

    def gone(self, names: list[str]) -> None:
        for name in names:
            self.tell(e.PodGone("default", name, self.pods.pop(name).metadata.uid))

    def fail(self, told: dict[str, str]) -> None:
        for name, reason in told.items():
            was = self.pods[name]
            status = msgspec.structs.replace(was.status, phase="Failed", reason=reason)
            self.tell(e.PodSeen(msgspec.structs.replace(was, status=status)))

    def gang(self, asked: dict[str, Any]) -> None:
        name = asked.get("name") or f"g{next(self.names)}"
        meta = o.Meta(name=name, namespace="default", uid=name)
        spec = VolcanoGroupSpec(min_member=asked["size"])
        self.tell(e.GroupSeen(VOLCANO_GROUPS, VolcanoGroup(meta, spec)))
        members = [member(f"{name}-{at}", name, asked) for at in range(asked["size"])]
        self.tell(*(e.PodSeen(each) for each in members))
        gang = self.gangs()[name]
        if "says" in asked:
            assert gang.refusal is not None, self.where(name)
            assert asked["says"] in gang.refusal.render()
            assert set(self.where(name)) == {""}
            if "name" not in asked:  # others are to be planned as if it had never been there
                for each in members:
                    self.tell(e.PodGone("default", each.metadata.name, each.metadata.uid))
            return
        self.placed({name: asked["lands"]})
        for each, on in zip(members, self.where(name), strict=True):
            bound = msgspec.structs.replace(
                each,
                spec=msgspec.structs.replace(each.spec, node_name=on),
                status=msgspec.structs.replace(each.status, phase="Running"),
            )
            self.pods[each.metadata.name] = bound
            self.tell(e.PodSeen(bound))

    def placed(self, told: dict[str, str]) -> None:
        for name, lands in told.items():
            gang = self.gangs()[name]
            assert gang.refusal is None, gang.refusal.render()
            assert " ".join(self.where(name)) == lands

    def surprises(self, names: list[str]) -> None:
        told = debug_nodes(self.core.state)
        assert [each["name"] for each in told if each["devices"]["surprise"]] == names
        if names:
            assert self.core.state.counters["device_surprises"] == 1

    def scores(self, asked: dict[str, Any]) -> None:
        view = StateView(self.core.state, lambda: True)
        names = [*asked["are"], "unseen"]
        found = view.prioritize(pod("plain", gpus=asked["gpus"]), names)
        assert dict(zip(asked["are"], found, strict=False)) == asked["are"]

    def unshown(self, told: dict[str, int]) -> None:
        shown = {each["name"]: each["zones"] for each in debug_nodes(self.core.state)}
        assert {name: shown[name]["podsNotShown"] for name in told} == told

    def gangs(self) -> dict[str, Any]:
        return {key.name: gang for key, gang in self.core.state.gangs.items()}

    def where(self, name: str) -> list[str]:
        members = self.gangs()[name].members
        return [members[each].node for each in sorted(members)]


def machine(name: str, has: dict[str, Any]) -> o.Node:
    product, size = has.get("product", ""), has.get("count", has["gpus"])
    labels = dict(has.get("labels", {}))
    if product and has.get("label", True):
        labels |= {catalogue.PRODUCT_LABEL: product, catalogue.COUNT_LABEL: str(size)}
    more = {"ephemeral-storage": has["storage"]} if "storage" in has else {}
    made = node(name, gpus=has["gpus"], labels=labels, taints=has.get("taints", ()), resources=more)
    if not has.get("agent"):
        return made
    shape = catalogue.shape(product, size)
    links = has.get("links") or (annotation.encode(shape.topology) if shape is not None else "")
    length = len(annotation.decode(links)) if links else size
    holders = [
        tuple(sorted(who for who, those in has.get("held", {}).items() if at in those))
        for at in range(length)
    ]
    use = Devices(
        ids=("",) * length,
        health=tuple(has.get("sick", {}).get(at, "ok") for at in range(length)),
        held=tuple(holders),
        memory=(None,) * length,
        policy=has.get("policy", ""),
    )
    told = {devices.KEY: devices.encode(use)} | ({annotation.KEY: links} if links else {})
    meta = msgspec.structs.replace(made.metadata, annotations=told)
    return msgspec.structs.replace(made, metadata=meta)


def member(name: str, group: str, asked: dict[str, Any]) -> o.Pod:
    limits: dict[str, Any] = {GPU: str(asked["gpus"])}
    if "cpus" in asked:
        limits |= {"cpu": str(asked["cpus"]), "memory": "1Gi"}
    if "storage" in asked:
        limits["ephemeral-storage"] = asked["storage"]
    spec: dict[str, Any] = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
    if "init" in asked:
        first = {"limits": {GPU: str(asked["init"])}}
        spec["initContainers"] = [{"name": "init", "resources": first}]
    return pod(name, annotations={"scheduling.k8s.io/group-name": group}, spec=spec)


@pytest.mark.parametrize("case", [pytest.param(x, id=x["report"]) for x in CASES])
def test_report(case: dict[str, Any]) -> None:
    story = Story()
    for step in case["steps"]:
        ((what, told),) = step.items()
        story.steps[what](told)


def test_every_report_of_a_scheduler_has_a_case() -> None:
    assert {int(case["report"].split()[0]) for case in CASES} == set(range(1, 26))
