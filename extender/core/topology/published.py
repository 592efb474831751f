"""What a Node's annotations say, as a dump would: for people who ask ``kubectl``, not the machine."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from extender.core.errors import InvalidObject
from extender.core.topology import annotation, equipment
from extender.core.topology.dump import Reading
from extender.core.topology.model import NO_ZONE, word_of


class _Meta(Struct, frozen=True):
    annotations: dict[str, str] = {}


class _Node(Struct, frozen=True):
    kind: str
    metadata: _Meta = _Meta()


def read_node(text: str) -> tuple[Reading, dict[int, str]]:
    """The links of ``kubectl get node NAME -o json``, and why devices are not free, by position.

    Raises InvalidObject: no Node, or one without links that can be read.
    """
    try:
        node = msgspec.json.decode(text, type=_Node)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InvalidObject("node", text[:40], f"JSON of one Node ({error})") from error
    if node.kind != "Node":
        raise InvalidObject("kind", node.kind, "Node (`kubectl get node NAME -o json`)")
    found, wrong = equipment.read(node.metadata.annotations)
    if not found.links:
        raise next(iter(wrong), None) or InvalidObject(
            f"metadata.annotations[{annotation.KEY}]", "", "what `muster agent` writes"
        )
    known = annotation.decode(found.links)
    busy: dict[int, str] = {}
    if (use := found.devices) is not None:
        for at, (health, pods) in enumerate(zip(use.health, use.held, strict=True)):
            why = [*(pods or ()), *([] if health in ("ok", "?") else [health])]
            if why:
                busy[at] = ", ".join(why)
    words = [[word_of(int(code)) for code in row] for row in known.links]
    affinity = ["" if zone == NO_ZONE else str(zone) for zone in known.numa.tolist()]
    warnings = [str(error) for error in wrong]
    return Reading(known, words, affinity, [None] * len(known), warnings), busy
