"""Nodes as rows: what each has, what is taken of it, and what its labels and taints say.

A row is given to a node until the node is gone and may then be given to another one. Generations
come from one counter, so that no two states of a row ever share one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from extender.core.errors import QuantityError
from extender.core.framework import BoolArray
from extender.core.objects import Node, Resources, Taint
from extender.core.resources import CPU, MEMORY, PODS, STORAGE, read_units
from extender.core.topology import registers
from extender.core.topology.domains import Domains, DomainTable, Level
from extender.core.topology.equipment import UNKNOWN, Equipment, usable
from extender.core.topology.network import Network

IntArray = NDArray[np.int64]
CodeArray = NDArray[np.int32]

#: Columns that every cluster has; those of extended resources follow in the order of appearance.
BASE_RESOURCES = (CPU, MEMORY, STORAGE, PODS)

#: More than any node has of anything (4 PiB in bytes). Columns hold no more of one pod, and less
#: of a node, so that 2,000 pods on a row cannot overflow and a larger request fits nowhere.
CEILING = 2**52

#: Results of one kind that are remembered, by input; more of them are computed again.
KEPT = 4096


class Column(Struct, frozen=True):
    """One label over all rows: ``values[codes[row]]``; code -1 where the node lacks the label."""

    codes: CodeArray
    values: tuple[str, ...]


class NodeView:
    """Names, labels and taints of all rows at one moment; shared by the snapshots of that moment.

    Columns are made when first asked for.
    """

    def __init__(self, table: NodeTable) -> None:
        rows = len(table.names)
        self.rows = rows
        self.names: tuple[str, ...] = tuple(table.names)
        self.alive: BoolArray = table.alive[:rows].copy()
        self.unschedulable: BoolArray = table.unschedulable[:rows].copy()
        self.row_of: Mapping[str, int] = dict(table.row_of)
        #: The racks, blocks and cliques that the rows are in.
        self.domains: Domains = table.domains.freeze(rows)
        #: What is wrong with devices, by row, where something is.
        self.sick: Mapping[int, tuple[str, ...]] = {
            row: each.sick for row, each in enumerate(table.equipment) if each.sick
        }
        self._labels = tuple(table.labels)
        self._taints = tuple(table.taints)
        self._columns: dict[str, Column] = {}
        self._taint_codes: tuple[CodeArray, tuple[tuple[Taint, ...], ...]] | None = None
        #: Results that depend on this view alone, by whatever they were computed from.
        self.masks: dict[object, BoolArray] = {}

    def column(self, key: str) -> Column:
        """The label ``key`` of every row; codes in the order of the rows."""
        column = self._columns.get(key)
        if column is None:
            ids: dict[str, int] = {}
            codes = np.full(self.rows, -1, np.int32)
            for row, labels in enumerate(self._labels):
                value = labels.get(key)
                if value is not None:
                    codes[row] = ids.setdefault(value, len(ids))
            column = self._columns[key] = Column(codes, tuple(ids))
        return column

    @cached_property
    def ranks(self) -> IntArray:
        """The place of each row's name among the names. Not to be written to. Shape: (rows,)."""
        ranks = np.empty(self.rows, dtype=np.int64)
        ranks[np.argsort(np.array(self.names, dtype=np.str_), kind="stable")] = np.arange(self.rows)
        return ranks

    def taint_sets(self) -> tuple[CodeArray, tuple[tuple[Taint, ...], ...]]:
        """The distinct sets of taints, and which of them each row has. Shape: (rows,)."""
        if self._taint_codes is None:
            ids: dict[tuple[Taint, ...], int] = {}
            codes = np.array([ids.setdefault(each, len(ids)) for each in self._taints], np.int32)
            self._taint_codes = codes, tuple(ids)
        return self._taint_codes


