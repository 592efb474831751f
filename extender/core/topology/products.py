"""What is known of a product by its name: its links, its PCIe generation, whether P2P works.

Constants are NCCL's own estimates of what a link carries in one direction, in GB/s
(``src/graph/topo.h``; RCCL's copy of that file for AMD), not the numbers of data sheets.
"""

from __future__ import annotations

import re

from msgspec import Struct

#: GB/s of an x16 slot in one direction: NCCL's PCI_BW for Gen3, doubled with each generation.
PCIE_GBS = {3: 12.0, 4: 24.0, 5: 48.0, 6: 96.0}
#: GB/s across the sockets of servers of that PCIe generation: NCCL's Skylake, AMD and Emerald
#: Rapids numbers. Two sockets of EPYC Genoa were measured at 39 (rtx6kpro).
SOCKET_GBS = {3: 10.0, 4: 16.0, 5: 40.0, 6: 40.0}


class Product(Struct, frozen=True):
    """One product, or one family whose members do not differ here."""

    #: GB/s of one NVLink or XGMI link, in one direction; 0 where it has none.
    link_gbs: float = 0.0
    #: The links of one device. More than these to all its peers: there is a switch.
    most_links: int = 0
    #: Generation of its x16 slot.
    pcie: int = 4
    #: Whether the driver lets it reach its peers over PCIe.
    p2p: bool = True
    #: NVLink SHARP: the part of the links that NCCL gets out of it (``nvlsEfficiency``); 0: none.
    nvls: float = 0.0


_P100 = Product(18.0, 4, 3)
_V100 = Product(20.0, 6, 3)
_AMPERE = Product(20.0, 12, 4)
_HOPPER = Product(20.6, 18, 5, nvls=0.85)
_BLACKWELL = Product(40.1, 18, 5, nvls=0.74)
_BRIDGED = Product(12.0, 4, 4)
_GEFORCE_BRIDGED = Product(12.0, 4, 4, p2p=False)

#: The first that matches the beginning of the name counts.
_PRODUCTS: tuple[tuple[str, Product], ...] = (
    # A virtual GPU, which ends in its profile (GRID A100-40C, H100L-94C, A40-48Q).
    (r"GRID |\w+ [0-9]+[ABCQ]\b", Product(0.0, 0, 4, p2p=False)),
    # Its ConnectX-8 carry 800 Gb/s for each GPU, over PCIe Gen6 (NVIDIA's guide to DGX B300).
    (r"G?B300", Product(40.1, 18, 6, nvls=0.74)),
    (r"GB200|B[12]00", _BLACKWELL),
    (r"(H100|H800|H200) (PCIE|NVL)", Product(20.6, 18, 5)),
    (r"H100|H200|H800|H20\b|H20Z|GH200", _HOPPER),
    (r"A800", Product(20.0, 8, 4)),
    (r"A100|PG509", _AMPERE),
    (r"A30\b", Product(20.0, 4, 4)),
    (r"A40\b|(RTX )?A[456][05]00\b", _BRIDGED),
    (
        r"A10[GM]?\b|A16\b|A2\b|L4\b|L20\b|L2\b|L40[GS]?\b|RTX \d+\w* (SFF )?ADA",
        Product(pcie=4),
    ),
    (r"V100|PG503", _V100),
    (r"P100", _P100),
    (r"RTX PRO", Product(pcie=5)),
    (r"(GEFORCE )?RTX 50", Product(pcie=5, p2p=False)),
    (r"(GEFORCE )?RTX 3090", _GEFORCE_BRIDGED),
    (r"(GEFORCE )?RTX [34]0", Product(pcie=4, p2p=False)),
    (r"QUADRO RTX|TITAN RTX", Product(20.0, 2, 3)),
    (r"(GEFORCE )?RTX 20", Product(20.0, 2, 3, p2p=False)),
    (r"T4G?\b|K80|P4\b|P40\b|M10\b|M40|M60|GEFORCE|TITAN|QUADRO", Product(pcie=3)),
    # GFX94x 48, MI200 36, MI100 24: RCCL's XGMI widths. It has 48 for GFX95x too, whose links run
    # a fifth faster (AMD: 153.6 GB/s for 128, both ways); two MI355X got 61 (docs/topology.md).
    (r"(INSTINCT )?MI35", Product(57.6, 7, 5)),
    (r"(INSTINCT )?MI3", Product(48.0, 7, 5)),
    (r"INSTINCT MI2|MI2", Product(36.0, 8, 4)),
    (r"INSTINCT MI|MI1|MI50|MI60", Product(24.0, 3, 4)),
)
_FORMS = tuple((re.compile(form), product) for form, product in _PRODUCTS)
_NOISE = re.compile(r"^(NVIDIA|AMD|TESLA)\s+")
_SUFFIX = re.compile(r"[\s-]+SHARED$|[\s-]MIG[\s-].*$")


def named(name: str) -> Product | None:
    """The product of this name, as NVML, GFD's label or a person writes it; None: not known."""
    plain = plain_name(name)
    return next((product for form, product in _FORMS if form.match(plain)), None)


def plain_name(name: str) -> str:
    """Upper case, blanks for dashes, without the maker and what MIG or sharing adds (GFD)."""
    plain = _SUFFIX.sub("", re.sub(r"[\s_-]+", " ", name).strip().upper())
    while (shorter := _NOISE.sub("", plain)) != plain:
        plain = shorter
    return plain


def guessed(most_of_a_pair: int) -> Product:
    """A product for a dump without a name, from the most links of any pair.

    NV13 and more is Hopper or later, NV9 to NV12 Ampere, NV7 and NV8 its export version, NV5 and
    NV6 Hopper's four-way board or Volta behind a switch, NV4 and NV3 a bridge or Ampere's four-way
    board, less Volta. The slower of two is meant where both fit.
    """
    if most_of_a_pair > 12:
        return Product(20.6, 18, 5)
    if most_of_a_pair > 8:
        return _AMPERE
    if most_of_a_pair > 6:
        return Product(20.0, 8, 4)
    if most_of_a_pair > 4:
        return Product(20.0, 18, 4)
    if most_of_a_pair > 2:
        return Product(20.0, 12, 4)
    return _V100 if most_of_a_pair else Product(pcie=4)
