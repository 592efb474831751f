"""The predicted all-reduce bus bandwidth of a gang over several nodes, in GB/s.

A ring passes each node's network ports, and its share of every switch above them. Two nodes with
NVLink SHARP each send their sum once instead (NCCL's NVLSTree): what is bus bandwidth for n devices
is then ``2 (n - 1) / n`` of what a node sends. NCCL counts a tree over two nodes by what is inside
of them (``src/graph/tuning.cc``); over more nodes it gains nothing, as an inner node of it sends
twice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from extender.core.topology.bandwidth import sharp_share

#: Microseconds of one step of a ring inside a node, for NCCL's LL protocol (which carries half)
#: and Simple: fitted to 8 H200 at 1 MiB and 1 GiB (facts in docs/topology.md).
_LL_STEP, _SIMPLE_STEP = 2.7, 5.6
#: The same between nodes: NCCL's own latencies of a ring (``src/graph/tuning.cc``).
_LL_NET_STEP, _SIMPLE_NET_STEP = 2.7, 14.0


def over_nodes(
    inside: Sequence[float],
    ports: Sequence[float],
    domains: Sequence[Sequence[int]] = (),
    oversubscription: Sequence[float] = (),
    *,
    devices: int = 0,
    sharp: Sequence[float] = (),
) -> float:
    """The bus bandwidth of a gang over nodes, GB/s.

    ``inside`` (nodes,) is what rings carry within each node (``NodeModel.ring``); 0 for one device,
    which limits nothing.
    ``ports`` (nodes,) is what it can send. ``domains`` is one row a level, near to far: the domain
    of each node; a level that all nodes share limits nothing. A domain gives the gang its nodes'
    share of its uplinks: the sum of their ports over the level's ``oversubscription`` (1: none).
    ``sharp`` (nodes,) is what each node's SHARP carries (``bandwidth.sharp_of``), ``devices`` how
    many the gang has: for two nodes, both with SHARP, it counts.
    """
    ring = min((each for each in inside if each > 0), default=np.inf)
    if len(ports) < 2:
        return 0.0 if ring == np.inf else float(ring)
    sent = min(ports)
    for level, ratio in zip(domains, oversubscription, strict=True):
        shares: dict[int, float] = {}
        for domain, port in zip(level, ports, strict=True):
            shares[domain] = shares.get(domain, 0.0) + port
        if len(shares) > 1:
            sent = min(sent, min(shares.values()) / ratio)
    tree = 0.0
    if len(sharp) == 2:
        tree = min(*sharp, 2 * (devices - 1) / devices * sent)
    return float(max(min(ring, sent), tree))


def in_clique(links: float, nvls: float, devices: int) -> float:
    """The same for nodes of one NVLink clique, which need no ports.

    ``links`` is what those of a device carry, the least of all; ``nvls`` as in ``Rates``.
    """
    return links * max(1.0, float(sharp_share(nvls, np.array(devices))))


def at_size(bandwidth: float, devices: int, size: float, nodes: int = 1) -> float:
    """The bus bandwidth for messages of ``size`` bytes, GB/s; ``bandwidth`` is that of large ones.

    The faster of NCCL's protocols counts: Simple, and LL, which carries half but whose steps are
    shorter. A ring over several nodes is a tree between them: its steps grow with the logarithm.
    """
    if devices < 2 or bandwidth <= 0:
        return 0.0
    moved = 2 * (devices - 1) / devices * size / 1e9
    inner = 2 * (-(-devices // nodes) - 1)
    outer = 2 * int(np.ceil(np.log2(nodes)))
    simple = (inner * _SIMPLE_STEP + outer * _SIMPLE_NET_STEP) / 1e6 + moved / bandwidth
    low = (inner * _LL_STEP + outer * _LL_NET_STEP) / 1e6 + moved / (bandwidth / 2)
    return moved / min(simple, low)
