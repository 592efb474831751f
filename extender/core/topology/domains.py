"""Network domains: which racks, blocks and cliques each node is in, as columns over rows.

A level is a node label; levels are ordered from the widest to the nearest. Two nodes are in one
domain of a level if they agree on its label and on those of all wider levels that they have, so
that ``rack-1`` of two blocks are two racks (as in Kueue, KEP-2724). A node without a level's label
is in no domain of it that is known (-1): neither near to nor far from anything there. The tiers of
Volcano's HyperNodes are levels too, whose domains are HyperNodes instead of labels' values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from extender.core.topology.hypernodes import Fabric

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

#: What the level of a HyperNodes' tier is called, as if each were a label's value.
TIER_LABEL = "topology.volcano.sh/tier-"


class Level(Struct, frozen=True):
    """One level of the network."""

    #: The node label whose values are the domains.
    label: str
    #: What Volcano's highestTierName calls it; the label where it is empty.
    name: str = ""
    #: What the nodes of a domain can send, over what its uplinks carry; 1: as much.
    oversubscription: float = 1.0
    #: Of a level that HyperNodes tell: their tier. It is as far as their labels go, see TIER_LABEL.
    tier: int | None = None


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
        "cloud.provider.com/topology-block",
        "cloud.provider.com/topology-rack",
        "topology.kubernetes.io/rack",
        "oci.oraclecloud.com/host.gpu_memory_fabric_id",
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

    def __init__(
        self,
        levels: Sequence[Level] = (),
        loose: frozenset[str] = frozenset(),
        fabric: Fabric | None = None,
    ) -> None:
        """``fabric`` of the HyperNodes whose tiers are among the ``levels``; those that are ``loose``
        have their place where the domains say, whatever it is here.
        """
        self.levels = tuple(levels)
        self.fabric = fabric or Fabric()
        self._loose = loose
        #: (levels, capacity).
        self.ids: Int32s = np.full((len(self.levels), 64), UNKNOWN, np.int32)
        #: By row, the HyperNode whose word on the node does not count, and what is said of it.
        self._contradicted: dict[int, tuple[str, str]] = {}
        self._tiers = {tier: at for at, tier in enumerate(self.fabric.tiers)}
        self._numbers: list[dict[tuple[str, ...], int]] = [{} for _ in self.levels]
        self._paths: list[list[tuple[str, ...]]] = [[] for _ in self.levels]
        self._members: list[list[int]] = [[] for _ in self.levels]
        self._unused: list[list[int]] = [[] for _ in self.levels]

    def put(self, row: int, name: str, labels: Mapping[str, str]) -> bool:
        """The row's node has this name and these labels now; "" and none: it has no node.

        Returns whether HyperNodes contradict each other about it.
        """
        while row >= self.ids.shape[1]:
            self.ids = np.hstack([self.ids, np.full_like(self.ids, UNKNOWN)])
        hypers, odd = self.fabric.of(name, labels) if name and self._tiers else ((), None)
        self._contradicted.pop(row, None)
        if odd is not None:
            self._contradicted[row] = odd
        path: tuple[str, ...] = ()
        for at, level in enumerate(self.levels):
            number = UNKNOWN
            if level.tier is not None:
                # Names of HyperNodes are unique, whatever they are in.
                if hypers and (value := hypers[self._tiers[level.tier]]):
                    number = self._join(at, (level.label, value))
            elif value := labels.get(level.label, ""):
                path = (*path, level.label, value)
                number = self._join(at, path)
            self._leave(at, int(self.ids[at, row]))
            self.ids[at, row] = number
        return odd is not None

    def contradictions(self) -> dict[str, str]:
        """By HyperNode, what is wrong with it; told of the first row where there are several."""
        said: dict[str, str] = {}
        for _, (hyper, message) in sorted(self._contradicted.items()):
            said.setdefault(hyper, message)
        return said

    def freeze(self, rows: int) -> Domains:
        """The levels that any node is known at."""
        known = self._order([at for at, numbers in enumerate(self._numbers) if numbers], rows)
        # A path is label, value, label, value …
        names = tuple(tuple("/".join(path[1::2]) for path in self._paths[at]) for at in known)
        return Domains(
            tuple(self.levels[at] for at in known),
            self.ids[known, :rows],
            names,
            tuple(_ranks(each) for each in names),
        )

    def _order(self, known: list[int], rows: int) -> list[int]:
        """The levels with each loose one, from the widest, before the first that divides it further;
        before cliques and at the end, if none does.
        """
        if not self._loose:
            return known
        order = [at for at in known if self.levels[at].label not in self._loose]
        place = 0
        for at in known:
            if at in order:
                continue
            mine = self.ids[at, :rows]
            while place < len(order):
                label, other = self.levels[order[place]].label, self.ids[order[place], :rows]
                if label in CLIQUES or (_inside(other, mine) and not _inside(mine, other)):
                    break
                place += 1
            order.insert(place, at)
            place += 1
        return order

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


def _inside(ids: Int32s, wider: Int32s) -> bool:
    """Whether each domain of the first level is in one, or none, of the second."""
    known = ids != UNKNOWN
    both = ids[known].astype(np.int64) * (int(wider.max(initial=0)) + 2) + wider[known]
    return len(np.unique(both)) == len(np.unique(ids[known]))


def divided(domains: Domains, level: int) -> Domains:
    """The same with the domains of nearer levels divided where they are in several of ``level``, as
    those of HyperNodes and of labels may be. Outside of ``level`` nothing is known.
    """
    if all(each.tier is None for each in domains.levels):
        return domains
    wider = domains.ids[level]
    ids, names, ranks = domains.ids.copy(), list(domains.names), list(domains.ranks)
    for at in range(level + 1, len(domains.levels)):
        known = np.flatnonzero((ids[at] != UNKNOWN) & (wider != UNKNOWN))
        parts, numbers = np.unique(
            np.stack([wider[known], ids[at, known]]), axis=1, return_inverse=True
        )
        ids[at] = UNKNOWN
        ids[at, known] = numbers.reshape(-1)
        ranks[at] = np.empty(parts.shape[1], np.int64)
        order = np.lexsort((domains.ranks[at][parts[1]], domains.ranks[level][parts[0]]))
        ranks[at][order] = np.arange(len(order))
        names[at] = tuple(names[at][of] for of in parts[1].tolist()) if names[at] else ()
    return Domains(domains.levels, ids, tuple(names), tuple(ranks))
