"""The view that the HTTP verbs read: pure functions of the published state and the request."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Container, Mapping, Sequence

import numpy as np

from extender.core import inspecting
from extender.core.alignment import alignment_of
from extender.core.errors import InvalidObject
from extender.core.events import FilterAsked, PlainRefused
from extender.core.framework import Victim
from extender.core.gang import PLACED, Gang, Member, Slot
from extender.core.identity import GroupKey, membership
from extender.core.ingest import MARK
from extender.core.objects import Manifest, Pod
from extender.core.reasons import Code, Reason, Refusal
from extender.core.reporting import held_message
from extender.core.shape import PodShape, pinned_node, shape_of
from extender.core.state import State
from extender.core.subgroups import short
from extender.core.taken import asks, spared
from extender.core.topology.kubelet_shares import shares
from extender.core.verdict import FilterAnswer
from extender.core.zoned import no_part

#: extender/v1 MaxExtenderPriority.
MAX_SCORE = 10

#: States in which kube-scheduler may have the planned node.
_OPEN = frozenset({Member.CREATING, Member.RELEASED, Member.ARRIVED, Member.BINDING, Member.BOUND})


class StateView:
    """Reads the state between steps; handlers run on the loop's own thread, so nothing tears."""

    def __init__(self, state: State, ready: Callable[[], bool]) -> None:
        """``ready``: whether caches are synced and kernels compiled."""
        self._s = state
        self._ready = ready
        #: See :class:`extender.core.verdict.Copied`.
        self.objects: Callable[[], AsyncIterator[bytes]] | None = None

    def leads(self) -> bool:
        """Whether this replica holds the lease."""
        return self._s.leading

    def ready(self) -> bool:
        """Whether this replica may be asked at all (a standby is ready too)."""
        return self._ready()

    def filter(self, pod: Pod, names: Sequence[str]) -> FilterAnswer:
        """Members: the planned node or none. Others: all but where capacity is reserved."""
        s, uid = self._s, pod.metadata.uid
        known = s.slots.get((pod.metadata.namespace, pod.metadata.name))
        if known is not None and known[1].uid in ("", uid):
            return _member(s, *known, pod, names)
        if (fault := s.faults.get(uid)) is not None:
            return FilterAnswer((), MARK + fault.render())
        claim = membership(pod)
        if isinstance(claim, Refusal):
            return FilterAnswer((), MARK + claim.render())
        if claim is None or pod.spec.scheduler_name not in s.rules.scheduler_names:
            return _plain(s, pod, names)
        return FilterAnswer((), MARK + Reason.of(Code.UNKNOWN_POD).render())

    def prioritize(self, pod: Pod, names: Sequence[str]) -> Sequence[int]:
        """The planned node gets the maximum. Pods of no group are left to kube-scheduler, but for
        GPUs that belong together: they go where the fewest of those are broken apart.
        """
        known = self._s.slots.get((pod.metadata.namespace, pod.metadata.name))
        if known is None:
            return _spared(self._s, pod, names)
        planned = known[1].node
        return [MAX_SCORE if planned and name == planned else 0 for name in names]

    def preempt(
        self, pod: Pod, victims: Mapping[str, Sequence[str]]
    ) -> Mapping[str, Sequence[str]]:
        """Nodes where no victim would break a running gang below its minimum (S7)."""
        s = self._s
        if (pod.metadata.namespace, pod.metadata.name) in s.slots or membership(pod) is not None:
            # No plan lists victims yet: a gang is never placed by kube-scheduler's preemption.
            return {}
        try:
            shape = shape_of(pod)
        except InvalidObject:
            return {}
        return {node: uids for node, uids in victims.items() if _evictable(s, shape, uids)}

    def state(self) -> Manifest:
        """JSON of ``/debug/state``."""
        return inspecting.state(self._s)

    def gangs(self) -> list[Manifest]:
        """JSON of ``/debug/gangs``."""
        return [inspecting.gang(self._s, self._s.gangs[key]) for key in sorted(self._s.gangs)]

    def gang(self, namespace: str, name: str) -> Manifest | None:
        """JSON of the gang of this name, or of the one with a member of this name; of several kinds
        that share the name, the first in key order.
        """
        for key in sorted(self._s.gangs):
            if (key.namespace, key.name) == (namespace, name):
                return inspecting.gang(self._s, self._s.gangs[key])
        known = self._s.slots.get((namespace, name))
        if known is not None:
            return inspecting.gang(self._s, known[0])
        for key, pod in self._s.foreign.values():
            if (key.namespace, pod) == (namespace, name) and key in self._s.gangs:
                return inspecting.gang(self._s, self._s.gangs[key])
        return None

    def nodes(self) -> list[Manifest]:
        """JSON of ``/debug/nodes``."""
        return inspecting.nodes(self._s)

    def phases(self) -> dict[str, int]:
        """How many gangs are in each phase."""
        return inspecting.phases(self._s)

    def waiting(self) -> tuple[dict[str, int], float]:
        """Gangs that wait by reason, and since when the first does."""
        return inspecting.waiting(self._s)

    def avoided(self) -> int:
        """How many nodes are avoided by all gangs."""
        return len(self._s.health.avoiding)

    def plans(self) -> list[Manifest]:
        """JSON of ``/debug/plan``."""
        return inspecting.plans(self._s)

    def gangless(self, namespace: str, name: str) -> str:
        """Why the job of this name has no gang (its spec is not valid, it is suspended), in the words of
        its last condition; empty where there is no such job.
        """
        jobs = self._s.jobs.values()
        found = (job for job in jobs if (job.namespace, job.name) == (namespace, name))
        return "; ".join(inspecting.gangless(job) for job in found)


