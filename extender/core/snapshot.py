"""A what-if view of the cluster: place, take away, look, and roll back.

It shares nothing with the cluster that the cluster writes to, so a plan may use it while events go
on. Only resources and the trackers of shapes that were asked about are kept current.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Protocol

import numpy as np

from extender.core import fit
from extender.core.affinity import AffinityTracker
from extender.core.alignment import Alignment
from extender.core.cluster import Cluster
from extender.core.explain import explain
from extender.core.framework import BoolArray
from extender.core.nodes import CEILING, KEPT, IntArray
from extender.core.places import ZoneView, worth
from extender.core.ports import PortTracker
from extender.core.reasons import Code, Reason
from extender.core.shape import PodShape
from extender.core.spread import SpreadTracker
from extender.core.volumes import reachable
from extender.kernels.place import copies

#: No node takes more copies than this, whatever it has.
MOST = 2**31 - 1


class Tracker(Protocol):
    """What other pods mean to one shape, kept current as they come and go."""

    def minds(self, other: PodShape) -> bool:
        """Whether pods of the shape ``other`` count at all."""

    def add(self, other: PodShape, row: int, count: int, *, leaving: int = 0) -> None:
        """``count`` pods came to the row (went, if negative), ``leaving`` of them on the way out."""

    def refusals(self) -> Iterator[tuple[Reason, BoolArray]]:
        """A reason and the rows that it holds for, shape (rows,)."""


class Snapshot:
    """The cluster at one moment, and what was placed on top."""

    def __init__(self, cluster: Cluster, mask: BoolArray | None = None) -> None:
        """``mask`` is True for rows to leave out."""
        self.cluster = cluster
        self.view = cluster.view()
        self.storage = cluster.storage.view()
        self.rows = cluster.rows
        self.names: Sequence[str] = self.view.names
        self.alive: BoolArray = self.view.alive if mask is None else self.view.alive & ~mask
        self.allocatable: IntArray = cluster.allocatable.copy()
        self.free: IntArray = self.allocatable - cluster.used - cluster.reserved
        full = cluster.unreadable > 0
        self.free[full] = np.minimum(self.free[full], 0)
        self.generation: IntArray = cluster.generation.copy()
        self.capacity_generation = cluster.capacity_generation
        #: Resource name to column of ``free`` and ``allocatable``.
        self.resources = dict(cluster.resources)
        #: NUMA zones of the rows; None: none are told.
        self.zones = cluster.zone_view()
        #: How many pods that are aligned so the rows' kubelets admit: a column of ``free``, -1: any
        #: number. Kept as a resource of which each of them takes one.
        self.zone_columns: dict[Alignment, int] = {}
        #: Whether pods that are aligned otherwise are limited by these columns too: sound wherever
        #: several kinds are placed at once, but it refuses some of what would fit.
        self.zones_shared = False
        #: Columns of ``free`` that limit them further, see :meth:`at_most`.
        self.caps: dict[Alignment, int] = {}
        self.banned: dict[PodShape, dict[int, Reason]] = {}
        self._namespaces = cluster.namespaces
        self._pods = cluster.occupancy.freeze()
        #: Those of them that keep others away.
        self._restricting = cluster.occupancy.restricting()
        self._leaving = cluster.leaving.freeze()
        self._static: dict[PodShape, BoolArray] = {}
        self._trackers: dict[PodShape, list[Tracker]] = {}
        #: Of these, those that pods without terms mean something to; the others heed anti-affinity.
        self._minding: list[Tracker] = []
        self._heeding: list[Tracker] = []
        self._journal: list[tuple[PodShape, int, int]] = []

    def emptied(self) -> Snapshot:
        """The same nodes as if no pod ran and nothing was reserved."""
        empty = copy(self)
        empty.clear()
        return empty

    def within(self, rows: BoolArray) -> Snapshot:
        """The same with those rows alone. What is placed on it must be rolled back on it."""
        part = copy(self)
        part.keep(rows)
        return part

    def at_most(self, aligned: Alignment, most: IntArray) -> Snapshot:
        """The same where a row takes at most ``most`` (rows,) pods that are aligned so, of those
        that are placed from now on; as :meth:`within`.
        """
        part = self.within(self.alive)
        part.caps = {**self.caps, aligned: len(part.resources)}
        part.resources[f"{len(part.resources)} at most"] = len(part.resources)
        part.free = np.hstack([part.free, most[:, None]])
        plenty = np.full((part.rows, 1), CEILING, np.int64)
        part.allocatable = np.hstack([part.allocatable, plenty])
        return part

    def keep(self, rows: BoolArray) -> None:
        """Leave all other rows out."""
        self.alive = self.alive & rows
        self.banned = {shape: dict(banned) for shape, banned in self.banned.items()}
        self.resources = dict(self.resources)
        self.zone_columns = dict(self.zone_columns)
        self._static, self._trackers, self._journal = {}, {}, list(self._journal)
        self._minding, self._heeding = [], []

    def clear(self) -> None:
        """Take every pod and reservation off; what was placed before can not be rolled back."""
        self.free = self.allocatable.copy()
        self.resources = dict(self.resources)
        self.zone_columns = dict(self.zone_columns)
        for aligned, column in self.zone_columns.items():
            if self.zones is not None and column >= 0:
                self.free[:, column] = self.zones.copies(aligned, empty=True)
        self.banned = {shape: dict(rows) for shape, rows in self.banned.items()}
        self._pods, self._restricting, self._leaving = [], [], []
        self._static = dict(self._static)
        self._trackers, self._journal = {}, []
        self._minding, self._heeding = [], []

    def population(self) -> list[tuple[PodShape, int]]:
        """How many pods of each shape hold a place in the cluster, reserved ones among them."""
        return [(shape, sum(rows.values())) for shape, rows in self._pods]

    # what is placed

    def place(self, shape: PodShape, row: int, count: int = 1) -> None:
        """Put ``count`` copies on a row, whether or not they fit."""
        self._change(shape, row, count)
        self._journal.append((shape, row, count))

    def remove(self, shape: PodShape, row: int, count: int = 1) -> None:
        """Take ``count`` copies off a row: what if they were evicted?"""
        self.place(shape, row, -count)

    def checkpoint(self) -> int:
        """A mark for :meth:`rollback`."""
        return len(self._journal)

    def rollback(self, mark: int) -> None:
        """Undo everything since the mark."""
        for shape, row, count in reversed(self._journal[mark:]):
            self._change(shape, row, -count)
        del self._journal[mark:]

    def ban(
        self,
        shape: PodShape,
        row: int,
        message: str = "refused by an in-tree filter",
        code: Code = Code.EVIDENCE,
    ) -> None:
        """Leave a row out for one shape: kube-scheduler, or the kubelet, was seen to refuse it there."""
        self.banned.setdefault(shape, {})[row] = Reason.of(code, message=message)
        self._static.pop(shape, None)

    # what fits

    def request_vector(self, shape: PodShape) -> IntArray:
        """Requests as a row of ``free``. A resource that no node has gets a column of zeros (so
        ``free`` may be replaced by a wider one). Shape: (resources,).
        """
        for name, _ in shape.requests:
            if name not in self.resources:
                self.resources[name] = len(self.resources)
                zeros = np.zeros((self.rows, 1), np.int64)
                self.free = np.hstack([self.free, zeros])
                self.allocatable = np.hstack([self.allocatable, zeros])
        if self.zones is not None and shape.aligned and shape.aligned not in self.zone_columns:
            self._add_zone_column(self.zones, shape.aligned)
        vector = np.zeros(len(self.resources), np.int64)
        for name, value in shape.requests:
            vector[self.resources[name]] = min(value, CEILING)
        column = self.zone_columns.get(shape.aligned, -1)
        if column >= 0:
            vector[column] = 1
        if shape.aligned in self.caps:
            vector[self.caps[shape.aligned]] = 1
        if self.zones_shared:
            self._take_places(vector, shape, 1)
        return vector

    def capacity(self, shape: PodShape) -> IntArray:
        """How many copies fit by resources alone; 0 on rows left out. Shape: (rows,)."""
        out = np.zeros(self.rows, np.int64)
        request = self.request_vector(shape)
        copies(self.free, request, self.alive, MOST, out)
        return out

    def feasible_static(self, shape: PodShape) -> BoolArray:
        """Rows that pass every filter that placing pods cannot change: name, affinity, taints,
        cordon, volumes, bans. Not to be written to. Shape: (rows,).
        """
        mask = self._static.get(shape)
        if mask is None:
            mask = self.alive & self._by_node(shape)
            for _, reach in reachable(self.view, self.storage, shape):
                mask &= reach
            for row in self.banned.get(shape, ()):
                mask[row] = False
            self._static[shape] = mask
        return mask

    def feasible(self, shape: PodShape) -> BoolArray:
        """Rows where one more pod of the shape may go, by every filter. Shape: (rows,)."""
        mask = self.feasible_static(shape) & (self.capacity(shape) > 0)
        for tracker in self.trackers(shape):
            for _, refused in tracker.refusals():
                mask &= ~refused
        return mask

    def zones_take(self, placed: Sequence[tuple[PodShape, int]]) -> bool:
        """Whether the kubelets of these rows admit these pods, several kinds on a row included."""
        if self.zones is None:
            return True
        on: dict[int, list[Alignment]] = {}
        for shape, row, count in (*self._journal, *((shape, row, 1) for shape, row in placed)):
            if shape.aligned and self.zones.codes[row] >= 0:
                on.setdefault(row, []).extend([shape.aligned] * count)
        return all(
            len(set(pods)) < 2 or self.zones.place(int(self.zones.codes[row])).takes(pods)
            for row, pods in on.items()
        )

    def fits(self, shape: PodShape, row: int) -> bool:
        """:meth:`feasible` of one row."""
        request = self.request_vector(shape)
        asked = request > 0
        if not self.feasible_static(shape)[row] or (self.free[row] < request)[asked].any():
            return False
        return not any(
            refused[row] for tracker in self.trackers(shape) for _, refused in tracker.refusals()
        )

    def interacts(self, shape: PodShape) -> bool:
        """Whether placing a copy may change where other pods of its gang can go, or the other way
        round, beyond the resources they take.
        """
        return shape.interacts

    def explain(self, shape: PodShape) -> list[Reason]:
        """Why nodes are refused, counted by node class, nearest miss first; nodes with room are
        not among them.
        """
        return explain(self, shape)

    def trackers(self, shape: PodShape) -> list[Tracker]:
        """What other pods mean to this shape: made when first asked for, then kept current."""
        trackers = self._trackers.get(shape)
        if trackers is None:
            trackers = self._trackers[shape] = self._new_trackers(shape)
        return trackers

    def _new_trackers(self, shape: PodShape) -> list[Tracker]:
        affinity = AffinityTracker(self.view, self._namespaces, shape)
        trackers: list[Tracker] = [affinity]
        terms = shape.affinity or shape.anti_affinity
        if shape.host_ports:
            trackers.append(PortTracker(self.view, shape))
        if shape.spread:
            trackers.append(SpreadTracker(self.view, shape))
        if shape.spread or shape.affinity:
            self.cluster.followers = True
        for tracker in trackers:
            leaving = dict(self._leaving) if shape.spread else {}
            minding = bool(terms) or tracker is not affinity
            (self._minding if minding else self._heeding).append(tracker)
            heeded = self._pods if minding else self._restricting
            for other, rows in heeded:
                if tracker.minds(other):
                    gone = leaving.get(other, {})
                    for row, count in rows.items():
                        tracker.add(other, row, count, leaving=gone.get(row, 0))
            for other, row, count in self._journal:
                if minding or other.anti_affinity:
                    tracker.add(other, row, count)
        return trackers

    def _change(self, shape: PodShape, row: int, count: int) -> None:
        # Asked for first: it may replace ``free``.
        vector = self.request_vector(shape)
        self.free[row] -= count * vector
        if self.zone_columns and not self.zones_shared:
            self._take_places(self.free[row], shape, -count)
        for tracker in self._minding:
            tracker.add(shape, row, count)
        for tracker in self._heeding if shape.anti_affinity else ():
            tracker.add(shape, row, count)

    def _take_places(self, amounts: IntArray, shape: PodShape, count: int) -> None:
        """Add what ``count`` pods take at most of the places of pods that are aligned otherwise."""
        for aligned, column in self.zone_columns.items():
            if column >= 0 and aligned != shape.aligned:
                amounts[column] += count * worth(shape.aligned, aligned)

    def _add_zone_column(self, zones: ZoneView, aligned: Alignment) -> None:
        room = zones.copies(aligned)
        if (room == CEILING).all():
            self.zone_columns[aligned] = -1
            return
        room = room.copy()
        for other, row, count in self._journal:
            room[row] -= count * worth(other.aligned, aligned)
        self.zone_columns[aligned] = len(self.resources)
        self.resources[f"{len(self.resources)} zones"] = len(self.resources)
        self.free = np.hstack([self.free, room[:, None]])
        # Never what a cluster is short of, so that it has no part in preferences.
        self.allocatable = np.hstack([self.allocatable, np.full((self.rows, 1), CEILING, np.int64)])

    def _by_node(self, shape: PodShape) -> BoolArray:
        """Name, cordon, taints and affinity: kept for all snapshots of the same nodes."""
        key = (shape.node_name, shape.tolerations, shape.node_selector, shape.node_affinity)
        mask = self.view.masks.get(key)
        if mask is None:
            mask = (
                fit.named(self.view, shape)
                & fit.schedulable(self.view, shape)
                & fit.untainted(self.view, shape)
                & fit.selected(self.view, shape)
            )
            if len(self.view.masks) >= KEPT:
                self.view.masks.clear()
            self.view.masks[key] = mask
        return mask
