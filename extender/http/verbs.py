"""/filter, /prioritize, /bind and /preempt, as kube-scheduler calls them.

All but /bind are answered from the published view without waiting. /bind asks the loop and is held
until the loop answers, the deadline passes or the caller leaves.

kube-scheduler reads a body only under status 200, so a request that is JSON but wrong is answered
there: with ``Error`` where the verb's answer has one, else with the answer that changes nothing.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import NamedTuple

from aiohttp import web
from aiohttp.http_exceptions import ContentEncodingError, TransferEncodingError

from extender.core.errors import InvalidObject, WireError
from extender.core.events import BindAbandoned, BindAsked, FilterAsked, PreemptAllowed
from extender.core.reasons import Code, Reason
from extender.core.verdict import Inbox, View
from extender.http import wire
from extender.obs.log import logger
from extender.obs.metrics import Metrics

#: Seconds that a body may take to arrive: kube-scheduler's own time-out where none is configured.
BODY_SECONDS = 5.0
#: Seconds between two notes that kube-scheduler asks about pods of which nothing else is to be told.
HEARD_SECONDS = 1.0

_log = logger("http")


class Result(StrEnum):
    """How a request ended, as ``muster_verb_results`` counts it."""

    PASSED = "passed"
    HELD = "held"
    BOUND = "bound"
    REFUSED = "refused"
    EXPIRED = "expired"
    ABANDONED = "abandoned"
    MALFORMED = "malformed"
    FAULT = "fault"
    NOT_LEADER = "not_leader"
    NOT_READY = "not_ready"


class Reply(NamedTuple):
    """What a verb says, and how that is counted."""

    result: Result
    body: bytes


class Bindings:
    """The /bind requests that are held open, by token. A token is used once in a process."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._tokens = itertools.count(1)
        self._open: dict[int, asyncio.Future[str]] = {}

    def __len__(self) -> int:
        return len(self._open)

    async def ask(self, args: wire.BindingArgs, deadline: float) -> str | None:
        """Put the question to the loop and wait at most ``deadline`` seconds.

        Returns what :meth:`resolve` was given, or None when the deadline passed. Every BindAsked
        that the loop did not answer, cancelled ones too, is followed by its BindAbandoned.
        """
        token = next(self._tokens)
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._open[token] = answer
        self._inbox.put(
            BindAsked(token, args.pod_namespace, args.pod_name, args.pod_uid, args.node)
        )
        try:
            await asyncio.wait((answer,), timeout=deadline)
            return answer.result() if answer.done() else None
        finally:
            if self._open.pop(token, None) is not None and not answer.done():
                self._inbox.put(BindAbandoned(token))

    def resolve(self, token: int, error: str) -> bool:
        """Answer an open request (``error`` empty: bound); False when nobody waits any more."""
        answer = self._open.pop(token, None)
        if answer is None:
            return False
        answer.set_result(error)
        return True

    def abandon_all(self, error: str) -> None:
        """Answer everything that is open with ``error``: the process stops or leads no longer."""
        for token in list(self._open):
            self._inbox.put(BindAbandoned(token))
            self.resolve(token, error)


