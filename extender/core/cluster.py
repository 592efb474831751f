"""The cluster as Muster has observed it: nodes as rows, pods as columns, reservations by key.

One writer. Everything that a plan needs is kept current by each event, never rebuilt;
:meth:`Cluster.verify` proves it by rebuilding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from extender.core.alignment import Alignment
from extender.core.audit import OverCommit, over_committed, verify
from extender.core.errors import InvalidObject
from extender.core.framework import BoolArray
from extender.core.given import Key
from extender.core.nodes import IntArray, NodeTable, NodeView
from extender.core.objects import Claim, Namespace, Node, PersistentVolume, Pod
from extender.core.occupancy import Occupancy
from extender.core.places import ZoneView
from extender.core.pods import PodTable
from extender.core.resources import render
from extender.core.shape import PodShape
from extender.core.shapes import Shapes
from extender.core.storage import Storage
from extender.core.topology import parts
from extender.core.topology.domains import Level
from extender.core.topology.equipment import GPU, UNKNOWN, Equipment
from extender.core.topology.nrt import NodeZones
from extender.core.topology.registers import Given
from extender.core.topology.registers import read_given as parts_given
from extender.core.zones import Zones

#: Phases in which a pod takes nothing of its node any more.
TERMINAL = ("Succeeded", "Failed")


class Reservation(Struct, frozen=True):
    """A place held on a row for a shape (an id of the occupancy)."""

    row: int
    shape_id: int


class Cluster:
    """Nodes, the pods bound to them, reservations, and what volumes and namespaces say."""

    def __init__(self, levels: Sequence[Level] = ()) -> None:
        """``levels`` of the network, widest first."""
        self.nodes = NodeTable(levels)
        self.occupancy = Occupancy()
        #: Pods that are being deleted: they still take resources, but spread ignores them.
        self.leaving = Occupancy()
        self.storage = Storage()
        #: By slot, which parts of GPUs a bound pod is told to have.
        self.shared: dict[int, Given] = {}
        #: NUMA zones of the nodes that tell them, and who is there.
        self.zones = Zones(self.shared)
        #: Bumped when a row gained capacity or a constraint loosened: a refusal older than this
        #: is worth another try.
        self.capacity_generation = 0
        #: Counts reservations that ended otherwise than by their pod's being bound there.
        self.given_back = 0
        #: Set by a snapshot that looked at required pod affinity or spread: from then on a new
        #: pod, too, may make room for another.
        self.followers = False
        self._namespaces: dict[str, dict[str, str]] = {}
        self._frozen_namespaces: dict[str, dict[str, str]] | None = None
        #: Pods that are bound and have not ended.
        self.pods = PodTable()
        self.shapes = Shapes()
        #: Places held, by key.
        self.reservations: dict[str, Reservation] = {}

    # nodes

    @property
    def rows(self) -> int:
        """The number of rows, those of removed nodes among them."""
        return len(self.nodes.names)

    @property
    def names(self) -> Sequence[str]:
        """Node names by row; empty for a row without a node."""
        return self.nodes.names

    @property
    def resources(self) -> dict[str, int]:
        """Resource name to column. Columns are only ever added."""
        return self.nodes.columns

    @property
    def allocatable(self) -> IntArray:
        """Shape: (rows, resources), cpu in milli, the rest in whole units."""
        return self.nodes.allocatable[: self.rows]

    @property
    def used(self) -> IntArray:
        """What bound pods that have not ended ask for. Shape: (rows, resources)."""
        return self.nodes.used[: self.rows]

    @property
    def reserved(self) -> IntArray:
        """What reservations hold. Shape: (rows, resources)."""
        return self.nodes.reserved[: self.rows]

    @property
    def generation(self) -> IntArray:
        """Changes with the row's node and pods, not with reservations. Shape: (rows,)."""
        return self.nodes.generation[: self.rows]

    @property
    def alive(self) -> BoolArray:
        """Rows that have a node. Shape: (rows,)."""
        return self.nodes.alive[: self.rows]

    @property
    def unreadable(self) -> IntArray:
        """Bound pods of the row whose requests cannot be read. Shape: (rows,)."""
        return self.nodes.unreadable[: self.rows]

    def row_of(self, name: str) -> int | None:
        """The row of a node that exists."""
        return self.nodes.row_of.get(name)

    def name_of(self, row: int) -> str:
        """The node's name; empty if the row has no node now."""
        return self.nodes.names[row]

    def show(self, resource: str, value: int) -> str:
        """An amount in the units that people write, e.g. ``1500m`` or ``8Gi``."""
        return render(resource, value)

    def view(self) -> NodeView:
        """Labels and taints, frozen."""
        return self.nodes.view()

    def upsert_node(self, node: Node, equipment: Equipment = UNKNOWN) -> None:
        """Add or change a node. Raises QuantityError; the node then has no capacity at all.

        ``equipment``: what its agent says.
        """
        name = node.metadata.name
        known = name in self.nodes.row_of
        try:
            if self.nodes.upsert(node, equipment):
                self.capacity_generation += 1
        finally:
            if not known:
                self._settle(name)
        self._equip(name, equipment)

    def held_on(self, name: str) -> list[str]:
        """Keys of the reservations on a node."""
        row = self.row_of(name)
        return [key for key, held in self.reservations.items() if held.row == row]

    def remove_node(self, name: str) -> None:
        """Forget a node; its reservations end, its pods wait for it to appear again."""
        row = self.row_of(name)
        if row is None:
            return
        for key in [key for key, held in self.reservations.items() if held.row == row]:
            self.release(key)
        for slot in self.pods.on_row(row):
            self._count(slot, -1)
            self.pods.move(slot, -1)
        self.nodes.remove(name)
        self.zones.equip(name, UNKNOWN, {}, {})
        self.capacity_generation += 1

    # pods

    def upsert_pod(self, pod: Pod, shape: PodShape | None = None) -> None:
        """Count a pod that is bound and has not ended; forget one that has. ``shape``: where the
        caller has it, of the pod as it is now and without its pin and node.

        What was reserved under its uid or its ``namespace/name`` is its own now, and ends.
        Raises InvalidObject. A bound pod whose requests cannot be read fills its whole node.
        """
        meta, node = pod.metadata, pod.spec.node_name
        if not node or pod.status.phase in TERMINAL:
            self.remove_pod(meta.uid)
            if node:
                self.release(meta.uid)
            return
        problem: InvalidObject | None = None
        blocks = False
        try:
            shape = shape or self.shapes.of(pod)
        except InvalidObject as error:
            problem, blocks = error, True
            shape = PodShape(namespace=meta.namespace or "default")
            if meta.annotations:
                bare = replace(pod, metadata=replace(meta, annotations={}))
                with suppress(InvalidObject):  # said of the whole pod
                    # The API server checks no annotation: one that is wrong takes nobody's node.
                    shape, blocks = self.shapes.of(bare), False
        for key in (meta.uid, f"{meta.namespace}/{meta.name}"):
            self.confirm(key, node)
        state = (node, shape, meta.deletion_timestamp is not None, blocks)
        if self._state(meta.uid) != state:
            self._replace(meta.uid, f"{meta.namespace}/{meta.name}", *state)
        self._share(meta.uid, parts_given(meta.annotations))
        if problem is not None:
            raise problem

    def not_believed(self, uid: str) -> list[InvalidObject]:
        """Which devices a counted pod says it has, where that contradicts what it asks for."""
        slot = self.pods.slots.get(uid)
        told = self.shared.get(slot, ()) if slot is not None else ()
        if slot is None or not told:
            return []
        registered = self.zones.equipment(self.pods.nodes[slot]).parts
        return parts.contradictions(told, self._shape(slot).aligned, registered)

    def sharing(self) -> list[tuple[str, str]]:
        """Counted pods that are told which parts of GPUs they have: uid, and ``namespace/name``."""
        slots = self.pods.slots.items()
        return [(uid, self.pods.names[slot]) for uid, slot in slots if slot in self.shared]

    def remove_pod(self, uid: str) -> None:
        """A pod is gone or has ended."""
        if self._forget(uid):
            self.capacity_generation += 1

    def row_of_pod(self, uid: str) -> int | None:
        """The row on which a pod is counted."""
        slot = self.pods.slots.get(uid)
        row = -1 if slot is None else int(self.pods.row[slot])
        return row if row >= 0 else None

    # reservations

    def reserve(self, key: str, shape: PodShape, row: int) -> None:
        """Hold the shape's place on a row under ``key`` (a pod's uid, or any name before it has
        one), instead of what ``key`` held before. A pod that is counted already holds its place.
        """
        self.release(key)
        if key in self.pods.slots:
            return
        shape_id = self.occupancy.hold(shape)
        vector = self.nodes.vector(shape.requests)
        self.reservations[key] = Reservation(row, shape_id)
        self.nodes.reserved[row] += vector
        self.occupancy.add(shape_id, row, 1)
        self.zones.came(self.nodes.names[row], key, shape.aligned)

    def reserve_all(self, shape: PodShape, places: Sequence[tuple[str, int]]) -> None:
        """As :meth:`reserve` for each (key, row); the keys differ. Thousands at once cost little."""
        for key, _ in places:
            self.release(key)
        fresh = [(key, row) for key, row in places if key not in self.pods.slots]
        vector = self.nodes.vector(shape.requests)
        for key, row in fresh:
            self.reservations[key] = Reservation(row, self.occupancy.hold(shape))
            self.zones.came(self.nodes.names[row], key, shape.aligned)
        for row, count in Counter(row for _, row in fresh).items():
            self.nodes.reserved[row] += count * vector
            self.occupancy.add(self.reservations[fresh[0][0]].shape_id, row, count)

    def release(self, key: str) -> None:
        """Give back what ``key`` holds, if anything."""
        if self._unreserve(key) is not None:
            self.capacity_generation += 1
            self.given_back += 1

    def confirm(self, key: str, node: str) -> None:
        """What ``key`` holds is a pod's own now: nothing is free again unless that is elsewhere."""
        row = self._unreserve(key)
        if row is not None and row != self.row_of(node):
            self.capacity_generation += 1

    def reservation(self, key: str) -> int | None:
        """The row that ``key`` holds a place on."""
        held = self.reservations.get(key)
        return held.row if held is not None else None

    @property
    def reserved_keys(self) -> Set[str]:
        """Every key that holds a place."""
        return self.reservations.keys()

    # NUMA zones

    def tell_zones(self, node: str, version: str, zones: NodeZones) -> bool:
        """A version of the API tells a node's NUMA zones; returns whether that changes anything."""
        there = {} if self.zones.knows(node) else self.there(node)
        changed = self.zones.tell(node, version, zones, there, self._names(there))
        if changed:
            self.capacity_generation += 1
        return changed

    def zone_view(self) -> ZoneView | None:
        """The zones of all rows, frozen; None: none are told."""
        return self.zones.view(self.view()) if len(self.zones) else None

    def there(self, node: str) -> dict[Key, Alignment]:
        """What pods and reservations of a node would have aligned, in order."""
        row = self.row_of(node)
        if row is None:
            return {}
        found: dict[Key, Alignment] = {
            slot: self._shape(slot).aligned for slot in self.pods.on_row(row)
        }
        for key, held in self.reservations.items():
            if held.row == row:
                found[key] = self.occupancy.shape(held.shape_id).aligned
        return {key: aligned for key, aligned in found.items() if aligned}

    def _equip(self, node: str, equipment: Equipment) -> None:
        """What a node's agent says of its GPUs, unless those are offered in parts: then a device of
        the kubelet is none of the agent's.
        """
        row, known = self.row_of(node), equipment.devices
        column = self.resources.get(GPU)
        offered = 0 if row is None or column is None else int(self.allocatable[row, column])
        if known is not None and offered > len(known):
            equipment = Equipment(parts=equipment.parts)
        there = {} if self.zones.knows(node) else self.there(node)
        if self.zones.equip(node, equipment, there, self._names(there)):
            self.capacity_generation += 1

    def _names(self, there: Iterable[Key]) -> dict[Key, str]:
        return {key: self.pods.names[key] for key in there if isinstance(key, int)}

    # storage and namespaces

    def upsert_claim(self, claim: Claim) -> None:
        """A claim was added or changed (bound, most often)."""
        meta = claim.metadata
        if self.storage.set_claim(meta.namespace, meta.name, claim.spec.volume_name):
            self.capacity_generation += 1

    def remove_claim(self, namespace: str, name: str) -> None:
        """A claim is gone."""
        if self.storage.drop_claim(namespace, name):
            self.capacity_generation += 1

    def upsert_volume(self, volume: PersistentVolume) -> None:
        """A volume was added or changed."""
        affinity = volume.spec.node_affinity
        required = affinity.required if affinity is not None else None
        if self.storage.set_volume(volume.metadata.name, required):
            self.capacity_generation += 1

    def remove_volume(self, name: str) -> None:
        """A volume is gone."""
        if self.storage.drop_volume(name):
            self.capacity_generation += 1

    def upsert_namespace(self, namespace: Namespace) -> None:
        """A namespace's labels are known; namespaceSelector terms look at them."""
        meta = namespace.metadata
        if self._namespaces.get(meta.name) != meta.labels:
            self._namespaces[meta.name] = meta.labels
            self._frozen_namespaces = None
            self.capacity_generation += 1

    def remove_namespace(self, name: str) -> None:
        """A namespace is gone."""
        if self._namespaces.pop(name, None) is not None:
            self._frozen_namespaces = None
            self.capacity_generation += 1

    @property
    def namespaces(self) -> dict[str, dict[str, str]]:
        """Labels by namespace, frozen; the same object until something changes."""
        if self._frozen_namespaces is None:
            self._frozen_namespaces = dict(self._namespaces)
        return self._frozen_namespaces

    # proof

    def over_committed(self) -> list[OverCommit]:
        """Where used + reserved exceeds allocatable (I2), in the order of rows and columns."""
        return over_committed(self)

    def verify(self) -> None:
        """Raises InvariantViolated if the columns differ from a recount of pods and reservations."""
        verify(self)

    # one pod's, one reservation's share of the columns

    def _shape(self, slot: int) -> PodShape:
        return self.occupancy.shape(int(self.pods.shape_id[slot]))

    def _state(self, uid: str) -> tuple[str, PodShape, bool, bool] | None:
        slot = self.pods.slots.get(uid)
        if slot is None:
            return None
        pods = self.pods
        leaving, unreadable = bool(pods.leaving[slot]), bool(pods.unreadable[slot])
        return pods.nodes[slot], self._shape(slot), leaving, unreadable

    def _replace(
        self, uid: str, name: str, node: str, shape: PodShape, leaving: bool, unreadable: bool
    ) -> None:
        """The new state is counted before anybody can look: never less than the pod takes."""
        row = self.row_of(node)
        shape_id = self.occupancy.hold(shape)
        changed = self._forget(uid)
        if row is not None:
            # The table's text of the name: else each pod's own would be kept.
            node = self.nodes.names[row]
        slot = self.pods.add(uid, node, -1 if row is None else row, name)
        self.pods.shape_id[slot] = shape_id
        self.pods.leaving[slot] = leaving
        self.pods.unreadable[slot] = unreadable
        if row is not None:
            self._count(slot, 1)
        if changed or self.followers:
            self.capacity_generation += 1

    def _share(self, uid: str, told: Given) -> None:
        """Which parts of GPUs a counted pod is told to have; (): that is not told."""
        slot = self.pods.slots[uid]
        if self.shared.get(slot, ()) == told:
            return
        if told:
            self.shared[slot] = told
        else:
            del self.shared[slot]
        self.zones.gave(self.pods.nodes[slot])
        self.capacity_generation += 1

    def _forget(self, uid: str) -> bool:
        slot = self.pods.slots.get(uid)
        if slot is None:
            return False
        self.shared.pop(slot, None)
        if self.pods.row[slot] >= 0:
            self._count(slot, -1)
        self.occupancy.drop(int(self.pods.shape_id[slot]))
        self.pods.discard(uid)
        return True

    def _settle(self, name: str) -> None:
        """Count the pods that were seen before their node."""
        row = self.row_of(name)
        if row is not None:
            for slot in self.pods.waiting_for(name):
                self.pods.move(slot, row)
                self._count(slot, 1)

    def _count(self, slot: int, sign: int) -> None:
        row, shape_id = int(self.pods.row[slot]), int(self.pods.shape_id[slot])
        shape = self.occupancy.shape(shape_id)
        vector = self.nodes.vector(shape.requests)
        self.nodes.used[row] += sign * vector
        self.nodes.unreadable[row] += sign * int(self.pods.unreadable[slot])
        self.occupancy.add(shape_id, row, sign)
        if sign > 0:
            self.zones.came(self.nodes.names[row], slot, shape.aligned, self.pods.names[slot])
        else:
            self.zones.went(self.nodes.names[row], slot)
        if self.pods.leaving[slot]:
            self.leaving.change(shape, row, sign)
        self.nodes.touch(row)

    def _unreserve(self, key: str) -> int | None:
        """Take a reservation off; returns the row that it held."""
        held = self.reservations.pop(key, None)
        if held is None:
            return None
        vector = self.nodes.vector(self.occupancy.shape(held.shape_id).requests)
        self.nodes.reserved[held.row] -= vector
        self.occupancy.add(held.shape_id, held.row, -1)
        self.occupancy.drop(held.shape_id)
        self.zones.went(self.nodes.names[held.row], key)
        return held.row
