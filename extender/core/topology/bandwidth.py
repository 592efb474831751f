"""The predicted all-reduce bus bandwidth of devices, in GB/s.

Bus bandwidth is nccl-tests' ``busbw``: a ring all-reduce of S bytes over k devices takes
``2 (k - 1) / k * S / busbw``, so busbw is what the slowest hop of the ring carries. Within a node
the best of these counts:

- one ring over any links; its slowest hop decides;
- several rings side by side over direct links (DGX-1, bridges, AMD's mesh), in both directions;
- NVLink SHARP where a switch and the product have it: each device sends its data once and one
  k-th of the sum, so busbw is ``2 (k - 1) / (k + 1)`` of what its links carry.

``between.py`` is about several nodes. ``docs/topology.md`` has the model beside published
measurements.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from extender.core.errors import InvalidObject
from extender.core.topology import products
from extender.core.topology.model import (
    NO_ZONE,
    NODE,
    PHB,
    PIX,
    PXB,
    SYS,
    UNKNOWN,
    Codes,
    Topology,
    distances,
    links_between,
    zones,
)
from extender.kernels import bandwidth as kernels

Floats = NDArray[np.float64]

#: PCIe traffic between devices through a CPU: NCCL counts 6 bytes for 5 (INTEL_P2P_OVERHEAD).
THROUGH_CPU = 5 / 6
#: Without P2P every byte goes to host memory and back: what all devices of one socket do so at
#: once, in slots. Two x16 slots' worth: 4 devices on one socket got 24 GB/s each, PCIe Gen5
#: (nccl#1130).
STAGING_SLOTS = 2.0
#: GB/s of a network port of 100 Gbit/s (NCCL's NET_BW).
NET_GBS_PER_100G = 12.0
#: What a port carries for a device that is not below its switch, and for one across sockets
#: (nccl#412: 16 of 24 GB/s; nccl-tests#347: half).
FAR_PORT = 2 / 3
CROSS_SOCKET_PORT = 1 / 2
#: The largest meshes whose rings are packed exactly; above, one ring each way counts.
MOST_PACKED = 8
#: More devices get no more of SHARP: the 72 of one NVL72 had what 8 have (coreweave's nccl-tests
#: #43: 835 to 847 GB/s; oci-hpc-oke: 847 with 8).
MOST_SHARP = 8
#: The most devices for which every subset is looked at.
MOST_DEVICES = 16


class Rates(Struct, frozen=True):
    """What the links of a node carry, GB/s in one direction."""

    #: One NVLink or XGMI link.
    link: float
    #: The links of one device; a device with more to all its peers hangs on a switch.
    most_links: int
    #: An x16 slot.
    pcie: float
    #: From socket to socket.
    socket: float
    #: Whether devices reach each other over PCIe without host memory.
    p2p: bool
    #: What NCCL gets of a switch's links with SHARP, 0..1; 0: no SHARP.
    nvls: float
    #: One network port, before locality.
    port: float = 4 * NET_GBS_PER_100G


class NodeModel(Struct, frozen=True):
    """One node shape, ready to predict; arrays over masks have 2**n elements, bit i is device i."""

    topology: Topology
    rates: Rates
    #: Whether a switch joins the NVLinks.
    switched: bool
    #: (n, n) GB/s of each hop of a ring.
    hop: Floats
    #: (n, n) how near pairs are over PCIe, codes.
    distance: Codes
    #: (2**n,) GB/s; 0 for fewer than two devices, which have nothing to send.
    bandwidth: Floats
    #: (2**n,) the same for rings alone: what counts where a gang spans nodes.
    ring: Floats


def rates_of(known: Topology, **changes: float | bool) -> Rates:
    """The rates of a node's product, guessed from its links where the product is not known.

    ``changes`` replace fields of :class:`Rates`: what the administrator knows better.
    """
    most = int(links_between(known.links).max(initial=0))
    product = products.named(known.product) or products.guessed(most)
    fields: dict[str, float | bool] = {
        "link": product.link_gbs or products.guessed(most).link_gbs,
        "most_links": product.most_links or products.guessed(most).most_links,
        "pcie": products.PCIE_GBS[product.pcie],
        "socket": products.SOCKET_GBS[product.pcie],
        "p2p": product.p2p,
        "nvls": product.nvls,
    }
    return Rates(**(fields | changes))  # type: ignore[arg-type] # checked by tests: field names


def model_of(known: Topology, rates: Rates | None = None) -> NodeModel:
    """The model of one node, for every subset of its devices.

    Takes milliseconds at 8 devices and about 0.1 s at 16: keep it, one per shape of node.
    Raises InvalidObject (field ``devices``) above ``MOST_DEVICES``.
    """
    count = len(known)
    if count > MOST_DEVICES:
        raise InvalidObject("devices", count, f"at most {MOST_DEVICES} in one node")
    rates = rates_of(known) if rates is None else rates
    links = links_between(known.links)
    switched = is_switched(links, rates.most_links)
    distance = distances(known)
    direct: Floats = links * np.float64(rates.link)
    host = _host_hops(distance, rates)
    hop = np.where(links > 0, direct, host)
    np.fill_diagonal(hop, 0.0)
    size = 1 << count
    path, by_links, by_any = np.empty((size, count)), np.empty(size), np.empty(size)
    kernels.widest(direct, path, by_links)
    kernels.widest(hop, path, by_any)
    best = np.maximum(by_links, np.minimum(by_any, _host_share(known, distance, rates)))
    devices = _bits(count).sum(axis=1)
    if not switched and links.any():
        packed = np.empty(size)
        kernels.pack(links, _parts(links), MOST_PACKED, packed)
        both_ways = np.where(devices > 2, 2.0, 1.0)
        best = np.maximum(best, np.maximum(packed * rates.link, by_links * both_ways))
    ring = _rounded(best, devices)
    if switched and rates.nvls:
        best = np.maximum(best, sharp_share(rates.nvls, devices) * _least_pair(direct))
    hop.setflags(write=False)
    return NodeModel(known, rates, switched, hop, distance, _rounded(best, devices), ring)


def _rounded(bandwidth: Floats, devices: NDArray[np.int64]) -> Floats:
    """To thousandths: less is arithmetic, and no difference between subsets. Read-only."""
    out = np.empty(len(bandwidth))
    np.round(np.where(devices < 2, 0.0, bandwidth), 3, out=out)
    out.setflags(write=False)
    return out


def is_switched(links: NDArray[np.int64], most_links: int) -> bool:
    """Whether the counts of ``links`` (n, n) need a switch: more than one device has."""
    return bool((links.sum(axis=1) > most_links).any())


def sharp_share(nvls: float, devices: NDArray[np.int64]) -> Floats:
    """What SHARP makes of the links of so many devices of one switch, 1: as much as a ring."""
    many = np.minimum(devices, MOST_SHARP)
    share: Floats = 2.0 * nvls * (many - 1) / (many + 1)
    return share


def sharp_of(model: NodeModel, mask: int) -> float:
    """GB/s within a node whose switch has SHARP, 0 where it has none or there is one device."""
    return float(model.bandwidth[mask]) if model.switched and model.rates.nvls else 0.0


def ports_of(model: NodeModel, devices: Sequence[int]) -> float:
    """GB/s that ``devices`` (positions) send to the network of their node.

    A port that is near to any device of the node is a rail: only these count where there are some.
    Each port carries what its place lets the nearest of ``devices`` get through it; all together
    no more than the devices' own slots.
    """
    chosen = list(devices)
    links = model.topology.nic_links
    if not chosen or not links.shape[1]:
        return 0.0
    rails = links.max(axis=0) >= PXB
    near = links[chosen][:, rails if rails.any() else slice(None)].max(axis=0)
    share = np.select(
        [near >= PXB, near >= NODE, near == SYS], [1.0, FAR_PORT, CROSS_SOCKET_PORT], FAR_PORT
    )
    return min(float(share.sum()) * model.rates.port, len(chosen) * model.rates.pcie)


def _host_hops(distance: Codes, rates: Rates) -> Floats:
    """(n, n) GB/s of each pair over PCIe; an unknown way is taken for the one across sockets."""
    through = rates.pcie * (THROUGH_CPU if rates.p2p else 1.0)
    across = min(through, rates.socket)
    by_code = np.full(int(distance.max(initial=PIX)) + 1, rates.pcie)
    by_code[[NODE, PHB]] = through
    by_code[[UNKNOWN, SYS]] = across
    hops: Floats = by_code[distance]
    return hops


def _host_share(known: Topology, distance: Codes, rates: Rates) -> Floats:
    """(2**n,) GB/s that host memory leaves each device of a mask; no limit where P2P works.

    Devices below one switch share its slot, those of one socket its memory: this is why four
    devices on one socket can be slower than two on each (nccl#1130).
    """
    count = len(known)
    bits = _bits(count)
    if rates.p2p:
        return np.full(len(bits), np.inf)
    below = np.where((distance == PIX) | (distance == PXB) | np.eye(count, dtype=bool), 1, 0)
    zone = zones(known)
    socket = np.where((zone[:, None] == zone) & (zone[:, None] != NO_ZONE), 1, 0)
    if (zone == NO_ZONE).any():
        socket = np.where((distance > SYS) | np.eye(count, dtype=bool), 1, 0)
    most_below = (bits @ below * bits).max(axis=1, initial=1)
    most_on = (bits @ socket * bits).max(axis=1, initial=1)
    share: Floats = np.minimum(rates.pcie / most_below, STAGING_SLOTS * rates.pcie / most_on)
    return share


def _least_pair(direct: Floats) -> Floats:
    """(2**n,) the least of ``direct`` (n, n) over the pairs of each mask, 0 where there is none."""
    count = len(direct)
    out = np.full(1 << count, np.inf)
    for device in range(count):
        has, later = 1 << device, np.full(1 << device, np.inf)
        for other in range(device):
            half = later.reshape(-1, 2, 1 << other)
            half[:, 1] = np.minimum(half[:, 1], direct[device, other])
        out[has : 2 * has] = np.minimum(out[:has], later)
    return np.where(np.isinf(out), 0.0, out)


def _parts(links: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n,) the mask of the devices that links connect each device with, itself among them."""
    reach = (links > 0) | np.eye(len(links), dtype=bool)
    for _ in range(len(links)):
        reach = (reach.astype(np.int64) @ reach) > 0
    parts: NDArray[np.int64] = (reach * (1 << np.arange(len(links)))).sum(axis=1)
    return parts


def _bits(count: int) -> NDArray[np.int64]:
    """(2**n, n) the devices of each mask as 0 and 1."""
    return (np.arange(1 << count)[:, None] >> np.arange(count)) & 1
