"""nodeorder: the scores of kube-scheduler that a plan can know, weighted as Volcano does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from extender.core import fit
from extender.core.framework import Arguments, FloatArray

if TYPE_CHECKING:
    from extender.core.shape import PodShape
    from extender.core.snapshot import Snapshot

MAX_SCORE = 100.0


class NodeOrder:
    """Volcano's ``nodeorder``.

    Without imagelocality, podaffinity and podtopologyspread: images and preferences between pods
    are no part of what Muster models, so their arguments are refused instead of ignored.
    Sources: volcano pkg/scheduler/plugins/nodeorder, kubernetes noderesources/{least_allocated,
    most_allocated,balanced_allocation}.go, nodeaffinity, tainttoleration.
    """

    name: ClassVar[str] = "nodeorder"
    arguments: ClassVar[Mapping[str, str | int | float | bool]] = {
        "leastrequested.weight": 1,
        "mostrequested.weight": 0,
        "balancedresource.weight": 1,
        "nodeaffinity.weight": 2,
        "tainttoleration.weight": 3,
    }

    def __init__(self, arguments: Arguments) -> None:
        """``arguments`` as above, each a weight."""
        self.least = float(arguments["leastrequested.weight"])
        self.most = float(arguments["mostrequested.weight"])
        self.balanced = float(arguments["balancedresource.weight"])
        self.affinity = float(arguments["nodeaffinity.weight"])
        self.taints = float(arguments["tainttoleration.weight"])

    def score(self, view: Snapshot, task: PodShape) -> FloatArray:
        """The weighted sum of scores of 0..100 each. Shape: (rows,)."""
        total = np.zeros(view.rows)
        if self.least or self.most or self.balanced:
            cpu, memory = (_fraction(view, task, resource) for resource in ("cpu", "memory"))
            mean = (cpu + memory) / 2
            total += self.least * (1 - mean) + self.most * mean
            # for two resources the standard deviation is half of their distance
            total += self.balanced * (1 - np.abs(cpu - memory) / 2)
        if self.affinity and task.preferred_nodes:
            total += self.affinity * _preferred(view, task)
        if self.taints:
            total += self.taints * _tolerated(view, task)
        return total * MAX_SCORE


def _fraction(view: Snapshot, task: PodShape, resource: str) -> FloatArray:
    """Share of the resource that is taken once the pod is there, 0..1; 1 where there is none."""
    column = view.resources[resource]
    capacity = view.allocatable[:, column]
    taken = capacity - view.free[:, column] + dict(task.requests).get(resource, 0)
    share = np.ones(view.rows)
    np.divide(taken, capacity, out=share, where=capacity > 0)
    return np.clip(share, 0.0, 1.0)


def _preferred(view: Snapshot, task: PodShape) -> FloatArray:
    """Weights of the preferred terms that match, over the largest sum of any row."""
    weights = np.zeros(view.rows)
    for term in task.preferred_nodes:
        weights += term.weight * fit.term_holds(view.view, term.preference)
    highest = weights.max(initial=0.0)
    return weights / highest if highest > 0 else weights


def _tolerated(view: Snapshot, task: PodShape) -> FloatArray:
    """1 for rows without a PreferNoSchedule taint that is not tolerated, 0 for those with most."""
    codes, sets = view.view.taint_sets()
    counts = np.array(
        [
            sum(
                taint.effect == "PreferNoSchedule" and not fit.tolerated(task.tolerations, taint)
                for taint in taints
            )
            for taints in sets
        ],
        dtype=np.float64,
    )[codes]
    worst = counts.max(initial=0.0)
    return 1 - counts / worst if worst > 0 else np.ones(view.rows)
