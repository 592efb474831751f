"""Network domains: which racks, blocks and cliques each node is in, as columns over rows.

A level is a node label; levels are ordered from the widest to the nearest. Two nodes are in one
domain of a level if they agree on its label and on those of all wider levels that they have, so
that ``rack-1`` of two blocks are two racks (as in Kueue, KEP-2724). A node without a level's label
is in no domain of it that is known (-1): neither near to nor far from anything there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Int32s = NDArray[np.int32]

#: In no known domain.
UNKNOWN = -1
#: The level below all others, for constraints: a node is a domain of its own.
HOST = "kubernetes.io/hostname"
#: Levels inside which devices reach each other by NVLink, without network ports.
CLIQUES = frozenset(
    {
        "accelerator.topograph.run/domain",
        "ds.coreweave.com/nvlink.domain",
        "network.topology.nvidia.com/accelerator",
        "nvidia.com/gpu.clique",
        "oci.oraclecloud.com/host.gpu_memory_fabric_id",
    }
)


class Level(Struct, frozen=True):
    """One level of the network."""

    #: The node label whose values are the domains.
    label: str
    #: What Volcano's highestTierName calls it; the label where it is empty.
    name: str = ""
    #: What the nodes of a domain can send, over what its uplinks carry; 1: as much.
    oversubscription: float = 1.0


#: Labels that clouds and topograph put on nodes, widest first; those that no node has cost nothing.
#: Sources: documentation of EKS, GKE, OCI, CoreWeave, NVIDIA's topograph (both its generations)
#: and GPU Feature Discovery.
DEFAULT_LEVELS: tuple[Level, ...] = tuple(
    Level(label)
    for label in (
        "topology.kubernetes.io/zone",
        "network.topology.nvidia.com/datacenter",
        "network.topology.nvidia.com/spine",
        "network.topology.nvidia.com/block",
        "fabric.topograph.run/tier-2",
        "fabric.topograph.run/tier-1",
        "fabric.topograph.run/tier-0",
        "topology.k8s.aws/network-node-layer-1",
        "topology.k8s.aws/network-node-layer-2",
        "topology.k8s.aws/network-node-layer-3",
        "topology.k8s.aws/network-node-layer-4",
        "cloud.google.com/gce-topology-block",
        "cloud.google.com/gce-topology-subblock",
        "cloud.google.com/gce-topology-host",
        "oci.oraclecloud.com/rdma.hpc_island_id",
        "oci.oraclecloud.com/rdma.network_block_id",
        "oci.oraclecloud.com/rdma.local_block_id",
        "oci.oraclecloud.com/host.gpu_memory_fabric_id",
        "cloud.provider.com/topology-block",
        "cloud.provider.com/topology-rack",
        "topology.kubernetes.io/rack",
        "network.topology.nvidia.com/accelerator",
        "accelerator.topograph.run/domain",
        "accelerator.topograph.run/sub-domain",
        "ds.coreweave.com/nvlink.domain",
        "nvidia.com/gpu.clique",
    )
)


class Domains(Struct, frozen=True, eq=False):
    """The levels that any node is known at, at one moment."""

    #: Widest first.
    levels: tuple[Level, ...] = ()
    #: (levels, rows) the domain of each row, or UNKNOWN; numbers are each level's own.
    ids: Int32s = np.zeros((0, 0), np.int32)
    #: By level, by number: the labels' values from the widest known level on; "" for unused numbers.
    names: tuple[tuple[str, ...], ...] = ()
    #: By level, by number: the place of the name among all, the key that breaks ties.
    ranks: tuple[NDArray[np.int64], ...] = ()


class DomainTable:
    """Domains of the rows that there are, kept by each change of a node."""

    def __init__(self, levels: Sequence[Level] = ()) -> None:
        self.levels = tuple(levels)
        #: (levels, capacity).
        self.ids: Int32s = np.full((len(self.levels), 64), UNKNOWN, np.int32)
        self._numbers: list[dict[tuple[str, ...], int]] = [{} for _ in self.levels]
        self._paths: list[list[tuple[str, ...]]] = [[] for _ in self.levels]
        self._members: list[list[int]] = [[] for _ in self.levels]
        self._unused: list[list[int]] = [[] for _ in self.levels]

    def put(self, row: int, labels: Mapping[str, str]) -> None:
        """The row's node has these labels now; none for a row without a node."""
        while row >= self.ids.shape[1]:
            self.ids = np.hstack([self.ids, np.full_like(self.ids, UNKNOWN)])
        path: tuple[str, ...] = ()
        for at, level in enumerate(self.levels):
            value = labels.get(level.label)
            number = UNKNOWN
            if value:
                path = (*path, level.label, value)
                number = self._join(at, path)
            self._leave(at, int(self.ids[at, row]))
            self.ids[at, row] = number

    def freeze(self, rows: int) -> Domains:
        """The levels that any node is known at."""
        known = [at for at, numbers in enumerate(self._numbers) if numbers]
        # A path is label, value, label, value …
        names = tuple(tuple("/".join(path[1::2]) for path in self._paths[at]) for at in known)
        return Domains(
            tuple(self.levels[at] for at in known),
            self.ids[known, :rows],
            names,
            tuple(_ranks(each) for each in names),
        )

    def _join(self, at: int, path: tuple[str, ...]) -> int:
        number = self._numbers[at].get(path)
        if number is None:
            if self._unused[at]:
                number = self._unused[at].pop()
            else:
                number = len(self._paths[at])
                self._paths[at].append(())
                self._members[at].append(0)
            self._numbers[at][path] = number
            self._paths[at][number] = path
        self._members[at][number] += 1
        return number

    def _leave(self, at: int, number: int) -> None:
        if number == UNKNOWN:
            return
        self._members[at][number] -= 1
        if not self._members[at][number]:
            del self._numbers[at][self._paths[at][number]]
            self._paths[at][number] = ()
            self._unused[at].append(number)


def _ranks(names: Sequence[str]) -> NDArray[np.int64]:
    ranks = np.empty(len(names), np.int64)
    ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    return ranks
