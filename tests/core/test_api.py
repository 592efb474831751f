"""Names of versions of the API, and which is newer."""

from __future__ import annotations

import random

from extender.core.api import newness
from extender.core.objects import Meta
from extender.core.topology.network import Network, Topology, TopologyLevel, TopologySpec

#: From the oldest; apimachinery's own example, and what is no version of Kubernetes'.
ORDER = [
    "",
    "foo10",
    "v1beta",
    "v1gamma1",
    "v1alpha1",
    "v1alpha2",
    "v1alpha10",
    "v2alpha1",
    "v1beta1",
    "v1beta2",
    "v1beta9",
    "v1beta10",
    "v3beta1",
    "v1",
    "v2",
    "v10",
]


def test_versions_come_in_kubernetes_order() -> None:
    mixed = random.Random(1).sample(ORDER, len(ORDER))
    assert sorted(mixed, key=newness) == ORDER


def test_v1_of_a_topology_is_newer_than_its_betas() -> None:
    network = Network()
    for version, label in (("v1", "my/new"), ("v1beta2", "my/old"), ("v1beta10", "my/older")):
        levels = (TopologyLevel(label),)
        network.tell_topology(Topology(Meta(name="t"), TopologySpec(levels)), version)
    assert [each.label for each in network.table([], []).levels] == ["my/new"]
