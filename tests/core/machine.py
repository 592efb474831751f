"""The gang machine by itself: Coordinators beside a model of the API server and kube-scheduler.

Nothing here waits, and nothing is random but what a caller draws: a test says what happens next
(which watch event is delivered, which command is carried out and how it ends, which pod is cycled,
what a user or a fault does), and after every step the invariants are checked by
:mod:`tests.core.machine_checks`.
"""

from __future__ import annotations

import hashlib
from collections import deque
from copy import deepcopy

import msgspec

from extender.core import commands as c
from extender.core import events as e
from extender.core.answers import StateView
from extender.core.api import NODES, PODS
from extender.core.coordinator import Coordinator
from extender.core.state import Rules
from extender.jobs import KINDS
from extender.settings import Settings
from tests.core.machine_api import Api, Place, Raw
from tests.core.machine_checks import Checks, Truth
from tests.core.machine_scheduler import Scheduler

SESSION = Settings().session()
RULES = Rules(
    pod_max_backoff=1.0,
    arrival_slack=2.0,
    bind_timeout=20.0,
    plan_deadline=5.0,
    visible_after=15.0,
    evidence_seconds=60.0,
    retry_seconds_max=8.0,
)
#: Seconds since the epoch at which every story begins.
START = 1_800_000_000.0
#: Virtual seconds within which everything must have come to rest once faults stop.
PATIENCE = 400.0

Write = c.Bind | c.Create | c.Patch | c.Delete


def written(command: Write) -> str:
    """Name of the object that a command writes."""
    if isinstance(command, c.Create):
        name: str = command.body["metadata"]["name"]
        return name
    return command.name


class Fault(msgspec.Struct):
    """Some of the commands to come end otherwise, or (``hold``) are not carried out for a while."""

    outcome: str
    #: Bind, Create, Patch or Delete; kind and name of what it writes. "" matches all.
    verb: str = ""
    kind: str = ""
    name: str = ""
    #: Matching commands that still go well, and those that fail then.
    skip: int = 0
    times: int = 1_000_000

    def hits(self, command: Write) -> bool:
        """Whether this command ends otherwise; counts."""
        kind = "Pod" if isinstance(command, c.Bind) else command.resource.kind
        if isinstance(command, c.Create) and command.dry_run:
            kind = "DryRun"
        name = written(command)
        if self.verb not in ("", type(command).__name__) or self.kind not in ("", kind):
            return False
        if not name.startswith(self.name) or not self.times:
            return False
        if self.outcome == "hold":
            return True
        if self.skip:
            self.skip -= 1
            return False
        self.times -= 1
        return True


