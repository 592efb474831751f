"""What objects of the API say of a node's devices, as a dump would: for people who ask ``kubectl``.

A Node says it by its agent's annotations, else by GFD's labels, as a node is sold; a
NodeResourceTopology knows in which zones the devices are, and no links.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from msgspec import Struct

from extender.core.errors import InvalidObject
from extender.core.objects import Labels, Manifest
from extender.core.topology import annotation, equipment, nrt
from extender.core.topology.catalogue import COUNT_LABEL, PRODUCT_LABEL, shape_of
from extender.core.topology.dump import Reading
from extender.core.topology.model import (
    MOST_DEVICES,
    NO_ZONE,
    SELF,
    UNKNOWN,
    Topology,
    topology,
    word_of,
)

#: Resources whose devices are GPUs.
_GPUS = (equipment.GPU, "amd.com/gpu")


#: Of links that nobody has measured.
_SOLD = "no links are published: these are"


class _Told(Struct, frozen=True):
    source: str
    annotation: Manifest


class _Device(Struct, frozen=True):
    health: str
    pods: tuple[str, ...] = ()


class _Devices(Struct, frozen=True):
    each: tuple[_Device, ...] = ()


class _Shown(Struct, frozen=True):
    topology: _Told
    devices: _Devices = _Devices()


class _Meta(Struct, frozen=True):
    annotations: dict[str, str] = {}
    labels: Labels = {}


class _Node(Struct, frozen=True):
    metadata: _Meta = _Meta()


def read_object(body: Manifest) -> tuple[Reading, dict[int, str]]:
    """The devices of a Node, a NodeResourceTopology or the annotation alone, and why some are not free, by
    position.

    Raises InvalidObject: another kind, or nothing that can be read.
    """
    kind = body.get("kind")
    try:
        if kind == "Node":
            return _of_node(msgspec.convert(body, _Node))
        if kind == "NodeResourceTopology":
            return _of_zones(nrt.zones_of(msgspec.convert(body, nrt.NodeResourceTopology))), {}
    except msgspec.ValidationError as error:
        raise InvalidObject("object", kind, f"one as {kind} is ({error})") from error
    if kind is None and "v" in body:
        return _reading(annotation.decode(msgspec.json.encode(body).decode()), []), {}
    raise InvalidObject(
        "kind", kind, "Node or NodeResourceTopology, as `kubectl get -o json` prints it"
    )


def read_shown(shown: Manifest) -> tuple[Reading, dict[int, str]]:
    """The same of a node as ``/debug/nodes`` shows it, with a ``topology``. Raises InvalidObject."""
    try:
        node = msgspec.convert(shown, _Shown)
    except msgspec.ValidationError as error:
        raise InvalidObject(
            "node", shown.get("name"), f"a node of /debug/nodes ({error})"
        ) from error
    known = annotation.decode(msgspec.json.encode(node.topology.annotation).decode())
    warnings = [] if node.topology.source == "agent" else [f"{_SOLD} as it is sold"]
    return _reading(known, warnings), _busy((d.health, d.pods) for d in node.devices.each)


def _of_node(node: _Node) -> tuple[Reading, dict[int, str]]:
    found, wrong = equipment.read(node.metadata.annotations)
    warnings = [str(error) for error in wrong]
    if not found.links:
        sold = shape_of(node.metadata.labels)
        if sold is None:
            raise next(iter(wrong), None) or _nothing(node.metadata.labels)
        assumed = f"; {sold.assumed}" if sold.assumed else ""
        warnings.append(f"{_SOLD} of {sold.name} as it is sold{assumed}")
        return _reading(sold.topology, warnings), {}
    use = found.devices
    busy = _busy(zip(use.health, use.held, strict=True)) if use is not None else {}
    return _reading(annotation.decode(found.links), warnings), busy


def _busy(devices: Iterable[tuple[str, Sequence[str] | None]]) -> dict[int, str]:
    """By position, who holds a device of this health, and what is the matter with it."""
    busy = {}
    for at, (health, pods) in enumerate(devices):
        why = [*(pods or ()), *([] if health in ("ok", "?") else [health])]
        if why:
            busy[at] = ", ".join(why)
    return busy


def _nothing(labels: Labels) -> InvalidObject:
    """Of a Node that says nothing of its devices, or nothing that is known."""
    if PRODUCT_LABEL in labels:
        told = f"{labels[PRODUCT_LABEL]} x {labels.get(COUNT_LABEL, '?')}"
        allowed = "a node whose shape is known; else `muster agent` tells its links"
        return InvalidObject(f"metadata.labels[{PRODUCT_LABEL}]", told, allowed)
    allowed = f"what `muster agent` writes, or the labels {PRODUCT_LABEL} and {COUNT_LABEL}"
    return InvalidObject(f"metadata.annotations[{annotation.KEY}]", None, allowed)


def _of_zones(zones: nrt.NodeZones) -> Reading:
    """Devices by the zones that they are in, in order; of what one way is to another nothing is told."""
    columns = [zones.resources.index(name) for name in _GPUS if name in zones.resources]
    counts = (
        zones.capacity[:, columns].clip(0, MOST_DEVICES + 1).sum(axis=1)
        if columns
        else np.zeros(0, np.int64)
    )
    total = int(counts.sum())
    if total > MOST_DEVICES:
        raise InvalidObject("zones", f"more than {MOST_DEVICES}", f"at most {MOST_DEVICES}")
    if not total:
        raise InvalidObject("zones", f"{len(zones.ids)} zones", f"zones with {' or '.join(_GPUS)}")
    free = int(zones.available[:, columns].clip(min=0).sum())
    numa = np.repeat(np.array(zones.ids, np.int16), counts)
    links = np.full((len(numa), len(numa)), UNKNOWN, np.uint8)
    np.fill_diagonal(links, SELF)
    warnings = ["no links are told, only zones: NVLinks that there may be are not counted"]
    if free < total:
        warnings.append(f"{total - free} of {total} devices are in use; which is not told")
    return _reading(topology(links, numa=numa), warnings)


def _reading(known: Topology, warnings: list[str]) -> Reading:
    words = [[word_of(int(code)) for code in row] for row in known.links]
    affinity = ["" if zone == NO_ZONE else str(zone) for zone in known.numa.tolist()]
    return Reading(known, words, affinity, [None] * len(known), warnings)
