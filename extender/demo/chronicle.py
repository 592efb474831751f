"""What the API's watches showed, and the figures that follow from it; nothing comes from Muster.

A gang *waits* at a moment when it is not whole and the nodes, less what other pods hold, have no
room for all of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from extender.core import api
from extender.core.advising import ADVICE
from extender.core.objects import Manifest
from extender.sim.client import Client
from extender.sim.fleet import GPU

_ENDED = ("Succeeded", "Failed")


@dataclass
class Gang:
    """One gang as it was seen."""

    name: str
    #: How many members its manifest asks for, with how many GPUs each.
    size: int
    gpus: int
    #: minMember of its PodGroup.
    members: int = 0
    #: Pod name to node ("" before it is bound) and phase.
    pods: dict[str, tuple[str, str]] = field(default_factory=dict)
    #: The most members that were bound at one moment; and that while it waited.
    bound: int = 0
    max_bound_while_waiting: int = 0
    #: Its nodes, in the order in which members came to them.
    nodes: list[str] = field(default_factory=list)
    #: The sentence that it waits with at the moment, and the first that named what was missing.
    reason: str = ""
    waited_for: str = ""
    #: Condition types of its job in the order in which they came true.
    states: list[str] = field(default_factory=list)
    #: Seconds on the chronicle's clock; None: not seen yet.
    first_bound_at: float | None = None
    whole_at: float | None = None

    def count(self, *, live: bool = False) -> int:
        """Members that are on a node; ``live``: and have not ended."""
        return sum(
            bool(node) and not (live and phase in _ENDED) for node, phase in self.pods.values()
        )

    def whole(self) -> bool:
        return self.count() >= self.size

    def ended(self) -> bool:
        """Every member has run to its end (a job takes away what still runs then)."""
        return self.bound >= self.size and not self.count(live=True)


class Chronicle:
    """Follows the cluster and keeps the books."""

    def __init__(self, client: Client, namespace: str, gangs: Iterable[Gang]) -> None:
        self.gangs = {gang.name: gang for gang in gangs}
        #: GPUs by node, as the watch shows them.
        self.nodes: dict[str, int] = {}
        #: GPUs of nodes that the story adds, from before the request: the watches of nodes and of
        #: pods are two streams, and a pod may be seen on a node before the node is.
        self.announced: dict[str, int] = {}
        self.over_committed: list[str] = []
        self.changed: Callable[[], None] = lambda: None
        self._client = client
        self._namespace = namespace
        self._news = asyncio.Condition()

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Watch inside the ``with``."""
        kinds = {
            api.NODES: self._node,
            api.PODS: self._pod,
            api.VOLCANO_GROUPS: self._group,
            api.PYTORCH_JOBS: self._job,
        }
        tasks = [asyncio.create_task(self._follow(*item)) for item in kinds.items()]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def until(self, condition: Callable[[], bool], what: str, patience: float) -> None:
        """Wait until something was seen. Raises TimeoutError that says what was not."""
        try:
            async with asyncio.timeout(patience), self._news:
                await self._news.wait_for(condition)
        except TimeoutError:
            raise TimeoutError(f"not seen within {patience:g} s: {what}") from None

    def used(self, node: str) -> list[tuple[str, int]]:
        """Pods that hold GPUs of a node, with how many."""
        return [
            (name, gang.gpus)
            for gang in self.gangs.values()
            for name, (where, phase) in sorted(gang.pods.items())
            if where == node and phase not in _ENDED
        ]

    def room(self, gang: Gang) -> int:
        """How many members the nodes could hold beside the pods of others."""
        total = 0
        for node, gpus in (self.announced | self.nodes).items():
            others = sum(n for name, n in self.used(node) if name not in gang.pods)
            total += (gpus - others) // gang.gpus
        return total

    async def _follow(self, resource: api.Resource, note: Callable[[str, Manifest], None]) -> None:
        namespace = self._namespace if resource.namespaced else None
        async for kind, objects in self._client.follow(resource, namespace):
            async with self._news:
                for each in objects:
                    note(kind, each)
                self._news.notify_all()
            self.changed()

    def _node(self, kind: str, node: Manifest) -> None:
        name = node["metadata"]["name"]
        self.nodes[name] = int(node["status"]["allocatable"].get(GPU, 0))
        if kind == "DELETED":
            del self.nodes[name]

    def _pod(self, kind: str, pod: Manifest) -> None:
        name = pod["metadata"]["name"]
        gang = self._gang_of(name)
        if gang is None:
            return
        if kind == "DELETED":
            gang.pods.pop(name, None)
        else:
            node = pod["spec"].get("nodeName", "")
            gang.pods[name] = (node, pod.get("status", {}).get("phase", ""))
            if node and node not in gang.nodes:
                gang.nodes.append(node)
        self._count()

    def _count(self) -> None:
        """Figures after a pod's event."""
        now = time.monotonic()
        for gang in self.gangs.values():
            bound = gang.count()
            gang.bound = max(gang.bound, bound)
            if bound and gang.first_bound_at is None:
                gang.first_bound_at = now
            if gang.whole() and gang.whole_at is None:
                gang.whole_at = now
            if gang.whole_at is None and self.room(gang) < gang.size:
                gang.max_bound_while_waiting = max(gang.max_bound_while_waiting, bound)
        for node, gpus in (self.announced | self.nodes).items():
            if sum(n for _, n in self.used(node)) > gpus:
                self.over_committed.append(node)

    def _group(self, kind: str, group: Manifest) -> None:
        gang = self._gang_of(group["metadata"]["name"])
        if gang is None or kind == "DELETED":
            return
        gang.members = group["spec"].get("minMember", 0)
        conditions = group.get("status", {}).get("conditions") or ()
        waits = [c for c in conditions if c["type"] == "Unschedulable" and c["status"] == "True"]
        gang.reason = waits[0]["message"] if waits else ""
        if waits and waits[0].get("reason") == "NotEnoughResources":
            gang.waited_for = gang.waited_for or gang.reason

    def _job(self, kind: str, job: Manifest) -> None:
        gang = self._gang_of(job["metadata"]["name"])
        for condition in job.get("status", {}).get("conditions") or ():
            # Advice is no state of a job.
            state = condition["type"] != ADVICE
            new = state and condition["status"] == "True" and kind != "DELETED"
            if gang is not None and new and condition["type"] not in gang.states:
                gang.states.append(condition["type"])

    def _gang_of(self, name: str) -> Gang | None:
        """By name: pods are called after their gang."""
        for gang in self.gangs.values():
            if name == gang.name or name.startswith(f"{gang.name}-"):
                return gang
        return None
