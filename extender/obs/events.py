"""Kubernetes Events for Notices: equal ones are counted, each object's are rate-limited.

The API server is the bottleneck and an Event is a write, so a notice that repeats costs one PATCH
of a count however often it came meanwhile, and an object that talks too much is cut short.
What is remembered is bounded; what is forgotten only starts a new count.
Source: k8s.io/client-go tools/record (aggregation, spam filter), core/v1 Event.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from msgspec import Struct

from extender.core.commands import Notice
from extender.core.objects import Manifest
from extender.obs.metrics import Metrics

COMPONENT = "muster"

#: Validation's limits of core/v1 Event, in characters.
_MESSAGE, _REASON, _NAME = 1024, 128, 253


class Answer(Struct, frozen=True):
    """Of the API server: the status code (0: none came; UNSENT: it was not asked), and the seconds
    that it asks to wait.
    """

    code: int
    retry_after: float | None = None


#: (namespace, body): creates an Event.
Post = Callable[[str, Manifest], Awaitable[Answer]]
#: (namespace, name, merge patch).
PatchEvent = Callable[[str, str, Manifest], Awaitable[Answer]]

UNSENT = -1
#: 429: the API server has too much to do; the least seconds that it is then left alone.
BUSY, BUSY_SECONDS = 429, 1.0
#: No answer, or a fault of the server's: for some gangs an Event is all that says why they wait, so
#: it is tried this often, with pauses that grow up to so many seconds (client-go: 12 times, 10 s).
FAULTS, TRIES, MOST_SECONDS = frozenset({0, 500, 502, 503, 504}), 12, 10.0

#: Seconds between two Events while what is more urgent is being written.
BESIDE_SECONDS = 0.1

_Key = tuple[str, str, str, str, str]


class _Series(Struct):
    """An Event that exists: its name, how often it was said, how often the API knows of."""

    notice: Notice
    name: str = ""
    count: int = 0
    written: int = 0
    #: Writes in a row that met a fault.
    faults: int = 0


class _Bucket(Struct):
    """Tokens of one object, as of ``at`` (seconds, the writer's clock)."""

    tokens: float
    at: float


class EventWriter:
    """Takes notices without waiting; :meth:`run` writes them, one request at a time."""

    def __init__(
        self,
        post: Post,
        patch: PatchEvent,
        metrics: Metrics,
        *,
        instance: str,
        clock: Callable[[], float],
        burst: float = 25.0,
        refill: float = 1 / 60,
        remembered: int = 4096,
        wall: Callable[[], float] = time.time,
        busy: Callable[[], bool] = lambda: False,
    ) -> None:
        """``busy``: whether much that is more urgent is being written. ``wall`` gives seconds since the epoch; ``instance`` is reportingInstance; each object may be written ``burst`` times, and
        ``refill`` times per second from then on; ``remembered`` bounds series and objects.
        """
        self._post = post
        self._patch = patch
        self._metrics = metrics
        self._instance = instance[:_REASON]
        self._clock = clock
        self._burst = burst
        self._refill = refill
        self._remembered = remembered
        self._wall = wall
        self._busy = busy
        self._series: OrderedDict[_Key, _Series] = OrderedDict()
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        #: Series with something unwritten, in the order in which they got it.
        self._pending: OrderedDict[_Key, None] = OrderedDict()
        self._wake = asyncio.Event()

    def put(self, notice: Notice) -> None:
        """Queue a notice; never blocks. Beyond the object's rate it is counted and dropped."""
        key = _key(notice)
        waiting = key in self._pending
        if not waiting and not self._allowed(notice):
            self._metrics.notices.labels("limited").inc()
            return
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = _Series(notice)
        self._series.move_to_end(key)
        series.count += 1
        self._pending[key] = None
        self._wake.set()
        self._forget()

    @property
    def waiting(self) -> int:
        """Notices that are not written yet."""
        return len(self._pending)

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            while self._pending:
                key, _ = self._pending.popitem(last=False)
                series = self._series[key]
                answer = await self._write(series)
                if answer.code == BUSY or series.faults:
                    # Nobody waits for an Event: all of them come later, this one first.
                    pause = min(BUSY_SECONDS * 2.0 ** max(0, series.faults - 1), MOST_SECONDS)
                    await asyncio.sleep(max(answer.retry_after or 0.0, pause))
                    self._put_back(key)
                elif self._busy():
                    await asyncio.sleep(BESIDE_SECONDS)
            self._wake.clear()
            await self._wake.wait()

    def _put_back(self, key: _Key) -> None:
        if key in self._series:
            self._pending[key] = None
            self._pending.move_to_end(key, last=False)

    async def _write(self, series: _Series) -> Answer:
        count = series.count
        answer = await self._count(series) if series.name else Answer(404)
        # Events live for an hour; one that is gone is begun again.
        if answer.code == 404:
            series.count = count = count - series.written
            answer = await self._create(series)
        if answer.code == BUSY:
            return answer
        series.faults = series.faults + 1 if answer.code in FAULTS else 0
        if 0 < series.faults < TRIES:
            return answer
        series.faults = 0
        if not 200 <= answer.code < 300:
            self._metrics.notices.labels("failed").inc()
            return answer
        self._metrics.notices.labels("counted" if series.written else "created").inc()
        series.written = count
        return answer

    async def _create(self, series: _Series) -> Answer:
        series.written = 0
        notice = series.notice
        now = self._stamp()
        namespace = notice.namespace or "default"
        name = _name(notice, now)
        answer = await self._post(
            namespace,
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": name, "namespace": namespace},
                "involvedObject": {
                    "apiVersion": notice.resource.api_version,
                    "kind": notice.resource.kind,
                    "namespace": notice.namespace,
                    "name": notice.name,
                    "uid": notice.uid,
                },
                "type": notice.type,
                "reason": notice.reason[:_REASON],
                "message": _cut(notice.message),
                "source": {"component": COMPONENT},
                "reportingComponent": COMPONENT,
                "reportingInstance": self._instance,
                "firstTimestamp": now,
                "lastTimestamp": now,
                "count": series.count,
            },
        )
        series.name = name if 200 <= answer.code < 300 else ""
        return answer

    async def _count(self, series: _Series) -> Answer:
        body = {"count": series.count, "lastTimestamp": self._stamp()}
        return await self._patch(series.notice.namespace or "default", series.name, body)

    def _stamp(self) -> str:
        return datetime.fromtimestamp(self._wall(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def _allowed(self, notice: Notice) -> bool:
        """Take one of the object's tokens, if it has any."""
        now = self._clock()
        bucket = self._buckets.get(notice.uid)
        if bucket is None:
            bucket = self._buckets[notice.uid] = _Bucket(self._burst, now)
        self._buckets.move_to_end(notice.uid)
        bucket.tokens = min(self._burst, bucket.tokens + (now - bucket.at) * self._refill)
        bucket.at = now
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True

    def _forget(self) -> None:
        """The oldest beyond the bound; a notice that was not written yet is dropped and counted."""
        while len(self._series) > self._remembered:
            key, _ = self._series.popitem(last=False)
            if self._pending.pop(key, self) is None:
                self._metrics.notices.labels("limited").inc()
        while len(self._buckets) > self._remembered:
            self._buckets.popitem(last=False)


def _key(notice: Notice) -> _Key:
    return (notice.uid, notice.name, notice.type, notice.reason, notice.message)


def _name(notice: Notice, now: str) -> str:
    """A DNS subdomain, the same for the same notice at the same time."""
    digest = hashlib.sha256("\0".join((*_key(notice), now)).encode()).hexdigest()[:16]
    stem = notice.name[: _NAME - len(digest) - 1].rstrip("-.")
    return f"{stem}.{digest}"


def _cut(message: str) -> str:
    return message if len(message) <= _MESSAGE else message[: _MESSAGE - 3] + "..."
