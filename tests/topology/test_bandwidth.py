"""The bandwidth model: against published measurements, and its rules one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.core.errors import InvalidObject
from extender.core.topology.bandwidth import (
    MOST_DEVICES,
    is_switched,
    model_of,
    ports_of,
    rates_of,
    sharp_of,
)
from extender.core.topology.between import at_size, in_clique, over_nodes
from extender.core.topology.choice import mask_of
from extender.core.topology.model import NODE, PIX, SELF, SYS, UNKNOWN, topology
from tests.topology import measured
from tests.topology.oracle import node

#: Per cent. A row of the table that is further off must say why, and only such a row may.
LIMIT = 10


@pytest.mark.parametrize("row", measured.ROWS, ids=lambda row: f"{row['what']}, {row['source']}")
def test_the_model_is_near_to_what_was_measured(row) -> None:
    off = abs(measured.error(row))
    assert (off > LIMIT) == ("why" in row), off


def test_the_table_in_the_documents_is_this_model() -> None:
    text = measured.PAGE.read_text()
    assert text == measured.page_with(measured.table()), "python -m tests.topology.measured --write"


def gbs(product: str, count: int, *devices: int, **changes) -> float:
    known = node(product, count)
    return float(model_of(known, rates_of(known, **changes)).bandwidth[mask_of(devices)])


def test_rings_side_by_side_over_a_mesh() -> None:
    """DGX-1: six links a device; eight use them all, a quad four, a pair what joins it."""
    cube = "Tesla-V100-SXM2-32GB"
    assert gbs(cube, 8, *range(8)) == 120
    assert gbs(cube, 8, 0, 1, 2, 3) == 80
    assert gbs(cube, 8, 0, 3) == 40
    assert gbs(cube, 8, 0, 1) == 20
    # 3 and 4 are not joined, so the ring needs PCIe; 0-4-7-3 has one link between 7 and 3.
    assert gbs(cube, 8, 0, 3, 4) == 10
    assert gbs(cube, 8, 0, 3, 4, 7) == 40


def test_a_switch_carries_all_links_of_a_device_once() -> None:
    assert gbs("NVIDIA-A100-SXM4-80GB", 8, 0, 7) == 240
    assert gbs("NVIDIA-A100-SXM4-80GB", 8, 0, 1, 2) == 240
    # Below five devices a ring carries more than SHARP.
    assert gbs("NVIDIA-B200", 8, 0, 1, 2, 3) == 721.8
    assert gbs("NVIDIA-B200", 8, *range(8)) > 800


def test_more_links_than_a_device_has_need_a_switch() -> None:
    mesh = np.full((4, 4), 6) - 6 * np.eye(4, dtype=np.int64)
    assert not is_switched(mesh, 18)
    assert is_switched(mesh, 12)


def test_one_weak_link_of_a_switch_counts_for_the_sets_that_need_it() -> None:
    known = node("NVIDIA-H100-80GB-HBM3", 8)
    links = known.links.copy()
    links[0, :] = links[:, 0] = 64 + 17
    links[0, 0] = SELF
    weak = model_of(topology(links, product=known.product))
    assert weak.ring[mask_of(range(1, 8))] == 370.8
    assert weak.ring[mask_of(range(8))] == pytest.approx(17 * 20.6)


def test_unknown_links_are_neither_the_best_nor_nothing() -> None:
    codes = np.array([[SELF, UNKNOWN, NODE], [UNKNOWN, SELF, SYS], [NODE, SYS, SELF]], np.uint8)
    model = model_of(topology(codes, product="NVIDIA L40S"))
    assert model.bandwidth[0b011] == model.bandwidth[0b110] == 16
    assert model.bandwidth[0b101] == 20


def test_without_p2p_both_sockets_beat_one() -> None:
    assert gbs("NVIDIA-RTX-5090", 8, 0, 1, 2, 3) < gbs("NVIDIA-RTX-5090", 8, 0, 1, 4, 5)
    assert gbs("NVIDIA-L40S", 8, 0, 1, 2, 3) > gbs("NVIDIA-L40S", 8, 0, 1, 4, 5)
    # Those below one switch share its slot (nccl#1086: a pair of sockets beat a pair of a switch).
    pix = np.full((4, 4), SYS, np.uint8)
    pix[:2, :2] = pix[2:, 2:] = PIX
    np.fill_diagonal(pix, SELF)
    model = model_of(topology(pix, product="NVIDIA GeForce RTX 4090"))
    assert model.bandwidth[0b0011] == 12
    assert model.bandwidth[0b0101] == 16


def test_ports() -> None:
    """Two rails on each of two sockets and a port for management below nobody's switch."""
    codes = np.array([[6, 3, 2, 2, 3], [3, 6, 2, 2, 3], [2, 2, 6, 3, 2], [2, 2, 3, 6, 2]], np.uint8)
    names = tuple(f"mlx5_{at}" for at in range(5))
    base = node("NVIDIA-A100-SXM4-40GB", 4)
    known = topology(base.links.copy(), nics=names, nic_links=codes, product=base.product)
    model = model_of(known, rates_of(known, port=12.0))
    assert ports_of(model, [0, 1, 2, 3]) == 48
    assert ports_of(model, [0, 1]) == 24 + 12  # the other two are across the sockets
    assert ports_of(model, [0]) == 24  # its own slot
    assert ports_of(model, []) == 0
    far = topology(base.links.copy(), nics=("a",), nic_links=np.full((4, 1), 3, np.uint8))
    assert ports_of(model_of(far, rates_of(far, port=12.0)), [0]) == pytest.approx(8)
    assert ports_of(model_of(base), [0]) == 0


