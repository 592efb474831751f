"""``muster check``: HyperNodes, Topologies and labels, which tell the network."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.conftest import Check


def hyper(name: str, tier: Any, *members: Any) -> dict[str, Any]:
    return {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": name},
        "spec": {"tier": tier, "members": list(members)},
    }


def node(name: str, kind: str = "Node") -> dict[str, Any]:
    return {"type": kind, "selector": {"exactMatch": {"name": name}}}


def topology(name: str, *labels: str, version: str = "v1beta2") -> dict[str, Any]:
    return {
        "apiVersion": f"kueue.x-k8s.io/{version}",
        "kind": "Topology",
        "metadata": {"name": name},
        "spec": {"levels": [{"nodeLabel": label} for label in labels]},
    }


def test_objects_that_tell_the_network_are_read_as_the_service_reads_them(check: Check) -> None:
    tree = hyper("s1", 1, node("n1")), hyper("top", 2, node("s1", "HyperNode"))
    rack = "cloud.provider.com/topology-rack"
    assert check(
        *tree, topology("t", "my/block", rack), topology("o", rack, version="v1beta1")
    ) == (
        0,
        [],
    )
    field = "spec.members[0].selector.exactMatch.name"
    twice = hyper("other", 2, node("s1", "HyperNode"))
    allowed = "a HyperNode that is in no other (it is in other)"
    assert check(*tree, twice) == (1, [f"{field}: error: 's1' is not allowed: {allowed}"])
    missing = hyper("top", 2, node("s-1", "HyperNode"))
    assert check(tree[0], missing) == (
        0,
        [f"{field}: warning: 's-1' is not in these files; did you mean s1?"],
    )


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (hyper("a", -1), "spec.tier: error: -1 is not allowed: at least 0"),
        (hyper("a", "1"), "spec.tier: error: '1' is not allowed: a whole number"),
        (
            hyper("a", 1, {"type": "Node", "selector": {"exactmatch": {"name": "n"}}}),
            "spec.members[0].selector.exactmatch: error: no such field; did you mean exactMatch?",
        ),
        (
            hyper("a", 1, {"type": "Nodes", "selector": {"exactMatch": {"name": "n"}}}),
            "spec.members[0].type: error: 'Nodes' is not allowed: one of Node, HyperNode; did you mean Node?",
        ),
        (
            hyper("a", 1, {"type": "Node", "selector": {"regexMatch": {"pattern": "n("}}}),
            (
                "spec.members[0].selector.regexMatch.pattern: error: 'n(' is not allowed:"
                " a pattern of RE2 (missing ): n()"
            ),
        ),
        (
            topology("t", "topology.kubernetes.io/rack", "topology.kubernetes.io/zone"),
            (
                "spec.levels[1].nodeLabel: error: 'topology.kubernetes.io/zone' is not allowed:"
                " a level nearer than topology.kubernetes.io/rack, as it is known wider"
            ),
        ),
        (
            {**topology("t"), "kind": "Topologie"},
            "kind: error: 'Topologie' is not allowed; did you mean Topology?",
        ),
    ],
)
def test_what_tells_the_network_and_is_wrong(check: Check, body: Any, problem: str) -> None:
    assert check(body) == (1, [problem])
