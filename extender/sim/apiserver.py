"""An in-memory Kubernetes API server over HTTP: :class:`~extender.sim.rest.Rest` and watches.

Good enough that a controller, a scheduler and a kubelet cannot tell it from kube-apiserver 1.37;
what is missing is listed in :mod:`extender.sim.rest`.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable

from aiohttp import web

from extender.core.errors import ApiError
from extender.sim import statuses
from extender.sim.history import Watch
from extender.sim.rest import BODY_LIMIT, Request, Rest, Target, partial, wants_partial
from extender.sim.store import Store

#: Decides what goes wrong with a request, before it is carried out: an answer to give in its
#: place, seconds to hold it, or None for nothing.
Fault = Callable[[web.Request], web.StreamResponse | float | None]

_STREAM = {"Content-Type": "application/json", "Cache-Control": "no-cache, private"}


def wall_store() -> Store:
    """A store on the real clock with random uids."""
    return Store(time.time, lambda: str(uuid.uuid4()))


class ApiServer:
    """Serves a store on loopback: ``async with ApiServer() as server: server.url``."""

    def __init__(
        self,
        store: Store | None = None,
        *,
        fault: Fault | None = None,
        bookmark_seconds: float = 60.0,
    ) -> None:
        """``fault`` may be replaced at any time."""
        self.store = store or wall_store()
        self.fault = fault
        self.url = ""
        self._rest = Rest(self.store)
        self._bookmark_seconds = bookmark_seconds
        self._stopping = asyncio.Event()
        self._runner: web.AppRunner | None = None

    def app(self) -> web.Application:
        """The aiohttp application; its watches end when it shuts down."""
        app = web.Application(client_max_size=BODY_LIMIT + 1)
        app.router.add_route("*", "/{path:.*}", self._handle)
        app.on_shutdown.append(self._shut_down)
        return app

    async def start(self, port: int = 0) -> str:
        """Listen on 127.0.0.1 (any free port when 0); the base URL."""
        self._stopping.clear()
        self._runner = web.AppRunner(
            self.app(), access_log=None, keepalive_timeout=180, shutdown_timeout=1
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        host, bound = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{bound}"
        return self.url

    async def stop(self) -> None:
        """Close every connection; the store keeps its objects for the next :meth:`start`."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> ApiServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _shut_down(self, _: web.Application) -> None:
        self._stopping.set()

    async def _handle(self, http: web.Request) -> web.StreamResponse:
        if self.fault is not None:
            fault = self.fault(http)
            if isinstance(fault, web.StreamResponse):
                return fault
            if fault is not None:
                await asyncio.sleep(fault)
        try:
            body = await http.read()
        except web.HTTPRequestEntityTooLarge:
            # The first byte too many is enough for Rest to answer with the Status object.
            body = bytes(BODY_LIMIT + 1)
        request = Request(
            http.method, http.path, dict(http.query), body, http.content_type,
            http.headers.get("Accept", ""),
        )  # fmt: skip
        if request.method == "GET" and request.query.get("watch") in ("1", "true"):
            return await self._watch(http, request)
        answer = self._rest.handle(request)
        return web.Response(status=answer.code, body=answer.body, content_type=answer.content_type)

    async def _watch(self, http: web.Request, request: Request) -> web.StreamResponse:
        target = None
        try:
            target = self._rest.target(request.path)
            number, watch, wake = self._open(request, target)
        except ApiError as error:
            resource = target.resource if target else None
            return web.json_response(statuses.render(error, resource), status=error.code)
        response = web.StreamResponse(headers=_STREAM)
        try:
            await response.prepare(http)
            await self._stream(response, request, watch, wake)
        except ConnectionError:
            # The watcher went away; that is how most watches end.
            return response
        finally:
            self.store.unwatch(number)
        return response

    def _open(self, request: Request, target: Target) -> tuple[int, Watch, asyncio.Event]:
        store, wake = self.store, asyncio.Event()
        selector = self._rest.selector(request, target)
        asked = request.query.get("resourceVersion", "")
        if asked and not asked.isdigit():
            raise statuses.bad_request(f'resourceVersion: Invalid value: "{asked}"')
        initial = request.query.get("sendInitialEvents") == "true"
        since = int(asked) if asked not in ("", "0") and not initial else None
        shape = partial if wants_partial(request) else None
        try:
            number, watch = store.watch(
                target.resource, target.namespace, selector, since, wake=wake.set, shape=shape
            )
        except ApiError as error:
            if error.code != 410:
                raise
            # kube-apiserver's watch cache says this inside the stream, under HTTP 200.
            number, watch = store.watch(
                target.resource, target.namespace, selector, store.version, wake=wake.set
            )
            watch.fail(error)
        if initial and since is None and not watch.cut:
            watch.bookmark(store.version, initial_end=True)
        return number, watch, wake

    async def _stream(
        self,
        response: web.StreamResponse,
        request: Request,
        watch: Watch,
        wake: asyncio.Event,
    ) -> None:
        loop = asyncio.get_running_loop()
        bookmarks = request.query.get("allowWatchBookmarks") in ("1", "true")
        seconds = float(request.query.get("timeoutSeconds") or 1800)
        end, bookmark_at = loop.time() + seconds, loop.time() + self._bookmark_seconds
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            while True:
                wake.clear()
                if lines := watch.take():
                    await response.write(b"".join(lines))
                if watch.cut or self._stopping.is_set() or loop.time() >= end:
                    break
                if bookmarks and loop.time() >= bookmark_at:
                    bookmark_at = loop.time() + self._bookmark_seconds
                    watch.bookmark(self.store.version)
                    continue
                until = min(end, bookmark_at) if bookmarks else end
                waking = asyncio.ensure_future(wake.wait())
                try:
                    await asyncio.wait(
                        (waking, stopping),
                        timeout=max(0.0, until - loop.time()),
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                finally:
                    waking.cancel()
        finally:
            stopping.cancel()
        await response.write_eof()
