"""Shapes of nodes that are known by product and number of GPUs, for nodes that publish no links.

No stock label carries links (GFD has counts and products). Where one product is sold in several
shapes the slower is taken, and ``assumed`` says so: real links, from Muster's annotation, win.
Sources: the makers' system guides (DGX-1 and its hybrid cube mesh, DGX-2, HGX A100/H100/H200/B200,
GB200 NVL72, MI300X), compared with dumps where there are some.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np
from msgspec import Struct

from extender.core.topology.model import (
    NODE,
    NVLINK,
    PIX,
    SELF,
    SYS,
    XGMI,
    Codes,
    Topology,
    topology,
)
from extender.core.topology.products import named, plain_name

PRODUCT_LABEL = "nvidia.com/gpu.product"
COUNT_LABEL = "nvidia.com/gpu.count"


class Shape(Struct, frozen=True):
    """One known node."""

    name: str
    topology: Topology
    #: What is only assumed of it; "" where product and count leave no doubt.
    assumed: str = ""


def _all_to_all(count: int, code: int) -> Codes:
    links = np.full((count, count), code, dtype=np.uint8)
    np.fill_diagonal(links, SELF)
    return links


def _switched(links: int) -> Callable[[int], Codes]:
    return lambda count: _all_to_all(count, NVLINK + links)


def _sockets(count: int, per_switch: int = 1) -> Codes:
    """Two sockets with half of the devices each, ``per_switch`` of them below one PCIe switch."""
    at = np.arange(count)
    socket, switch = at // max(1, -(-count // 2)), at // per_switch
    same = socket[:, None] == socket
    links = np.where(same, NODE, SYS)
    links = np.where(same & (switch[:, None] == switch), PIX, links).astype(np.uint8)
    np.fill_diagonal(links, SELF)
    return links


def _xgmi(count: int) -> Codes:
    """Every two devices have one link."""
    return _all_to_all(count, XGMI + 1)


def _bridged(links: int) -> Callable[[int], Codes]:
    """Neighbours 0-1, 2-3 .. are bridged; PCIe between pairs."""

    def build(count: int) -> Codes:
        codes = _sockets(count)
        for left in range(0, count - 1, 2):
            codes[left, left + 1] = codes[left + 1, left] = NVLINK + links
        return codes

    return build


def _cube(counts: Mapping[tuple[int, int], int]) -> Callable[[int], Codes]:
    """A mesh of direct links, PCIe elsewhere: pairs of devices below one switch, two sockets."""

    def build(count: int) -> Codes:
        codes = _sockets(8, per_switch=2)
        for (a, b), links in counts.items():
            codes[a, b] = codes[b, a] = NVLINK + links
        return codes[:count, :count].copy()

    return build


#: DGX-1 with V100: the hybrid cube mesh, six links a device (dumps of it in tests/topology).
_DGX1_V100 = {
    (0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2, (1, 2): 2, (1, 3): 1, (1, 5): 2, (2, 3): 2,
    (2, 6): 1, (3, 7): 1, (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2,
}  # fmt: skip
#: DGX-1 with P100: the same cube with one link a pair, four a device.
_DGX1_P100 = dict.fromkeys(_DGX1_V100, 1)

_HALF = "half of a DGX-1's mesh"
_NEIGHBOURS = "neighbours are bridged"
_FOUR_WAY = "a four-way board, not four of an eight-way one"
_JOINED = "every two GPUs are joined by NVLink"
_NO_BRIDGE = "no NVLink bridges, half of the GPUs on each of two sockets"
_LAYOUT = "half of the GPUs on each of two sockets"


class _Entry(Struct, frozen=True):
    """One board; the first entry whose ``form`` and ``counts`` match counts."""

    name: str
    #: GFD's label of one such node.
    label: str
    #: Matches the beginning of the product's plain name.
    form: str
    counts: tuple[int, ...]
    links: Callable[[int], Codes]
    assumed: str = ""


_A100 = r"A100 SXM|A100 \w+ SXM"
_H100 = r"H100(?! NVL| PCIE)"
_H200 = r"H200(?! NVL)"
_SHAPES = (
    _Entry("GB300 NVL72 tray", "NVIDIA-GB300", r"GB300", (2, 4), _switched(18)),
    _Entry("GB200 NVL72 tray", "NVIDIA-GB200", r"GB200", (2, 4), _switched(18)),
    _Entry("GH200 NVL2", "NVIDIA-GH200-144G-HBM3e", r"GH200", (2,), _switched(18), _JOINED),
    _Entry("quad GH200", "NVIDIA-GH200-120GB", r"GH200", (4,), _switched(6), _JOINED),
    _Entry("HGX B300", "NVIDIA-B300-SXM6-AC", r"B300", (8,), _switched(18)),
    _Entry("HGX B200", "NVIDIA-B200", r"B[12]00", (4, 8), _switched(18)),
    _Entry("HGX H200", "NVIDIA-H200", _H200, (8,), _switched(18)),
    _Entry("HGX H200 four-way", "NVIDIA-H200", _H200, (4,), _switched(6), _FOUR_WAY),
    _Entry("HGX H20", "NVIDIA-H20", r"H20Z?\b", (8,), _switched(18)),
    _Entry("HGX H800", "NVIDIA-H800", r"H800(?! NVL| PCIE)", (8,), _switched(8)),
    _Entry("HGX H100", "NVIDIA-H100-80GB-HBM3", _H100, (8,), _switched(18)),
    _Entry("HGX H100 four-way", "NVIDIA-H100-80GB-HBM3", _H100, (4,), _switched(6), _FOUR_WAY),
    _Entry("H100 NVL", "NVIDIA-H100-NVL", r"H100 NVL", (2, 4, 8), _bridged(12), _NEIGHBOURS),
    _Entry("HGX A100", "NVIDIA-A100-SXM4-80GB", _A100, (8, 16), _switched(12)),
    _Entry("HGX A100 four-way", "NVIDIA-A100-SXM4-40GB", _A100, (4,), _switched(4), _FOUR_WAY),
    _Entry("HGX A800", "NVIDIA-A800-SXM4-80GB", r"A800 SXM", (8,), _switched(8)),
    _Entry("DGX-2", "Tesla-V100-SXM3-32GB", r"V100 SXM3", (8, 16), _switched(6)),
    _Entry("DGX-1 V100", "Tesla-V100-SXM2-32GB", r"V100 SXM2", (8,), _cube(_DGX1_V100)),
    _Entry(
        "half a DGX-1 V100", "Tesla-V100-SXM2-16GB", r"V100 SXM2", (4,), _cube(_DGX1_V100), _HALF
    ),
    _Entry("DGX-1 P100", "Tesla-P100-SXM2-16GB", r"P100 SXM2", (8,), _cube(_DGX1_P100)),
    _Entry(
        "half a DGX-1 P100", "Tesla-P100-SXM2-16GB", r"P100 SXM2", (4,), _cube(_DGX1_P100), _HALF
    ),
    _Entry("MI300X platform", "AMD Instinct MI300X OAM", r"(INSTINCT )?MI3[0-9]{2}X", (8,), _xgmi),
)
#: Where links are made that no label tells: what the catalogue lacks of these is unknown.
_JOINED_BY_BOARD = re.compile(r"SXM|HBM3|G[BH][23]00|B[123]00|NVL|H20\b|MI[123]")
#: PCIe servers of these sizes are common; what hangs on which socket is assumed.
_PCIE_COUNTS = (2, 4, 8, 10)


def shape(product: str, count: int) -> Shape | None:
    """The node with ``count`` GPUs of this product; None where it is unknown.

    One GPU has no links: its shape is known for every product. MIG devices have no way to each
    other at all (k8s-device-plugin#296), so a product that is a MIG profile is unknown.
    """
    plain = plain_name(product)
    if "-MIG-" in product or count < 1:
        return None
    if count == 1:
        return Shape(f"one {plain}", topology(_all_to_all(1, SELF), product=product))
    for entry in _SHAPES:
        if count in entry.counts and re.match(entry.form, plain):
            return Shape(entry.name, _with_zones(entry.links(count), product), entry.assumed)
    known = named(product)
    if known is None or _JOINED_BY_BOARD.search(plain) or count not in _PCIE_COUNTS:
        return None
    assumed = _NO_BRIDGE if known.most_links else _LAYOUT
    return Shape(f"PCIe server, {count} GPUs", _with_zones(_sockets(count), product), assumed)


def shape_of(labels: Mapping[str, str]) -> Shape | None:
    """The shape that GFD's labels of a node tell, None where they are missing or say too little."""
    product, count = labels.get(PRODUCT_LABEL, ""), labels.get(COUNT_LABEL, "")
    if not product or not count.isascii() or not count.isdigit() or len(count) > 3:
        return None
    return shape(product, int(count))


def every_shape() -> list[Shape]:
    """Each entry of the catalogue at each of its counts, and PCIe servers of a few products."""
    wanted = [(entry.label, count) for entry in _SHAPES for count in entry.counts]
    for product in ("NVIDIA-L40S", "NVIDIA-A100-80GB-PCIe", "NVIDIA-GeForce-RTX-4090"):
        wanted += [(product, count) for count in _PCIE_COUNTS]
    found = [shape(product, count) for product, count in wanted]
    return [each for each in found if each is not None]


def _with_zones(links: Codes, product: str) -> Topology:
    """Half of the devices on each of two sockets."""
    count = len(links)
    half = (np.arange(count) >= -(-count // 2)).astype(np.int16)
    return topology(links, numa=half, product=product)