class NodeTable:
    """The rows. ``allocatable``, ``used`` and ``reserved`` are (capacity, resources) arrays."""

    def __init__(self, levels: Sequence[Level] = ()) -> None:
        self.names: list[str] = []
        self.row_of: dict[str, int] = {}
        #: Which levels there are, and who says so.
        self.network = Network(levels)
        self.labels: list[Mapping[str, str]] = []
        self.taints: list[tuple[Taint, ...]] = []
        #: What each node's agent says.
        self.equipment: list[Equipment] = []
        self.columns: dict[str, int] = {name: i for i, name in enumerate(BASE_RESOURCES)}
        shape = (64, len(BASE_RESOURCES))
        self.allocatable: IntArray = np.zeros(shape, np.int64)
        self.used: IntArray = np.zeros(shape, np.int64)
        self.reserved: IntArray = np.zeros(shape, np.int64)
        self.generation: IntArray = np.zeros(shape[0], np.int64)
        self.alive: BoolArray = np.zeros(shape[0], np.bool_)
        self.unschedulable: BoolArray = np.zeros(shape[0], np.bool_)
        #: Pods on the row whose requests cannot be read: the node counts as full.
        self.unreadable: IntArray = np.zeros(shape[0], np.int64)
        self._sources: list[tuple[object, ...]] = []
        self._dead: list[int] = []
        self._clock = 0
        self._view: NodeView | None = None
        self._vectors: dict[tuple[tuple[str, int], ...], IntArray] = {}

    def upsert(self, node: Node, equipment: Equipment = UNKNOWN) -> bool:
        """Give the node its row; returns whether anything that matters has changed. ``equipment``
        says which of its devices work: no more are counted.

        Raises QuantityError for an unreadable allocatable, after giving the node no capacity.
        """
        name = node.metadata.name
        labels, allocatable = node.metadata.labels, node.status.allocatable
        taints, unschedulable = node.spec.taints, node.spec.unschedulable
        sick = equipment.well, equipment.sick
        source = (labels, allocatable, taints, unschedulable, *sick, equipment.parts)
        row = self.row_of.get(name)
        if row is None:
            row = self._new_row(name)
        self.equipment[row] = equipment
        if self._sources[row] == source:
            return False
        self._sources[row] = source
        self.labels[row] = labels
        self.network.put(row, name, labels)
        self.taints[row] = taints
        self.unschedulable[row] = unschedulable
        self.alive[row] = True
        self.allocatable[row] = 0
        self._view = None
        self.touch(row)
        self._fill(row, allocatable, equipment)
        return True

    def remove(self, name: str) -> int | None:
        """Take the node's row away; returns the row. Usage must have been taken off before."""
        row = self.row_of.pop(name, None)
        if row is None:
            return None
        self.names[row] = ""
        self.labels[row] = {}
        self.network.put(row, "", {})
        self.taints[row] = ()
        self.equipment[row] = UNKNOWN
        self._sources[row] = ()
        self.alive[row] = self.unschedulable[row] = False
        self.allocatable[row] = 0
        self._dead.append(row)
        self._view = None
        self.touch(row)
        return row

    def touch(self, row: int) -> None:
        """Give the row a new generation."""
        self._clock += 1
        self.generation[row] = self._clock

    def vector(self, requests: tuple[tuple[str, int], ...]) -> IntArray:
        """Requests as a row of the columns; an unknown resource gets a column. Not to be written
        to. Shape: (resources,).
        """
        vector = self._vectors.get(requests)
        if vector is None:
            for name, _ in requests:
                self._column(name)
            vector = np.zeros(len(self.columns), np.int64)
            for name, value in requests:
                vector[self.columns[name]] = min(value, CEILING)
            if len(self._vectors) >= KEPT:
                self._vectors.clear()
            self._vectors[requests] = vector
        return vector

    @property
    def domains(self) -> DomainTable:
        """The racks, blocks and cliques that the rows are in."""
        return self.network.table(self.names, self.labels)

    def network_changed(self) -> None:
        """Other levels, or other domains: no view holds any longer."""
        self._view = None

    def view(self) -> NodeView:
        """The present labels and taints; the same object until one of them changes."""
        if self._view is None:
            self._view = NodeView(self)
        return self._view

    def _fill(self, row: int, allocatable: Resources, equipment: Equipment) -> None:
        try:
            values = read_units(allocatable, "status.allocatable")
        except QuantityError:
            self._sources[row] = ()  # the same text again is the same error again
            raise
        if equipment.parts is not None:
            # No device plugin offers all of it. Sums keep pods from other nodes, no more than that.
            values = registers.offered(equipment.parts) | values
        for name in values:
            self._column(name)
        for name, value in values.items():
            value = usable(equipment, name, value)
            self.allocatable[row, self.columns[name]] = min(value, CEILING - 1)

    def _new_row(self, name: str) -> int:
        if self._dead:
            row = self._dead.pop()
            self.names[row] = name
        else:
            row = len(self.names)
            if row == len(self.alive):
                self._double()
            self.names.append(name)
            self.labels.append({})
            self.taints.append(())
            self.equipment.append(UNKNOWN)
            self._sources.append(())
        self.row_of[name] = row
        return row

    def _column(self, resource: str) -> int:
        column = self.columns.get(resource)
        if column is None:
            column = self.columns[resource] = len(self.columns)
            self._vectors.clear()
            self.allocatable, self.used, self.reserved = (
                np.hstack([array, np.zeros((len(array), 1), np.int64)])
                for array in (self.allocatable, self.used, self.reserved)
            )
        return column

    def _double(self) -> None:
        for name in (
            "allocatable", "used", "reserved", "generation", "alive", "unschedulable", "unreadable"
        ):  # fmt: skip
            array = getattr(self, name)
            setattr(self, name, np.concatenate([array, np.zeros_like(array)]))
