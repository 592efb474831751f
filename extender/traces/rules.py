"""Where a gang's workers go: Muster's planner, and the rules of other schedulers.

Others' rules are written from their documentation and code, for a cluster that has nodes and leaves:

``bestfit``  worker by worker, the node with the least left that takes it; on equal nodes this is what
             kube-scheduler's MostAllocated does
``spread``   worker by worker, the node with the most left: kube-scheduler's LeastAllocated, its default
``kai``      KAI-Scheduler: the nearest level of which one domain takes the gang, of its domains the
             one that the gang fills most; in it the domain, and the node, with the most left first
             (docs/topology, pkg/scheduler/plugins/topology)
``tas``      Kueue's TAS, BestFit: the same level; the smallest domain that takes the gang; where
             several are needed the largest first, and the last of them the smallest that takes the
             rest; so at every level down (KEP-2724)
"""

from __future__ import annotations

import numpy as np

from extender.core import objects as o
from extender.core.cluster import Cluster
from extender.core.planner import Role, plan
from extender.core.reasons import Refusal
from extender.core.shape import PodShape
from extender.core.snapshot import Snapshot
from extender.core.topology.domains import Level
from extender.settings import Settings
from extender.traces.gangs import Rule
from extender.traces.philly import Fleet, Int64s, Plant

GPU, LEAF = "nvidia.com/gpu", "leaf"


def _one_by_one(fleet: Fleet, workers: int, each: int, *, most_left: bool) -> Int64s | None:
    counts = np.zeros(len(fleet.free), dtype=np.int64)
    left = fleet.free.copy()
    for _ in range(workers):
        able = np.flatnonzero(left >= each)
        if not len(able):
            return None
        best = able[(left[able].argmax if most_left else left[able].argmin)()]
        counts[best] += 1
        left[best] -= each
    return counts


def bestfit(fleet: Fleet, workers: int, each: int) -> Int64s | None:
    return _one_by_one(fleet, workers, each, most_left=False)


def spread(fleet: Fleet, workers: int, each: int) -> Int64s | None:
    return _one_by_one(fleet, workers, each, most_left=True)


def _home(fleet: Fleet, room: Int64s, workers: int) -> Int64s | None:
    """The nodes of the domain for the whole gang: of the nearest level that has one, the domain with
    the least room; None where the cluster has too little.
    """
    leaves = [np.flatnonzero(fleet.plant.leaf == leaf) for leaf in np.unique(fleet.plant.leaf)]
    nodes = [np.array([node]) for node in range(len(room))]
    for level in (nodes, leaves, [np.arange(len(room))]):
        fits = [(int(room[rows].sum()), at) for at, rows in enumerate(level)]
        fits = [each for each in fits if each[0] >= workers]
        if fits:
            return level[min(fits)[1]]
    return None


def kai(fleet: Fleet, workers: int, each: int) -> Int64s | None:
    room = fleet.free // each
    home = _home(fleet, room, workers)
    if home is None:
        return None
    leaf = fleet.plant.leaf
    of_leaf = np.bincount(leaf[home], fleet.free[home], minlength=int(leaf.max()) + 1)
    counts = np.zeros(len(room), dtype=np.int64)
    for node in home[np.lexsort((home, -fleet.free[home], leaf[home], -of_leaf[leaf[home]]))]:
        counts[node] = min(int(room[node]), workers - int(counts.sum()))
    return counts


def tas(fleet: Fleet, workers: int, each: int) -> Int64s | None:
    room = fleet.free // each
    home = _home(fleet, room, workers)
    if home is None:
        return None
    counts = np.zeros(len(room), dtype=np.int64)
    leaf = fleet.plant.leaf
    leaves = np.unique(leaf[home])
    for at, want in _divided(np.bincount(leaf[home], room[home])[leaves].astype(int), workers):
        nodes = home[leaf[home] == leaves[at]]
        for node, share in _divided(room[nodes], want):
            counts[nodes[node]] = share
    return counts


def _divided(room: Int64s, want: int) -> list[tuple[int, int]]:
    """(domain, workers): the largest first, and for the last of them the smallest that is enough."""
    out: list[tuple[int, int]] = []
    left = {at: int(size) for at, size in enumerate(room)}
    while want:
        enough = [(size, at) for at, size in left.items() if size >= want]
        best = min(enough)[1] if enough else min((-size, at) for at, size in left.items())[1]
        out.append((best, min(left.pop(best), want)))
        want -= out[-1][1]
    return out


class Muster:
    """The service's planner, on the columns that it keeps of nodes and pods."""

    def __init__(self, made: Plant) -> None:
        self._session = Settings().session()
        self._cluster = Cluster((Level(LEAF, oversubscription=made.oversubscription),))
        for node, (leaf, gpus) in enumerate(zip(made.leaf, made.gpus, strict=True)):
            has: o.Resources = {GPU: int(gpus), "pods": 110}
            self._cluster.upsert_node(
                o.Node(
                    o.Meta(name=f"node-{node:05}", labels={LEAF: f"leaf-{leaf:05}"}),
                    status=o.NodeStatus(allocatable=has),
                )
            )
        self._gpus = made.gpus

    def place(self, fleet: Fleet, workers: int, each: int) -> Int64s | None:
        cluster = self._cluster
        # What runs, whoever it is.
        used = cluster.nodes.used
        used[: len(fleet.free), cluster.resources[GPU]] = self._gpus - fleet.free
        shape = PodShape(requests=((GPU, each), ("pods", 1)))
        found = plan(self._session, Snapshot(cluster), [Role("worker", shape, workers)])
        if isinstance(found, Refusal):
            return None
        return np.bincount(found.rows[0], minlength=len(fleet.free)).astype(np.int64)


def rule(name: str, made: Plant) -> Rule:
    """The rule of a name in :data:`extender.commands.philly.RULES`."""
    known: dict[str, Rule] = {"bestfit": bestfit, "spread": spread, "kai": kai, "tas": tas}
    return Muster(made).place if name == "muster" else known[name]
