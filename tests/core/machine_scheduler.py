"""kube-scheduler as it meets an extender: one pod at a time, nominated node first, then all names.

What facts/controlplane.md measured of it, without time of its own: the machine says when it
cycles. ``hidden`` are constraints that Muster does not model: (GPUs asked, node) that the in-tree
filters refuse.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct, convert

from extender.core import events as e
from extender.core import objects as o
from extender.core.api import NODES, PODS
from extender.core.shape import pinned_node
from tests.builders import GPU
from tests.core.machine_api import Api, Place, Raw, ended, gpus

if TYPE_CHECKING:
    from tests.core.machine import Replica

#: podInitialBackoffSeconds.
BACKOFF = 1.0


class OpenBind(Struct):
    """A /bind that kube-scheduler waits for."""

    place: Place
    uid: str
    node: str
    since: float
    replica: Any


class Scheduler:
    """The queue and the cache of one kube-scheduler."""

    def __init__(self, api: Api, leader: Callable[[], Replica | None], name: str) -> None:
        self.api, self.leader, self.name = api, leader, name
        self.active: set[Place] = set()
        self.parked: set[Place] = set()
        self.backoff: dict[Place, float] = {}
        #: uid → node of pods whose /bind is open.
        self.assumed: dict[str, str] = {}
        self.open: dict[int, OpenBind] = {}
        self.hidden: set[tuple[int, str]] = set()
        #: Names of pods that it does not come to.
        self.held_back: set[str] = set()
        self._tokens = 0
        self._writing = False
        api.watchers.append(self.saw)

    def saw(self, place: Place, event: e.Event) -> None:
        """What its own watch shows; never late."""
        if place[0] == NODES:
            self._wake_parked()
        if place[0] != PODS:
            return
        raw = self.api.objects.get(place)
        if raw is None or not self._waits(raw):
            self.active.discard(place)
            self.parked.discard(place)
            self.backoff.pop(place, None)
            if raw is None:
                self._wake_parked()
            return
        queued = place in self.backoff or raw["metadata"]["uid"] in self.assumed
        if not queued and not (self._writing and place in self.parked):
            self.parked.discard(place)
            self.active.add(place)

    def cycle(self, place: Place) -> None:
        """One scheduling cycle of one pod, up to its /bind."""
        self.active.discard(place)
        raw = self.api.objects.get(place)
        if raw is None or not self._waits(raw) or raw["metadata"]["uid"] in self.assumed:
            return
        replica = self.leader()
        if replica is None:
            self._again(place)
            return
        pod = convert(raw, o.Pod)
        names = self.feasible(raw)
        nominated = pod.status.nominated_node_name
        if nominated in names and self._ask(replica, pod, [nominated], place):
            return
        if names and self._ask(replica, pod, names, place):
            return
        said = "0/n nodes are available: " + (self._said if names else "n in-tree filters refuse.")
        self.parked.add(place)
        self._condition(place, "Unschedulable", said)

    def feasible(self, raw: Raw) -> list[str]:
        """Nodes that the in-tree filters let through."""
        pin, asked = pinned_node(convert(raw, o.Pod).spec), gpus(raw)
        found = []
        for (resource, _, name), node in sorted(self.api.objects.items(), key=str):
            if resource != NODES or node["spec"].get("unschedulable") or (pin or name) != name:
                continue
            if (asked, name) not in self.hidden and self.free(name) >= asked:
                found.append(name)
        return found

    def free(self, name: str) -> int:
        """GPUs that neither a bound nor an assumed pod takes."""
        node = self.api.objects[NODES, "", name]
        left = int(node["status"]["allocatable"].get(GPU, 0))
        for pod in self.api.pods():
            on = pod["spec"].get("nodeName") or self.assumed.get(pod["metadata"]["uid"])
            if on == name and not ended(pod):
                left -= gpus(pod)
        return left

    def answered(self, token: int, error: str) -> None:
        """An answer to /bind has come over the wire."""
        bind = self.open.pop(token, None)
        if bind is not None:
            self._over(bind, error)

    def abandon(self, token: int) -> None:
        """The call's deadline has passed, or its connection broke."""
        bind = self.open.pop(token)
        bind.replica.inbox.append(e.BindAbandoned(token))
        self._over(bind, "timeout")

    def tick(self, now: float, timeout: float) -> None:
        """Let time do its part."""
        for token, bind in list(self.open.items()):
            if now - bind.since >= timeout:
                self.abandon(token)
        for place, at in list(self.backoff.items()):
            if at <= now:
                del self.backoff[place]
                self.active.add(place)

    def next_time(self, timeout: float) -> float:
        """When :meth:`tick` has something to do."""
        deadlines = [bind.since + timeout for bind in self.open.values()]
        return min([*deadlines, *self.backoff.values()], default=float("inf"))

    def _waits(self, raw: Raw) -> bool:
        spec, meta = raw["spec"], raw["metadata"]
        mine = spec["schedulerName"] == self.name and not spec.get("nodeName")
        return (
            mine
            and not spec.get("schedulingGates")
            and not ended(raw)
            and "deletionTimestamp" not in meta
        )

    def _ask(self, replica: Replica, pod: o.Pod, names: list[str], place: Place) -> bool:
        answer = replica.view.filter(pod, names)
        assert set(answer.passed) <= set(names), "claims a filtered node"
        if answer.event is not None:
            replica.inbox.append(answer.event)
        self._said = f"{len(names)} {answer.message}."
        if not answer.passed:
            return False
        scores = replica.view.prioritize(pod, answer.passed)
        node = max(zip(scores, answer.passed, strict=True))[1]
        self.ask_to_bind(replica, place, pod.metadata.uid, node)
        return True

    def ask_to_bind(self, replica: Replica, place: Place, uid: str, node: str) -> None:
        """Call /bind."""
        self._tokens += 1
        self.assumed[uid] = node
        self.open[self._tokens] = OpenBind(place, uid, node, self.api.clock(), replica)
        replica.inbox.append(e.BindAsked(self._tokens, place[1], place[2], uid, node))

    def ready(self) -> list[Place]:
        """Pods that it may cycle next, in a stable order."""
        ready = (place for place in self.active if place[2] not in self.held_back)
        return sorted(ready, key=str)

    def _over(self, bind: OpenBind, error: str) -> None:
        self.assumed.pop(bind.uid, None)
        raw = self.api.objects.get(bind.place)
        if error and raw is not None and raw["metadata"]["uid"] == bind.uid and self._waits(raw):
            self._again(bind.place)
            self._condition(bind.place, "SchedulerError", f"binding rejected: {error}")
        if error:
            self._wake_parked()

    def _again(self, place: Place) -> None:
        self.active.discard(place)
        self.backoff[place] = self.api.clock() + BACKOFF

    def _wake_parked(self) -> None:
        self.active |= self.parked
        self.parked.clear()

    def _condition(self, place: Place, reason: str, message: str) -> None:
        """Patch PodScheduled, and clear the nomination, as a failed cycle does."""
        row = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
        self._writing = True
        status = {"conditions": [row], "nominatedNodeName": None}
        self.api.change(place, status=status)
        self._writing = False
