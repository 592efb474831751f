"""One Muster of the simulation: the parts that extender.runtime puts together, on virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import orjson

from extender.chaos.clock import Process, later
from extender.chaos.judge import Judge
from extender.chaos.network import Link, Weather
from extender.chaos.reading import ReadingLoop
from extender.core.answers import StateView
from extender.core.coordinator import Coordinator
from extender.core.errors import InvalidObject, WireError
from extender.core.standing import stands
from extender.http.verbs import Bindings, Result, Verbs
from extender.jobs import KINDS
from extender.kube.eventwriter import event_writer
from extender.kube.executor import Executor
from extender.kube.lease import LeaderElector, Timing
from extender.kube.reflector import Reflectors
from extender.loop import steady
from extender.obs.metrics import Metrics
from extender.runtime import BIND_SLACK, DRAIN_SECONDS, WATCHED, rules_of
from extender.settings import Settings
from extender.sim.extenders import TIMED_OUT

#: An answer to kube-scheduler: status and body, or Go's words for none.
Posted = tuple[int, bytes] | str

_CLOSED = frozenset({Result.NOT_READY, Result.NOT_LEADER})


class Replica:
    """One life of one replica, from its start until it is killed or stopped."""

    def __init__(
        self,
        settings: Settings,
        pod: str,
        identity: str,
        link: Link,
        judge: Judge,
        rng: random.Random,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        """``clock`` is monotonic, ``wall`` counts from the epoch and may be wrong; in seconds."""
        m, lease = settings.muster, settings.muster.leader_election
        self.pod, self.identity, self.link = pod, identity, link
        self.process: Process = link.process
        self._judge = judge
        #: A background task that ended by itself, which takes the real process down.
        self.failures: list[BaseException] = []
        self.ready = self.stopping = False
        self._bind_seconds = m.bind_timeout_seconds - BIND_SLACK
        self.metrics = metrics = Metrics()
        kinds = {kind.resource: kind for kind in KINDS}
        coordinator = Coordinator(rules_of(settings), settings.session(), kinds)
        view = StateView(coordinator.state, lambda: self.ready)
        self.loop = ReadingLoop(coordinator, metrics, clock=steady(wall, clock), shown=link.shown)
        link.once_read = self.loop.once_read
        bindings = Bindings(self.loop)
        self.elector = LeaderElector(
            link,
            self.loop,
            metrics,
            rng,
            namespace=lease.namespace,
            name=lease.name,
            identity=identity,
            first_epoch=int(wall()),
            timing=Timing(
                lease.lease_duration_seconds,
                lease.renew_deadline_seconds,
                lease.retry_period_seconds,
                drain=lease.renew_deadline_seconds,
            ),
            pod=pod,
            clock=clock,
            wall=wall,
        )
        may_write = self.elector.may_write
        self.events = event_writer(
            link, may_write, metrics, instance=identity, clock=clock, wall=wall
        )
        self.executor = Executor(
            link,
            self.loop,
            may_write,
            metrics,
            rng,
            clock=clock,
            concurrency=m.concurrency,
            events=self.events,
            stands=partial(stands, coordinator.state),
        )
        self.loop.connect(bindings.resolve, self.executor.submit)
        self._reflectors = Reflectors(link, self.loop, WATCHED, metrics, rng)
        self._verbs = Verbs(
            view,
            self.loop,
            bindings,
            metrics=metrics,
            bind_deadline=self._bind_seconds,
            clock=clock,
        )
        self.bindings = bindings
        self._tasks: list[asyncio.Task[Any]] = []

    def start(self) -> None:
        for work in (self.loop.run(), self._reflectors.run(), self.events.run(), self._lead()):
            task = self.process.spawn(work)
            task.add_done_callback(self._ended)
            self._tasks.append(task)

    async def stop(self) -> None:
        """As on SIGTERM: finish what was taken, and give the Lease up."""
        self.ready, self.stopping = False, True
        self.bindings.abandon_all("Muster is stopping; the pod is tried again")
        done = await self.executor.drain(DRAIN_SECONDS)
        leading = self._tasks[-1]
        leading.cancel()
        await asyncio.gather(leading, return_exceptions=True)
        if done:
            await self.elector.release()
        await self.elector.close()

    async def _lead(self) -> None:
        await self._reflectors.synced()
        self.ready = True
        await self.elector.run()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failures.append(error)

    # --- the extender protocol, without HTTP

    def ask(self, verb: str, body: bytes, answer: asyncio.Future[Posted]) -> asyncio.Task[None]:
        """A request has arrived; ``answer`` gets what is to be sent back."""
        handler = self.process.spawn(self._answer(verb, body, answer))
        if verb == "bind":
            uid = orjson.loads(body)["PodUID"]
            self._judge.bind_opened(self.link, uid)
            handler.add_done_callback(lambda _: self._judge.bind_closed(self.link, uid))
        return handler

    async def _answer(self, verb: str, body: bytes, answer: asyncio.Future[Posted]) -> None:
        posted: Posted = "EOF"
        try:
            result, reply = await self._verbs.answer(verb, body)
            posted = (503, b"") if result in _CLOSED else (200, reply)
            if verb == "preempt" and result not in _CLOSED:
                self._judge.preempt_answered(self.link, body, reply)
        except (InvalidObject, WireError) as error:
            # kube-scheduler sends neither.
            self.failures.append(error)
        finally:
            later(self.link.latency(), _post, answer, posted)


def _post(answer: asyncio.Future[Posted], posted: Posted) -> None:
    if not answer.done():
        answer.set_result(posted)


class Endpoints(Protocol):
    """Which replica the Service chooses, and how the way to it is."""

    weather: Weather
    unreachable: set[str]

    def endpoint(self) -> Replica | None:
        """None: it has none."""

    def struck(self) -> None:
        """Something went wrong."""


class Way:
    """kube-scheduler's way to whichever replica the Service chooses."""

    def __init__(self, service: Endpoints, rng: random.Random) -> None:
        self._service, self._rng = service, rng

    async def post(self, url: str, body: bytes, seconds: float) -> Posted:
        """extender.sim.extenders.Post."""
        verb = url.rpartition("/")[2]
        replica = self._service.endpoint()
        await asyncio.sleep(self._latency())
        if replica is None or replica.process.dead:
            return "dial tcp: connect: connection refused"
        answer: asyncio.Future[Posted] = asyncio.get_running_loop().create_future()
        handler = None
        if not self._lost(replica):
            handler = replica.ask(verb, body, answer)
        seen = asyncio.Future[Posted]() if self._lost(replica) else answer
        try:
            async with asyncio.timeout(seconds):
                return await seen
        except TimeoutError:
            return TIMED_OUT
        finally:
            if handler is not None and not handler.done():
                # The server is told that its client left.
                later(self._rng.expovariate(200.0), handler.cancel)

    def _latency(self) -> float:
        seconds = self._rng.expovariate(1000.0)
        if self._rng.random() < self._service.weather.late:
            self._service.struck()
            seconds += self._rng.uniform(0.1, 4.0)
        return seconds

    def _lost(self, replica: Replica) -> bool:
        lost = self._rng.random() < self._service.weather.lost
        if lost or replica.pod in self._service.unreachable:
            self._service.struck()
            return True
        return False
