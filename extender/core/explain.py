"""Why nodes are refused, counted by node class.

Each node is counted once: with the first filter that refuses it, resources before what depends on
other pods, since that is the order in which a cluster is usually short.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from extender.core import fit, zoned
from extender.core.framework import BoolArray
from extender.core.nodes import CEILING
from extender.core.reasons import Code, Reason
from extender.core.resources import PODS, render
from extender.core.shape import PodShape
from extender.core.topology.equipment import BROKEN, usable
from extender.core.volumes import reachable

if TYPE_CHECKING:
    from extender.core.snapshot import Snapshot

#: Nearest miss first: what other pods take comes before what the node is.
_ORDER = (
    Code.RESOURCE,
    Code.TOO_MANY_PODS,
    Code.DEVICES,
    Code.NUMA_NODE,
    Code.NUMA_NODES,
    Code.PART,
    Code.HOST_PORT,
    Code.POD_ANTI_AFFINITY,
    Code.SPREAD,
    Code.POD_AFFINITY,
    Code.EVIDENCE,
    Code.KUBELET,
    Code.UNSCHEDULABLE,
    Code.TAINT,
    Code.VOLUME,
    Code.NO_CLAIM,
    Code.SELECTOR,
    Code.NODE_NAME,
)

#: A resource that is short in more ways than this is told in one line, by the best node.
CLASSES = 8
#: Devices of a node whose faults are told one by one.
SICK = 4


class _Short(Struct, frozen=True):
    """A class of nodes that lack a resource, and by which part of what is asked."""

    missing: float
    column: int
    free: int
    total: int
    nodes: int


def explain(snapshot: Snapshot, shape: PodShape) -> list[Reason]:
    """Reasons of all nodes that refuse one more pod of this shape, nearest miss first."""
    left = snapshot.alive.copy()
    found: list[Reason] = []
    for reason, refused in _static_refusals(snapshot, shape):
        _count(found, reason, left, refused)
    for reason, refused in _sick(snapshot, shape):
        _count(found, reason, left, refused)
    found.extend(_resources(snapshot, shape, left))
    for reason, refused in zoned.refusals(snapshot, shape):
        _count(found, reason, left, refused)
    for tracker in snapshot.trackers(shape):
        for reason, refused in tracker.refusals():
            _count(found, reason, left, refused)
    return sorted(_merged(found), key=lambda reason: _ORDER.index(reason.code))


def _count(found: list[Reason], reason: Reason, left: BoolArray, refused: BoolArray) -> None:
    """Give ``reason`` the nodes that it refuses and that nothing refused before."""
    nodes = int(np.count_nonzero(left & refused))
    if nodes:
        found.append(Reason(reason.code, reason.params, nodes))
        left &= ~refused


def _merged(found: list[Reason]) -> list[Reason]:
    """Equal reasons as one, where the first of them was."""
    nodes: dict[Reason, int] = {}
    for reason in found:
        bare = Reason(reason.code, reason.params)
        nodes[bare] = nodes.get(bare, 0) + reason.nodes
    return [Reason(bare.code, bare.params, count) for bare, count in nodes.items()]


def _static_refusals(snapshot: Snapshot, shape: PodShape) -> Iterator[tuple[Reason, BoolArray]]:
    view = snapshot.view
    if shape.node_name:
        reason = Reason.of(Code.NODE_NAME, wanted=shape.node_name)
        yield reason, ~fit.named(view, shape)
    yield Reason.of(Code.SELECTOR), ~fit.selected(view, shape)
    for claim, reach in reachable(view, snapshot.storage, shape):
        known = snapshot.storage.has(shape.namespace, claim)
        yield Reason.of(Code.VOLUME if known else Code.NO_CLAIM, claim=claim), ~reach
    yield Reason.of(Code.UNSCHEDULABLE), ~fit.schedulable(view, shape)
    yield from _taints(snapshot, shape)
    banned = snapshot.banned.get(shape, {})
    for reason in sorted(set(banned.values())):
        refused = np.zeros(snapshot.rows, np.bool_)
        refused[[row for row, other in banned.items() if other == reason]] = True
        yield reason, refused


def _taints(snapshot: Snapshot, shape: PodShape) -> Iterator[tuple[Reason, BoolArray]]:
    codes, sets = snapshot.view.taint_sets()
    for code, taints in enumerate(sets):
        taint = fit.first_untolerated(shape.tolerations, taints)
        if taint is not None:
            pair = f"{taint.key}={taint.value}" if taint.value else taint.key
            yield Reason.of(Code.TAINT, taint=f"{pair}:{taint.effect}"), codes == code


def _sick(snapshot: Snapshot, shape: PodShape) -> Iterator[tuple[Reason, BoolArray]]:
    """Nodes that are short of a resource some of which does not work."""
    for resource, asked in shape.requests:
        column = snapshot.resources.get(resource)
        if column is None or usable(BROKEN, resource, 1):
            continue
        told: dict[Reason, list[int]] = {}
        for row, words in snapshot.view.sick.items():
            free = int(snapshot.free[row, column])
            if free < asked:
                health = ", ".join(words[:SICK] + ("...",) * (len(words) > SICK))
                total = int(snapshot.allocatable[row, column])
                reason = Reason.of(
                    Code.DEVICES,
                    free=max(free, 0),
                    total=total,
                    resource=resource,
                    asked=asked,
                    health=health,
                )
                told.setdefault(reason, []).append(row)
        for reason, rows in told.items():
            refused = np.zeros(snapshot.rows, np.bool_)
            refused[rows] = True
            yield reason, refused


def _resources(snapshot: Snapshot, shape: PodShape, left: BoolArray) -> list[Reason]:
    """Nodes of ``left`` that are short, by the resource they are shortest of; takes them off."""
    request = snapshot.request_vector(shape)
    # NUMA zones have words of their own.
    request[[column for column in snapshot.zone_columns.values() if column >= 0]] = 0
    asked = np.flatnonzero(request)
    rows = np.flatnonzero(left)
    missing = np.maximum(request[asked] - np.maximum(snapshot.free[rows][:, asked], 0), 0)
    share = missing / request[asked]
    short = share.max(axis=1, initial=0.0) > 0
    left[rows[short]] = False
    worst = asked[share[short].argmax(axis=1)] if short.any() else asked[:0]
    names = list(snapshot.resources)
    classes: dict[int, list[_Short]] = {}
    for column, free, total, nodes in _classes(snapshot, rows[short], worst):
        distance = (int(request[column]) - max(free, 0)) / int(request[column])
        classes.setdefault(column, []).append(_Short(distance, column, free, total, nodes))
    told: list[tuple[_Short, str]] = []
    for group in classes.values():
        told.extend(_told(group, names[group[0].column]))
    asks = dict(shape.requests)  # a column holds no more than CEILING of it
    reasons = []
    for each, free_text in sorted(told, key=lambda line: _distance(line[0])):
        name = names[each.column]
        code = Code.TOO_MANY_PODS if name == PODS else Code.RESOURCE
        values: dict[str, str | int] = {"free": free_text, "total": _amount(name, each.total)}
        if code is Code.RESOURCE:
            values["resource"] = name
        reasons.append(Reason.of(code, each.nodes, **values, asked=render(name, asks[name])))
    return reasons


def _amount(name: str, value: int) -> str:
    """Of a node's column, which holds less than CEILING however much the node says that it has."""
    return render(name, value) if value < CEILING - 1 else f"{render(name, CEILING)} or more"


