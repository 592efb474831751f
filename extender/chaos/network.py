"""The way between a client and the in-memory API server, and what goes wrong on it.

A request is on its own once it is sent: it arrives, and its answer returns, whether or not the
client still waits, is paused, or lives. Latencies are independent, so requests overtake each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from functools import partial
from typing import Any

import orjson
from msgspec import Struct

from extender.chaos.clock import Process, later
from extender.core.api import Resource
from extender.core.errors import ApiError, Gone, Unreachable
from extender.core.objects import Manifest
from extender.kube.replies import JSON, Query, Reply
from extender.sim.client import Client
from extender.sim.rest import Answer, Request, Rest
from extender.sim.selectors import Selector
from extender.sim.statuses import render

#: Seconds that a request is waited for where its sender names none (extender.kube.client).
TIMEOUT = 10.0
#: Seconds without a byte after which a watch is given up (extender.kube.client).
WATCH_IDLE = 150.0
#: Seconds between two bookmarks of a watch: each watch has its own.
BOOKMARK_SECONDS = (5.0, 90.0)

_GONE = Reply(0, reason="Unreachable", message="connection reset by peer")
_LATE = Reply(0, reason="Unreachable", message="timed out")


class Weather(Struct):
    """Shares of requests, and of what a watch delivers, that meet each fault."""

    #: It never arrives; the client is told at once (a reset) or by its own time-out.
    lost: float = 0.0
    #: It takes effect and its answer is lost.
    unanswered: float = 0.0
    #: It is refused with 429, 500, 503 or 504; a part of the last two took effect.
    refused: float = 0.0
    #: It arrives seconds later, perhaps after its client has given up.
    late: float = 0.0
    #: A watch ends, breaks, or says nothing more.
    broken: float = 0.0
    #: A watch delivers seconds later.
    lagging: float = 0.0
    #: A watch delivers the same lines twice.
    doubled: float = 0.0
    #: The server has forgotten the version that a watch resumes from.
    forgotten: float = 0.0


class Server:
    """The API server: executes requests, and knows on whose behalf it does."""

    def __init__(self, rest: Rest) -> None:
        self.rest = rest
        #: The link that sent the request under way, and the request; None for everybody else.
        self.author: Link | None = None
        self.request: Request | None = None

    def handle(self, link: Link, request: Request) -> Answer:
        self.author, self.request = link, request
        try:
            return self.rest.handle(request)
        finally:
            self.author = self.request = None


class Listener:
    """Is told of every request of a link, before it travels, and of what goes wrong on the way."""

    def sent(self, link: Link, request: Request) -> None:
        """The client has handed a request over."""

    def struck(self) -> None:
        """Something has gone wrong with a request or a watch."""


class Shown:
    """Which states of one kind a client has been shown, and has read.

    A list shows what is true at its version, a watch all that follows: spans of versions. What came
    and went between two spans was never shown.
    """

    def __init__(self) -> None:
        self._spans: list[tuple[int, int]] = []
        #: A list has come and is not read to its end: no version says what is known of it.
        self.listing = False

    @property
    def version(self) -> int:
        """Up to where."""
        return self._spans[-1][1] if self._spans else 0

    def listed(self, version: int) -> None:
        self.listing = False
        if version > self.version:
            self._spans.append((version, version))

    def watched(self, version: int) -> None:
        """Everything up to ``version`` has come after what was shown before."""
        first, last = self._spans[-1]
        self._spans[-1] = (first, max(last, version))

    def now(self) -> Shown:
        """What has been shown so far."""
        copy = Shown()
        copy._spans, copy.listing = list(self._spans), self.listing
        return copy

    def covers(self, since: int, until: int | None) -> bool:
        """Whether a state was shown that held from ``since`` to before ``until`` (None: holds)."""
        return any(
            last >= since and (until is None or first < until) for first, last in self._spans
        )


class Link:
    """One client's way to the server: what the executor, the lease and the reflectors ask for."""

    def __init__(
        self,
        process: Process,
        server: Server,
        weather: Weather,
        rng: random.Random,
        listener: Listener,
        *,
        timeout: float = TIMEOUT,
    ) -> None:
        self.process = process
        #: Nothing of it reaches the server; nothing reaches it.
        self.mute = self.deaf = False
        #: Which states of each kind the client has been shown, as far as it has read them.
        self.shown: defaultdict[Resource, Shown] = defaultdict(Shown)
        #: Calls once the client has read all that it was given so far.
        self.once_read: Callable[[Callable[[], object]], object] = lambda call: call()
        self._server = server
        self._weather = weather
        self._rng = rng
        self._listener = listener
        self._timeout = timeout

    async def send(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        timeout: float | None = None,  # noqa: ASYNC109 - as extender.kube.client
    ) -> Reply:
        """One request; refusals and missing answers are replies."""
        if self.process.dead:
            return _GONE
        texts = {key: str(value) for key, value in (query or {}).items()}
        request = Request(method, path, texts, body or b"", content_type)
        self._listener.sent(self, request)
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._depart(request, answer)
        try:
            async with asyncio.timeout(self._timeout if timeout is None else timeout):
                return await answer
        except TimeoutError:
            return _LATE

    def _depart(self, request: Request, answer: asyncio.Future[Reply]) -> None:
        rng, weather = self._rng, self._weather
        fate, delay = rng.random(), self.latency()
        if rng.random() < weather.late:
            self._listener.struck()
            delay += rng.uniform(0.5, 15.0)
        if fate < weather.lost:
            self._listener.struck()
            if rng.random() < 0.5:
                later(delay, _resolve, answer, _GONE)
            return
        unanswered = fate < weather.lost + weather.unanswered
        refused = rng.random() < weather.refused
        if unanswered or refused:
            self._listener.struck()
        later(delay, self._arrive, request, answer, unanswered, refused)

    def _arrive(
        self,
        request: Request,
        answer: asyncio.Future[Reply],
        unanswered: bool,
        refused: bool,
    ) -> None:
        if self.mute:
            self._listener.struck()
            return
        code = self._rng.choice((429, 500, 503, 504)) if refused else 0
        if not code or (code > 500 and self._rng.random() < 0.3):
            reply = reply_of(self._server.handle(self, request))
            reply = reply if not code else Reply(code, reason="Timeout", message="took too long")
        else:
            after = float(self._rng.randint(1, 3)) if code == 429 else None
            reply = Reply(code, reason="Chaos", message="not now", retry_after=after)
        if unanswered:
            if self._rng.random() < 0.5:
                later(self.latency(), _resolve, answer, _GONE)
            return
        later(self.latency(), self._return, answer, reply)

    def _return(self, answer: asyncio.Future[Reply], reply: Reply) -> None:
        if not self.deaf:
            _resolve(answer, reply)

    def latency(self) -> float:
        """Seconds of one way; mostly a millisecond, sometimes a few hundred."""
        return (
            self._rng.expovariate(1000.0) + (self._rng.random() < 0.05) * self._rng.random() * 0.4
        )

    # --- lists and watches

    async def list_page(self, resource: Resource, *, limit: int = 500, after: str = "") -> bytes:
        """One page."""
        query: dict[str, str | int] = {"limit": limit}
        if after:
            query["continue"] = after
        page = (await self.send("GET", resource.path(), query=query)).unwrap()
        self.shown[resource].listing = True
        return page

    async def watch_lines(
        self, resource: Resource, resource_version: str, *, timeout_seconds: int
    ) -> AsyncGenerator[list[bytes], None]:
        """The lines of one watch. It ends, breaks or falls silent as the weather has it."""
        shown, store = self.shown[resource], self._server.rest.store
        watch = self._watch(resource, resource_version, Selector(), timeout_seconds)
        async for lines in watch:
            now = store.version
            for line, version in _versions(lines, now):
                if not line.startswith(_ERROR):
                    self.once_read(partial(shown.watched, version))
                yield [line]

    async def _watch(
        self,
        resource: Resource,
        version: str,
        selector: Selector,
        seconds: float,
    ) -> AsyncGenerator[list[bytes], None]:
        await asyncio.sleep(self.latency())
        rng, weather, store = self._rng, self._weather, self._server.rest.store
        if self.mute or self.deaf or rng.random() < weather.lost:
            self._listener.struck()
            await asyncio.sleep(rng.uniform(0.0, self._timeout))
            raise Unreachable(0, "Unreachable", "no answer")
        if rng.random() < weather.forgotten:
            self._listener.struck()
            store.history.forget(keep=rng.randint(0, 20))
        wake = asyncio.Event()
        try:
            number, watch = store.watch(resource, None, selector, int(version), wake=wake.set)
        except ApiError as error:
            if error.code == 410 and rng.random() < 0.5:
                yield [_ERROR + b',"object":%b}' % orjson.dumps(render(error))]
                return
            raise
        loop = asyncio.get_running_loop()
        period = rng.uniform(*BOOKMARK_SECONDS)
        end, bookmark = loop.time() + seconds, loop.time() + period
        try:
            while loop.time() < end and not watch.cut:
                wake.clear()
                if loop.time() >= bookmark:
                    bookmark = loop.time() + period
                    watch.bookmark(store.version)
                if not wake.is_set():
                    await _wait(wake, min(end, bookmark) - loop.time())
                await self._delay()
                if lines := watch.take():
                    yield self._perhaps_twice(lines)
        finally:
            store.unwatch(number)

    def _perhaps_twice(self, lines: list[bytes]) -> list[bytes]:
        if self._rng.random() >= self._weather.doubled:
            return lines
        self._listener.struck()
        return [line for line in lines for _ in range(2)]

    async def _delay(self) -> None:
        """What comes between a line and its reader; raises Unreachable where the watch breaks."""
        rng, weather = self._rng, self._weather
        await asyncio.sleep(self.latency())
        if rng.random() < weather.lagging:
            self._listener.struck()
            await asyncio.sleep(rng.expovariate(0.3))
        if self.deaf or rng.random() < weather.broken:
            self._listener.struck()
            silent = WATCH_IDLE if rng.random() < 0.2 else rng.uniform(0.0, 3.0)
            await asyncio.sleep(silent)
            raise Unreachable(0, "Unreachable", "the watch broke")


