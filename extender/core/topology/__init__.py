"""Topology: what a node's devices are to each other, and which of them a job should get.

What the rest of Muster uses, in the order in which it is used::

    read(text)                     a dump of a driver's tool         -> Reading (Topology, warnings)
    annotation.decode(text)        Muster's node annotation          -> Topology
    devices.decode(text)           the other: health and holders     -> Devices
    catalogue.shape_of(labels)     GFD's labels                      -> Shape (Topology) or None
    nrt.zones_of(object)           NodeResourceTopology              -> NodeZones
    bandwidth.model_of(topology)   GB/s of every set of its devices  -> NodeModel
    choice.choices_of(model)       the best of every free set        -> Choices
    choice.take(choices, free, k)  the devices, one look-up          -> mask
    preferred.preferred_allocation what the device plugin will do    -> devices
    kubelet.admit(kubelet, stock, pod)  what a plain kubelet will do -> Verdict (zones, devices)
    between.over_nodes(..)         GB/s of a gang over nodes
    network.Network                levels of labels, HyperNodes and Topologies, and their domains
    domains.DomainTable            racks, blocks and cliques of the rows of the cluster
    limits.limit_of(wishes, ..)    how far apart a gang may be       -> Limit or Refusal
    spread.areas, .divide, .ports  domains for a gang, best first; its rows; what it can send
    fairest.fairest                its rows, exactly, for members that are alike
                                   (put together in extender/core/nearest.py)

A source that is missing or wrong leaves the topology unknown (None), which is neither good nor
bad; the order of trust is annotation, NodeResourceTopology (zones only), catalogue. Models and
choices are made once for a shape of node and shared by all nodes that look the same: keep them by
:func:`extender.core.topology.annotation.encode`, which is the same for the same topology.
"""

from __future__ import annotations

from extender.core.topology.dump import Reading as Reading
from extender.core.topology.dump import read_dump
from extender.core.topology.rocm import is_rocm as is_rocm
from extender.core.topology.rocm import read_rocm


def read(text: str, product: str = "") -> Reading:
    """The topology that the tool of a driver prints: NVIDIA's, or either of AMD's.

    Raises InvalidObject (field ``dump``) for any other text.
    """
    return read_rocm(text, product) if is_rocm(text) else read_dump(text, product)
