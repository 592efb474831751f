"""What gangs live and die on: one Muster, the in-memory API server, a scheduler and kubelets.

The programs and links are the simulation's, on its virtual time and in good weather; nobody judges,
as a judge remembers.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from extender.chaos import workloads
from extender.chaos.clock import Process, VirtualLoop
from extender.chaos.judge import Judge
from extender.chaos.network import Link, LinkClient, Listener, Server, Weather
from extender.chaos.plant import EPOCH, EXTENDERS, SCHEDULER, settings
from extender.chaos.plant import NAMESPACE as OWN
from extender.chaos.replica import Replica, Way
from extender.core import api
from extender.core.answers import StateView
from extender.core.api import Resource
from extender.core.commands import Bind, Create, Delete, Notice, Patch
from extender.core.errors import ApiError
from extender.core.events import Event
from extender.core.objects import Manifest
from extender.sim.extenders import Extender
from extender.sim.kubelet import Kubelet
from extender.sim.patches import merge
from extender.sim.rest import Rest
from extender.sim.scheduler import Scheduler
from extender.sim.store import Store

POD = "muster-0"
NODES, GPUS = 8, 4
#: Changes that a watch may go back; no watch is slower here.
HISTORY = 2_000
#: Seconds between two looks of who waits for something.
_LOOK = 1.0


class Careless(Judge):
    """Keeps nothing."""

    def bind_opened(self, link: Link, uid: str) -> None:
        """Somebody asked."""

    def bind_closed(self, link: Link, uid: str) -> None:
        """And went."""

    def preempt_answered(self, link: Link, asked: bytes, answer: bytes) -> None:
        """Whatever it was."""


class Cluster(Listener):
    """Eight nodes of four GPUs, and what runs beside them. The loop must be running."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.weather, self.unreachable = Weather(), set[str]()
        self._loop = loop
        self._uids = 0
        self.store = Store(self.wall, self._uid, history=HISTORY)
        self._server = Server(Rest(self.store))
        self._create(api.NAMESPACES, "", {"metadata": {"name": OWN}})
        self._create(api.PRIORITY_CLASSES, "", {"metadata": {"name": "high"}, "value": 1000})
        spec: Manifest = {
            "nodeName": "control",
            "containers": [{"name": "muster", "image": "muster"}],
        }
        self._create(api.PODS, OWN, {"metadata": {"name": POD}, "spec": spec})
        for at in range(NODES):
            self._create(api.NODES, "", workloads.node(f"n{at}", GPUS))
            self.store.replace(
                api.NODES, "", f"n{at}", lambda node: merge(node, {"spec": {"taints": None}})
            )
        options = settings()
        self.link = self._link(POD, timeout=10.0)
        judge, rng = Careless(loop.time), random.Random(POD)
        self.replica = Replica(
            options, POD, f"{POD}_1", self.link, judge, rng, loop.time, self.wall
        )
        #: The longest that each queue has been.
        self.longest = Counter[str]()
        self._measure(self.replica)
        self.replica.start()
        way = Way(self, random.Random("way"))
        scheduler = Scheduler(
            LinkClient(self._link("kube-scheduler")),
            [Extender.from_config(entry) for entry in EXTENDERS],
            names=[SCHEDULER],
            max_backoff=options.muster.pod_max_backoff_seconds,
            now=self.wall,
            post=way.post,
        )
        self._start("kube-scheduler", scheduler.run())
        kubelet = Kubelet(LinkClient(self._link("kubelets")), start_seconds=0.5, now=self.wall)
        self._start("kubelets", kubelet.run())

    def wall(self) -> float:
        """Seconds since the epoch."""
        return EPOCH + self._loop.time()

    def endpoint(self) -> Replica | None:
        """There is one only."""
        return self.replica

    def faults(self) -> list[str]:
        """What has failed by itself."""
        return [
            *(["a fault in the core"] * self.replica.loop.faults),
            *(repr(error) for error in self.replica.failures),
            *self._loop.faults,
        ]

    async def until(self, holds: Callable[[], bool], what: str, longest: float = 900.0) -> None:
        """Wait until something holds; TimeoutError names what did not within so many seconds."""
        end = self._loop.time() + longest
        while not holds():
            if self._loop.time() > end:
                raise TimeoutError(f"{what}: not within {longest:.0f} virtual seconds")
            await asyncio.sleep(_LOOK)

    async def end(self) -> None:
        """Stop everything."""
        mine = asyncio.current_task()
        left = [task for task in asyncio.all_tasks() if task is not mine]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    # --- what users do

    def create(self, resource: Resource, body: Manifest) -> None:
        self._create(resource, workloads.NAMESPACE, body)

    def delete(self, resource: Resource, name: str) -> None:
        """What is gone already is none of anybody's business."""
        try:
            self.store.delete(resource, workloads.NAMESPACE, name)
        except ApiError as error:
            if error.code != 404:
                raise

    def pod(self, name: str) -> Manifest | None:
        return self.find(api.PODS, name)

    def find(self, resource: Resource, name: str) -> Manifest | None:
        try:
            return self.store.get(resource, workloads.NAMESPACE, name)
        except ApiError:
            return None

    def reason(self, name: str) -> str:
        """Why the gang of this name waits, as ``/debug/gangs`` says; "" if it does not."""
        view = StateView(self.replica.loop.coordinator.state, lambda: True)
        told = view.gang(workloads.NAMESPACE, name)
        return str(told["reasons"][0]["code"]) if told and told["reasons"] else ""

    def forget_events(self) -> None:
        """They live for an hour."""
        for event in self.store.list(api.EVENTS):
            meta = event["metadata"]
            self.store.delete(api.EVENTS, meta["namespace"], meta["name"])

    # --- parts

    def _create(self, resource: Resource, namespace: str, body: Manifest) -> None:
        self.store.create(resource, namespace, body)

    def _link(self, name: str, timeout: float = 30.0) -> Link:
        rng = random.Random(f"link {name}")
        return Link(Process(name), self._server, self.weather, rng, self, timeout=timeout)

    def _start(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        Process(name).start(work)

    def _uid(self) -> str:
        self._uids += 1
        return f"uid-{self._uids:06}"

    def _measure(self, replica: Replica) -> None:
        """Look at each queue whenever something is put into it."""
        put, submit, notice = replica.loop.put, replica.executor.submit, replica.events.put

        def put_(event: Event) -> None:
            put(event)
            self._note("inbox", replica.loop.waiting)

        def submit_(command: Bind | Create | Patch | Delete | Notice) -> None:
            submit(command)
            self._note("commands", replica.executor.unfinished)
            self._note("open /bind", len(replica.bindings))

        def notice_(command: Notice) -> None:
            notice(command)
            self._note("notices", replica.events.waiting)

        replica.loop.put = put_  # type: ignore[method-assign]  # measured from outside
        replica.events.put = notice_  # type: ignore[method-assign, assignment]
        replica.loop.connect(replica.bindings.resolve, submit_)

    def _note(self, queue: str, length: int) -> None:
        self.longest[queue] = max(self.longest[queue], length)
