"""What must hold of a Muster after every step, judged by what it had been shown (design §2).

The counts are made anew here from the events and commands themselves, never read from the state
that is being judged.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from msgspec import convert

from extender.core import commands as c
from extender.core import coordinator
from extender.core import events as e
from extender.core import objects as o
from extender.core.api import NATIVE_GROUPS, NODES, PODS, PRIORITY_CLASSES
from extender.core.gang import PLACED, UNPLACED, Gang, Member, Stage
from extender.core.identity import GroupKey, Membership, membership
from extender.core.podgroups import NativeGroup
from extender.core.state import reservation_key
from tests.builders import GPU
from tests.core.machine_api import GROUPS, Api, ended, gpus

if TYPE_CHECKING:
    from tests.core.machine import Replica
    from tests.core.machine_scheduler import Scheduler


class Checks:
    """The judge of one replica."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.pods: dict[tuple[str, str], o.Pod] = {}
        self.groups: dict[GroupKey, Any] = {}
        #: Pods that went or failed in this turn, as they were: perhaps after an event of it that asked
        #: for a Bind.
        self.left: dict[tuple[str, str], o.Pod] = {}
        #: Open /bind requests: token → (uid, node); and tokens that are answered or abandoned.
        self.open: dict[int, tuple[str, str]] = {}
        self.over: set[int] = set()
        #: Abandoned in this turn: an answer that was given before that is still on its way.
        self.closing: dict[int, tuple[str, str]] = {}
        #: Binds whose result is not known to have failed: command id → Bind.
        self.binds: dict[int, c.Bind] = {}
        #: Those of them that are known to have taken effect.
        self.took: set[int] = set()
        #: Uids whose Binding failed in this turn: it may be tried again without a new arrival.
        self.failed: set[str] = set()
        #: Creates of pods: the answer shows the pod as well as the watch does.
        self.creating: set[int] = set()
        #: Names of the nodes that there are.
        self.nodes: set[str] = set()
        self.turns = 0

    def before(self, event: e.Event) -> None:
        """An event is about to be applied."""
        match event:
            case e.PodSeen() | e.PodGone() | e.GroupSeen() | e.GroupGone():
                self._shown(event)
            case e.NodeSeen(node):
                self.nodes.add(node.metadata.name)
            case e.NodeGone(name):
                self.nodes.discard(name)
            case e.BindAsked(token, _, _, uid, node):
                self.open[token] = (uid, node)
            case e.BindAbandoned(token):
                if token in self.open:
                    self.closing[token] = self.open.pop(token)
            case e.Done():
                self._done(event)
            case e.LeaderLost() | e.LeaderGained():
                # That of the others nobody knows whether they took effect, but these have.
                self.binds = {id_: self.binds[id_] for id_ in sorted(self.binds.keys() & self.took)}
                self.creating.clear()
            case _:
                pass  # of nothing that is judged here

    def _shown(self, event: e.PodSeen | e.PodGone | e.GroupSeen | e.GroupGone) -> None:
        match event:
            case e.PodSeen(pod):
                place = (pod.metadata.namespace, pod.metadata.name)
                if place in self.pods and pod.status.phase == "Failed":
                    self.left.setdefault(place, self.pods[place])
                self.pods[place] = pod
            case e.PodGone(namespace, name, uid):
                known = self.pods.get((namespace, name))
                if known is not None and known.metadata.uid == uid:
                    self.left[namespace, name] = self.pods.pop((namespace, name))
            case e.GroupSeen(resource, group):
                key = GroupKey(resource, group.metadata.namespace, group.metadata.name)
                self.groups[key] = group
            case e.GroupGone(resource, namespace, name, uid):
                key = GroupKey(resource, namespace, name)
                if key in self.groups and self.groups[key].metadata.uid == uid:
                    del self.groups[key]

    def _done(self, done: e.Done) -> None:
        if done.id in self.creating and done.ok:
            pod = convert(done.object, o.Pod)
            self.pods.setdefault((pod.metadata.namespace, pod.metadata.name), pod)
        bind = self.binds.get(done.id)
        if bind is not None and done.ok:
            self.took.add(done.id)
        if bind is not None and not done.ok:
            self.failed.add(bind.uid)
            if 0 < done.code < 500 or done.reason == "NotLeader":
                del self.binds[done.id]  # else nobody knows whether it took effect

    def after(self, events: tuple[e.Event, ...], commands: list[c.Command]) -> None:
        """The turn is over; nothing of it has been carried out yet."""
        self.turns += 1
        leads = self.replica.state.leading
        arrived = {uid for uid, _ in self.open.values()} | self.failed
        arrived |= {event.uid for event in events if isinstance(event, e.BindAsked)}
        for command in commands:
            if isinstance(command, c.Answer):
                self._answer(command)
            elif isinstance(command, c.WakeAt):
                assert math.isfinite(command.at), "a wake that the loop cannot keep"
            else:
                assert leads, f"{command} from a replica that does not lead"
            if isinstance(command, c.Create) and command.resource == PODS and not command.dry_run:
                self.creating.add(command.id)
            if isinstance(command, c.Bind):
                assert command.uid in arrived, f"{command.name}: bound without an open /bind"
                self.binds[command.id] = command
        binds = [command for command in commands if isinstance(command, c.Bind)]
        # The rest of a commit that a step has no room for is sent by the next ones.
        coming = len(binds) >= coordinator.BINDS_A_STEP
        for bind in binds:
            assert bind.node in self.nodes or bind.uid in self.failed, f"{bind.node} is gone"
            self._whole(bind, {uid for uid, _ in self.open.values()} if coming else set())
        self.failed.clear()
        self.over |= self.closing.keys()
        self.closing.clear()
        self.left.clear()
        self._books()

    def _answer(self, answer: c.Answer) -> None:
        assert answer.token not in self.over, f"token {answer.token} answered twice or too late"
        asked = self.open.pop(answer.token, None) or self.closing.pop(answer.token, None)
        assert asked is not None, f"token {answer.token} was never asked"
        uid, node = asked
        self.over.add(answer.token)
        if not answer.error:
            assert (uid, node) in self.replica.machine.ever_bound(), f"{uid} is not bound to {node}"

    def _whole(self, bind: c.Bind, coming: set[str]) -> None:
        """I1: bound already, or in the same commit, by what was shown to this replica."""
        shown = self.left | self.pods
        if bind.uid in self.failed:
            # Asked for while an event was applied: what the turn's other events changed may have
            # been as it was before.
            shown = self.pods | {k: p for k, p in self.left.items() if p.status.phase != "Failed"}
        pod = shown[bind.namespace, bind.name]
        claim = membership(pod)
        again = sum(each.uid == bind.uid for each in self.binds.values()) > 1
        if again or not isinstance(claim, Membership):
            return  # one that may have taken effect already is asked about again
        group = self.groups.get(claim.key)
        assert group is not None, f"{bind.name} bound without its PodGroup"
        sent = coming | {each.uid for each in self.binds.values()}
        if bind.uid in self.failed:
            sent |= self.failed
        tasks: Counter[str] = Counter()
        for other in shown.values():
            theirs = membership(other)
            placed = other.spec.node_name or other.metadata.uid in sent
            if not isinstance(theirs, Membership) or theirs.key != claim.key or not placed:
                continue
            if other.status.phase != "Failed":
                tasks[theirs.task] += 1
        least = least_of(group)
        assert tasks.total() >= least, f"I1: {tasks.total()} of {least} of {claim.key}"
        for task, count in getattr(group.spec, "min_task_member", {}).items():
            assert tasks[task] >= count, f"I1: {tasks[task]} of {count} {task} of {claim.key}"

    def _books(self) -> None:
        s, machine = self.replica.state, self.replica.machine
        s.cluster.verify()
        # Whether a plain pod fits beside bound ones is kube-scheduler's to know, and it knows sooner.
        plain = {b.node for b in self.binds.values() if (b.namespace, b.name) not in s.slots}
        plain |= {p.spec.node_name for p in self.pods.values() if membership(p) is None}
        # A standby may have been shown what took a place before who left it: it decides nothing.
        for over in s.cluster.over_committed() if s.leading else ():
            assert over.node in machine.excused | plain, f"I2: {over.render()}"
        for name, (has, taken) in machine.taken().items():
            assert taken <= has or name in machine.excused, f"I2: {taken} of {has} on {name}"
        planned: dict[str, str] = {}
        for gang in s.gangs.values():
            tally = Counter((m.task, m.state) for m in gang.members.values())
            assert tally == +gang.tally, f"{gang.key}: counts differ from a recount"
            states = Counter(m.state for m in gang.members.values())
            assert states == +gang.by_state, f"{gang.key}: counts differ from a recount"
            assert s.leading or gang.stage == Stage.WAITING
            for slot in gang.members.values():
                assert s.slots[gang.key.namespace, slot.name] == (gang, slot)
                assert slot.uid == "" or slot.uid in s.uids, f"{slot.name}: uid not indexed"
                if slot.state == Member.BOUND and slot.uid not in s.cluster.pods.slots:
                    # By an answer, be it to what called its Binding off; its watch is to show it.
                    planned[reservation_key(gang, slot)] = slot.node
                elif slot.node and slot.state in UNPLACED:
                    planned[reservation_key(gang, slot)] = slot.node
                    exists = s.cluster.row_of(slot.node) is not None
                    held = s.cluster.reservation(reservation_key(gang, slot))
                    assert not exists or held is not None, f"{slot.name}: planned, not reserved"
                if slot.token is not None:
                    assert slot.token in self.open, f"{slot.name}: holds a dead token"
        self._reserved(planned)

    def _reserved(self, planned: dict[str, str]) -> None:
        """Nothing is reserved but for planned members, and Binds that the watch has yet to show."""
        s = self.replica.state
        coming = {f"{b.namespace}/{b.name}": b.node for b in self.binds.values()}
        coming |= {f"plain {b.uid}": b.node for b in self.binds.values()}
        # Of an earlier leadership, too; at rest nothing is left of them.
        coming |= {f"plain {b.uid}": b.node for b in s.sent.values()}
        for key in s.cluster.reserved_keys:
            row = s.cluster.reservation(key)
            assert row is not None
            node = s.cluster.name_of(row)
            assert node in (planned.get(key), coming.get(key)), f"{key} holds {node} for nobody"

    # -- at rest

    def at_rest(self) -> None:
        """Liveness: whole, or waiting whole and saying why; and nothing held for anybody."""
        s, machine = self.replica.state, self.replica.machine
        assert not self.open, f"open: {self.open}"
        assert not list(s.cluster.reserved_keys), f"reserved: {list(s.cluster.reserved_keys)}"
        for gang in s.gangs.values():
            assert gang.stage == Stage.WAITING, f"{gang.key} is {gang.stage.name}"
        for resource, namespace, name in list(machine.api.objects):
            if resource in GROUPS:
                gang = s.gangs[GroupKey(resource, namespace, name)]
                self._settled(gang)

    def _settled(self, gang: Gang) -> None:
        machine = self.replica.machine
        members = [m for m in gang.members.values() if m.state in UNPLACED]
        placed = gang.count(*PLACED)
        if not gang.count(Member.BOUND, *UNPLACED):
            return
        assert gang.satisfied() or gang.refusal is not None, f"{gang.key} waits without a reason"
        if gang.key.resource != NATIVE_GROUPS:
            raw = machine.api.objects[gang.key.resource, gang.key.namespace, gang.key.name]
            running = raw.get("status", {}).get("phase") in ("Running", "Completed", "Finished")
            assert running == gang.satisfied(), f"{gang.key} says {raw.get('status')}"
        if gang.fault or gang.foreign or len(members) + placed < gang.min_member:
            assert gang.satisfied() or gang.refusal is not None
            return
        if any(m.fault or m.foreign_gates for m in members):
            return
        if gang.min_task_member or gang.min_parts:
            return
        if (
            gang.priority_class
            and machine.api.get(PRIORITY_CLASSES, gang.priority_class, "") is None
        ):
            return
        if gang.min_resources:
            return
        sizes = {machine.gpus_of(m.shape) for m in members if m.shape is not None}
        need = 1 if gang.satisfied() else gang.min_member - placed
        if len(sizes) == 1 and members:
            room = machine.room(sizes.pop())
            assert room < need, f"{gang.key}: {placed} placed, room for {room}: {gang.refusal}"


