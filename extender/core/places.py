"""What a kubelet would make of pods, for classes of nodes that look the same to it.

A pod is tried once for all nodes of a class, and the answer is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

import numpy as np
from msgspec import Struct

from extender.core.alignment import Alignment
from extender.core.framework import BoolArray
from extender.core.nodes import CEILING, KEPT, CodeArray, IntArray
from extender.core.topology import equipment, parts
from extender.core.topology.kubelet import Container, Kubelet, Stock, admit, idle, taken_anyhow
from extender.core.topology.kubelet_hints import STRICT
from extender.core.topology.kubelet_shares import Share
from extender.core.topology.kubelet_take import Prefer
from extender.core.topology.parts import Room, Rooms

#: More copies than are counted one by one.
MOST_COPIES = 1024


class Place(Struct, frozen=True):
    """One class of nodes."""

    kubelet: Kubelet
    stock: Stock
    #: Members that are planned there and would be refused now, by what they ask for.
    refused: tuple[tuple[Alignment, int], ...] = ()
    #: What is left by pods that are bound, and who is planned, in order.
    bare: Stock = Stock()
    planned: tuple[Alignment, ...] = ()
    #: What joins its devices, as its agent tells it; "" where that is not known.
    links: str = ""
    #: Whether the device plugin chooses as predicted, as far as was seen.
    trusted: bool = True
    #: Of devices that are given away in parts, what each has left; None: whole ones alone.
    parts: Rooms | None = None

    @property
    def prefer(self) -> Mapping[str, Prefer]:
        """What the node's device plugins prefer, by resource."""
        return {equipment.GPU: equipment.prefer(self.links)} if self.links else {}

    def copies(self, pod: Alignment) -> int:
        """How many such pods the kubelet admits one after the other, and the devices have parts for;
        :data:`CEILING`: any number.

        Negative where so many of those that are planned there already would be refused.
        """
        refused = dict(self.refused).get(pod, 0)
        if refused:
            return -refused
        asked = self.asked(pod)
        most = parts.copies(self.rooms, asked, MOST_COPIES) if asked else CEILING
        if self.kubelet.policy not in STRICT:
            return most
        stock = self.stock
        for count in range(min(most, MOST_COPIES)):
            verdict = admit(self.kubelet, stock, pod, self.prefer)
            if verdict.reason:
                return count
            if verdict.stock == stock:
                break
            stock = verdict.stock
        return most

    @property
    def rooms(self) -> tuple[Room, ...]:
        """What each device has left; () where none is given away in parts."""
        return () if self.parts is None else self.parts.rooms

    def asked(self, pod: Alignment) -> list[Share]:
        """What a pod has of the node's devices; [] where none is given away in parts."""
        return [] if self.parts is None else parts.asked(pod, self.parts.convention)

    def spares(self, pod: Alignment) -> bool:
        """Whether all that are planned are still admitted if the kubelet takes this pod first."""
        if parts.take(self.rooms, self.asked(pod)) is None:
            return False
        if self.kubelet.policy not in STRICT or not self.planned:
            return True
        left = admit(self.kubelet, self.bare, pod, self.prefer).stock
        return replayed(self.kubelet, left, self.planned, self.links).refused == self.refused

    def emptied(self) -> Place:
        """The same node as if no pod ran there."""
        rooms = None if self.parts is None else self.parts.emptied()
        return Place(
            self.kubelet, idle(self.stock), links=self.links, trusted=self.trusted, parts=rooms
        )

    def takes(self, pods: Iterable[Alignment]) -> bool:
        """Whether the kubelet admits them one after the other, and the devices have parts for them."""
        stock, rooms = self.stock, self.rooms
        for pod in pods:
            left = parts.take(rooms, self.asked(pod))
            if left is None:
                return False
            rooms = tuple(left)
            verdict = admit(self.kubelet, stock, pod, self.prefer)
            if verdict.reason:
                return False
            stock = verdict.stock
        return True


