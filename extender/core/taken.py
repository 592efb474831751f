"""Which GPUs members would really get on nodes of which that is known, and what that gives and breaks.

Answers are kept by class of node, and by how many members it is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from extender.core.alignment import Alignment
from extender.core.framework import BoolArray, FloatArray
from extender.core.places import Place
from extender.core.topology import annotation, equipment, parts
from extender.core.topology.bandwidth import MOST_DEVICES
from extender.core.topology.catalogue import COUNT_LABEL, PRODUCT_LABEL, shape_of
from extender.core.topology.choice import GROUPS
from extender.core.topology.equipment import GPU
from extender.core.topology.kubelet import Devices, Stock, admit
from extender.core.topology.kubelet_shares import REPLICAS_LABEL, gpus_of
from extender.core.topology.kubelet_take import of_zones
from extender.core.topology.model import zones

if TYPE_CHECKING:
    from extender.core.session import Session
    from extender.core.shape import PodShape
    from extender.core.snapshot import Snapshot

Int64s = NDArray[np.int64]

#: Sets of devices whose bandwidth differs by less are as good as each other.
_SLACK = 0.99
#: A count of groups of one size takes so many bits.
_BITS = 6
#: What a group that is broken counts for, in points of plugins: more than they give together.
DEAREST = 1e6
#: Combinations beyond which they are numbered anew, before int64 has no more.
_MIXED = 1 << 62
#: One GPU, which has nothing to send; and not known.
FREE, DARK = np.inf, np.nan


def scores(session: Session, view: Snapshot, shape: PodShape, want: int) -> FloatArray:
    """What the plugins say of each row, and before all of them what ``want`` members would break.
    (rows,).
    """
    return session.score(view, shape) - DEAREST * damage(view, shape, want)


def asks(pod: Alignment) -> bool:
    """Whether a pod asks for GPUs or parts of them."""
    return bool(gpus(pod)) or any(each.share for each in pod)


def gpus(pod: Alignment) -> int:
    """GPUs that a pod has at any time: init containers' are the others' later."""
    app = sum(n for c in pod if c.kind != "init" for name, n in c.devices if name == GPU)
    return max([app, *(n for c in pod for name, n in c.devices if name == GPU)])


def gbs(
    view: Snapshot, shape: PodShape, rows: Int64s, copies: Int64s, alone: BoolArray
) -> FloatArray:
    """GB/s of the GPUs of ``copies`` members on each of ``rows``; nan: not known, inf: one GPU.

    ``alone``: the whole gang is there, so what a switch adds up counts, not the ring alone.
    """
    columns = [view.view.column(key) for key in (PRODUCT_LABEL, COUNT_LABEL, REPLICAS_LABEL)]
    codes = view.zones.codes if view.zones is not None else np.full(view.rows, -1, np.int32)
    labels_of = [column.codes[rows] for column in columns]
    classes, at = distinct([codes[rows], *labels_of, copies, alone.astype(np.int64)])
    values = [(*column.values, "") for column in columns]
    found = [
        _of(
            view.zones.place(code) if view.zones is not None and code >= 0 else None,
            shape.aligned,
            tuple(value[i] for value, i in zip(values, labels, strict=True)),
            count,
            bool(whole),
        )
        for code, *labels, count, whole in classes
    ]
    return np.array(found)[at]


def damage(view: Snapshot, shape: PodShape, want: int) -> Int64s:
    """What as many members as fit and are wanted break of what is left on each row, in groups that a
    later job could have had: octets, then quads, then pairs. (rows,); 0 where that is not known.
    """
    out = np.zeros(view.rows, np.int64)
    if view.zones is None or not asks(shape.aligned):
        return out
    room = np.minimum(view.capacity(shape), want)
    rows = np.flatnonzero((room > 0) & (view.zones.codes >= 0))
    if len(rows):
        classes, at = distinct([view.zones.codes[rows], room[rows]])
        found = [_broken(view.zones.place(code), shape.aligned, count) for code, count in classes]
        out[rows] = np.array(found, np.int64)[at]
    return out


def distinct(keys: Sequence[NDArray[Any]]) -> tuple[list[tuple[int, ...]], NDArray[np.intp]]:
    """The different combinations of whole numbers, and which of them each row has. (rows,) all.

    What np.unique(axis=1) finds, twenty times faster: it sorts one number a row, not bytes.
    """
    rows = len(keys[0])
    if not rows:
        return [], np.zeros(0, np.intp)
    mixed, span = np.zeros(rows, np.int64), 1
    for key in keys:
        least, most = int(key.min()), int(key.max())
        if span * (most - least + 1) > _MIXED:
            mixed = np.unique(mixed, return_inverse=True)[1].astype(np.int64)
            span = int(mixed.max()) + 1
        mixed = mixed * (most - least + 1) + (key - least)
        span *= most - least + 1
    _, first, at = np.unique(mixed, return_index=True, return_inverse=True)
    return list(zip(*(key[first].tolist() for key in keys), strict=True)), at


def spared(places: Sequence[Place | None], pod: Alignment, most: int) -> list[int]:
    """0 to ``most`` by place: more where one such pod breaks less of what is left, 0 where it is
    refused, the half where nothing is known. 0 for all where that tells nothing apart.
    """
    found = {place: _broken(place, pod, 1) for place in places if place is not None}
    taken = {place: _takes(place, pod) for place in found}
    levels = sorted({broken for place, broken in found.items() if taken[place]})
    if len(levels) < 2 and all(taken.values()):
        return [0] * len(places)
    points = {broken: round(most * (1 - at / len(levels))) for at, broken in enumerate(levels)}
    worth = {place: points[found[place]] if taken[place] else 0 for place in found}
    return [most // 2 if place is None else worth[place] for place in places]


@lru_cache(maxsize=8192)
def _of(
    place: Place | None, pod: Alignment, labels: tuple[str, ...], copies: int, alone: bool
) -> float:
    product, count, replicas = labels
    size = gpus(pod) * copies
    if any(each.share for each in pod):
        return FREE if size < 2 else DARK
    least, most = gpus_of(GPU, size, {REPLICAS_LABEL: replicas, PRODUCT_LABEL: product}) or (0, 1)
    if least != most:
        return DARK  # parts of GPUs: two of them may be one GPU.
    if size < 2:
        return FREE
    links = links_of(place, product, count)
    model = equipment.model(links) if links else None
    if model is None or size > len(model.topology):
        return DARK
    table = model.bandwidth if alone else model.ring
    if place is not None and place.trusted and (stock := place.stock).devices:
        mask = _taken(place, stock, pod, copies, links)
        if mask.bit_count() == size:
            return float(table[mask])
    sizes = np.bitwise_count(np.arange(len(table), dtype=np.uint32)) == size
    worst, best = float(table[sizes].min()), float(table[sizes].max())
    return worst if worst >= best * _SLACK else DARK


def _takes(place: Place, pod: Alignment) -> bool:
    return place.takes([pod])


@lru_cache(maxsize=8192)
def _broken(place: Place, pod: Alignment, copies: int) -> int:
    """Groups that are neither left nor among what is taken, the large ones in the higher bits. Where
    parts are given away: devices that were whole.
    """
    if place.parts is not None:
        rooms, asked = place.rooms, place.asked(pod)
        for _ in range(copies):
            rooms = tuple(parts.take(rooms, asked) or rooms)
        return parts.broken(place.rooms, rooms)
    devices = dict(place.stock.devices).get(GPU)
    if devices is None or len(devices.zones) > MOST_DEVICES:
        return 0
    taken = _taken(place, place.stock, pod, copies, place.links)
    table = equipment.groups(place.links) if place.links else None
    broken = 0
    for size, name in GROUPS.items():

        def groups(mask: int, size: int = size, name: str = name) -> int:
            if table is not None:
                return int(table[name][mask]) if name in table else 0
            return _groups_of_zones(devices, mask, size)

        lost = groups(devices.free) - groups(devices.free & ~taken) - groups(taken)
        broken = broken << _BITS | max(lost, 0)
    return broken


def _groups_of_zones(devices: Devices, mask: int, size: int) -> int:
    """Disjoint groups of a set of devices that cross no NUMA node."""
    zones = {zone for zone in devices.zones if zone}
    return sum((of_zones(devices.zones, zone) & mask).bit_count() // size for zone in zones)


def links_of(place: Place | None, product: str, count: str) -> str:
    """The links of a node's GPUs, as an annotation has them: what its agent tells, else what is sold
    under these labels; "" where neither is known, or numbers its GPUs otherwise.
    """
    if place is not None and place.links:
        return place.links
    links, where = _sold(product, count)
    devices = dict(place.stock.devices).get(GPU) if place is not None else None
    if devices is None:
        return links
    same = len(where) == len(devices.zones) and all(
        mask == 1 << zone for zone, mask in zip(where, devices.zones, strict=True) if zone >= 0
    )
    return links if same else ""


@lru_cache(maxsize=256)
def _sold(product: str, count: str) -> tuple[str, tuple[int, ...]]:
    shape = shape_of({PRODUCT_LABEL: product, COUNT_LABEL: count})
    if shape is None:
        return "", ()
    return annotation.encode(shape.topology), tuple(zones(shape.topology).tolist())


def _taken(place: Place, stock: Stock, pod: Alignment, copies: int, links: str) -> int:
    """The GPUs that ``copies`` pods get one after the other, as a mask; fewer where one is refused."""
    mask = 0
    for _ in range(copies):
        verdict = admit(place.kubelet, stock, pod, {GPU: equipment.prefer(links)})
        stock = verdict.stock
        mask |= verdict.devices.get(GPU, 0)
    return mask
