"""Domains as columns: what labels make of rows, whatever happens to the nodes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender import settings
from extender.core.cluster import Cluster
from extender.core.errors import ConfigError, InvariantViolated
from extender.core.topology.domains import DEFAULT_LEVELS, Level
from tests.builders import node

BLOCK, RACK = Level("net/block"), Level("net/rack")


def made(*nodes: tuple[str, str, str]) -> Cluster:
    cluster = Cluster((BLOCK, RACK))
    for name, block, rack in nodes:
        labels = {key: value for key, value in (("net/block", block), ("net/rack", rack)) if value}
        cluster.upsert_node(node(name, labels=labels))
    return cluster


def shown(cluster: Cluster) -> dict[str, list[str]]:
    """By level's label, the name of each row's domain."""
    domains = cluster.view().domains
    return {
        level.label: [names[at] if at >= 0 else "?" for at in ids]
        for level, names, ids in zip(
            domains.levels, domains.names, domains.ids.tolist(), strict=True
        )
    }


def test_a_domain_is_named_by_all_that_is_known_of_its_way():
    cluster = made(("a", "x", "1"), ("b", "y", "1"), ("c", "", "1"), ("d", "x", ""))
    assert shown(cluster) == {
        "net/block": ["x", "y", "?", "x"],
        "net/rack": ["x/1", "y/1", "1", "?"],
    }


def test_levels_that_no_node_has_are_not_there():
    assert shown(made(("a", "", "1"))) == {"net/rack": ["1"]}
    assert shown(made(("a", "", ""))) == {}
    assert shown(Cluster()) == {}


def test_a_node_that_moves_takes_its_domain_along():
    cluster = made(("a", "x", "1"), ("b", "x", "2"))
    cluster.upsert_node(node("a", labels={"net/block": "y", "net/rack": "9"}))
    assert shown(cluster) == {"net/block": ["y", "x"], "net/rack": ["y/9", "x/2"]}
    cluster.remove_node("a")
    assert shown(cluster)["net/rack"] == ["?", "x/2"]
    cluster.remove_node("b")
    assert shown(cluster) == {}


ROWS = st.tuples(
    st.sampled_from("abcdef"), st.sampled_from(["", "x", "y"]), st.sampled_from(["", "1", "2"])
)


@given(st.lists(st.tuples(ROWS, st.booleans()), max_size=30))
def test_columns_are_those_of_a_recount_after_any_changes(changes):
    cluster = Cluster((BLOCK, RACK))
    for (name, block, rack), stays in changes:
        labels = {"net/block": block, "net/rack": rack} if stays else {}
        if stays:
            cluster.upsert_node(node(name, labels=labels))
        else:
            cluster.remove_node(name)
        cluster.verify()


def test_a_recount_finds_a_wrong_column():
    cluster = made(("a", "x", "1"), ("b", "x", "2"))
    cluster.nodes.domains.ids[1, 0] = cluster.nodes.domains.ids[1, 1]
    cluster.nodes._view = None
    with pytest.raises(InvariantViolated, match="domains"):
        cluster.verify()


def read(levels: object) -> tuple[settings.TopologyLevel, ...]:
    document = {"muster": {"topology": {"levels": levels}}}
    return settings.parse(document, "muster.yaml").muster.topology.levels


def test_levels_of_the_configuration():
    assert [each.label for each in settings.Settings().muster.topology.levels] == [
        level.label for level in DEFAULT_LEVELS
    ]
    assert read([]) == ()
    block, rack = read(["net/block", {"label": "net/rack", "name": "rack", "oversubscription": 3}])
    assert (block.label, block.name, block.oversubscription) == ("net/block", "", 1.0)
    assert (rack.label, rack.name, rack.oversubscription) == ("net/rack", "rack", 3.0)


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        (["a b"], "levels[0].label: 'a b' is not allowed: the key of a node label"),
        (["x", "x"], "levels: 'x' stands there twice; allowed: each level once"),
        (
            ["kubernetes.io/hostname"],
            "levels: kubernetes.io/hostname is not allowed: a node is always the nearest level",
        ),
        (
            [{"label": "x", "tier": 1}],
            "levels[0].tier: no such field; allowed: label, name, oversubscription",
        ),
        (
            [{"label": "x", "oversubscription": 0.5}],
            "levels[0].oversubscription: 0.5 is not allowed",
        ),
        ([{"name": "x"}], "levels[0].label: is missing"),
        ("x", "levels: 'x' is not allowed: a list, as in [x]"),
    ],
)
def test_mistakes_in_levels(levels, message):
    with pytest.raises(ConfigError) as error:
        read(levels)
    assert str(error.value).startswith(f"muster.yaml: muster.topology.{message}")
