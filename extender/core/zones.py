"""What is free in each NUMA zone, and which GPUs, of the nodes of which that is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from extender.core.alignment import Alignment
from extender.core.given import Key, Known, Surprise, assumed, compared, place_of, unshown
from extender.core.nodes import KEPT, CodeArray, NodeView
from extender.core.places import Classes, Place, ZoneView
from extender.core.topology.equipment import UNKNOWN, Equipment
from extender.core.topology.kubelet_hints import STRICT
from extender.core.topology.nrt import NodeZones
from extender.core.topology.registers import Given


class Zones:
    """The nodes of which something is told, and who is on them."""

    def __init__(self, shared: Mapping[int, Given] | None = None) -> None:
        """``shared``: which parts of GPUs pods are told to have, by slot, as it is kept elsewhere."""
        self._shared = {} if shared is None else shared
        self._nodes: dict[str, Known] = {}
        self._classes = Classes()
        self._view: tuple[NodeView, CodeArray, ZoneView | None] | None = None
        #: Nodes that changed since the view was made, in order: it decides how classes are numbered.
        self._stale: dict[str, None] = {}
        #: Predictions that turned out wrong, since the beginning.
        self.surprises = 0

    def __len__(self) -> int:
        return len(self._nodes)

    def knows(self, node: str) -> bool:
        """Whether anything is told of the node; only then anybody on it matters."""
        return node in self._nodes

    def everybody(self) -> Iterator[tuple[str, Mapping[Key, Alignment]]]:
        """Each node of which something is told, and who is there."""
        return ((name, known.pods) for name, known in self._nodes.items())

    def tell(
        self,
        node: str,
        version: str,
        zones: NodeZones,
        there: Mapping[Key, Alignment],
        names: Mapping[Key, str] | None = None,
    ) -> bool:
        """A version of the API tells of a node's zones; returns whether anything changes by it.

        ``there``: everybody on the node, for one that is new here, and the ``names`` of pods.
        """
        before = self.place(node)
        self._known(node, there, names or {}).told[version] = zones
        self._change(node)
        return before != self.place(node)

    def forget(self, node: str, version: str) -> bool:
        """That version of the API tells of the node no more."""
        known = self._nodes.get(node)
        if known is None or known.told.pop(version, None) is None:
            return False
        self._drop_unless_told(node, known)
        return True

    def equip(
        self,
        node: str,
        equipment: Equipment,
        there: Mapping[Key, Alignment],
        names: Mapping[Key, str],
    ) -> bool:
        """A node's agent tells of it (:data:`UNKNOWN`: no more); returns whether its kubelet may
        admit what it would not have before, or the other way round. As :meth:`tell` for the rest.
        """
        before, known = self.place(node), self._nodes.get(node)
        if equipment == (UNKNOWN if known is None else known.equipment):
            return False
        if known is None:
            known = self._known(node, there, names)
        self._compare(known, equipment)
        known.equipment = equipment
        self._drop_unless_told(node, known)
        after = self.place(node)
        strict = any(each and each.kubelet.policy in STRICT for each in (before, after))
        shared = any(each and each.parts is not None for each in (before, after))
        return (strict or shared) and before != after

    def equipment(self, node: str) -> Equipment:
        """What the node's agent told last."""
        known = self._nodes.get(node)
        return UNKNOWN if known is None else known.equipment

    def surprise(self, node: str) -> Surprise | None:
        """What was last predicted wrongly of a node, until a prediction is right."""
        known = self._nodes.get(node)
        return None if known is None else known.surprise

    def came(self, node: str, key: Key, pod: Alignment, name: str = "") -> None:
        """A pod, or a reservation, is on the node from now on. ``name``: a pod's."""
        known = self._nodes.get(node)
        if known is not None and pod:
            known.pods[key] = pod
            if name:
                known.names[key] = name
            self._change(node)

    def gave(self, node: str) -> None:
        """It is told which parts of GPUs a pod of the node has, or told no more."""
        if node in self._nodes:
            self._change(node)

    def went(self, node: str, key: Key) -> None:
        """It is there no longer."""
        known = self._nodes.get(node)
        if known is not None and known.pods.pop(key, None) is not None:
            known.names.pop(key, None)
            self._change(node)

    def place(self, node: str) -> Place | None:
        """What is known of a node now; None: nothing is told."""
        known = self._nodes.get(node)
        return None if known is None else place_of(known)

    def assumed(self, node: str) -> int:
        """How many pods of the node, reservations among them, are where the model says."""
        known = self._nodes.get(node)
        return assumed(known) if known is not None else 0

    def unshown(self, node: str) -> int:
        """How many of its bound pods the object that tells its zones does not show."""
        known = self._nodes.get(node)
        return unshown(known) if known is not None else 0

    def view(self, nodes: NodeView) -> ZoneView | None:
        """The zones of all rows, the same object until something changes; None: none are told."""
        if not self._nodes:
            return None
        if self._view is None or self._view[0] is not nodes:
            self._stale = dict.fromkeys(self._nodes)
            codes = np.full(nodes.rows, -1, np.int32)
        elif self._stale:
            codes = self._view[1].copy()
        else:
            return self._view[2]
        if len(self._classes.places) > KEPT:
            self._classes, self._stale = Classes(), dict.fromkeys(self._nodes)
            for known in self._nodes.values():
                known.code = None
        for name in self._stale:
            row = nodes.row_of.get(name)
            if row is not None:
                codes[row] = self._code(name)
        self._stale = {}
        view = ZoneView(codes, self._classes) if (codes >= 0).any() else None
        self._view = nodes, codes, view
        return view

    def _code(self, node: str) -> int:
        known = self._nodes.get(node)
        if known is None:
            return -1
        if known.code is None:
            known.code = self._classes.number(place_of(known))
        return known.code

    def _known(self, node: str, there: Mapping[Key, Alignment], names: Mapping[Key, str]) -> Known:
        known = self._nodes.get(node)
        if known is None:
            known = self._nodes[node] = Known(
                pods=dict(there), names=dict(names), shared=self._shared
            )
        return known

    def _compare(self, known: Known, now: Equipment) -> None:
        told, surprise = compared(known, now)
        if surprise is not None:
            self.surprises += 1
        if told or now.links != known.equipment.links:
            known.surprise = surprise

    def _drop_unless_told(self, node: str, known: Known) -> None:
        if not known.told and known.equipment == UNKNOWN:
            del self._nodes[node]
        self._change(node)

    def _change(self, node: str) -> None:
        known = self._nodes.get(node)
        if known is not None:
            known.changed()
        self._stale[node] = None