class LinkClient(Client):
    """The simulated components' client, over a link in place of HTTP."""

    def __init__(self, link: Link) -> None:
        super().__init__("")
        self._link = link

    async def _call(
        self,
        method: str,
        path: str,
        body: Manifest | None = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = JSON,
    ) -> Manifest:
        data = None if body is None else orjson.dumps(body)
        reply = await self._link.send(
            method, path, query=query, body=data, content_type=content_type
        )
        result: Manifest = orjson.loads(reply.unwrap())
        return result

    async def _watch(
        self, resource: Resource, namespace: str | None, version: str, query: Mapping[str, str]
    ) -> AsyncIterator[tuple[Any, Manifest]]:
        assert namespace is None, "the simulated components watch whole kinds"
        rest = self._link._server.rest  # noqa: SLF001 - both are this module's
        request = Request("GET", resource.path(), dict(query))
        selector = rest.selector(request, rest.target(request.path))
        watch = self._link._watch(resource, version, selector, 1800.0)  # noqa: SLF001
        async with contextlib.aclosing(watch):
            async for lines in watch:
                for line in lines:
                    event = orjson.loads(line)
                    if event["type"] == "ERROR":
                        raise Gone(410, "Expired", event["object"]["message"])
                    yield event["type"], event["object"]


def reply_of(answer: Answer) -> Reply:
    """As extender.kube.replies reads a response."""
    if answer.code < 300:
        return Reply(answer.code, answer.body)
    status = orjson.loads(answer.body)
    return Reply(answer.code, answer.body, status.get("reason", ""), status.get("message", ""))


#: How a line begins that shows nothing.
_ERROR = b'{"type":"ERROR"'


def _versions(lines: list[bytes], now: int) -> Iterator[tuple[bytes, int]]:
    """Each line of a watch, and the version up to which its reader knows all; ``now`` with the last."""
    for line in lines[:-1]:
        yield line, int(orjson.loads(line)["object"]["metadata"]["resourceVersion"])
    yield lines[-1], now


def _resolve(answer: asyncio.Future[Reply], reply: Reply) -> None:
    if not answer.done():
        answer.set_result(reply)


async def _wait(wake: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            await wake.wait()
    except TimeoutError:
        return
