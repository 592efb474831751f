"""Objects that tell levels of the network, judged by the code that the service reads them with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from extender.commands.checks.problem import Document, Problem
from extender.commands.checks.schema import Schema, nearest
from extender.core.api import HYPER_NODES, TOPOLOGIES, Resource
from extender.core.topology.domains import Level
from extender.core.topology.hypernodes import HYPER_NODE, NODE, HyperNode
from extender.core.topology.network import Network, Topology

TYPES: dict[Resource, type[HyperNode | Topology]] = {HYPER_NODES: HyperNode, TOPOLOGIES: Topology}


def _map(**properties: Any) -> Schema:
    return {"type": "object", "properties": properties}


_TEXT: Schema = {"type": "string"}
_SELECTOR = _map(
    exactMatch=_map(name=_TEXT),
    regexMatch=_map(pattern=_TEXT),
    labelMatch={"model": "V1LabelSelector"},
)
_MEMBER = _map(type={"type": "string", "enum": (NODE, HYPER_NODE)}, selector=_SELECTOR)
#: Their specs' fields, as Volcano's and Kueue's own definitions have them.
SPECS: dict[Resource, Schema] = {
    HYPER_NODES: _map(
        tier={"type": "integer"}, tierName=_TEXT, members={"type": "array", "items": _MEMBER}
    ),
    TOPOLOGIES: _map(levels={"type": "array", "items": _map(nodeLabel=_TEXT)}),
}


def tells(document: Document, resource: Resource) -> bool:
    """Whether it is an object of this kind, of any version: Kueue serves each one as the newest."""
    api_version, kind = document.kind
    return (api_version.rpartition("/")[0], kind) == (resource.group, resource.kind)


class Told:
    """The HyperNodes and Topologies of all files, by kind and name."""

    def __init__(self, levels: Sequence[Level] = ()) -> None:
        """``levels`` of muster.yaml."""
        self._network = Network(levels)
        self._documents: dict[tuple[str, str], Document] = {}
        #: Where a HyperNode names another, and that name.
        self._children: list[tuple[Document, str, str]] = []

    def tell(self, document: Document, told: HyperNode | Topology) -> None:
        """An object that was read."""
        name = told.metadata.name
        if isinstance(told, HyperNode):
            self._network.tell_hyper(told)
            self._documents[HYPER_NODE, name] = document
            for at, member in enumerate(told.spec.members):
                if member.type == HYPER_NODE and member.selector.exact_match is not None:
                    field = f"spec.members[{at}].selector.exactMatch.name"
                    self._children.append((document, field, member.selector.exact_match.name))
        else:
            self._network.tell_topology(told)
            self._documents[TOPOLOGIES.kind, name] = document

    def problems(self) -> Iterator[Problem]:
        """What is wrong with each, alone and beside the others."""
        for kind, found in self._network.problems(self._network.table((), ())).items():
            for each in found:
                field, _, message = each.message.partition(": ")
                yield self._documents[kind, each.name].problem(field, message)
        names = [name for kind, name in self._documents if kind == HYPER_NODE]
        for document, field, name in self._children:
            if name not in names and (near := nearest(name, names)):
                message = f"{name!r} is not in these files; did you mean {near}?"
                yield document.problem(field, message, "warning")
