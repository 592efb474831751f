"""Bound pods as columns: one slot a pod."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from extender.core.framework import BoolArray
from extender.core.nodes import CodeArray


class PodTable:
    """Where each bound pod is and what shape it has; no pod object is kept.

    ``row`` is -1 for a pod whose node is not known (yet); such a pod waits under the node's name.
    """

    def __init__(self) -> None:
        self.slots: dict[str, int] = {}
        self.row: CodeArray = np.full(64, -1, np.int32)
        self.shape_id: CodeArray = np.full(64, -1, np.int32)
        #: Being deleted.
        self.leaving: BoolArray = np.zeros(64, np.bool_)
        #: Its requests cannot be read, so it fills its node.
        self.unreadable: BoolArray = np.zeros(64, np.bool_)
        self.nodes: list[str] = []
        #: ``namespace/name``.
        self.names: list[str] = []
        self._free: list[int] = []
        self._waiting: dict[str, set[int]] = {}

    def add(self, uid: str, node: str, row: int, name: str = "") -> int:
        """A slot for a pod that has none yet. ``row`` is -1 while the node is not known."""
        if self._free:
            slot = self._free.pop()
            self.nodes[slot], self.names[slot] = node, name
        else:
            slot = len(self.nodes)
            if slot == len(self.row):
                self._double()
            self.nodes.append(node)
            self.names.append(name)
        self.slots[uid] = slot
        self.move(slot, row)
        return slot

    def discard(self, uid: str) -> None:
        """Free the pod's slot."""
        slot = self.slots.pop(uid)
        if self.row[slot] < 0:
            self._stop_waiting(slot)
        self.row[slot] = -1
        self._free.append(slot)

    def move(self, slot: int, row: int) -> None:
        """The pod's node appeared on ``row``, or went away (-1)."""
        if row < 0:
            self._waiting.setdefault(self.nodes[slot], set()).add(slot)
        elif self.row[slot] < 0:
            self._stop_waiting(slot)
        self.row[slot] = row

    def on_row(self, row: int) -> list[int]:
        """Slots of the pods on a row, in order."""
        slots: list[int] = np.flatnonzero(self.row == row).tolist()
        return slots

    def waiting_for(self, node: str) -> list[int]:
        """Slots of the pods whose node has not been seen, in order."""
        return sorted(self._waiting.get(node, ()))

    def placed(self) -> Iterator[int]:
        """Slots of the pods whose node is known."""
        return (slot for slot in self.slots.values() if self.row[slot] >= 0)

    def _stop_waiting(self, slot: int) -> None:
        waiting = self._waiting.get(self.nodes[slot])
        if waiting is not None:
            waiting.discard(slot)
            if not waiting:
                del self._waiting[self.nodes[slot]]

    def _double(self) -> None:
        size = len(self.row)
        self.row = np.concatenate([self.row, np.full(size, -1, np.int32)])
        self.shape_id = np.concatenate([self.shape_id, np.full(size, -1, np.int32)])
        self.leaving = np.concatenate([self.leaving, np.zeros(size, np.bool_)])
        self.unreadable = np.concatenate([self.unreadable, np.zeros(size, np.bool_)])
