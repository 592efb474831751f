"""What is free in each NUMA zone of the nodes whose zones are told.

A NodeResourceTopology says what its writer saw a while ago, and nothing says which devices a pod
holds. So: what is told counts; pods that cannot be in it (all that a plan has reserved, and of those
that are bound the newest, as many as ask for more devices than it has given out) are assumed to have
what the model of the kubelet gives them, one after the other as they came.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct

from extender.core.alignment import Alignment
from extender.core.nodes import KEPT, NodeView
from extender.core.places import Classes, Place, ZoneView, replayed
from extender.core.topology.nrt import NodeZones
from extender.core.topology.stock import kubelet_of, stock_of

#: Who is on a node: a pod's slot, or the key of a reservation.
Key = int | str


class _Node(Struct):
    """A node whose zones are told."""

    #: By the version of the API that told it; the newest counts.
    told: dict[str, NodeZones]
    #: Who is there, in the order in which they came.
    pods: dict[Key, Alignment] = {}
    #: What follows from all that, and the number of its class; None until it is asked for.
    place: Place | None = None
    code: int | None = None


class Zones:
    """Which nodes have told their zones, and who is on them."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._classes = Classes()
        self._view: tuple[NodeView, ZoneView | None] | None = None

    def __len__(self) -> int:
        return len(self._nodes)

    def knows(self, node: str) -> bool:
        """Whether the node's zones are told; only then anybody on it matters."""
        return node in self._nodes

    def everybody(self) -> Iterator[tuple[str, Mapping[Key, Alignment]]]:
        """Each node whose zones are told, and who is there."""
        return ((name, known.pods) for name, known in self._nodes.items())

    def tell(
        self, node: str, version: str, zones: NodeZones, there: Mapping[Key, Alignment]
    ) -> bool:
        """A version of the API tells of a node; returns whether anything changes by it.

        ``there``: everybody on the node, for one that is new here.
        """
        before = self.place(node)
        known = self._nodes.get(node)
        if known is None:
            known = self._nodes[node] = _Node({}, dict(there))
        known.told[version] = zones
        self._change(known)
        return before != self.place(node)

    def forget(self, node: str, version: str) -> bool:
        """That version of the API tells of the node no more."""
        known = self._nodes.get(node)
        if known is None or known.told.pop(version, None) is None:
            return False
        if not known.told:
            del self._nodes[node]
        self._change(known)
        return True

    def came(self, node: str, key: Key, pod: Alignment) -> None:
        """A pod, or a reservation, is on the node from now on."""
        known = self._nodes.get(node)
        if known is not None and pod:
            known.pods[key] = pod
            self._change(known)

    def went(self, node: str, key: Key) -> None:
        """It is there no longer."""
        known = self._nodes.get(node)
        if known is not None and known.pods.pop(key, None) is not None:
            self._change(known)

    def place(self, node: str) -> Place | None:
        """What is known of a node now; None: its zones are not told."""
        known = self._nodes.get(node)
        if known is None:
            return None
        if known.place is None:
            known.place = _place(known)
        return known.place

    def assumed(self, node: str) -> int:
        """How many pods of the node, reservations among them, are where the model says."""
        known = self._nodes.get(node)
        return len(_late(newest(known), known.pods)) if known is not None else 0

    def view(self, nodes: NodeView) -> ZoneView | None:
        """The zones of all rows, the same object until something changes; None: none are told."""
        if not self._nodes:
            return None
        if self._view is None or self._view[0] is not nodes:
            self._view = nodes, self._new_view(nodes)
        return self._view[1]

    def _new_view(self, nodes: NodeView) -> ZoneView | None:
        if len(self._classes.places) > KEPT:
            self._classes = Classes()
            for known in self._nodes.values():
                known.code = None
        codes = np.full(nodes.rows, -1, np.int32)
        for name, known in self._nodes.items():
            row = nodes.row_of.get(name)
            if row is not None:
                codes[row] = self._code(known) if known.code is None else known.code
        return ZoneView(codes, self._classes) if (codes >= 0).any() else None

    def _code(self, known: _Node) -> int:
        known.place = known.place or _place(known)
        known.code = self._classes.number(known.place)
        return known.code

    def _change(self, known: _Node) -> None:
        known.place = known.code = self._view = None


def newest(node: _Node) -> NodeZones:
    """What the newest version of the API tells."""
    return node.told[max(node.told)]


def _late(zones: NodeZones, pods: Mapping[Key, Alignment]) -> set[Key]:
    """Who cannot be in what is told: the newest of those beyond the devices that it has given out."""
    given = np.where(zones.allocatable > 0, zones.allocatable - zones.available, 0).sum(axis=0)
    more = {name: -int(count) for name, count in zip(zones.resources, given, strict=True)}
    bound = {key: _devices(pod) for key, pod in pods.items() if isinstance(key, int)}
    for devices in bound.values():
        for name, count in devices.items():
            more[name] = more.get(name, 0) + count
    late: set[Key] = set(pods.keys() - bound.keys())
    for key, devices in reversed(bound.items()):
        if any(more[name] > 0 for name in devices):
            late.add(key)
            for name, count in devices.items():
                more[name] -= count
    return late


def _place(node: _Node) -> Place:
    zones = newest(node)
    kubelet = kubelet_of(zones)
    held = {name for pod in node.pods.values() for name in _devices(pod)}
    late = _late(zones, node.pods)
    runs = [pod for key, pod in node.pods.items() if key in late and isinstance(key, int)]
    planned = tuple(pod for key, pod in node.pods.items() if isinstance(key, str))
    bare, _ = replayed(kubelet, stock_of(zones, held), runs)
    stock, refused = replayed(kubelet, bare, planned)
    return Place(kubelet, stock, refused, bare, planned)


def _devices(pod: Alignment) -> dict[str, int]:
    """What a pod holds while it runs: of init containers no more than the rest takes over is counted."""
    total: dict[str, int] = {}
    for container in pod:
        for name, count in container.devices:
            if container.kind != "init":
                total[name] = total.get(name, 0) + count
    return total
