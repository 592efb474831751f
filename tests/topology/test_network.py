"""HyperNodes and Topology objects: tests/cases/topology_network.yaml, and what may happen to them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from extender.core import commands as c
from extender.core import events as e
from extender.core import objects as o
from extender.core.api import HYPER_NODES, OLD_TOPOLOGIES, TOPOLOGIES
from extender.core.cluster import Cluster
from extender.core.coordinator import Coordinator
from extender.core.state import Rules
from extender.core.topology import hypernodes
from extender.core.topology.domains import Level
from extender.core.topology.hypernodes import MOST_INSTRUCTIONS, MOST_TIERS, HyperNode
from extender.core.topology.network import MOST_LEVELS, Topology
from extender.settings import Settings
from tests.builders import node

CASES = yaml.safe_load((Path(__file__).parents[1] / "cases" / "topology_network.yaml").read_text())
LEVELS = ["net/zone", "net/rack", "nvidia.com/gpu.clique"]
NOW = 1_800_000_000.0


def member(short: dict[str, Any]) -> dict[str, Any]:
    if "type" in short:
        return short
    ((how, who),) = short.items()
    selector = {
        "node": {"exactMatch": {"name": who}},
        "hyper": {"exactMatch": {"name": who}},
        "regex": {"regexMatch": {"pattern": who}},
        "label": {"labelMatch": who},
    }[how]
    return {"type": "HyperNode" if how == "hyper" else "Node", "selector": selector}


def hyper(name: str, tier: int, *members: dict[str, Any], tier_name: str = "") -> e.HyperNodeSeen:
    spec = {"tier": tier, "tierName": tier_name, "members": [member(each) for each in members]}
    body = {"metadata": {"name": name, "uid": f"uid {name}"}, "spec": spec}
    return e.HyperNodeSeen(msgspec.convert(body, HyperNode))


def topology(name: str, *labels: str) -> e.TopologySeen:
    spec = {"levels": [{"nodeLabel": label} for label in labels]}
    body = {"metadata": {"name": name, "uid": f"uid {name}"}, "spec": spec}
    return e.TopologySeen(msgspec.convert(body, Topology))


def level(given: str | dict[str, Any]) -> Level:
    return Level(given) if isinstance(given, str) else Level(**given)


def core(levels: list[Any] | None = None, *told: e.Event) -> Coordinator:
    rules = Rules(levels=tuple(level(each) for each in levels or LEVELS))
    brain = Coordinator(rules, Settings().session(), {})
    for event in (e.LeaderGained(1), *told, e.Synced()):
        brain.apply(event, NOW)
    return brain


def shown(cluster: Cluster) -> dict[str, list[str]]:
    """By level's label, the name of each row's domain."""
    domains = cluster.view().domains
    return {
        level.label: [names[at] if at >= 0 else "?" for at in ids]
        for level, names, ids in zip(
            domains.levels, domains.names, domains.ids.tolist(), strict=True
        )
    }


def said(brain: Coordinator, now: float = NOW) -> dict[str, str]:
    """By name of the object, what a step says of it."""
    notices = [each for each in brain.step(now) if isinstance(each, c.Notice)]
    for each in notices:
        reason = {HYPER_NODES: "InvalidHyperNode", TOPOLOGIES: "InvalidTopology"}[each.resource]
        assert (each.type, each.reason, each.uid) == ("Warning", reason, f"uid {each.name}")
    return {each.name: each.message for each in notices}


def events_of(case: Mapping[str, Any]) -> list[e.Event]:
    nodes = case.get("nodes", CASES["nodes"])
    return [
        *(e.NodeSeen(node(name, gpus=8, labels=labels)) for name, labels in nodes.items()),
        *(hyper(name, *body) for name, body in case.get("hypers", {}).items()),
        *(topology(name, *body) for name, body in case.get("topologies", {}).items()),
    ]


@pytest.mark.parametrize("backwards", [False, True], ids=["", "backwards"])
@pytest.mark.parametrize("case", [pytest.param(x, id=x["case"]) for x in CASES["cases"]])
def test_network(case: dict[str, Any], backwards: bool) -> None:
    events = events_of(case)
    brain = core(case.get("levels"), *(reversed(events) if backwards else events))
    cluster = brain.state.cluster
    assert said(brain) == case.get("problems", {})
    rows = {name: at for at, name in enumerate(cluster.names)}
    order = [rows[name] for name in sorted(rows)]
    found = {label: [row[at] for at in order] for label, row in shown(cluster).items()}
    assert found == case["shows"]
    assert list(found) == list(case["shows"])
    if "ratios" in case:
        levels = cluster.view().domains.levels
        assert {each.label: each.oversubscription for each in levels} == case["ratios"]
    cluster.verify()


def test_words_are_said_again_only_where_they_change():
    both = [hyper("a", 1, {"node": "n1"}), hyper("b", 1, {"node": "n1"}, {"node": "n2"})]
    brain = core(None, *both)
    assert said(brain) == {}
    # The node that both name comes later than they.
    brain.apply(e.NodeSeen(node("n1")), NOW)
    words = "spec.members: 'n1' is not allowed: a node that is nowhere else (it is in HyperNode a)"
    assert said(brain) == {"b": words}
    brain.apply(e.NodeSeen(node("n2")), NOW)
    brain.apply(hyper("c", 1, {"node": "n3"}), NOW)
    assert said(brain) == {}
    brain.apply(e.HyperNodeGone("a"), NOW)
    assert said(brain) == {}
    assert shown(brain.state.cluster) == {"topology.volcano.sh/tier-1": ["b", "b"]}


def test_who_does_not_lead_says_it_when_it_does():
    brain = Coordinator(Rules(), Settings().session(), {})
    for event in (hyper("a", -1), e.Synced()):
        brain.apply(event, NOW)
    assert said(brain) == {}
    brain.apply(e.LeaderGained(1), NOW)
    assert said(brain) == {"a": "spec.tier: -1 is not allowed: at least 0"}


def test_a_status_changes_nothing():
    brain = core(None, e.NodeSeen(node("n1")), hyper("a", 1, {"node": "n1"}))
    brain.step(NOW)
    generation, view = brain.state.cluster.capacity_generation, brain.state.cluster.view()
    body = hyper("a", 1, {"node": "n1"}).hyper
    newer = msgspec.structs.replace(
        body, metadata=o.Meta(name="a", uid="uid a", resource_version="9")
    )
    brain.apply(e.HyperNodeSeen(newer), NOW)
    assert brain.state.cluster.capacity_generation == generation
    assert brain.state.cluster.view() is view
    brain.apply(hyper("a", 2, {"node": "n1"}), NOW)
    assert brain.state.cluster.capacity_generation > generation
    assert shown(brain.state.cluster) == {"topology.volcano.sh/tier-2": ["a"]}


def test_what_cannot_be_read_any_more_is_told_no_more():
    told = [e.NodeSeen(node("n1", labels={"my/a": "x"})), hyper("a", 1, {"node": "n1"})]
    brain = core(None, *told, topology("t", "my/a"))
    brain.step(NOW)
    assert shown(brain.state.cluster) == {"my/a": ["x"], "topology.volcano.sh/tier-1": ["a"]}
    brain.apply(e.InvalidSeen(HYPER_NODES, "", "a", "u", "no object"), NOW)
    brain.apply(e.InvalidSeen(TOPOLOGIES, "", "t", "u", "no object"), NOW)
    assert shown(brain.state.cluster) == {}
    brain.apply(hyper("a", 1, {"node": "n1"}), NOW)
    brain.apply(topology("t", "my/a"), NOW)
    brain.apply(e.HyperNodeGone("a"), NOW)
    brain.apply(e.TopologyGone("t"), NOW)
    assert shown(brain.state.cluster) == {}
    brain.state.cluster.verify()


def test_of_two_versions_of_a_topology_the_newest_counts():
    """Kueue 0.14 serves v1beta1 alone; of a newer one both are read, and one may be behind."""
    nodes = [e.NodeSeen(node("n1", labels={"my/a": "x", "my/b": "y"}))]
    old = msgspec.structs.replace(topology("t", "my/a"), resource=OLD_TOPOLOGIES)
    brain = core(None, *nodes, old)
    assert shown(brain.state.cluster) == {"my/a": ["x"]}
    brain.apply(topology("t", "my/b"), NOW)
    assert shown(brain.state.cluster) == {"my/b": ["y"]}
    brain.apply(e.TopologyGone("t", OLD_TOPOLOGIES), NOW)
    assert shown(brain.state.cluster) == {"my/b": ["y"]}
    brain.apply(old, NOW)
    brain.apply(e.TopologyGone("t"), NOW)
    assert shown(brain.state.cluster) == {"my/a": ["x"]}
    brain.apply(e.InvalidSeen(OLD_TOPOLOGIES, "", "t", "u", "no object"), NOW)
    assert shown(brain.state.cluster) == {}
    brain.state.cluster.verify()


def test_tiers_and_levels_have_an_end():
    tiers = [hyper(f"h{at}", at, {"node": "n1"}) for at in range(MOST_TIERS + 2)]
    labels = [f"my/{at}" for at in range(MOST_LEVELS - len(LEVELS) + 1)]
    brain = core(None, e.NodeSeen(node("n1")), *tiers, topology("t", *labels))
    allowed = f"one of the {MOST_TIERS} nearest tiers that there are"
    assert said(brain) == {
        "h32": f"spec.tier: 32 is not allowed: {allowed}",
        "h33": f"spec.tier: 33 is not allowed: {allowed}",
        "t": f"spec.levels: '{MOST_LEVELS + 1} levels' is not allowed: at most {MOST_LEVELS} in the cluster",
    }
    assert len(shown(brain.state.cluster)) == MOST_TIERS


def test_patterns_have_an_end_together_too():
    """RE2 bounds each, and a name may cost as much as all of them."""
    costly = hyper("x", 1, {"regex": "(a|b){300}c"})
    size = hypernodes.read(costly.hyper).instructions
    many = [{"regex": "(a|b){300}c"}] * (MOST_INSTRUCTIONS // size)
    brain = core(
        None,
        e.NodeSeen(node("n1")),
        hyper("much", 2, *many),
        hyper("near", 1, {"regex": "(a|b){300}c"}, {"node": "n2"}),
        hyper("small", 2, {"regex": "n1"}),
    )
    assert said(brain) == {
        "much": f"spec.members: '{len(many)} patterns of {len(many) * size} instructions' is not"
        " allowed: patterns that are with those of nearer tiers and smaller names at most 10000, of"
        f" {MOST_INSTRUCTIONS} instructions (they are 1, of {size})"
    }
    assert shown(brain.state.cluster)["topology.volcano.sh/tier-2"] == ["small"]


def test_so_many_patterns_a_hypernode_may_have(monkeypatch):
    monkeypatch.setattr(hypernodes, "MOST_PATTERNS", 3)
    brain = core(
        None,
        e.NodeSeen(node("n1")),
        hyper("alone", 1, *[{"regex": "n"}] * 4),
        hyper("first", 1, *[{"regex": "x"}] * 2),
        hyper("second", 1, *[{"regex": "n"}] * 2),
        hyper("third", 1, {"regex": "n"}),
    )
    told = said(brain)
    assert told.keys() == {"alone", "second"}
    assert told["alone"] == "spec.members: '4 patterns' is not allowed: at most 3 patterns"
    assert told["second"].startswith("spec.members: '2 patterns of ")
    assert shown(brain.state.cluster)["topology.volcano.sh/tier-1"] == ["third"]


NAMES = st.sampled_from(["n1", "n2", "n3", "n4"])
HYPERS = st.sampled_from(["h1", "h2", "h3", "h4", "h5"])
MEMBERS = st.one_of(
    NAMES.map(lambda x: {"node": x}),
    HYPERS.map(lambda x: {"hyper": x}),
    st.sampled_from(["n[12]", "3$", "(", "n"]).map(lambda x: {"regex": x}),
    st.sampled_from(["x", "y"]).map(lambda x: {"label": {"matchLabels": {"net/rack": x}}}),
)
CHANGES = st.one_of(
    st.builds(
        lambda n, x: e.NodeSeen(node(n, labels={"net/rack": x})), NAMES, st.sampled_from("xy")
    ),
    NAMES.map(e.NodeGone),
    st.builds(
        lambda n, t, m: hyper(n, t, *m), HYPERS, st.integers(-1, 3), st.lists(MEMBERS, max_size=3)
    ),
    HYPERS.map(e.HyperNodeGone),
    st.builds(
        lambda n, x: topology(n, *x),
        st.sampled_from(["t1", "t2"]),
        st.lists(st.sampled_from(["net/rack", "net/zone", "my/a", "my/b"]), unique=True),
    ),
    st.sampled_from(["t1", "t2"]).map(e.TopologyGone),
)


@given(st.lists(CHANGES, max_size=20), st.integers(0, 20))
def test_any_order_of_changes_ends_in_what_is_told_at_once(
    changes: list[e.Event], looks: int
) -> None:
    """Columns as after a recount, and equal to those of a core that hears the last of each alone."""
    brain = core()
    for at, change in enumerate(changes):
        brain.apply(change, NOW)
        if at % (looks + 1) == 0:
            brain.step(NOW)
    brain.state.cluster.verify()
    last: dict[tuple[str, str], e.Event] = {}
    for change in changes:
        match change:
            case e.NodeSeen(it) | e.HyperNodeSeen(it) | e.TopologySeen(it):
                last[type(it).__name__, it.metadata.name] = change
            case e.NodeGone(name):
                last.pop(("Node", name), None)
            case e.HyperNodeGone(name):
                last.pop(("HyperNode", name), None)
            case e.TopologyGone(name):
                last.pop(("Topology", name), None)
            case _:
                raise AssertionError(change)
    fresh = core(None, *last.values())
    assert by_node(brain.state.cluster) == by_node(fresh.state.cluster)


def by_node(cluster: Cluster) -> dict[str, dict[str, str]]:
    return {
        name: {label: row[at] for label, row in shown(cluster).items()}
        for at, name in enumerate(cluster.names)
        if name
    }