class Verbs:
    """The four verbs over one view and one inbox.

    ``bind_deadline`` is in seconds, below the httpTimeout of the bind entry; ``clock`` counts
    seconds.
    """

    def __init__(
        self,
        view: View,
        inbox: Inbox,
        bindings: Bindings,
        *,
        metrics: Metrics,
        bind_deadline: float,
        clock: Callable[[], float],
    ) -> None:
        self._view = view
        self._inbox = inbox
        self._bindings = bindings
        self._metrics = metrics
        self._bind_deadline = bind_deadline
        self._clock = clock
        self._heard_at = -math.inf
        self._decisions: dict[str, Callable[[bytes], Awaitable[Reply]]] = {
            "filter": self._filter,
            "prioritize": self._prioritize,
            "preempt": self._preempt,
            "bind": self._bind,
        }

    def routes(self, prefix: str) -> list[web.RouteDef]:
        """The routes under ``prefix``; with or without slashes around it."""
        root = f"/{prefix.strip('/')}".rstrip("/")
        return [
            web.post(f"{root}/filter", self._route("filter", wire.filter_error)),
            web.post(f"{root}/prioritize", self._route("prioritize", wire.no_scores)),
            web.post(f"{root}/preempt", self._route("preempt", wire.no_nodes)),
            web.post(f"{root}/bind", self._route("bind", wire.bind_answer)),
        ]

    async def answer(self, verb: str, body: bytes) -> Reply:
        """What a verb says to a body; NOT_READY or NOT_LEADER (a 503) with nothing to read.

        Raises WireError for what is no JSON, and InvalidObject for JSON that is no request.
        """
        if (closed := self._closed()) is not None:
            return Reply(closed, b"")
        return await self._decisions[verb](body)

    async def _filter(self, body: bytes) -> Reply:
        args = wire.read(body, wire.ExtenderArgs)
        names = args.names()
        answer = self._view.filter(args.pod, names)
        reply = wire.filter_answer(args, names, answer)
        if answer.event is not None:
            self._inbox.put(answer.event)
        elif self._clock() - self._heard_at >= HEARD_SECONDS:
            self._heard_at = self._clock()
            self._inbox.put(FilterAsked("", full=False, planned_offered=True))
        return Reply(Result.PASSED if answer.passed else Result.HELD, reply)

    async def _prioritize(self, body: bytes) -> Reply:
        args = wire.read(body, wire.ExtenderArgs)
        names = args.names()
        scores = self._view.prioritize(args.pod, names)
        return Reply(Result.PASSED, wire.prioritize_answer(names, scores))

    async def _preempt(self, body: bytes) -> Reply:
        args = wire.read(body, wire.PreemptionArgs)
        asked = {node: victims.uids() for node, victims in args.victims().items()}
        allowed = self._view.preempt(args.pod, asked)
        reply = wire.preempt_answer(args, allowed)
        if given := sorted({uid for uids in allowed.values() for uid in uids}):
            self._inbox.put(PreemptAllowed(tuple(given)))
        return Reply(Result.PASSED if allowed else Result.REFUSED, reply)

    async def _bind(self, body: bytes) -> Reply:
        args = wire.read(body, wire.BindingArgs)
        error = await self._bindings.ask(args, self._bind_deadline)
        if error is None:
            text = f"no decision within {self._bind_deadline:g} s, nothing was bound for this call"
            return Reply(Result.EXPIRED, wire.bind_answer(text))
        return Reply(Result.REFUSED if error else Result.BOUND, wire.bind_answer(error))

    def _route(
        self,
        verb: str,
        refuse: Callable[[str], bytes],
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        """The handler of one verb: doors, body, decision, and never a 500."""
        metrics = self._metrics
        seconds = metrics.bind_seconds if verb == "bind" else metrics.verb_seconds.labels(verb)

        async def handle(request: web.Request) -> web.Response:
            started, result = self._clock(), Result.ABANDONED  # unless it is answered
            try:
                closed = self._closed()
                if closed is not None:
                    result = closed
                    return _unavailable(closed)
                result, reply = await self._decisions[verb](await _body(request))
                return _json(reply)
            except WireError as error:
                result = Result.MALFORMED
                return web.Response(status=400, text=f"{error}\n")
            except InvalidObject as error:
                result = Result.MALFORMED
                return _json(refuse(str(error)))
            except Exception as error:  # noqa: BLE001 - a 500 would hide the reason from users
                result = Result.FAULT
                _log.exception("a verb failed", verb=verb)
                return _json(refuse(f"internal error in Muster: {error!r}"))
            finally:
                seconds.observe(self._clock() - started)
                metrics.verb_results.labels(verb, result).inc()
                if result is Result.MALFORMED:
                    metrics.malformed.labels(verb).inc()

        return handle

    def _closed(self) -> Result | None:
        if not self._view.ready():
            return Result.NOT_READY
        if not self._view.leads():
            return Result.NOT_LEADER
        return None


async def _body(request: web.Request) -> bytes:
    """The request's body.

    Raises InvalidObject over the limit, where a 413 would not be read, and WireError for what is
    late or breaks HTTP.
    """
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        limit = request.client_max_size
        raise InvalidObject("the body", "a larger one", f"at most {limit} bytes") from error
    except TimeoutError as error:
        raise WireError(f"the body did not arrive within {BODY_SECONDS:g} s") from error
    except (ContentEncodingError, TransferEncodingError, web.RequestPayloadError) as error:
        raise WireError(f"the body cannot be read: {error}") from error


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


def _unavailable(why: Result) -> web.Response:
    """503 that ends the connection, so that the next one finds the replica that leads."""
    text = "caches are not synced yet"
    if why is Result.NOT_LEADER:
        text = Reason.of(Code.NOT_LEADER).render()
    response = web.Response(status=503, text=f"{text}\n")
    response.force_close()
    return response
