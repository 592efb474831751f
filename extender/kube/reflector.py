"""Keeps the core told of every object of a resource: list, then watch, for ever.

Three generators, each owning one kind of failure, the inner ones unaware of the outer:

``_stream``   one watch connection; ends when the server ends it, raises when it breaks
``_resume``   streams one after the other from the last resourceVersion, with back-off
``_mirror``   list, then resume; lists again when the server has forgotten the version (410)

:meth:`Reflector.run` adds what an optional kind needs, and never ends by itself.
Source of the rules: client-go tools/cache/reflector.go; facts of the API server's behaviour:
a slow reader's watch just ends, an empty list has ``items: null``.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Protocol

from extender.core.api import GANG_PLANS, OPTIONAL, Resource
from extender.core.errors import ApiError, Gone, Unreachable
from extender.core.events import Event, KindServed, Listed, Synced
from extender.core.verdict import Inbox
from extender.kube.backoff import Backoff
from extender.kube.complaints import RBAC, Complaints
from extender.kube.decode import GARBAGE, Bookmark, Key, Left, ObjectDecoder, Page, Seen
from extender.kube.replies import Lists
from extender.obs.log import logger
from extender.obs.metrics import Metrics

#: Objects of a list page (client-go's default), and how many are decoded before others may run:
#: at 10 µs a pod the loop is held for about a millisecond.
PAGE = 500
STRIDE = 128

#: Seconds that a watch lasts before the server ends it; drawn, so that watches do not end together.
_WATCH_SECONDS = (300, 600)
#: Seconds between two looks for a kind that the cluster does not serve.
_ABSENT_SECONDS = 10.0
#: A kind that was served is given up after this many refusals in a row: an API server that starts
#: answers 404 for custom resources until it has read their definitions.
_ABSENT_TRIES = 4
#: Longest pause between two tries while nobody listens: they cost the server nothing, and who leads is blind
#: until it has read what happened meanwhile.
_UNREACHABLE_SECONDS = 2.0
#: Broken lines in a row, without a good one between, after which the list is read again.
_GARBAGE_TRIES = 3

_log = logger("reflector")


class Feed(Inbox, Protocol):
    """An inbox that can be full."""

    async def room(self) -> None:
        """Let others run, and come back when events may be put. What is not read meanwhile waits
        at the API server, which ends a watch that lags too far behind.
        """


class Reflector:
    """One resource. ``known`` holds the uid of every object that the core was told of."""

    def __init__(
        self,
        client: Lists,
        inbox: Feed,
        resource: Resource,
        metrics: Metrics,
        rng: random.Random,
        *,
        on_listed: Callable[[], None] = lambda: None,
        complaints: Complaints | None = None,
    ) -> None:
        """``on_listed`` is called once, when absence of an object means that it does not exist."""
        self.resource = resource
        self.known: dict[tuple[str, str], str] = {}
        self._client = client
        self._inbox = inbox
        self._metrics = metrics
        self._rng = rng
        self._on_listed = on_listed
        self._listed = False
        #: Why the list did not come, last time.
        self._failure: ApiError | None = None
        self._served: bool | None = None
        #: resourceVersion up to which the core was told everything.
        self._version = ""
        self._decoder = ObjectDecoder(resource, metrics)
        #: Reset by a watch that says something only: a list that works while every watch from it
        #: is refused must not be repeated at full speed.
        self._backoff = Backoff(rng)
        #: Apart from that, so that a long outage does not delay what follows it (410, a new list).
        self._silence = Backoff(rng, most=_UNREACHABLE_SECONDS)
        self._complaints = complaints or Complaints()
        # Three groups have podgroups.
        self._kind = ".".join(part for part in (resource.plural, resource.group) if part)
        self._list_words, self._watch_words = f"list {self._kind}", f"watch {self._kind}"
        self._log = _log.bind(kind=resource.kind, group=resource.group)

    async def run(self) -> None:
        """Run until cancelled."""
        refused = 0
        while True:
            try:
                async for event in self._mirror():
                    self._inbox.put(event)
                    refused = 0
                await asyncio.sleep(self._backoff.pause())
            except ApiError as error:
                if error.code == 404 and self.resource in OPTIONAL:
                    refused += 1
                    if self._served is not True or refused >= _ABSENT_TRIES:
                        self._absent()
                        await asyncio.sleep(_ABSENT_SECONDS * self._rng.uniform(0.8, 1.2))
                        continue
                self._failure = error
                self._restarted("unreachable" if isinstance(error, Unreachable) else "refused")
                self._complaints.wrong(self._list_words, error, do=self._help(error))
                await asyncio.sleep(self._pause(error))

    async def _mirror(self) -> AsyncIterator[Event]:
        """Everything there is, and then what changes, until the server has forgotten where we were."""
        async for event in self._list():
            yield event
        self._present()
        try:
            async for event in self._resume():
                yield event
        except Gone:
            self._restarted("gone")

    async def _list(self) -> AsyncIterator[Event]:
        """A complete list, page by page; then the withdrawal of what it misses.

        A continue token that expired half way (410) is an error of the whole list: what was told
        stays told, and the next list withdraws what it should.
        """
        missing = dict(self.known)
        version = ""
        async with contextlib.aclosing(self._pages()) as pages:
            async for page in pages:
                version = page.metadata.resource_version
                for count, raw in enumerate(page.items or (), 1):
                    seen = self._decoder.item(raw)
                    missing.pop((seen.key.namespace, seen.key.name), None)
                    for event in self._tell(seen):
                        yield event
                    if count % STRIDE == 0:
                        await self._inbox.room()
                await self._inbox.room()
        for (namespace, name), uid in missing.items():
            for event in self._withdraw(Key(namespace, name, uid)):
                yield event
        self._version = version
        yield Listed(self.resource, self._version)
        self._metrics.lists.labels(self.resource.kind).inc()
        self._complaints.right(self._list_words)

    async def _pages(self) -> AsyncGenerator[Page, None]:
        """The pages of one list; while one is told, the server makes the next."""
        coming = self._fetch("")
        try:
            while True:
                page = self._decoder.page(await coming)
                if not page.metadata.next:
                    yield page
                    return
                coming = self._fetch(page.metadata.next)
                yield page
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)

    def _fetch(self, after: str) -> asyncio.Task[bytes]:
        page = self._client.list_page(self.resource, limit=PAGE, after=after)
        return asyncio.get_running_loop().create_task(page)

    async def _resume(self) -> AsyncIterator[Event]:
        """Watch from where we are, for as long as the server remembers that version."""
        garbage = 0
        while True:
            heard = False
            cause = "ended"
            failure: ApiError | None = None
            try:
                async for what, newer in self._stream():
                    if not heard:
                        heard = True
                        garbage = 0
                        self._backoff.reset()
                        self._silence.reset()
                        self._complaints.right(self._watch_words)
                    self._version = newer or self._version
                    for event in self._events(what):
                        yield event
            except Gone:
                raise
            except Unreachable as error:
                cause, failure = "unreachable", error
                self._complaints.wrong(self._watch_words, error)
            except ApiError as error:
                cause = "garbage" if error.reason == GARBAGE else "refused"
                failure = error
                if error.reason == GARBAGE:
                    self._log.warning("watch cannot be read", error=str(error))
                else:
                    self._complaints.wrong(self._watch_words, error)
                garbage += error.reason == GARBAGE
                if error.code == 404 or garbage >= _GARBAGE_TRIES:
                    return
            self._restarted(cause)
            if not heard or failure is not None:
                await asyncio.sleep(self._pause(failure))

    def _pause(self, error: ApiError | None) -> float:
        """Seconds to wait after a request that failed, or a watch that ended and said nothing."""
        if isinstance(error, Unreachable):
            return self._silence.pause(error.retry_after)
        self._silence.reset()
        return self._backoff.pause(error.retry_after if error is not None else None)

    async def _stream(self) -> AsyncIterator[tuple[Seen | Left | Bookmark, str]]:
        """One watch. Decoding here keeps the reading ahead of the server's patience."""
        lines = self._client.watch_lines(
            self.resource, self._version, timeout_seconds=self._rng.randint(*_WATCH_SECONDS)
        )
        count = 0
        # Closed at once when a line is refused: else the connection lingers until collected.
        async with contextlib.aclosing(lines):
            async for batch in lines:
                for line in filter(None, batch):
                    change = self._decoder.line(line)
                    yield change.what, change.resource_version
                    count += 1
                    if count % STRIDE == 0:
                        await self._inbox.room()

    def _events(self, what: Seen | Left | Bookmark) -> Sequence[Event]:
        match what:
            case Seen():
                return self._tell(what)
            case Left(key):
                return self._withdraw(key)
            case Bookmark():
                return ()

    def _tell(self, seen: Seen) -> list[Event]:
        """The event of an object, after the withdrawal of one that had its name before."""
        # Namespaces are few: one text for each, however many objects name it.
        place = (sys.intern(seen.key.namespace), seen.key.name)
        old = self.known.get(place)
        self.known[place] = seen.key.uid
        if old is None or old == seen.key.uid:
            return [seen.event]
        return [self._decoder.gone(Key(*place, old)), seen.event]

    def _withdraw(self, key: Key) -> list[Event]:
        """At most one: what the core was never told of need not be withdrawn."""
        uid = self.known.pop((key.namespace, key.name), None)
        return [] if uid is None else [self._decoder.gone(Key(key.namespace, key.name, uid))]

    def _present(self) -> None:
        if self.resource in OPTIONAL and self._served is not True:
            self._served = True
            self._inbox.put(KindServed(self.resource, served=True))
        self._done()

    def _absent(self) -> None:
        """The cluster does not serve the kind: nothing of it exists."""
        for namespace, name in list(self.known):
            for event in self._withdraw(Key(namespace, name, "")):
                self._inbox.put(event)
        if self._served is not False:
            self._served = False
            self._inbox.put(KindServed(self.resource, served=False))
        self._done()

    def _done(self) -> None:
        if not self._listed:
            self._listed = True
            self._on_listed()

    @property
    def waits_for(self) -> str:
        """Why it has not been listed yet, in words that name nobody; "" once it has."""
        if self._listed:
            return ""
        error = self._failure
        if error is None:
            return f"{self._kind}: being listed"
        why = f"{error.code} {error.reason}".strip() if error.code else "no answer"
        help_ = self._help(error)
        return f"{self._kind}: {why}; {help_}" if help_ else f"{self._kind}: {why}"

    def _help(self, error: ApiError) -> str:
        if error.code == 404 and self.resource == GANG_PLANS:
            return "the definition of GangPlan is missing: kubectl apply -k manifests/crds"
        return RBAC if error.code == 403 else ""

    def _restarted(self, cause: str) -> None:
        self._metrics.watch_restarts.labels(self.resource.kind, cause).inc()


class Reflectors:
    """All watched resources together; tells :class:`Synced` once when each has been listed."""

    def __init__(
        self,
        client: Lists,
        inbox: Feed,
        resources: Sequence[Resource],
        metrics: Metrics,
        rng: random.Random,
        complaints: Complaints | None = None,
    ) -> None:
        self._inbox = inbox
        complaints = complaints or Complaints()
        self._left = len(resources)
        self._synced = asyncio.Event()
        self._all = [
            Reflector(
                client,
                inbox,
                resource,
                metrics,
                rng,
                on_listed=self._one_listed,
                complaints=complaints,
            )
            for resource in resources
        ]

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._all:
                name = f"reflect {reflector.resource.plural}.{reflector.resource.group}"
                group.create_task(reflector.run(), name=name)

    async def synced(self) -> None:
        """Wait until every kind has been listed, or found not to be served."""
        await self._synced.wait()

    def waits_for(self) -> list[str]:
        """The kinds that have not been listed yet, and why."""
        return [why for each in self._all if (why := each.waits_for)]

    def _one_listed(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._inbox.put(Synced())
            self._synced.set()