def _member(s: State, gang: Gang, slot: Slot, pod: Pod, names: Sequence[str]) -> FilterAnswer:
    uid = pod.metadata.uid
    if not slot.node or slot.state not in _OPEN or slot.deleting:
        message = MARK + slot.fault.render() if slot.fault else held_message(s, gang)
        return FilterAnswer((), message)
    offered = slot.node in names
    # Without a nomination a single name may be kube-scheduler's own hint (OpportunisticBatching).
    nominated = pod.status.nominated_node_name
    alone = len(names) == 1 and (not nominated or names[0] in (nominated, pinned_node(pod.spec)))
    others = () if alone or offered else tuple(names)
    event = FilterAsked(uid, full=not alone, planned_offered=offered, offered=others)
    elsewhere = (
        f"{MARK}gang {gang.key}: {Reason.of(Code.PLANNED_ELSEWHERE, node=slot.node).render()}"
    )
    return FilterAnswer((slot.node,) if offered else (), elsewhere, event=event)


def _plain(s: State, pod: Pod, names: Sequence[str]) -> FilterAnswer:
    """Let a pod of no group through, but not onto capacity that a plan holds (S9), nor where no GPU
    has the part that it asks for: kube-scheduler does not know of parts.
    """
    try:
        parts = list(filter(None, shares(pod.spec.containers, pod.metadata.annotations)))
        if not s.cluster.reservations and not parts:
            return FilterAnswer(names)
        shape = shape_of(pod)
    except InvalidObject as error:
        return FilterAnswer((), MARK + str(error))
    asked = s.cluster.nodes.vector(shape.requests)  # first: it may add a column
    needed = asked > 0
    reserved = s.cluster.reserved
    if parts:
        known = (s.cluster.row_of(name) for name in names)
        rows = np.array([row for row in known if row is not None], np.int64)
    else:
        rows = np.flatnonzero(reserved.any(axis=1))
    free = s.cluster.allocatable[rows] - s.cluster.used[rows] - reserved[rows]
    short = (free[:, needed] < asked[needed]).any(axis=1)
    zones = s.cluster.zone_view() if shape.aligned else None
    if zones is not None:
        short |= ~zones.spares(shape.aligned)[rows]
    taken = {s.cluster.name_of(int(row)) for row in rows[short]}
    if not taken:
        return FilterAnswer(names)
    reason = Reason.of(Code.RESERVED, group="that is being placed")
    message = MARK + (no_part((), parts) if parts else reason).render()
    passed = [name for name in names if name not in taken]
    if passed:
        return FilterAnswer(passed, message)
    generation = s.cluster.capacity_generation if parts else -1
    event = PlainRefused(pod.metadata.uid, generation)
    return FilterAnswer(passed, message, event=event)


def _spared(s: State, pod: Pod, names: Sequence[str]) -> list[int]:
    zones = s.cluster.zone_view()
    try:
        aligned = alignment_of(pod.spec, pod.metadata.annotations) if zones is not None else ()
    except InvalidObject:
        aligned = ()  # said by /filter
    if zones is None or not asks(aligned):
        return [0] * len(names)
    rows = s.cluster.view().row_of
    at = np.array([rows.get(name, -1) for name in names], np.int64)
    codes = np.where(at >= 0, zones.codes[at], -1)
    classes, each = np.unique(codes, return_inverse=True)
    places = [zones.place(code) if code >= 0 else None for code in classes.tolist()]
    points: list[int] = np.array(spared(places, aligned, MAX_SCORE))[each].tolist()
    return points


def _evictable(s: State, preemptor: PodShape, uids: Sequence[str]) -> bool:
    """All of a node's victims, taken together: each gang must stay at or above its minimum."""
    hit: list[tuple[Gang, Slot]] = []
    for uid in uids:
        known = s.slots.get(s.uids.get(uid, ("", "")))
        if known is not None:
            hit.append(known)
    lost = {slot.uid: (gang, slot) for gang, slot in hit}
    for gang in {gang.key: gang for gang, _ in hit}.values():
        lost |= {slot.uid: (gang, slot) for slot in gang.members.values() if _leaves(s, slot)}
    loss = Counter((gang.key, slot.task) for gang, slot in lost.values() if slot.state in PLACED)
    victims = [
        Victim(
            uid=slot.uid,
            namespace=gang.key.namespace,
            name=slot.name,
            priority=gang.priority,
            priority_class=gang.priority_class,
            group=str(gang.key),
            remaining=_remaining(gang, loss, lost.keys()),
            min_member=gang.min_member,
        )
        for gang, slot in hit
    ]
    return bool(s.session.evictable(preemptor, victims).all()) if victims else True


def _leaves(s: State, slot: Slot) -> bool:
    """A member that is placed, and is being evicted or was given away a moment ago."""
    return slot.state == Member.BOUND and (slot.deleting or slot.uid in s.given_away)


def _remaining(gang: Gang, loss: Mapping[tuple[GroupKey, str], int], uids: Container[str]) -> int:
    """Members that stay, or fewer: as many above minMember as above the scarcest minimum."""
    lost = sum(count for (key, _), count in loss.items() if key == gang.key)
    spare = [gang.placed() - lost - gang.min_member]
    for task, least in gang.min_task_member.items():
        placed = sum(gang.tally[task, state] for state in PLACED)
        spare.append(placed - loss.get((gang.key, task), 0) - least)
    if gang.min_parts:
        stay = [m for m in gang.members.values() if m.state in PLACED and m.uid not in uids]
        spare.append(0 if short(gang.min_parts, stay) is None else -1)
    return gang.min_member + min(spare)
