"""A gang and its members: what the coordinator knows of them, and the counts that decide.

::

    member   WANTED ──create──▶ CREATING ─┐
             HELD (exists, held) ─────────┼─▶ RELEASED ──/bind──▶ ARRIVED ──▶ BINDING ──▶ BOUND
                                          │        (planned)                              │
             FINISHED (Succeeded) ◀── FAILED ◀──────────────────────────────────────────  ┘

    gang     waiting ──plan──▶ WRITING ──written──▶ RELEASED ──first bind──▶ COMMITTING ──▶ done
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING

from extender.core.api import Resource
from extender.core.framework import Failure, GroupFacts, Replica
from extender.core.identity import GroupKey, Membership
from extender.core.objects import Condition, OwnerRef
from extender.core.reasons import Code, Reason, Refusal
from extender.core.subgroups import Minimum, short
from extender.core.topology.limits import Wish

if TYPE_CHECKING:
    from extender.core.shape import PodShape


class Member(StrEnum):
    """Where a member stands."""

    WANTED = "Wanted"
    CREATING = "Creating"
    HELD = "Held"
    RELEASED = "Released"
    ARRIVED = "Arrived"
    BINDING = "Binding"
    BOUND = "Bound"
    FINISHED = "Finished"
    FAILED = "Failed"


#: Members that occupy, or have used and finished with, their place.
PLACED = frozenset({Member.BOUND, Member.FINISHED})
#: Members that a plan may still have to place.
UNPLACED = frozenset(
    {Member.WANTED, Member.CREATING, Member.HELD, Member.RELEASED, Member.ARRIVED, Member.BINDING}
)


class Stage(IntEnum):
    """Where an attempt to place the gang stands."""

    WAITING = 0
    WRITING = 1
    RELEASED = 2
    COMMITTING = 3


@dataclass(slots=True)
class Slot:
    """One member: a pod that exists, or a replica that a job wants."""

    name: str
    task: str
    state: Member
    uid: str = ""
    resource_version: str = ""
    shape: PodShape | None = None
    #: Why its shape cannot be used (bad quantity, another scheduler …).
    fault: Refusal | None = None
    #: The planned node; "" without a plan. Whoever sets it also reserves, see State.reserve.
    node: str = ""
    #: Node of Muster's own pin (required affinity on metadata.name); it cannot be changed.
    pinned: str = ""
    nominated: str = ""
    #: Where an adopted plan had it; tried first when it is planned.
    hint: str = ""
    #: Muster's gate is on the pod.
    gated: bool = False
    #: Gates of others: with any, the pod cannot be scheduled whatever Muster does.
    foreign_gates: tuple[str, ...] = ()
    #: spec.schedulerName, once the watch has shown it.
    scheduler: str = ""
    #: It is being deleted, or Muster has asked for that; ``terminating``: the API server says so.
    deleting: bool = False
    terminating: bool = False
    #: The watch has shown its pod; else it is known by the answers to commands alone.
    shown: bool = False
    #: Its attempt failed while it was being created: deleted as soon as it exists.
    doomed: bool = False
    #: It is being created, and its job wants it no more.
    unwanted: bool = False
    #: The pod has a controller that makes it again, or Muster itself does.
    remade: bool = False
    replica: Replica | None = None
    #: How often its job had been edited when its shape was asked for.
    edits: int = 0
    #: Its controller, where its group is one that only labels or annotations name.
    owner: OwnerRef | None = None
    #: The open /bind request, if any.
    token: int | None = None
    #: When it was last told to come (seconds), and how often in this attempt.
    released_at: float = 0.0
    tries: int = 0
    #: /filter let this uid through since its release: a later refusal is not about the node.
    passed: bool = False
    #: PodScheduled's message when it was released: a refusal that was there before.
    scheduled_message: str = ""
    #: PodScheduled's message now, where it is a refusal by others than /filter.
    complaint: str = ""
    #: resourceVersion that its release was written with; None until then. Later refusals count.
    told: int | None = None
    bind_tries: int = 0


@dataclass(slots=True)
class Gang:
    """A group, its members by pod name, and its current attempt."""

    key: GroupKey
    #: Of the group's record; "" while none exists.
    uid: str = ""
    min_member: int = 1
    min_task_member: dict[str, int] = field(default_factory=dict)
    min_resources: dict[str, str | int | float] = field(default_factory=dict)
    #: Parts of it that have to be whole.
    min_parts: tuple[Minimum, ...] = ()
    #: How near its members should be, as its record says.
    near: tuple[Wish, ...] = ()
    queue: str = ""
    priority_class: str = ""
    #: The value of its class, or its record's own; None: the highest of its members'.
    own_priority: int | None = None
    #: The highest that a member was seen to have (it may be negative); None before the first.
    member_priority: int | None = None
    created: float = 0.0
    timeout: float | None = None
    may_delete: bool = False
    members: dict[str, Slot] = field(default_factory=dict)
    #: Pods that name this group and a scheduler without Muster's extender: pod name → scheduler.
    foreign: dict[str, str] = field(default_factory=dict)
    #: Members by (task, state); kept by move, add and drop.
    tally: Counter[tuple[str, Member]] = field(default_factory=Counter)
    #: The same by state alone: asked several times for each gang in each step.
    by_state: Counter[Member] = field(default_factory=Counter)
    #: Names of bound members whose pods run.
    running: set[str] = field(default_factory=set)
    #: False once a look at all members found every unplaced one planned.
    maybe_loose: bool = True
    #: Why its record cannot be used, whatever the cluster looks like.
    fault: Refusal | None = None
    #: A member's own word for minMember, for a group that has no record yet.
    claim: Membership | None = None
    #: The owning job's (resource, namespace, name), when Muster runs it.
    job: tuple[Resource, str, str] | None = None
    #: Where and when members have failed, as its job says.
    failures: tuple[Failure, ...] = ()

    #: Where its members were that its job has stopped to begin anew, by name, and until when nobody
    #: behind it is planned there (core/keeping.py).
    kept: dict[str, tuple[PodShape, str]] = field(default_factory=dict)
    kept_until: float | None = None

    stage: Stage = Stage.WAITING
    attempt: int = 0
    #: When the attempt began (seconds).
    began_at: float = 0.0
    #: When the attempt last made progress (release carried out, arrival); seconds.
    progress_at: float = 0.0
    not_before: float = 0.0
    #: Names of members that keep their planned places and are not let through yet.
    later: frozenset[str] = frozenset()
    #: Names of planned members that are still to be let through, the next one last.
    to_release: list[str] = field(default_factory=list)
    #: First arrival at /bind in this attempt, until it commits.
    arrived_at: float | None = None
    #: When nominations that have outlived their plan are ended; 0 before it is known whether there
    #: are any, None when there are none.
    strays_at: float | None = 0.0
    refusal: Refusal | None = None
    #: capacity_generation that the refusal was decided on; -1 means it must be decided again.
    refused_at: int = -1
    #: Steps in which its turn did not come, since it was last planned (core/turns.py).
    passed_over: int = 0
    waiting_since: float | None = None
    #: When fewer than min_member but more than none were bound with nothing on its way.
    partial_since: float | None = None
    partial: bool = False
    timed_out: bool = False
    #: It has been whole in this life of its record: from then on losing a member is no rollback.
    was_whole: bool = False
    dirty: bool = True
    #: It is looked at in this step.
    due: bool = True
    #: When it is looked at next if nothing happens to it (seconds).
    look_at: float = math.inf

    #: The plan's record in the API: its resourceVersion, "" when there is none.
    record_version: str = ""
    #: What the record's status and conditions say, to write only differences.
    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    counts: tuple[int, int, int] = (0, 0, 0)
    reported_at: float = -1e18
    #: When a status that could not be written is written again; None when there is none.
    report_again_at: float | None = None
    status_in_flight: bool = False
    record_in_flight: bool = False
    #: When a PodGroup is made (again) for a group that has none: not while one is being made.
    record_again_at: float = 0.0
    #: One was made, or exists, and is not shown: it cannot be read.
    record_unseen: bool = False

    @property
    def priority(self) -> int:
        """What it is ordered by."""
        return (self.member_priority or 0) if self.own_priority is None else self.own_priority

    def told(self) -> Refusal | None:
        """Why it waits, as everybody reads it: with its schedule timeout where that is over."""
        if self.refusal is None or not self.timed_out:
            return self.refusal
        first, *rest = self.refusal.reasons
        return Refusal((first, Reason.of(Code.TIMED_OUT, seconds=int(self.timeout or 0)), *rest))

    def rank(self, priority: int) -> None:
        """A member has this priority."""
        known = self.member_priority
        self.member_priority = priority if known is None else max(known, priority)

    def move(self, slot: Slot, state: Member) -> None:
        """Change a member's state; the counts follow, so that a barrier costs O(tasks)."""
        if self.members.get(slot.name) is slot:
            self._tell(slot, -1)
            slot.state = state
            self._tell(slot, 1)
            if state != Member.BOUND:
                self.running.discard(slot.name)
        slot.state = state
        self.dirty = True
        if state == Member.HELD and slot.nominated and self.strays_at is None:
            # Whatever took its place away: the nomination has outlived it.
            self.strays_at = 0.0

    def add(self, slot: Slot) -> None:
        """Make a slot a member."""
        self.members[slot.name] = slot
        self._tell(slot, 1)
        self.dirty = self.maybe_loose = True

    def drop(self, slot: Slot) -> None:
        """The slot is a member no more."""
        if self.members.get(slot.name) is slot:
            del self.members[slot.name]
            self._tell(slot, -1)
            self.running.discard(slot.name)
            self.dirty = True

    def ran(self, slot: Slot, *, runs: bool) -> None:
        """A bound member's pod runs, or does not (yet): a matter of what is said, not of plans."""
        if runs == (slot.name in self.running):
            return
        (self.running.add if runs else self.running.discard)(slot.name)
        self.due = True

    def _tell(self, slot: Slot, change: int) -> None:
        self.tally[slot.task, slot.state] += change
        self.by_state[slot.state] += change

    def count(self, *states: Member) -> int:
        """How many members are in one of the states."""
        by_state = self.by_state
        return sum([by_state[state] for state in states])

    def placed(self) -> int:
        """Members bound, or finished after having been bound."""
        return self.count(*PLACED)

    def satisfied(self, *more: Member) -> bool:
        """Whether minMember, minTaskMember and minSubGroups hold for members placed or in the states
        given.
        """
        states = PLACED.union(more)
        if self.count(*states) < self.min_member:
            return False
        if self.min_parts:
            members = [slot for slot in self.members.values() if slot.state in states]
            if short(self.min_parts, members) is not None:
                return False
        return all(
            sum(self.tally[task, state] for state in states) >= least
            for task, least in self.min_task_member.items()
        )

    def lives(self) -> bool:
        """Whether it was whole, and somebody of that time stays."""
        return self.was_whole and any(map(stays, self.members.values()))

    def stays_satisfied(self, *more: Member) -> bool:
        """:meth:`satisfied`, and still once the members that are being deleted are gone.

        A gang that lives does not depend on that. Any other begins anew: with members of an attempt
        that is rolled back, or of an earlier life, it would be bound and soon be left in part (I4).
        """
        if not self.satisfied(*more):
            return False
        if not self.placed() or self.lives():
            return True
        states = PLACED.union(more)
        return self.enough(
            [m for m in self.members.values() if m.state in states and not m.deleting]
        )

    def enough(self, members: Sequence[Slot]) -> bool:
        """Whether these alone are what minMember, minTaskMember and minSubGroups ask for."""
        tasks = Counter(slot.task for slot in members)
        return (
            len(members) >= self.min_member
            and all(tasks[task] >= least for task, least in self.min_task_member.items())
            and short(self.min_parts, members) is None
        )

    def facts(self) -> GroupFacts:
        """What plugins may know."""
        live = (s for s in self.members.values() if s.state != Member.FAILED)
        return GroupFacts(
            namespace=self.key.namespace,
            name=self.key.name,
            queue=self.queue,
            priority=self.priority,
            created=self.created,
            min_member=self.min_member,
            min_task_member=self.min_task_member,
            members=dict(Counter(slot.task for slot in live)),
            placed=self.placed(),
        )

    def plans(self) -> bool:
        """Whether an unplaced member has a node; found without a look at all of them, mostly."""
        return any(s.node and s.state in UNPLACED and not s.deleting for s in self.members.values())

    def unplaced(self) -> list[Slot]:
        """Members that still need a place, in a stable order (task, index, name)."""
        slots = (s for s in self.members.values() if s.state in UNPLACED and not s.deleting)
        return sorted(slots, key=slot_order)


def stays(slot: Slot) -> bool:
    """Whether it is placed, and nobody takes its pod away."""
    return slot.state in PLACED and not slot.deleting


def slot_order(slot: Slot) -> tuple[str, int, str]:
    """Replica order for a job's pods; by length then name (p2 before p10) for the others."""
    index = slot.replica.index if slot.replica else len(slot.name)
    return (slot.task, index, slot.name)
