"""numaaware: nodes are scored by the devices that their kubelets would really give."""

from __future__ import annotations

import pytest

from extender.core.shape import shape_of
from extender.core.snapshot import Snapshot
from extender.core.topology.catalogue import COUNT_LABEL, PRODUCT_LABEL
from plugins import BUILT_IN, complete
from plugins.numaaware import NumaAware
from tests.builders import node, pod
from tests.core.planning import cluster
from tests.core.test_zones import tell, topology


def plugin(**arguments) -> NumaAware:
    return NumaAware(complete(NumaAware.arguments, arguments, "arguments"))


def scores(nodes: dict, gpus: int, product: str = "NVIDIA-L40S", **arguments) -> list[float]:
    """``nodes``: what is free of the sockets; None: it does not tell."""
    labels = {PRODUCT_LABEL: product, COUNT_LABEL: "8"}
    made = cluster(*(node(name, gpus=8, labels=labels) for name in nodes))
    for name, free in nodes.items():
        if free is not None:
            tell(made, topology(name, [4, 4], free, policy="best-effort"))
            # Somebody has what is not free.
            for at in range(8 - sum(free)):
                made.upsert_pod(pod(f"{name}-{at}", node=name, gpus=1))
    return plugin(**arguments).score(Snapshot(made), shape_of(pod("w", gpus=gpus))).tolist()


def test_one_socket_beats_two_and_not_told_is_neither() -> None:
    near, across, unknown = scores({"a": [4, 0], "b": [2, 2], "c": None}, 4)
    assert near > unknown > 0
    assert near > across
    # PCIe Gen4: 20 GB/s through a CPU, 16 across sockets. Nobody's socket is broken into.
    assert [near, across, unknown] == pytest.approx([100, 75 * 16 / 20 + 25, 50])


def test_a_small_pod_goes_where_a_socket_is_broken_into() -> None:
    broken, whole = scores({"a": [3, 4], "b": [4, 4]}, 1)
    assert broken > whole


def test_the_device_plugins_choice_counts() -> None:
    """DGX-1: of eight that are free it takes a pair with two links; 0 and 1 have one."""
    product = "Tesla-V100-SXM2-32GB"
    pair, across = scores({"a": [4, 4], "b": [2, 0]}, 2, product)
    assert pair > across


def test_where_nobody_tells_there_is_no_opinion() -> None:
    assert scores({"a": None, "b": None}, 4) == [0, 0]
    assert BUILT_IN["numaaware"] is NumaAware


def test_a_pod_that_is_not_aligned() -> None:
    made = cluster(node("a", gpus=8))
    tell(made, topology("a", [4, 4]))
    assert plugin().score(Snapshot(made), shape_of(pod("w"))).tolist() == [0]


def test_links_that_are_not_known_and_the_weight() -> None:
    assert scores({"a": [4, 4]}, 4, "Something-New", weight=2) == pytest.approx(
        [2 * (75 * 0.5 + 25)]
    )


def test_a_node_that_would_refuse_gets_nothing_for_bandwidth() -> None:
    labels = {PRODUCT_LABEL: "NVIDIA-L40S", COUNT_LABEL: "8"}
    made = cluster(*(node(name, gpus=8, labels=labels) for name in "ab"))
    tell(made, topology("a", [4, 4], policy="single-numa-node"))
    tell(made, topology("b", [4, 4], policy="restricted"))
    refused, admitted = plugin().score(Snapshot(made), shape_of(pod("w", gpus=8))).tolist()
    assert refused < admitted
