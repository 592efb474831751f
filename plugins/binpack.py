"""binpack: full nodes before empty ones, by the resources that are worth packing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from extender.core.framework import Arguments, FloatArray

if TYPE_CHECKING:
    from extender.core.shape import PodShape
    from extender.core.snapshot import Snapshot

MAX_SCORE = 100.0
_PREFIX = "binpack.resources."


class Binpack:
    """Volcano's ``binpack``.

    Score: weighted mean over the listed resources that the pod asks for of
    (used + asked) / allocatable, times 100 times the plugin's weight; 0 where one would overflow.
    Source: volcano pkg/scheduler/plugins/binpack/binpack.go.
    """

    name: ClassVar[str] = "binpack"
    arguments: ClassVar[Mapping[str, str | int | float | bool]] = {
        "binpack.weight": 1,
        "binpack.cpu": 1,
        "binpack.memory": 1,
        # names with commas between; the weight of each follows under its own key, 1 if absent
        "binpack.resources": "",
        "binpack.resources.*": 1,
    }

    def __init__(self, arguments: Arguments) -> None:
        """``arguments`` as above."""
        self.weight = float(arguments["binpack.weight"])
        listed = (name.strip() for name in str(arguments["binpack.resources"]).split(","))
        self.weights: dict[str, float] = {
            "cpu": float(arguments["binpack.cpu"]),
            "memory": float(arguments["binpack.memory"]),
            **{name: float(arguments.get(_PREFIX + name, 1)) for name in listed if name},
        }

    def score(self, view: Snapshot, task: PodShape) -> FloatArray:
        """0..100 times the weight. Shape: (rows,)."""
        total = np.zeros(view.rows)
        overflow = np.zeros(view.rows, dtype=np.bool_)
        weights = 0.0
        columns = view.resources
        for resource, asked in task.requests:
            weight = self.weights.get(resource, 0.0)
            if not asked or not weight or resource not in columns:
                continue
            column = columns[resource]
            capacity = view.allocatable[:, column]
            used = capacity - view.free[:, column] + asked
            overflow |= used > capacity
            total += weight * used / np.maximum(capacity, 1)
            weights += weight
        if not weights:
            return total
        total[overflow] = 0.0
        return total * (MAX_SCORE * self.weight / weights)
