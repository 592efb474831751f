"""The plugins of one configuration, asked as if they were one.

The rules of combination are those of :mod:`extender.core.framework`; where Volcano's own code
departs from its documentation, the documentation holds:

==================  ===========================================================================
order_key           lexicographic over tiers and plugins, then creation time, then name
feasible, valid,    conjunction; true when no plugin has a say
ready
score               sum, no normalisation between plugins
evictable           intersection inside a tier; the first tier in which anybody has a say decides,
                    also when it allows no victim at all; true when no plugin has a say
==================  ===========================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from extender.core.framework import (
    Arguments,
    BoolArray,
    FloatArray,
    GroupFacts,
    GroupOrder,
    GroupReady,
    GroupValid,
    NodeOrder,
    Plugin,
    Predicate,
    Victim,
    Victims,
)
from extender.core.reasons import Reason, Refusal

if TYPE_CHECKING:
    from extender.core.shape import PodShape
    from extender.core.snapshot import Snapshot

#: What a configuration can switch off in a plugin (``enable<name>: false``), by protocol.
PROTOCOLS: Mapping[str, type[Any]] = {
    "Predicate": Predicate,
    "NodeOrder": NodeOrder,
    "JobOrder": GroupOrder,
    "JobValid": GroupValid,
    "JobReady": GroupReady,
    "Preemptable": Victims,
}

OrderKey = tuple[float | int | str, ...]


class PluginConf(Struct, frozen=True):
    """One plugin as it is configured: ``off`` holds names of :data:`PROTOCOLS`."""

    name: str
    arguments: Arguments = {}
    off: frozenset[str] = frozenset()


class Enabled(Struct, frozen=True):
    """A plugin and the protocols that are switched off for it."""

    plugin: Plugin
    off: frozenset[str] = frozenset()


class Session:
    """All plugins by tier. Holds no state of its own: every answer is a function of its inputs."""

    def __init__(self, tiers: Sequence[Sequence[Enabled]]) -> None:
        """``tiers`` in the order of precedence."""

        def of(flag: str) -> list[Any]:
            return [plugin for tier in _speakers(tiers, flag) for plugin in tier]

        self._predicates: list[Predicate] = of("Predicate")
        self._node_orders: list[NodeOrder] = of("NodeOrder")
        self._orders: list[GroupOrder] = of("JobOrder")
        self._valid: list[GroupValid] = of("JobValid")
        self._ready: list[GroupReady] = of("JobReady")
        self._victims: list[list[Victims]] = _speakers(tiers, "Preemptable")
        self.plugins: tuple[str, ...] = tuple(e.plugin.name for tier in tiers for e in tier)

    def feasible(self, view: Snapshot, shape: PodShape) -> BoolArray:
        """True per row where every predicate lets one more pod of this shape go. (rows,)."""
        allowed = np.array(view.alive, dtype=np.bool_)
        for plugin in self._predicates:
            allowed &= plugin.feasible(view, shape)
        return allowed

    def explain(self, view: Snapshot, shape: PodShape) -> list[Reason]:
        """Why rows are refused, plugin by plugin; a row refused by two plugins is in both."""
        return [reason for plugin in self._predicates for reason in plugin.explain(view, shape)]

    def score(self, view: Snapshot, shape: PodShape) -> FloatArray:
        """Higher is better. (rows,)."""
        total = np.zeros(view.rows, dtype=np.float64)
        for plugin in self._node_orders:
            total += plugin.score(view, shape)
        return total

    def order_key(self, group: GroupFacts) -> OrderKey:
        """Gangs sorted by this key are in the order in which they are tried."""
        keys = tuple(plugin.order_key(group) for plugin in self._orders)
        return (*keys, group.created, group.namespace, group.name)

    def valid(self, group: GroupFacts) -> Refusal | None:
        """Every reason why the gang cannot be planned yet; the first one is the headline."""
        refusals = [plugin.valid(group) for plugin in self._valid]
        reasons = tuple(reason for refusal in refusals if refusal for reason in refusal.reasons)
        return Refusal(reasons) if reasons else None

    def ready(self, group: GroupFacts, placed: int) -> bool:
        """Whether the gang may start with ``placed`` members placed."""
        return all(plugin.ready(group, placed) for plugin in self._ready)

    def evictable(self, preemptor: PodShape, victims: Sequence[Victim]) -> BoolArray:
        """True per victim that may be evicted for ``preemptor``. (len(victims),)."""
        allowed = np.ones(len(victims), dtype=np.bool_)
        for tier in self._victims:
            for plugin in tier:
                allowed &= plugin.evictable(preemptor, victims)
            if tier:
                break
        return allowed


def _speakers(tiers: Sequence[Sequence[Enabled]], flag: str) -> list[list[Any]]:
    protocol = PROTOCOLS[flag]
    return [
        [
            enabled.plugin
            for enabled in tier
            if flag not in enabled.off and isinstance(enabled.plugin, protocol)
        ]
        for tier in tiers
    ]