def least_of(group: Any) -> int:
    """MinMember of any of the three kinds."""
    if isinstance(group, NativeGroup):
        policy = group.spec.scheduling_policy
        return max(1, policy.gang.min_count) if policy.gang else 1
    return 1 if group.spec.min_member is None else max(1, group.spec.min_member)


class Truth:
    """What the API server itself shows: the part of a machine that checks look at."""

    api: Api
    scheduler: Scheduler
    bound_ever: set[tuple[str, str]]

    def ever_bound(self) -> set[tuple[str, str]]:
        """(uid, node) of every pod that was bound at any time."""
        return self.bound_ever

    def taken(self) -> dict[str, tuple[int, int]]:
        """Node → GPUs it has, and GPUs of pods bound to it."""
        found = {
            name: [int(raw["status"]["allocatable"].get(GPU, 0)), 0]
            for (resource, _, name), raw in self.api.objects.items()
            if resource == NODES
        }
        for (resource, _, _), raw in self.api.objects.items():
            on = raw["spec"].get("nodeName") if resource == PODS else None
            if on in found and not ended(raw):
                found[on][1] += gpus(raw)
        return {name: (has, takes) for name, (has, takes) in found.items()}

    def room(self, asked: int) -> int:
        """How many pods of so many GPUs the nodes take now."""
        total = 0
        for name, (has, takes) in self.taken().items():
            node = self.api.objects[NODES, "", name]
            open_ = not node["spec"].get("unschedulable")
            if open_ and (asked, name) not in self.scheduler.hidden and asked:
                total += max(0, has - takes) // asked
        return total

    @staticmethod
    def gpus_of(shape: Any) -> int:
        """GPUs of a shape."""
        return dict(shape.requests).get(GPU, 0)
