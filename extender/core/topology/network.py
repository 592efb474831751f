"""Which levels the network has, and who says so.

By precedence: muster.yaml's levels, in their order; levels of Kueue's Topology objects that are not
among them, each beside those of its object that are; tiers of Volcano's HyperNodes, each wider than
the labels that divide its HyperNodes further and nearer than all others, NVLink cliques excepted. An
object that is wrong, or contradicts what goes before it, is told so and does not count there.

Source: kueue.x-k8s.io/v1beta2 Topology (KEP-2724; v1beta1 is the same): levels widest first, the node's name the last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from extender.core.api import newness
from extender.core.errors import InvalidObject
from extender.core.objects import ApiStruct, Meta
from extender.core.topology.domains import CLIQUES, HOST, TIER_LABEL, DomainTable, Level
from extender.core.topology.hypernodes import HYPER_NODE, Fabric, Hyper, HyperNode, read

#: The other kind that tells levels, beside HYPER_NODE.
TOPOLOGY = "Topology"
#: Levels that are looked at: each costs something for every node.
MOST_LEVELS = 128


class TopologyLevel(ApiStruct):
    """TopologyLevel."""

    node_label: str


class TopologySpec(ApiStruct):
    """TopologySpec."""

    levels: tuple[TopologyLevel, ...] = ()


class Topology(ApiStruct):
    """kueue.x-k8s.io Topology, v1beta1 or v1beta2."""

    metadata: Meta
    spec: TopologySpec = TopologySpec()


class Problem(Struct, frozen=True):
    """What is wrong with an object, whole or in part."""

    name: str
    uid: str
    message: str


class Network:
    """What objects say of the network, and the domains that follow, kept by each change of a node."""

    def __init__(self, configured: Sequence[Level] = ()) -> None:
        """``configured``: muster.yaml's levels, widest first."""
        self.configured = tuple(configured)
        #: Something may be wrong that was right when :meth:`problems` was asked last.
        self.unsaid = False
        #: By name, then by the version of the API that told it; the newest counts.
        self._topologies: dict[str, dict[str, tuple[str, ...]]] = {}
        self._hypers: dict[str, Hyper] = {}
        #: What is wrong with a HyperNode on its own, by name.
        self._unreadable: dict[str, str] = {}
        #: By kind and name.
        self._uids: dict[tuple[str, str], str] = {}
        self._misplaced: dict[str, str] = {}
        self._table: DomainTable | None = DomainTable(configured)

    def tell_hyper(self, told: HyperNode) -> bool:
        """A HyperNode was added or changed; returns whether that changes anything (its status, which
        is written often, does not).
        """
        name = told.metadata.name
        before = self._hypers.pop(name, None), self._unreadable.pop(name, None)
        self._uids[HYPER_NODE, name] = told.metadata.uid
        try:
            self._hypers[name] = read(told)
        except InvalidObject as error:
            self._unreadable[name] = str(error)
        return self._changed(before != (self._hypers.get(name), self._unreadable.get(name)))

    def forget_hyper(self, name: str) -> bool:
        """A HyperNode is gone, or cannot be read at all."""
        self._unreadable.pop(name, None)
        self._uids.pop((HYPER_NODE, name), None)
        return self._changed(self._hypers.pop(name, None) is not None)

    def tell_topology(self, told: Topology, version: str = "") -> bool:
        """A Topology was added or changed, as a version of the API tells it; returns whether that
        changes anything.
        """
        name, labels = told.metadata.name, tuple(each.node_label for each in told.spec.levels)
        before = self._levels_of(name)
        self._topologies.setdefault(name, {})[version] = labels
        self._uids[TOPOLOGY, name] = told.metadata.uid
        return self._changed(before != self._levels_of(name))

    def forget_topology(self, name: str, version: str = "") -> bool:
        """A Topology is gone, or cannot be read at all, by what that version of the API tells."""
        before, told = self._levels_of(name), self._topologies.get(name, {})
        told.pop(version, None)
        if not told:
            self._uids.pop((TOPOLOGY, name), None)
            self._topologies.pop(name, None)
        return self._changed(before != self._levels_of(name))

    def _levels_of(self, name: str) -> tuple[str, ...] | None:
        told = self._topologies.get(name)
        return told[max(told, key=newness)] if told else None

    def put(self, row: int, name: str, labels: Mapping[str, str]) -> None:
        """As :meth:`DomainTable.put`."""
        if self._table is not None and self._table.put(row, name, labels):
            self.unsaid = True

    def table(self, names: Sequence[str], labels: Sequence[Mapping[str, str]]) -> DomainTable:
        """The domains of all rows, whose nodes have these names and labels."""
        if self._table is None:
            self._table = self.recount(names, labels)
            self.unsaid = True
        return self._table

    def recount(self, names: Sequence[str], labels: Sequence[Mapping[str, str]]) -> DomainTable:
        """The same from nothing but what was told."""
        fabric = Fabric(self._hypers)
        table = DomainTable(*self._levels(fabric), fabric)
        for row, (name, of_row) in enumerate(zip(names, labels, strict=True)):
            table.put(row, name, of_row)
        return table

    def problems(self, table: DomainTable) -> dict[str, list[Problem]]:
        """What is wrong with which objects, by kind, and they by name; ``table`` is :meth:`table`."""
        self.unsaid = False
        hypers = {**table.contradictions(), **table.fabric.problems, **self._unreadable}
        found = {HYPER_NODE: hypers, TOPOLOGY: self._misplaced}
        return {
            kind: [Problem(name, self._uids[kind, name], said[name]) for name in sorted(said)]
            for kind, said in found.items()
        }

    def _changed(self, changed: bool) -> bool:
        if changed:
            self._table = None
        return changed

    def _levels(self, fabric: Fabric) -> tuple[tuple[Level, ...], frozenset[str]]:
        """All levels, widest first, and the labels of the fabric's tiers that have no place yet."""
        known = {level.label: level for level in self.configured}
        order = list(known)
        self._misplaced = {}
        for name in sorted(self._topologies):
            try:
                order = _merged(order, self._levels_of(name) or ())
            except InvalidObject as error:
                self._misplaced[name] = str(error)
        tiers = {
            f"{TIER_LABEL}{tier}": (tier, name)
            for tier, name in zip(fabric.tiers, fabric.tier_names, strict=True)
        }
        loose = [label for label in reversed(tiers) if label not in order]
        order += loose
        levels = []
        for label in order:
            level = known.get(label) or Level(label)
            tier, name = tiers.get(label, (None, ""))
            levels.append(replace(level, name=level.name or name, tier=tier))
        return tuple(levels), frozenset(loose)


def _merged(order: list[str], labels: Sequence[str]) -> list[str]:
    """The order with the ``labels``, widest first, that it lacks: each behind the one before it, else
    before the one behind it. Raises InvalidObject: it has them in another order, or too many.
    """
    labels = [label for label in labels if label != HOST]
    shared = [label for label in labels if label in order]
    for wider, nearer in pairwise(shared):
        if order.index(wider) >= order.index(nearer):
            field = f"spec.levels[{labels.index(nearer)}].nodeLabel"
            raise InvalidObject(field, nearer, f"a level nearer than {wider}, as it is known wider")
    if len(order) + len(labels) - len(shared) > MOST_LEVELS:
        count = f"{len(order) + len(labels) - len(shared)} levels"
        raise InvalidObject("spec.levels", count, f"at most {MOST_LEVELS} in the cluster")
    out = list(order)
    at = out.index(shared[0]) if shared else _last_place(out)
    for label in labels:
        if label in out:
            at = out.index(label) + 1
        else:
            out.insert(at, label)
            at += 1
    return out


def _last_place(order: Sequence[str]) -> int:
    """Where a level is put that is nearer than all others but NVLink cliques."""
    return next((at for at, label in enumerate(order) if label in CLIQUES), len(order))