def test_over_nodes() -> None:
    assert over_nodes([], []) == 0
    assert over_nodes([240], [100]) == 240
    assert over_nodes([240, 240], [100, 50]) == 50
    assert over_nodes([0, 0], [100, 100]) == 100
    assert over_nodes([240, 30], [100, 100]) == 30
    # Two leaves, 2 to 1 oversubscribed: the leaf with fewer nodes of the gang has the least share.
    leaves = [[0, 0, 0, 1]]
    assert over_nodes([240] * 4, [100] * 4, leaves, [2]) == 50
    assert over_nodes([240] * 4, [100] * 4, [[0, 0, 1, 1]], [2]) == 100
    assert over_nodes([240] * 4, [100] * 4, [[0, 0, 1, 1]], [4]) == 50
    assert over_nodes([240] * 4, [100] * 4, [[0, 0, 0, 0]], [4]) == 100
    assert over_nodes([240] * 4, [100] * 4, [[0, 0, 1, 1], [0, 0, 0, 0]], [1, 9]) == 100


def test_two_nodes_with_sharp_send_each_sum_once() -> None:
    def gang(*ports: float, sharp=(490, 490), **network) -> float:
        inside = [370.8] * len(ports)
        return over_nodes(inside, ports, devices=16, sharp=sharp, **network)

    assert gang(192, 192) == 360
    assert gang(192, 96) == 180
    # No more than SHARP carries within either of them; not slower than a ring.
    assert gang(384, 384) == 490
    assert gang(384, 384, sharp=(490, 400)) == 400
    assert gang(384, 384, sharp=(300, 300)) == 370.8
    # Uplinks are shared as they are by a ring.
    assert gang(192, 192, domains=[[0, 1]], oversubscription=[2]) == 180
    # A node without it, one device, or a third node: a ring.
    assert gang(192, 192, sharp=(490, 0)) == gang(192, 192, sharp=()) == 192
    assert gang(192, 192, 192, sharp=(490, 490, 490)) == 192
    h100, a100 = node("NVIDIA-H100-80GB-HBM3", 8), node("NVIDIA-A100-SXM4-80GB", 8)
    assert sharp_of(model_of(h100), 0xFF) == model_of(h100).bandwidth[0xFF] == 490.28
    assert sharp_of(model_of(h100), 1) == sharp_of(model_of(a100), 0xFF) == 0


def test_one_clique_of_many_nodes() -> None:
    """The ports do not matter; SHARP gives 72 devices what it gives 8."""
    assert in_clique(721.8, 0.0, 72) == 721.8
    assert in_clique(721.8, 0.74, 4) == 721.8
    assert in_clique(721.8, 0.74, 8) == in_clique(721.8, 0.74, 72) == pytest.approx(830.9, abs=0.1)


@given(st.floats(1, 1000), st.integers(2, 512), st.integers(1, 64), st.floats(1e3, 1e11))
def test_small_messages_are_slower(bandwidth, devices, nodes, size) -> None:
    nodes = min(nodes, devices)
    here = at_size(bandwidth, devices, size, nodes)
    assert 0 < here <= at_size(bandwidth, devices, 2 * size, nodes) <= bandwidth * (1 + 1e-9)
    assert at_size(bandwidth, 1, size) == 0


def test_more_devices_than_tables_can_hold() -> None:
    many = np.full((MOST_DEVICES + 1, MOST_DEVICES + 1), SYS, np.uint8)
    with pytest.raises(InvalidObject, match=r"devices: 17 is not allowed: at most 16"):
        model_of(topology(many))


def test_a_mesh_above_the_size_that_is_packed_counts_one_ring_each_way() -> None:
    mesh = np.full((10, 10), 64 + 1, np.uint8)
    np.fill_diagonal(mesh, SELF)
    known = topology(mesh)
    model = model_of(known, rates_of(known, most_links=9, link=20.0, nvls=0.0))
    assert model.bandwidth[mask_of(range(8))] == 7 * 20
    assert model.bandwidth[mask_of(range(9))] == 2 * 20