def _distance(short: _Short) -> tuple[float, int, int, int]:
    """Nearest miss first; of equal ones, that of most nodes."""
    return short.missing, -short.nodes, short.column, short.total


def _classes(
    snapshot: Snapshot, rows: NDArray[np.intp], worst: NDArray[np.intp]
) -> list[tuple[int, int, int, int]]:
    """(column, free, total, nodes) of the distinct situations, in order."""
    keys = (snapshot.allocatable[rows, worst], snapshot.free[rows, worst], worst)
    total, free, column = (key[np.lexsort(keys)] for key in keys)
    edge = (np.diff(total) != 0) | (np.diff(free) != 0) | (np.diff(column) != 0)
    first = np.flatnonzero(np.concatenate([np.ones(min(len(rows), 1), np.bool_), edge]))
    nodes = np.diff(np.append(first, len(rows)))
    parts = (column[first], free[first], total[first], nodes)
    return list(zip(*(part.tolist() for part in parts), strict=True))


def _told(group: list[_Short], name: str) -> list[tuple[_Short, str]]:
    """Few classes one by one; many (cpu and memory differ from node to node) in one line."""
    if len(group) <= CLASSES:
        return [(each, render(name, max(each.free, 0))) for each in group]
    best = min(group, key=_distance)
    nodes = sum(each.nodes for each in group)
    line = _Short(best.missing, best.column, best.free, best.total, nodes)
    return [(line, f"at most {render(name, max(best.free, 0))}")]