class Replica:
    """One Muster: its core, what its watch has yet to show it, and its commands under way."""

    def __init__(self, name: str, machine: Machine, rules: Rules) -> None:
        self.name, self.machine = name, machine
        kinds = {kind.resource: kind for kind in KINDS}
        self.coordinator = Coordinator(rules, SESSION, kinds)
        self.state = self.coordinator.state
        self.view = StateView(self.state, lambda: True)
        self.backlog: dict[Place, deque[e.Event]] = {}
        #: FilterAsked, BindAsked and BindAbandoned, in the order they came.
        self.inbox: deque[e.Event] = deque()
        #: Commands by the object they write, so that none overtakes another.
        self.chains: dict[object, deque[Write]] = {}
        self.replies: list[e.Done] = []
        self.wakes: set[float] = set()
        self.notices: list[c.Notice] = []
        self.digest = hashlib.sha256()
        self.log: list[tuple[float, tuple[e.Event, ...]]] = []
        self.checks = Checks(self)
        machine.api.watchers.append(self.saw)

    def saw(self, place: Place, event: e.Event) -> None:
        """The API server has sent a watch event; it is on its way."""
        self.backlog.setdefault(place, deque()).append(event)

    def turn(self, *events: e.Event) -> None:
        """Apply events and decide once, as the shell's loop does."""
        now = self.machine.now
        self.log.append((now, events))
        for event in events:
            self.checks.before(event)
            self.coordinator.apply(event, now)
        commands = self.coordinator.step(now)
        self.digest.update(encoded(now, events, commands))
        self.checks.after(events, commands)
        for command in commands:
            self._take(command)

    def deliver(self, place: Place, count: int = 1) -> None:
        """Show the next events of one object."""
        waiting = self.backlog[place]
        events = [waiting.popleft() for _ in range(min(count, len(waiting)))]
        if not waiting:
            del self.backlog[place]
        self.turn(*events)

    def carry_out(self, key: object, outcome: str = "ok") -> None:
        """Carry out the first command of a chain. ``outcome``: ok (what the API server says),
        lost (it took effect, the answer did not come), unsent, or a status code.
        """
        command = self.chains[key].popleft()
        if not self.chains[key]:
            del self.chains[key]
        code, made = 0, None
        if outcome in ("ok", "lost"):
            code, made = self.machine.api.carry_out(command)
        if outcome in ("lost", "unsent"):
            code, made = 0, None
        elif outcome != "ok":
            code = int(outcome)
            if isinstance(command, c.Bind) and code == 409:
                made = deepcopy(self.machine.api.get(PODS, command.name, command.namespace))
                code = 409 if made else 404
        message = (made or {}).get("message", "") if code == 403 else ""
        given = made if code < 300 or isinstance(command, c.Bind) else None
        reason = c.OWNED if isinstance(command, c.Create) and code == 200 else ""
        self.replies.append(e.Done(command.id, code, reason, message or outcome, given))

    def pending(self) -> list[Write]:
        """Commands that nobody has carried out yet."""
        return [command for chain in self.chains.values() for command in chain]

    def _take(self, command: c.Command) -> None:
        match command:
            case c.Answer(token, error):
                self.machine.scheduler.answered(token, error)
            case c.WakeAt(at):
                self.wakes.add(at)
            case c.Notice():
                self.notices.append(command)
            case c.Bind():
                self.chains[command.id] = deque([command])
            case c.Create() | c.Patch() | c.Delete():
                place = (command.resource, command.namespace, written(command))
                dry = isinstance(command, c.Create) and command.dry_run
                self.chains.setdefault(command.id if dry else place, deque()).append(command)
            case _:
                raise AssertionError(f"nobody carries out {command!r}")


