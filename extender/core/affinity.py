"""Required pod affinity and anti-affinity (InterPodAffinity), kept current as pods are placed.

Source: kube-scheduler's interpodaffinity/filtering.go and framework.AffinityTerm.Matches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct

from extender.core.framework import BoolArray
from extender.core.nodes import IntArray, NodeView
from extender.core.reasons import Code, Reason
from extender.core.selectors import matches
from extender.core.shape import PodShape, PodTerm

Namespaces = Mapping[str, Mapping[str, str]]


def selects(term: PodTerm, pod: PodShape, namespaces: Namespaces) -> bool:
    """Whether the term speaks of this pod."""
    if pod.namespace not in term.namespaces and not matches(
        term.namespace_selector, namespaces.get(pod.namespace, {})
    ):
        return False
    return matches(term.selector, dict(pod.labels))


class _Domains:
    """A count per domain of one topology key."""

    def __init__(self, view: NodeView, key: str) -> None:
        column = view.column(key)
        self.key = key
        self.codes = column.codes
        # one more than there are domains: code -1 (no label) reads the last, which stays 0
        self.counts: IntArray = np.zeros(len(column.values) + 1, np.int64)
        self.total = 0

    def add(self, row: int, count: int) -> None:
        code = self.codes[row]
        if code >= 0:
            self.counts[code] += count
            self.total += count

    def occupied(self) -> BoolArray:
        """Rows whose domain has any. Shape: (rows,)."""
        return (self.counts > 0)[self.codes]


class _Effect(Struct, frozen=True):
    """What a pod of one shape means to the tracked shape."""

    #: It satisfies all affinity terms of the tracked shape.
    attracts: bool
    #: Anti-affinity terms of the tracked shape that speak of it, by index.
    repelled: tuple[int, ...]
    #: Topology keys of its own anti-affinity terms that speak of the tracked shape.
    repels: tuple[str, ...]


_NONE = _Effect(attracts=False, repelled=(), repels=())


class AffinityTracker:
    """Counts that decide where one more pod of one shape may go."""

    def __init__(self, view: NodeView, namespaces: Namespaces, shape: PodShape) -> None:
        self._view = view
        self._namespaces = namespaces
        self._shape = shape
        self._affinity = [_Domains(view, term.topology_key) for term in shape.affinity]
        self._anti = [_Domains(view, term.topology_key) for term in shape.anti_affinity]
        self._repelling: dict[str, _Domains] = {}
        self._effects: dict[PodShape, _Effect] = {}
        self._first_may_start = bool(shape.affinity) and self._attracts(shape)

    def minds(self, other: PodShape) -> bool:
        """Whether a term of either side speaks of the other."""
        effect = self._effects.get(other)
        if effect is None:
            effect = self._effects[other] = self._effect(other)
        return bool(effect.attracts or effect.repelled or effect.repels)

    def add(self, other: PodShape, row: int, count: int, *, leaving: int = 0) -> None:
        """``count`` pods of the shape ``other`` came to the row (went, if negative)."""
        if not self.minds(other):
            return
        effect = self._effects[other]
        if effect.attracts:
            for domains in self._affinity:
                domains.add(row, count)
        for index in effect.repelled:
            self._anti[index].add(row, count)
        for key in effect.repels:
            if key not in self._repelling:
                self._repelling[key] = _Domains(self._view, key)
            self._repelling[key].add(row, count)

    def refusals(self) -> Iterator[tuple[Reason, BoolArray]]:
        """A reason and the rows that it holds for, shape (rows,)."""
        for key in sorted(self._repelling):
            yield Reason.of(Code.POD_ANTI_AFFINITY, key=key), self._repelling[key].occupied()
        for domains in self._anti:
            yield Reason.of(Code.POD_ANTI_AFFINITY, key=domains.key), domains.occupied()
        # the first of a group that is to be together may start anywhere in a labelled domain
        first = self._first_may_start and not any(domains.total for domains in self._affinity)
        for domains in self._affinity:
            met = domains.codes >= 0 if first else domains.occupied()
            yield Reason.of(Code.POD_AFFINITY, key=domains.key), ~met

    def _effect(self, other: PodShape) -> _Effect:
        shape, spaces = self._shape, self._namespaces
        if not (shape.affinity or shape.anti_affinity or other.anti_affinity):
            return _NONE
        return _Effect(
            attracts=bool(shape.affinity) and self._attracts(other),
            repelled=tuple(
                index
                for index, term in enumerate(shape.anti_affinity)
                if selects(term, other, spaces)
            ),
            repels=tuple(
                term.topology_key for term in other.anti_affinity if selects(term, shape, spaces)
            ),
        )

    def _attracts(self, other: PodShape) -> bool:
        return all(selects(term, other, self._namespaces) for term in self._shape.affinity)
