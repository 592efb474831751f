"""What is known of one node's devices and of the links between them, as columns.

A link is a small integer. The PCIe codes are ordered: the higher, the nearer. ``UNKNOWN`` is a
state of its own, neither the best nor the worst; what it costs is for the bandwidth model to say.
Source of the words: the legend of ``nvidia-smi topo -m``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from extender.core.errors import InvalidObject

Codes = NDArray[np.uint8]
Zones = NDArray[np.int16]

UNKNOWN = 0
#: The diagonal of a matrix.
SELF = 1
#: Across the link between sockets.
SYS = 2
#: Across host bridges of one NUMA node.
NODE = 3
#: Through one host bridge.
PHB = 4
#: Through several PCIe switches.
PXB = 5
#: Through one PCIe switch.
PIX = 6
#: On one board.
PSB = 7
#: ``NVLINK + n``: n bonded NVLinks, through a switch or not.
NVLINK = 64
#: ``XGMI + n``: n links of AMD's Infinity Fabric.
XGMI = 128
#: The most links that a code can hold.
MOST_LINKS = 63
#: The most devices of a node that Muster keeps links for.
MOST_DEVICES = 64
#: A zone that is not known.
NO_ZONE = -1

_WORDS = {
    UNKNOWN: "?",
    SELF: "X",
    SYS: "SYS",
    NODE: "NODE",
    PHB: "PHB",
    PXB: "PXB",
    PIX: "PIX",
    PSB: "PSB",
}
_CODES = {word: code for code, word in _WORDS.items()} | {"SOC": SYS}
_BONDED = re.compile(r"(NV|XGMI)([0-9]{1,3})")


@dataclass(frozen=True, eq=False, slots=True)
class Topology:
    """The devices of one node, n of them, and its m network devices.

    Arrays are read-only. Devices are addressed by position; ``index`` is what the driver calls
    them. A link need not be the same both ways: some dumps are not symmetric.
    """

    #: (n,) the number of each device in the driver's order.
    index: tuple[int, ...]
    #: (n, n) codes from the row's device to the column's.
    links: Codes
    #: (n,) NUMA node of the CPUs nearest to each device, ``NO_ZONE`` where not known or several.
    numa: Zones
    #: (n,) the CPUs nearest to each device as the kernel lists them (``0-3,8-11``), or "".
    cpus: tuple[str, ...]
    #: (m,) names of the network devices.
    nics: tuple[str, ...]
    #: (n, m) codes from device to network device.
    nic_links: Codes
    #: The product as the driver or GFD names it; "" is unknown.
    product: str = ""

    def __len__(self) -> int:
        """How many devices there are."""
        return len(self.index)

    def same(self, other: Topology) -> bool:
        """Whether both say the same of every device and link."""
        return (
            self.index == other.index
            and self.cpus == other.cpus
            and self.nics == other.nics
            and self.product == other.product
            and np.array_equal(self.links, other.links)
            and np.array_equal(self.numa, other.numa)
            and np.array_equal(self.nic_links, other.nic_links)
        )


def topology(
    links: Codes,
    *,
    index: tuple[int, ...] | None = None,
    numa: Zones | None = None,
    cpus: tuple[str, ...] | None = None,
    nics: tuple[str, ...] = (),
    nic_links: Codes | None = None,
    product: str = "",
) -> Topology:
    """A Topology whose parts agree in shape; what is left out is unknown.

    Raises InvalidObject (field ``devices``) above ``MOST_DEVICES``.
    """
    count = len(links)
    if count > MOST_DEVICES:
        raise InvalidObject("devices", count, f"at most {MOST_DEVICES}")
    numa = np.full(count, NO_ZONE, dtype=np.int16) if numa is None else numa
    nic_links = np.zeros((count, len(nics)), np.uint8) if nic_links is None else nic_links
    index = tuple(range(count)) if index is None else index
    cpus = ("",) * count if cpus is None else cpus
    assert links.shape == (count, count), links.shape
    assert nic_links.shape == (count, len(nics)), nic_links.shape
    assert len(index) == len(cpus) == len(numa) == count
    for array in (links, numa, nic_links):
        array.setflags(write=False)
    return Topology(index, links, numa, cpus, nics, nic_links, product)


def code_of(word: str) -> int | None:
    """The code of a word of a dump, None for one that is not a link."""
    if word in _CODES:
        return _CODES[word]
    bonded = _BONDED.fullmatch(word)
    if bonded is None or not 1 <= int(bonded[2]) <= MOST_LINKS:
        return None
    return (NVLINK if bonded[1] == "NV" else XGMI) + int(bonded[2])


def word_of(code: int) -> str:
    """The word of a code, as dumps write it."""
    if code >= XGMI:
        return f"XGMI{code - XGMI}"
    if code >= NVLINK:
        return f"NV{code - NVLINK}"
    return _WORDS[code]


def links_between(codes: Codes) -> NDArray[np.int64]:
    """(n, n) how many NVLinks or XGMI links each pair has, 0 where there is none.

    The smaller of both directions: a ring passes every hop one way or the other.
    """
    wide = codes.astype(np.int64)
    counts = np.where(wide >= NVLINK, wide % NVLINK, 0)
    return np.minimum(counts, counts.T)


def zones(known: Topology) -> Zones:
    """(n,) which socket or NUMA node each device hangs on, counted from 0, ``NO_ZONE`` if unknown.

    By NUMA node where the dump has one, else by the list of CPUs: old drivers print only that.
    """
    if (known.numa != NO_ZONE).any():
        return known.numa
    lists = list(dict.fromkeys(cpus for cpus in known.cpus if cpus))
    places = [lists.index(cpus) if cpus else NO_ZONE for cpus in known.cpus]
    return np.array(places, dtype=np.int16)


def distances(known: Topology) -> Codes:
    """(n, n) how near each pair is over PCIe, also where NVLink hides it from the dump.

    A pair that shares a network device's switch is below that switch; else the zones decide;
    ``UNKNOWN`` is left where neither is known. Of two ways that differ the longer counts.
    """
    count = len(known)
    zone = zones(known)
    out = np.where(known.links < NVLINK, known.links, UNKNOWN).astype(np.uint8)
    for i in range(count):
        for j in range(count):
            if out[i, j] != UNKNOWN:
                continue
            shared = np.minimum(known.nic_links[i], known.nic_links[j])
            nearest = int(shared.max(initial=UNKNOWN))
            if nearest in (PXB, PIX):
                out[i, j] = nearest
            elif zone[i] != NO_ZONE and zone[j] != NO_ZONE:
                out[i, j] = NODE if zone[i] == zone[j] else SYS
    either = (out == UNKNOWN) | (out.T == UNKNOWN)
    both_ways = np.where(either, np.maximum(out, out.T), np.minimum(out, out.T))
    both_ways.setflags(write=False)
    return both_ways