class Machine(Truth):
    """The world of one story."""

    def __init__(self, rules: Rules = RULES, replicas: int = 1) -> None:
        self.now = START
        self.rules = rules
        self.api = Api(lambda: self.now)
        self.api.watchers.append(self._saw)
        #: (uid, node) of every pod that was bound at any time.
        self.bound_ever: set[tuple[str, str]] = set()
        self.leader: Replica | None = None
        self.scheduler = Scheduler(self.api, lambda: self.leader, "muster")
        #: Nodes that may be over-committed without Muster's doing.
        self.excused: set[str] = set()
        #: Nodes without a kubelet: nobody ends their pods.
        self.dead: set[str] = set()
        self.epoch = 0
        #: Name of every pod that was bound, in that order.
        self.binding_order: list[str] = []
        self.faults: list[Fault] = []
        #: Pods that are being deleted stay.
        self.lingering = False
        #: What an old leader had sent when it lost the Lease, and may still take effect.
        self.stragglers: list[Write] = []
        self.replicas = [Replica(f"r{i}", self, rules) for i in range(replicas)]
        for replica in self.replicas:
            replica.turn(e.Synced())
        self.gain(self.replicas[0])

    def _saw(self, place: Place, event: e.Event) -> None:
        if isinstance(event, e.PodSeen) and event.pod.spec.node_name:
            bound = (event.pod.metadata.uid, event.pod.spec.node_name)
            if bound not in self.bound_ever:
                self.bound_ever.add(bound)
                self.binding_order.append(event.pod.metadata.name)

    # -- leadership

    def gain(self, replica: Replica) -> None:
        """The replica leads; what was written before has reached it (the old Lease has run out)."""
        self.epoch += 1
        self.leader = replica
        for place in list(replica.backlog):
            replica.deliver(place, 10_000)
        replica.turn(e.LeaderGained(self.epoch))

    def lose(self) -> None:
        """Nobody leads; what the old leader had not sent is not sent any more."""
        replica, self.leader = self.leader, None
        assert replica is not None
        replica.turn(e.LeaderLost())
        self.stragglers = replica.pending()
        for command in self.stragglers:
            replica.replies.append(e.Done(command.id, 0, "NotLeader"))
        replica.chains.clear()

    # -- time and rest

    def advance(self, seconds: float) -> None:
        """Time passes; timers that come due fire."""
        self.now += seconds
        self.scheduler.tick(self.now, self.rules.bind_timeout)
        for replica in self.replicas:
            due = {at for at in replica.wakes if at <= self.now}
            replica.wakes -= due
            if due:
                replica.turn(e.Tick())

    def kubelet(self) -> None:
        """Pods that are being deleted are gone."""
        for pod in self._terminating():
            self.api.remove(place_of(pod))

    def flush(self) -> None:
        """Let everything that is under way arrive, and what follows from it, at this instant."""
        for _ in range(2_000):
            if not self._something():
                if not self._terminating():
                    return
                self.kubelet()
        raise AssertionError("livelock: something is always under way at one instant")

    def rest(self, seconds: float = PATIENCE) -> None:
        """No more faults: let time pass until nothing is due, or the patience is over."""
        until = self.now + seconds
        self.flush()
        while (at := self._next_time()) <= until:
            self.advance(max(0.0, at - self.now))
            self.flush()

    def _next_time(self) -> float:
        wakes = [at for replica in self.replicas for at in replica.wakes]
        return min([*wakes, self.scheduler.next_time(self.rules.bind_timeout)])

    def _terminating(self) -> list[Raw]:
        """Pods that are being deleted, where there is a kubelet that can end them."""
        return [
            pod
            for pod in (() if self.lingering else self.api.pods())
            if "deletionTimestamp" in pod["metadata"]
            and pod["spec"].get("nodeName") not in self.dead
        ]

    def _outcome(self, command: Write) -> str:
        return next((f.outcome for f in self.faults if f.hits(command)), "ok")

    def _something(self) -> bool:
        busy = False
        for replica in self.replicas:
            for key in list(replica.chains):
                while key in replica.chains:
                    outcome = self._outcome(replica.chains[key][0])
                    if outcome == "hold":
                        break
                    replica.carry_out(key, outcome)
                    busy = True
            events = [*replica.replies, *replica.inbox]
            replica.replies.clear()
            replica.inbox.clear()
            for waiting in replica.backlog.values():
                events.extend(waiting)
            replica.backlog.clear()
            due = {at for at in replica.wakes if at <= self.now}
            replica.wakes -= due
            if events or due:
                replica.turn(*events)
                busy = True
        for place in self.scheduler.ready():
            self.scheduler.cycle(place)
            busy = True
        return busy

    # -- what tests look at

    def bound(self, prefix: str = "") -> dict[str, str]:
        """Pod name → node, of bound pods that have not ended."""
        return {
            pod["metadata"]["name"]: pod["spec"]["nodeName"]
            for pod in self.api.pods()
            if pod["spec"].get("nodeName") and pod["metadata"]["name"].startswith(prefix)
        }

    def finish(self) -> None:
        """At rest: what must be true of every gang (liveness), and of the books."""
        assert self.leader is not None
        self.leader.checks.at_rest()


def place_of(raw: Raw) -> Place:
    """Where a pod or node of the API server is."""
    meta = raw["metadata"]
    return (
        (PODS, meta["namespace"], meta["name"])
        if "containers" in raw["spec"]
        else (
            NODES,
            "",
            meta["name"],
        )
    )


def encoded(now: float, events: tuple[e.Event, ...], commands: list[c.Command]) -> bytes:
    """One turn as bytes, to compare logs."""
    return msgspec.json.encode((now, events, commands))
