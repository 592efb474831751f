"""Placing policies on the columns of a trace: FGD's baselines, FGD itself, and Muster's.

Each answers where the next pod goes, and is told what became of it. None looks ahead: what it knows
of the work to come is what the protocol gives it (FGD: the popular shapes of the trace) or what has
arrived so far (Muster).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from extender.kernels import fragmentation as kernel
from extender.traces.openb import WHOLE, Nodes, Tasks
from plugins.fragmentation import DEPTH, FLOOR, SCARCITY, Mix, popular, weigh

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]

#: A policy's answer: the row, and the device of it for a pod of one GPU; -1 leaves the device to
#: :meth:`Fleet.place`.
Place = tuple[int, int]

#: What FGD's simulator divides by, the largest node of its cluster: cpu in milli, thousandths.
MAX_CPU, MAX_GPU = 128_000, 8_000
#: Losses that differ by less, in thousandths of a device, are equal.
EQUAL = 1e-6
#: Muster looks at its weights again when a price has moved by this factor, or arrivals have grown
#: by it: the sum of a geometric series is small, whatever the length of the trace.
TICK = 1.25


class Fleet:
    """What is left of the nodes."""

    def __init__(self, nodes: Nodes, tasks: Tasks) -> None:
        """Everything is free."""
        self.nodes = nodes
        self.tasks = tasks
        self.free = nodes.host.copy()
        self.devices = nodes.devices.copy()
        #: Changes with everything that is placed on the row. (N,).
        self.version: Int64s = np.ones(len(self.free), dtype=np.int64)
        self._may = tasks.reach[:, nodes.model]

    def fitting(self, shape: int) -> NDArray[np.intp]:
        """Rows where one more pod fits, in the order of their names."""
        tasks = self.tasks
        fits = (self.free >= tasks.hosts[shape]).all(axis=1)
        if tasks.counts[shape]:
            able = (self.devices >= tasks.shares[shape]).sum(axis=1)
            fits &= self._may[shape] & (able >= tasks.counts[shape])
        return np.flatnonzero(fits)

    def place(self, shape: int, row: int, device: int) -> None:
        """Put a pod on a row, and on the given device, else on the fullest that have room."""
        share, count = self.tasks.shares[shape], int(self.tasks.counts[shape])
        left = self.devices[row]
        if device < 0:
            able = np.flatnonzero(left >= share)
            chosen = able[np.argsort(left[able], kind="stable")[:count]]
        else:
            chosen = np.array([device])
        self.free[row] -= self.tasks.hosts[shape]
        if count:
            left[chosen] -= share
        self.version[row] += 1


class Policy(Protocol):
    """Where pods go."""

    def choose(self, shape: int) -> Place | None:
        """The place of one more pod, None if there is none."""

    def placed(self, row: int) -> None:
        """The pod was put on ``row`` as :meth:`choose` said."""


class _Stateless:
    def __init__(self, fleet: Fleet, seed: int) -> None:
        self.fleet = fleet
        # Apart from the generator that draws arrivals.
        self.random = Random(f"policy {seed}")

    def placed(self, row: int) -> None:
        pass


class RandomFit(_Stateless):
    """Any node that fits, any device of it."""

    def choose(self, shape: int) -> Place | None:
        rows = self.fleet.fitting(shape)
        if not len(rows):
            return None
        row = int(self.random.choice(rows))
        if self.fleet.tasks.counts[shape] != 1:
            return row, -1
        able = np.flatnonzero(self.fleet.devices[row] >= self.fleet.tasks.shares[shape])
        return row, int(self.random.choice(able))


class BestFit(_Stateless):
    """Least left, cpu and GPU alike, in whole points of 100. Source: best_fit_score.go."""

    def choose(self, shape: int) -> Place | None:
        fleet = self.fleet
        rows = fleet.fitting(shape)
        if not len(rows):
            return None
        cpu = (fleet.free[rows, 0] - fleet.tasks.hosts[shape, 0]) / MAX_CPU
        gpu = (fleet.devices[rows].sum(axis=1) - fleet.tasks.asked[shape]) / MAX_GPU
        points = np.floor((1 - (0.5 * cpu + 0.5 * gpu)) * 100)
        return int(rows[points.argmax()]), -1


class Packing(_Stateless):
    """Devices in use, then idle devices of nodes in use, then idle nodes, small ones first.

    A pod without GPU goes to the first node. Source: gpu_packing_score.go.
    """

    def choose(self, shape: int) -> Place | None:
        fleet = self.fleet
        rows = fleet.fitting(shape)
        if not len(rows):
            return None
        share, count = int(fleet.tasks.shares[shape]), int(fleet.tasks.counts[shape])
        if not count:
            return int(rows[0]), -1
        left = fleet.devices[rows]
        idle = (left == WHOLE).sum(axis=1)
        points = np.maximum(100 // 2 - np.minimum(count, idle), 100 // 3)
        if share < WHOLE:
            fullest = np.where(left >= share, left, WHOLE + 1).min(axis=1)
            used = fullest < WHOLE
            points[used] = np.maximum(100 - fullest[used] * 100 // WHOLE // 10, 100 // 2)
        unused = idle == (fleet.nodes.devices[rows] > 0).sum(axis=1)
        points[unused] = np.maximum(100 // 3 - idle[unused], idle[unused])
        return int(rows[points.argmax()]), -1


class _Losses:
    """Least loss by the kernel, remembered by shape until the row or the weights change."""

    def __init__(self, fleet: Fleet, mix: Mix, weights: Floats, depth: float, graded: bool) -> None:
        self.fleet = fleet
        self.mix = mix
        self.depth = depth
        self.graded = graded
        self.use(mix, weights)

    def use(self, mix: Mix, weights: Floats) -> None:
        """From now on with this mix; ``weights`` (models, R) as :func:`weigh` gives them."""
        self.mix, self.weights = mix, weights
        self._known: dict[int, tuple[Floats, Int64s, Int64s]] = {}

    def of(self, shape: int, rows: NDArray[np.intp]) -> tuple[Floats, Int64s]:
        """Loss on each of ``rows`` and the device that has it; the pod fits on all of them."""
        fleet, tasks, mix = self.fleet, self.fleet.tasks, self.mix
        if shape not in self._known:
            size = len(fleet.version)
            empty = np.zeros(size), np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
            self._known[shape] = empty
        loss, device, version = self._known[shape]
        stale = rows[version[rows] != fleet.version[rows]]
        kernel.losses(
            stale, tasks.hosts[shape], int(tasks.shares[shape]), int(tasks.counts[shape]),
            fleet.free, fleet.devices, fleet.nodes.model,
            mix.hosts, mix.shares, mix.counts, self.weights, self.depth, self.graded, loss, device,
        )  # fmt: skip
        version[stale] = fleet.version[stale]
        return loss[rows], device[rows]


class Gradient:
    """Fragmentation gradient descent, with the roundings and ties of its simulator.

    Its mix is the popular shapes of the whole trace, memory left out. Source: fgd_score.go, frag.go.
    """

    def __init__(self, fleet: Fleet, seed: int) -> None:
        """``seed`` has no part in it."""
        self.fleet = fleet
        mix = typical(fleet.tasks)
        self.losses = _Losses(fleet, mix, weigh(mix, np.ones(len(mix.shares)), 1, 0.0), 0.0, True)

    def choose(self, shape: int) -> Place | None:
        rows = self.fleet.fitting(shape)
        if not len(rows):
            return None
        loss, device = self.losses.of(shape, rows)
        best = loss.argmin()
        return int(rows[best]), int(device[best])

    def placed(self, row: int) -> None:
        pass


class Muster:
    """The policy of :class:`plugins.fragmentation.Fragmentation` on what has arrived so far.

    Of rows with equal losses the one whose GPUs are fullest, then the first. A trace has devices
    that are shared; the plugin sees whole ones only.
    """

    def __init__(self, fleet: Fleet, seed: int) -> None:
        """``seed`` has no part in it."""
        self.fleet = fleet
        self.seen: Int64s = np.zeros(len(fleet.tasks.shares), dtype=np.int64)
        self._look_again = 1.0
        self.losses = _Losses(fleet, *self._observe(), DEPTH, False)

    def choose(self, shape: int) -> Place | None:
        self.seen[shape] += 1
        if self.seen.sum() >= self._look_again or self._prices_moved():
            self._look_again = max(self.seen.sum() + 1, self.seen.sum() * TICK)
            self.losses.use(*self._observe())
        rows = self.fleet.fitting(shape)
        if not len(rows):
            return None
        loss, device = self.losses.of(shape, rows)
        equal = np.flatnonzero(loss <= loss.min() + EQUAL)
        best = equal[self.fleet.devices[rows[equal]].sum(axis=1).argmin()]
        return int(rows[best]), int(device[best])

    def placed(self, row: int) -> None:
        before = self._filled[row].copy()
        self._fill(np.array([row]))
        self.room += self._mix_here[row] * (self._filled[row] - before)

    def _observe(self) -> tuple[Mix, Floats]:
        """The mix of what has arrived, what each of its shapes can still use, and their weights."""
        fleet, tasks = self.fleet, self.fleet.tasks
        kept, parts = popular(self.seen.tolist())
        asking = tasks.counts[kept] > 0
        mix = self._mix = _mix(tasks, kept[asking], parts[asking])
        self._mix_here = mix.reach[:, fleet.nodes.model].T
        self._filled: Int64s = np.zeros((len(fleet.free), len(mix.shares)), dtype=np.int64)
        self._fill(np.arange(len(fleet.free)))
        self.room = (self._mix_here * self._filled).sum(axis=0, dtype=np.float64)
        self._room_then = self.room.copy()
        return mix, weigh(mix, self.room, fleet.nodes.total, SCARCITY)

    def _fill(self, rows: Int64s) -> None:
        mix, fleet = self._mix, self.fleet
        columns = (fleet.free, fleet.devices, mix.hosts, mix.shares, mix.counts)
        kernel.filled(rows, *columns, self._filled)

    def _prices_moved(self) -> bool:
        floor = FLOOR * self.fleet.nodes.total
        now, then = np.maximum(self.room, floor), np.maximum(self._room_then, floor)
        return bool((now * TICK < then).any())


def typical(tasks: Tasks) -> Mix:
    """FGD's typical pods: the popular shapes of the trace, told apart by all but memory.

    Of two that are as popular the larger goes first (frag.go, TargetPodList.Less, reversed).
    """
    pods = np.bincount(tasks.shape, minlength=len(tasks.shares))
    number: dict[tuple[int, int, int, tuple[bool, ...]], list[int]] = {}
    for i in range(len(tasks.shares)):
        key = (
            int(tasks.hosts[i, 0]), int(tasks.shares[i]), int(tasks.counts[i]),
            tuple(tasks.reach[i].tolist()),
        )  # fmt: skip
        number.setdefault(key, []).append(i)
    keys = sorted(number, reverse=True)
    kept, parts = popular([int(pods[number[key]].sum()) for key in keys])
    asking = [i for i, index in enumerate(kept) if keys[index][2]]
    mix = _mix(tasks, np.array([number[keys[kept[i]]][0] for i in asking]), parts[asking])
    mix.hosts[:, 1] = 0
    return mix


def _mix(tasks: Tasks, shapes: NDArray[np.intp], popularity: Floats) -> Mix:
    return Mix(
        hosts=tasks.hosts[shapes],
        shares=tasks.shares[shapes],
        counts=tasks.counts[shapes],
        reach=tasks.reach[shapes],
        popularity=popularity,
    )


POLICIES: Mapping[str, Callable[[Fleet, int], Policy]] = {
    "random": RandomFit,
    "bestfit": BestFit,
    "packing": Packing,
    "fgd": Gradient,
    "muster": Muster,
}
