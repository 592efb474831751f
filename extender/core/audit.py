"""Proof that the columns say what the pods and reservations behind them say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from extender.core.errors import InvariantViolated
from extender.core.resources import render
from extender.core.topology.domains import UNKNOWN, Domains

if TYPE_CHECKING:
    from extender.core.cluster import Cluster
    from extender.core.shape import PodShape


class OverCommit(Struct, frozen=True, order=True):
    """A node of which more is promised than it has (it shrank, or somebody else bound to it)."""

    node: str
    resource: str
    allocatable: int
    taken: int

    def render(self) -> str:
        """One sentence part, in the units people write."""
        taken, has = render(self.resource, self.taken), render(self.resource, self.allocatable)
        return f"{self.node}: {taken} {self.resource} taken of {has}"


def over_committed(cluster: Cluster) -> list[OverCommit]:
    """Where used + reserved exceeds allocatable, in the order of rows and columns."""
    taken = cluster.used + cluster.reserved
    over = (taken > cluster.allocatable) & (taken > 0) & cluster.alive[:, None]
    names = list(cluster.resources)
    return [
        OverCommit(
            cluster.name_of(row),
            names[column],
            int(cluster.allocatable[row, column]),
            int(taken[row, column]),
        )
        for row, column in np.argwhere(over).tolist()
    ]


def verify(cluster: Cluster) -> None:
    """Raises InvariantViolated if usage, counts or blocked rows differ from a recount."""
    pods, shape = cluster.pods, cluster.occupancy.shape
    used, reserved = np.zeros_like(cluster.used), np.zeros_like(cluster.reserved)
    unreadable = np.zeros_like(cluster.unreadable)
    counts: dict[tuple[PodShape, int], int] = {}
    leaving: dict[tuple[PodShape, int], int] = {}
    for slot in pods.placed():
        row, of = int(pods.row[slot]), shape(int(pods.shape_id[slot]))
        used[row] += cluster.nodes.vector(of.requests)
        unreadable[row] += int(pods.unreadable[slot])
        counts[of, row] = counts.get((of, row), 0) + 1
        if pods.leaving[slot]:
            leaving[of, row] = leaving.get((of, row), 0) + 1
    for held in cluster.reservations.values():
        of = shape(held.shape_id)
        reserved[held.row] += cluster.nodes.vector(of.requests)
        counts[of, held.row] = counts.get((of, held.row), 0) + 1
    _demand("used", same=np.array_equal(used, cluster.used))
    _demand("reserved", same=np.array_equal(reserved, cluster.reserved))
    _demand("unreadable", same=np.array_equal(unreadable, cluster.unreadable))
    _demand("occupancy", same=counts == cluster.occupancy.flat())
    _demand("leaving", same=leaving == cluster.leaving.flat())
    again = cluster.nodes.network.recount(cluster.nodes.names, cluster.nodes.labels)
    was, new = cluster.view().domains, again.freeze(cluster.rows)
    _demand("domains", same=_named(was) == _named(new))
    zones = {node: (dict(there), cluster.there(node)) for node, there in cluster.zones.everybody()}
    _demand("zones", same=all(kept == counted for kept, counted in zones.values()))
    both = pods.slots.keys() & cluster.reservations.keys()
    _demand("reservations of bound pods", same=not both)


def _named(domains: Domains) -> list[list[str]]:
    """By level and row, the name of the domain."""
    return [
        [names[number] if number != UNKNOWN else "" for number in ids]
        for names, ids in zip(domains.names, domains.ids.tolist(), strict=True)
    ]


def _demand(what: str, *, same: bool) -> None:
    if not same:
        raise InvariantViolated("columns", f"{what}: differs from a recount")
