"""Why kubelets would refuse a pod that there is room for: the words for its NUMA zones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from extender.core.alignment import Alignment
from extender.core.framework import BoolArray
from extender.core.places import Place
from extender.core.reasons import Code, Reason
from extender.core.resources import CPU, render
from extender.core.shape import PodShape
from extender.core.topology import parts
from extender.core.topology.kubelet import Container, admit, together
from extender.core.topology.kubelet_hints import SINGLE
from extender.core.topology.kubelet_shares import ALIBABA, Share
from extender.core.topology.kubelet_take import of_zones

if TYPE_CHECKING:
    from extender.core.snapshot import Snapshot


def refusals(snapshot: Snapshot, shape: PodShape) -> Iterator[tuple[Reason, BoolArray]]:
    """A reason for each way in which zones are short, and the rows that it holds for. (rows,)."""
    column = snapshot.zone_columns.get(shape.aligned, -1)
    if snapshot.zones is None or column < 0:
        return
    codes = snapshot.zones.codes
    short = (snapshot.free[:, column] < 1) & (codes >= 0)
    told: dict[Reason, list[int]] = {}
    for code in np.unique(codes[short]).tolist():
        told.setdefault(_reason(snapshot.zones.place(code), shape.aligned), []).append(code)
    for reason, those in told.items():
        yield reason, short & np.isin(codes, those)


def free_by_zone(place: Place) -> dict[str, list[int]]:
    """What is free in each zone, by resource, CPUs as a number. Devices whose zones are not told
    are left out.
    """
    zones = range(place.kubelet.zones)
    free = {
        name: [(of_zones(each.zones, 1 << zone) & each.free).bit_count() for zone in zones]
        for name, each in place.stock.devices
        if any(each.zones)
    }
    if place.stock.cpus is not None:
        free[CPU] = list(place.stock.cpus.free)
    return free


def _reason(place: Place, pod: Alignment) -> Reason:
    """In the words of the first container that would be refused on its own, else of the largest."""
    asked = place.asked(pod)
    if asked and parts.take(place.rooms, asked) is None:
        return no_part(place.rooms, asked)
    kubelet = place.kubelet
    asks = [together(pod)] if kubelet.scope == "pod" else list(pod)
    refused = (each for each in asks if admit(kubelet, place.stock, (each,)).reason)
    wanted = next(refused, max(asks, key=lambda each: (sum(n for _, n in each.devices), each.cpus)))
    every = _parts(place, wanted)
    # What is short by itself; each can be had, but not of the same zones: all of them.
    short = [part for part in every if not part.fits] or every
    free = [part.free if len(short) == 1 else f"{part.name} {part.free}" for part in short]
    code = Code.NUMA_NODE if kubelet.policy == SINGLE else Code.NUMA_NODES
    words = " and ".join(f"{part.asked} {part.name}" for part in short)
    return Reason.of(code, asked=words, free=", ".join(free))


def no_part(rooms: Sequence[parts.Room], asked: Sequence[Share]) -> Reason:
    """In the words of the first share that there is no room for."""
    short = next((each for each in asked if parts.chosen(rooms, each) is None), asked[-1])
    memory = f"{short.memory} MiB" if short.memory else f"{short.memory_percent} % of its memory"
    words = memory if short.convention != ALIBABA else ""
    if short.milli:
        cores = f"{short.milli / 10:g} % of its cores"
        words = f"{words} and {cores}" if words else cores
    one = short.devices == 1
    return Reason.of(
        Code.PART, count="one" if one else short.devices, has="has" if one else "have", asked=words
    )


class _Part(Struct, frozen=True):
    """One resource of a container, and whether the policy would let it have that alone."""

    name: str
    asked: str
    #: By zone: ``2+2``.
    free: str
    fits: bool


def _parts(place: Place, asked: Container) -> list[_Part]:
    stock, kubelet = place.stock, place.kubelet
    parts = []
    devices = dict(stock.devices)
    for name, count in asked.devices:
        if name in devices and any(devices[name].zones):
            free = free_by_zone(place)[name]
            alone = Container(devices=((name, count),))
            parts.append(_part(place, name, count, free, alone))
    if asked.cpus and stock.cpus is not None and kubelet.static_cpu:
        alone = Container(cpus=asked.cpus)
        parts.append(_part(place, CPU, asked.cpus * 1000, stock.cpus.free, alone))
    for name, size in asked.memory if kubelet.static_memory else ():
        amounts = dict(stock.memory).get(name)
        if amounts is not None:
            parts.append(_part(place, name, size, amounts.free, Container(memory=((name, size),))))
    return parts


def _part(place: Place, name: str, asked: int, free: Sequence[int], alone: Container) -> _Part:
    scale = 1000 if name == CPU and not alone.devices else 1
    shown = "+".join(render(name, each * scale) for each in free)
    return _Part(
        name, render(name, asked), shown, not admit(place.kubelet, place.stock, (alone,)).reason
    )
