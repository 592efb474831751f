"""Topology spread with DoNotSchedule (PodTopologySpread), kept current as pods are placed.

Source: kube-scheduler's podtopologyspread/{common,filtering}.go.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from extender.core import fit
from extender.core.framework import BoolArray
from extender.core.nodes import IntArray, NodeView
from extender.core.reasons import Code, Reason
from extender.core.selectors import matches
from extender.core.shape import PodShape, Spread


class _Constraint:
    """One constraint: its domains and how many selected pods each has."""

    def __init__(
        self, view: NodeView, shape: PodShape, spread: Spread, labelled: BoolArray
    ) -> None:
        self.spread = spread
        column = view.column(spread.topology_key)
        self.codes = column.codes
        #: Rows whose pods count: alive, with every constraint's key, and as the policies say.
        self.counted = labelled.copy()
        if spread.honor_affinity:
            self.counted &= fit.selected(view, shape)
        if spread.honor_taints:
            self.counted &= fit.untainted(view, shape)
        self.domains = np.unique(self.codes[self.counted])
        self.counts: IntArray = np.zeros(len(column.values) + 1, np.int64)
        self.own = int(matches(spread.selector, dict(shape.labels)))

    def skewed(self) -> BoolArray:
        """Rows where one more pod would exceed maxSkew, or that lack the key. Shape: (rows,)."""
        least = 0
        if len(self.domains) >= self.spread.min_domains:
            least = int(self.counts[self.domains].min(initial=np.iinfo(np.int64).max))
        allowed = self.counts + self.own - least <= self.spread.max_skew
        return ~allowed[self.codes] | (self.codes < 0)


class SpreadTracker:
    """Counts that decide where one more pod of one shape may go."""

    def __init__(self, view: NodeView, shape: PodShape) -> None:
        self._shape = shape
        labelled = view.alive.copy()
        for spread in shape.spread:
            labelled &= view.column(spread.topology_key).codes >= 0
        self._constraints = [_Constraint(view, shape, each, labelled) for each in shape.spread]
        self._selected: dict[PodShape, tuple[int, ...]] = {}

    def minds(self, other: PodShape) -> bool:
        """Whether a constraint counts pods of the shape ``other``."""
        indexes = self._selected.get(other)
        if indexes is None:
            indexes = self._selected[other] = self._selecting(other)
        return bool(indexes)

    def add(self, other: PodShape, row: int, count: int, *, leaving: int = 0) -> None:
        """``count`` pods of the shape ``other`` came to the row (went, if negative).

        Those of them that are being deleted (``leaving``) do not count.
        """
        if not self.minds(other):
            return
        for index in self._selected[other]:
            constraint = self._constraints[index]
            if constraint.counted[row]:
                constraint.counts[constraint.codes[row]] += count - leaving

    def refusals(self) -> Iterator[tuple[Reason, BoolArray]]:
        """A reason and the rows that it holds for, shape (rows,)."""
        for each in self._constraints:
            spread = each.spread
            reason = Reason.of(Code.SPREAD, key=spread.topology_key, skew=spread.max_skew)
            yield reason, each.skewed()

    def _selecting(self, other: PodShape) -> tuple[int, ...]:
        """Constraints that count this pod. An empty selector counts nobody, as upstream."""
        if other.namespace != self._shape.namespace:
            return ()
        labels = dict(other.labels)
        return tuple(
            index
            for index, each in enumerate(self._shape.spread)
            if each.selector and matches(each.selector, labels)
        )
