"""fragmentation: where a pod leaves most of the devices usable for the tasks that are run here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from extender.core.framework import Arguments, BoolArray, FloatArray
from extender.core.objects import NodeSelector, Toleration
from extender.core.shape import PodShape
from extender.kernels import fragmentation as kernel

if TYPE_CHECKING:
    from extender.core.snapshot import Snapshot

Int64s = NDArray[np.int64]

MAX_SCORE = 100.0
#: Thousandths in a whole device.
WHOLE = 1000
#: The mix is the most popular shapes, up to this part of all tasks (FGD's threshold), and no more
#: than so many.
POPULAR = 0.95
MOST_SHAPES = 64
#: What a shape can use of the cluster counts as at least this part of it: a shape that fits
#: nowhere any more must not decide alone.
FLOOR = 0.01
#: Parts of "filled" and of "first" (see the kernel) in what a shape can use. First alone takes a
#: node with 8 idle devices and cpu for one task for a good one; filled alone believes that the
#: copies of one shape will come. Tuned together with SCARCITY, see docs/fragmentation.md.
DEPTH = 0.2
SCARCITY = 1.0
HOST = ("cpu", "memory")

Pairs = tuple[tuple[str, Any], ...]
#: What of a shape decides which nodes it may use, and how much of them it takes.
_Where = tuple[Pairs, Pairs, tuple[Toleration, ...], NodeSelector | None]


@dataclass(frozen=True, slots=True)
class Mix:
    """Shapes of the tasks that ask for devices; R of them, K kinds of rows."""

    #: cpu in milli and memory in bytes, or whatever the rows' free columns are in. (R, H).
    hosts: Int64s
    #: Thousandths of each device, and how many devices. (R,) each.
    shares: Int64s
    counts: Int64s
    #: Which kinds of rows a shape may use. (R, K).
    reach: BoolArray
    #: Its part of all tasks, those without devices included. (R,).
    popularity: FloatArray


def popular(tasks: Sequence[int]) -> tuple[NDArray[np.intp], FloatArray]:
    """The shapes that make up :data:`POPULAR` of all tasks, most popular first, and their parts.

    ``tasks`` says how many there are of each shape; the earlier of equals goes first. The parts
    add up to 1. Source: kubernetes-scheduler-simulator pkg/utils/frag.go (GetTypicalPods).
    """
    counts = np.asarray(tasks, dtype=np.float64)
    order = np.argsort(-counts, kind="stable")
    before = np.cumsum(counts[order]) - counts[order]
    kept = order[(before < POPULAR * counts.sum()) & (counts[order] > 0)]
    return kept, counts[kept] / max(counts[kept].sum(), 1.0)


def weigh(mix: Mix, room: FloatArray, total: int, scarcity: float) -> FloatArray:
    """What a thousandth of a device is worth to each shape on each kind of row. Shape: (K, R).

    ``room`` (R,) is what each shape could still use of the cluster, of ``total`` thousandths. The
    weight of a shape is its popularity times (total / room) ^ ``scarcity``: with 1 this is the
    gradient of the sum of popularity * log(room), so what few nodes can give is kept for those who
    cannot go elsewhere. With 0 it is FGD's: popularity alone. Weights add up to what popularity
    adds up to.
    """
    prices = (total / np.maximum(room, FLOOR * total)) ** scarcity
    weights = mix.popularity * prices
    weights *= mix.popularity.sum() / max(weights.sum(), np.finfo(np.float64).tiny)
    return np.ascontiguousarray((weights[:, None] * mix.reach).T)


class Fragmentation:
    """Expected fragmentation over the mix of tasks that hold a place now.

    Score: 100 / (1 + e^-x) times the weight, x being by how many devices fragmentation shrinks:
    what the pod takes minus what the mix can use less (:func:`extender.kernels.fragmentation.losses`).
    0 where the pod does not fit. No opinion on any node as long as nothing that runs asks for a
    device. Devices are whole ones: how they are shared on a plain kubelet Muster does not see.
    Source: Weng et al., Beware of Fragmentation, USENIX ATC '23; what differs is argued in
    docs/fragmentation.md.
    """

    name: ClassVar[str] = "fragmentation"
    arguments: ClassVar[Mapping[str, str | int | float | bool]] = {
        "fragmentation.weight": 1,
        "fragmentation.resource": "nvidia.com/gpu",
        # 0: a node is good for a shape if one task fits; 1: by how many fit
        "fragmentation.depth": DEPTH,
        # 0: every device counts the same; 1: in proportion to how little is left of its like
        "fragmentation.scarcity": SCARCITY,
    }

    def __init__(self, arguments: Arguments) -> None:
        """``arguments`` as above."""
        self.weight = float(arguments["fragmentation.weight"])
        self.resource = str(arguments["fragmentation.resource"])
        self.depth = min(float(arguments["fragmentation.depth"]), 1.0)
        self.scarcity = float(arguments["fragmentation.scarcity"])

    def score(self, view: Snapshot, task: PodShape) -> FloatArray:
        """0..100 times the weight. Shape: (rows,)."""
        score = np.zeros(view.rows)
        column = view.resources.get(self.resource)
        shapes, popularity = self._observed(view, task)
        if column is None or not shapes:
            return score
        fits = view.capacity(task) > 0
        mix, kinds = self._mix(view, shapes, popularity)
        free = np.stack([view.free[:, view.resources[name]] for name in HOST], axis=1)
        devices = _whole_devices(view.free[:, column], view.allocatable[:, column])
        filled = np.zeros((view.rows, len(shapes)), dtype=np.int64)
        alive = np.flatnonzero(view.alive)
        alive = alive[np.lexsort((*free[alive].T, view.free[alive, column], kinds[alive]))]
        rows = alive[fits[alive]]
        kernel.filled(alive, free, devices, mix.hosts, mix.shares, mix.counts, filled)
        room = (filled * mix.reach[:, kinds].T).sum(axis=0, dtype=np.float64)
        total = int(view.allocatable[view.alive, column].sum()) * WHOLE
        weights = weigh(mix, room, max(total, 1), self.scarcity)
        count = dict(task.requests).get(self.resource, 0)
        lost, device = np.zeros(view.rows), np.zeros(view.rows, dtype=np.int64)
        kernel.losses(
            rows, _host(task), WHOLE, count, free, devices, kinds,
            mix.hosts, mix.shares, mix.counts, weights, self.depth, False, lost, device,
        )  # fmt: skip
        shrinks = count - lost[rows] / WHOLE
        score[rows] = MAX_SCORE * self.weight / (1.0 + np.exp(-shrinks))
        return score

    def _observed(self, view: Snapshot, task: PodShape) -> tuple[list[PodShape], FloatArray]:
        """Popular shapes that ask for devices, by what decides where they may go, and their parts
        of all tasks: what holds a place, and the one that is asked about.
        """
        tasks: dict[_Where, int] = {}
        for shape, count in (*view.population(), (task, 1)):
            key = shape.requests, shape.node_selector, shape.tolerations, shape.node_affinity
            tasks[key] = tasks.get(key, 0) + count
        where = sorted(tasks, key=lambda key: key[:2])
        kept, parts = popular([tasks[key] for key in where])
        asking = [
            i for i, index in enumerate(kept) if dict(where[index][0]).get(self.resource, 0) > 0
        ][:MOST_SHAPES]
        shapes = [
            PodShape(
                requests=requests,
                node_selector=selector,
                tolerations=tolerations,
                node_affinity=affinity,
            )
            for requests, selector, tolerations, affinity in (where[kept[i]] for i in asking)
        ]
        return shapes, parts[asking]

    def _mix(
        self, view: Snapshot, shapes: Sequence[PodShape], popularity: FloatArray
    ) -> tuple[Mix, Int64s]:
        """The mix, and the kind of every row: rows are of one kind if the same shapes may use them."""
        reach = np.array([view.feasible_static(shape) for shape in shapes])
        # MOST_SHAPES is the width of the code
        codes = (reach.T * (np.uint64(1) << np.arange(len(shapes), dtype=np.uint64))).sum(axis=1)
        _, first, kinds = np.unique(codes, return_index=True, return_inverse=True)
        counts: list[Any] = [dict(shape.requests)[self.resource] for shape in shapes]
        mix = Mix(
            hosts=np.array([_host(shape) for shape in shapes]),
            shares=np.full(len(shapes), WHOLE),
            counts=np.array(counts, dtype=np.int64),
            reach=reach[:, first],
            popularity=popularity,
        )
        return mix, kinds.astype(np.int64)


def _host(shape: PodShape) -> Int64s:
    requests = dict(shape.requests)
    return np.array([requests.get(name, 0) for name in HOST], dtype=np.int64)


def _whole_devices(free: Int64s, allocatable: Int64s) -> Int64s:
    """One column for each device, :data:`WHOLE` where it is free. Shape: (rows, most devices)."""
    width = max(int(allocatable.max(initial=0)), 1)
    return (np.arange(width) < free[:, None]) * np.int64(WHOLE)