class Classes:
    """Places by number, and what was counted for them."""

    def __init__(self) -> None:
        self.places: list[Place] = []
        self._numbers: dict[Place, int] = {}
        self._counts: dict[tuple[int, Alignment, str], int] = {}

    def number(self, place: Place) -> int:
        """The number of a place, which may be new."""
        number = self._numbers.setdefault(place, len(self.places))
        if number == len(self.places):
            self.places.append(place)
        return number

    def ask(self, number: int, pod: Alignment, what: str) -> int:
        """What a place answers for a pod: one of _ANSWERS."""
        key = number, pod, what
        count = self._counts.get(key)
        if count is None:
            if len(self._counts) >= 16 * KEPT:
                self._counts.clear()
            count = self._counts[key] = _ANSWERS[what](self.places[number], pod)
        return count


_ANSWERS: Mapping[str, Callable[[Place, Alignment], int]] = {
    "copies": lambda place, pod: place.copies(pod),
    "emptied": lambda place, pod: place.emptied().copies(pod),
    "spares": lambda place, pod: int(place.spares(pod)),
}


class ZoneView:
    """The zones of all rows at one moment. Never changes."""

    def __init__(self, codes: CodeArray, classes: Classes) -> None:
        #: (rows,) the class of each; -1: its zones are not told.
        self.codes = codes
        self._classes = classes
        self._answers: dict[tuple[Alignment, str], IntArray] = {}

    def place(self, code: int) -> Place:
        """One class."""
        return self._classes.places[code]

    def copies(self, pod: Alignment, *, empty: bool = False) -> IntArray:
        """How many such pods each row's kubelet admits, see :meth:`Place.copies`. (rows,).

        ``empty``: if no pod ran there.
        """
        return self._ask(pod, "emptied" if empty else "copies")

    def spares(self, pod: Alignment) -> BoolArray:
        """Rows where such a pod leaves all that are planned what they need. (rows,)."""
        return self._ask(pod, "spares") > 0

    def _ask(self, pod: Alignment, what: str) -> IntArray:
        known = self._answers.get((pod, what))
        if known is None:
            used, at = np.unique(self.codes, return_inverse=True)
            counts = [
                CEILING if number < 0 else self._classes.ask(number, pod, what)
                for number in used.tolist()
            ]
            known = self._answers[pod, what] = np.array(counts, np.int64)[at]
        return known


def worth(taker: Alignment, pod: Alignment) -> int:
    """How many places for ``pod`` a pod takes at most that is aligned as ``taker`` is."""
    if taker == pod:
        return 1
    return max(_worth(taker, pod), parts.worth(taker, pod, MOST_COPIES))


def _worth(taker: Alignment, pod: Alignment) -> int:
    least: dict[str, int] = {}
    for name, count in (each for container in pod for each in _amounts(container)):
        least[name] = min(count, least.get(name, count))
    takes: dict[str, int] = {}
    for name, count in (each for container in taker for each in _amounts(container)):
        takes[name] = takes.get(name, 0) + count
    return max((-(-takes.get(name, 0) // count) for name, count in least.items()), default=0)


def _amounts(container: Container) -> list[tuple[str, int]]:
    cpus = [("cpu", container.cpus)] if container.cpus else []
    return [*container.devices, *container.memory, *cpus]


class Replay(Struct, frozen=True):
    """What becomes of pods that a kubelet takes one after the other."""

    #: What is left once all of them run.
    stock: Stock
    #: How many of each kind the kubelet would have refused.
    refused: tuple[tuple[Alignment, int], ...]
    #: By pod: the GPUs that it has, as a mask; 0 where it was refused.
    devices: tuple[int, ...]


@lru_cache(maxsize=KEPT)
def replayed(
    kubelet: Kubelet, stock: Stock, pods: tuple[Alignment, ...], links: str = ""
) -> Replay:
    """Let the kubelet take ``pods``; who is refused is there anyhow. ``links``: see :class:`Place`."""
    prefer = {equipment.GPU: equipment.prefer(links)} if links else {}
    refused: dict[Alignment, int] = {}
    devices = []
    for pod in pods:
        verdict = admit(kubelet, stock, pod, prefer)
        stock = verdict.stock
        devices.append(verdict.devices.get(equipment.GPU, 0))
        if verdict.reason:
            stock = taken_anyhow(kubelet, stock, pod, prefer)
            refused[pod] = refused.get(pod, 0) + 1
    return Replay(stock, tuple(refused.items()), tuple(devices))
