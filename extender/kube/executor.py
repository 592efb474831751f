"""Carries out commands: in lanes, a bounded number at a time, each answered by exactly one Done.

A command waits by lane, namespace and age (:mod:`extender.kube.lanes`). While it rests between
two tries it holds no slot, but it keeps its object's place, so that commands for one object never
overtake each other.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from extender.core.api import PODS
from extender.core.commands import OWNED, Bind, Create, Lane, Notice
from extender.core.errors import ApiError
from extender.core.events import Done
from extender.core.verdict import Inbox
from extender.kube.backoff import Backoff
from extender.kube.complaints import Complaints
from extender.kube.lanes import Lanes
from extender.kube.replies import Reply, Requests
from extender.kube.requests import (
    NO_RIGHT,
    RETRIED,
    Request,
    Write,
    bound_as_asked,
    judged,
    lane_of,
    object_in,
    of_job,
    order_key,
    owned_alike,
    request_of,
    told_of,
    wanted_right,
)
from extender.obs.events import EventWriter
from extender.obs.log import logger
from extender.obs.metrics import Metrics

_Key = tuple[str, str, str]


class Stands(Protocol):
    """Whether a command is still to be sent; ``again``: it was tried before."""

    def __call__(self, command: Write, *, again: bool) -> bool: ...


#: Seconds that a Service waits for what is more urgent.
SERVICE_PATIENCE = 5.0

_log = logger("executor")


class _Job(Struct, eq=False):
    """A command on its way. ``started`` is the time of its first try, None before."""

    command: Write
    lane: Lane
    order: int
    key: _Key | None
    backoff: Backoff
    #: When it was handed over.
    taken: float
    request: Request | None = None
    started: float | None = None


class Executor:
    """Runs commands against one API server. All methods belong to the event loop's thread."""

    def __init__(
        self,
        client: Requests,
        inbox: Inbox,
        may_write: Callable[[], bool],
        metrics: Metrics,
        rng: random.Random,
        *,
        clock: Callable[[], float],
        concurrency: int = 48,
        patience: float = 20.0,
        events: EventWriter | None = None,
        complaints: Complaints | None = None,
        stands: Stands = lambda command, *, again: True,
    ) -> None:
        """``concurrency`` bounds requests in flight, of which a quarter is for binds alone.

        ``patience`` bounds the seconds from a command's first try to its last; ``events`` takes
        the Notices, which are dropped without it; ``complaints`` the rights that are missing.
        ``stands``: whether a command is still to be sent, asked before each try.
        """
        self._client = client
        self._inbox = inbox
        self._may_write = may_write
        self._metrics = metrics
        self._rng = rng
        self._clock = clock
        self._unreserved = max(1, concurrency - concurrency // 4)
        self._services = max(1, concurrency // 8)
        self._concurrency = concurrency
        self._patience = patience
        self._events = events
        self._complaints = complaints or Complaints()
        self._stands = stands
        self._order = 0
        #: Ready to be sent.
        self._ready: Lanes[_Job] = Lanes()
        #: Services that are, apart: what is more urgent never ends while a cluster is busy.
        self._ready_services: Lanes[_Job] = Lanes()
        #: Jobs behind the one that holds their object's place.
        self._chains: dict[_Key, deque[_Job]] = {}
        #: Between two tries.
        self._resting: dict[_Job, asyncio.TimerHandle] = {}
        self._running: dict[asyncio.Task[None], _Job] = {}
        #: Of those that run, how many are Services.
        self._serving = 0
        #: Jobs in chains.
        self._behind = 0
        self._open = True
        self._abandoned = False
        self._idle = asyncio.Event()
        self._idle.set()
        # Read as they are scraped: to keep them costs more than the lanes.
        metrics.commands_waiting.set_function(self._waiting)
        metrics.commands_running.set_function(lambda: len(self._running))

    def submit(self, command: Write | Notice) -> None:
        """Take a command; never blocks. After :meth:`drain` it is refused as not sent."""
        if isinstance(command, Notice):
            if self._events is not None and self._may_write():
                self._events.put(command)
            return
        job = _Job(
            command,
            lane_of(command),
            self._order,
            order_key(command),
            Backoff(self._rng, first=0.1, most=5.0),
            self._clock(),
        )
        self._order += 1
        if not self._open:
            self._answer(job, _STOPPED)
            return
        self._idle.clear()
        if job.key is not None:
            chain = self._chains.get(job.key)
            if chain is not None:
                chain.append(job)
                self._behind += 1
                return
            self._chains[job.key] = deque()
        self._enqueue(job)

    @property
    def unfinished(self) -> int:
        """Commands that were taken and are not answered."""
        return self._waiting() + len(self._running) + len(self._resting)

    def _waiting(self) -> int:
        return len(self._ready) + len(self._ready_services) + self._behind

    @property
    def busy(self) -> bool:
        """Whether more is to be written than Events should stand beside."""
        return self.unfinished > _FEW

    async def drain(self, timeout: float) -> bool:  # noqa: ASYNC109 (seconds to finish what runs)
        """Take nothing more and finish what was taken; whether that was done in time.

        What is left then is cancelled, and answered as unknown: the Lease must not be released.
        """
        self._open = False
        try:
            async with asyncio.timeout(timeout):
                await self._idle.wait()
        except TimeoutError:
            _log.warning("commands left unfinished", running=len(self._running))
            return False
        finally:
            await self._abandon()
        return True

    def _enqueue(self, job: _Job) -> None:
        self._make_ready(job)
        self._pump()

    def _make_ready(self, job: _Job) -> None:
        ready = self._ready_services if job.lane == Lane.SERVICE else self._ready
        ready.push(job, job.lane, job.command.namespace, job.order)

    def _pump(self) -> None:
        """Start what may be started."""
        while not self._abandoned and (job := self._next()) is not None:
            self._serving += job.lane == Lane.SERVICE
            task = asyncio.get_running_loop().create_task(self._try(job))
            self._running[task] = job
            task.add_done_callback(self._ended)

    def _next(self) -> _Job | None:
        """The next to start, if a slot is free for it: the last quarter of them is for binds.

        Services, which a pod has no use for before it is ready, take an eighth while nothing else
        is to be done; those that have waited for SERVICE_PATIENCE go before all but binds.
        """
        running = len(self._running)
        if self._ready and self._ready.first().lane == Lane.BIND:
            return self._ready.pop() if running < self._concurrency else None
        if running >= self._unreserved:
            return None
        if self._ready_services and self._serving < self._services:
            idle = not self._ready and running == self._serving
            waited = self._clock() - self._ready_services.first().taken
            if idle or waited >= SERVICE_PATIENCE:
                return self._ready_services.pop()
        return self._ready.pop() if self._ready else None

    async def _try(self, job: _Job) -> None:
        """One try: then an answer, or a rest and another."""
        again = job.started is not None
        if job.started is None:
            job.started = self._clock()
        stands = self._stands(job.command, again=again)
        reply = await self._perform(job) if stands else _CHANGED
        self._tell(job.command, reply)
        left = job.started + self._patience - self._clock()
        pause = job.backoff.pause(reply.retry_after)
        if reply.code not in RETRIED or reply.reason in _FINAL or pause > left:
            self._finish(job, reply)
            return
        self._metrics.retries.labels(type(job.command).__name__, str(reply.code)).inc()
        loop = asyncio.get_running_loop()
        self._resting[job] = loop.call_later(pause, self._rested, job)

    async def _perform(self, job: _Job) -> Reply:
        if job.request is None:
            try:
                job.request = request_of(job.command)
            except TypeError as error:
                return Reply(400, reason="BadRequest", message=f"cannot be encoded: {error}")
        reply = await self._send(job.request)
        if reply.code == 409:
            if isinstance(job.command, Bind):
                return await self._judge(job.command, reply)
            if isinstance(job.command, Create) and of_job(job.command):
                return await self._whose(job.command, reply)
        return judged(job.command, reply)

    def _tell(self, command: Write, reply: Reply) -> None:
        """A missing right concerns nobody's object: only the log can say it, and what to do."""
        if reply.reason == NO_RIGHT:
            error = ApiError(403, "Forbidden", reply.message)
            self._complaints.wrong(wanted_right(command), error)
        elif reply.ok:
            self._complaints.right(wanted_right(command))

    async def _judge(self, bind: Bind, refusal: Reply) -> Reply:
        """A Binding that conflicts may be the echo of one that took effect: look at the pod."""
        got = await self._send(Request("GET", PODS.path(bind.namespace, bind.name), b""))
        if not got.ok:
            return got if got.code == 404 or got.code in RETRIED else refusal
        pod = object_in(got)
        if pod is not None and bound_as_asked(bind, pod):
            return Reply(201, got.body, "AlreadyBound")
        return Reply(409, got.body, refusal.reason, refusal.message)

    async def _whose(self, create: Create, refusal: Reply) -> Reply:
        """What exists already may be the echo of a create that took effect, or of an earlier life."""
        name = create.body["metadata"]["name"]
        path = create.resource.path(create.namespace, name)
        got = judged(create, await self._send(Request("GET", path, b"")))
        if not got.ok:
            # Gone since: the next try makes it.
            return got if got.code in RETRIED else replace(refusal, code=503)
        found = object_in(got)
        if found is not None and owned_alike(create, found):
            return Reply(200, reason=OWNED)
        return Reply(409, reason=refusal.reason, message=refusal.message)

    async def _send(self, request: Request) -> Reply:
        if not self._may_write():
            return _NOT_LEADER
        return await self._client.send(
            request.method,
            request.path,
            query=request.query,
            body=request.body or None,
            content_type=request.content_type,
        )

    def _rested(self, job: _Job) -> None:
        del self._resting[job]
        self._enqueue(job)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A try is over. One that was cancelled, or failed by a fault of ours, is answered too."""
        job = self._running.pop(task)
        self._serving -= job.lane == Lane.SERVICE
        if task.cancelled():
            self._finish(job, Reply(0, reason="Cancelled", message="Muster is stopping"))
        elif (error := task.exception()) is not None:
            _log.error("fault in the executor", command=repr(job.command), exc_info=error)
            self._finish(job, Reply(0, reason="Internal", message=repr(error)))
        self._pump()
        if not (self._running or self._ready or self._ready_services or self._resting):
            self._idle.set()

    def _finish(self, job: _Job, reply: Reply) -> None:
        self._answer(job, reply)
        if job.key is None:
            return
        chain = self._chains[job.key]
        if chain:
            self._behind -= 1
            self._make_ready(chain.popleft())
        else:
            del self._chains[job.key]

    def _answer(self, job: _Job, reply: Reply) -> None:
        kind = type(job.command).__name__
        self._metrics.commands.labels(kind, _result(reply)).inc()
        if job.started is not None:
            self._metrics.command_seconds.labels(kind).observe(self._clock() - job.started)
        found = told_of(job.command, reply)
        self._inbox.put(Done(job.command.id, reply.code, reply.reason, reply.message, found))

    async def _abandon(self) -> None:
        """Answer everything that is left: sent as unknown, not sent as such."""
        self._abandoned = True
        for job, timer in list(self._resting.items()):
            timer.cancel()
            self._finish(job, Reply(0, reason="Cancelled", message="Muster is stopping"))
        self._resting.clear()
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while ready := self._ready or self._ready_services:
            self._finish(ready.pop(), _STOPPED)
        self._idle.set()


#: Commands under way beside which an Event is written as soon as it is there.
_FEW = 8
_NOT_LEADER = Reply(0, reason="NotLeader", message="this replica does not hold the Lease")
_STOPPED = Reply(0, reason="Stopped", message="Muster is stopping")
_CHANGED = Reply(0, reason="Changed", message="not sent: what it follows from has changed")
#: Reasons of an absent answer that no further try can change.
_FINAL = frozenset({"NotLeader", "Changed"})


def _result(reply: Reply) -> str:
    if reply.ok:
        return "ok"
    if reply.code:
        return "refused"
    return "not_leader" if reply.reason == "NotLeader" else "unknown"
