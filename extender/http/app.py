"""The applications, and the listener that serves one."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler, Middleware
from aiohttp.web_protocol import RequestPayloadError

from extender.core.verdict import Inbox, View
from extender.http import admin
from extender.http.access import Gate
from extender.http.tls import ServerTls
from extender.http.verbs import Bindings, Verbs
from extender.obs.metrics import Metrics

#: Bytes. 5,000 whole nodes (nodeCacheCapable false) are some 40 MB.
BODY_LIMIT = 64 << 20
#: Seconds. Go's client keeps an idle connection for 90 s; a server that closes first races with
#: its next request, which kube-scheduler reports as EOF.
KEEPALIVE_SECONDS = 120.0
#: Connections not yet accepted: every member of a gang holds one at /bind, and they come in bursts.
BACKLOG = 1024
#: Seconds that requests in flight may take to end when the listener stops.
SHUTDOWN_SECONDS = 5.0

#: The held /bind requests of an application.
BINDINGS = web.AppKey("bindings", Bindings)


def make_app(
    view: View,
    inbox: Inbox,
    bindings: Bindings,
    *,
    prefix: str,
    metrics: Metrics,
    bind_deadline: float,
    body_limit: int = BODY_LIMIT,
    clock: Callable[[], float] = time.monotonic,
    facts: Callable[[], dict[str, Any]] = dict,
    tls: ServerTls | None = None,
) -> web.Application:
    """The extender's verbs under ``prefix``, and the pages of :mod:`extender.http.admin`.

    Who gets as far as this may bind pods (by a certificate, or on loopback), and so read the pages.
    ``bind_deadline`` (seconds) has to be below the httpTimeout of the bind entry. ``facts`` are
    shown in /debug/state beside what the view says.
    """
    verbs = Verbs(view, inbox, bindings, metrics=metrics, bind_deadline=bind_deadline, clock=clock)
    middlewares = [_renewing(tls)] if tls is not None else []
    app = web.Application(client_max_size=body_limit, middlewares=middlewares)
    app[BINDINGS] = bindings
    app.add_routes(verbs.routes(prefix))
    app.on_shutdown.append(_abandon_bindings)
    return _with_admin(app, view, metrics, facts)


def make_admin_app(
    view: View, metrics: Metrics, facts: Callable[[], dict[str, Any]] = dict, *, gate: Gate
) -> web.Application:
    """The pages alone, beside a listener that asks for client certificates.

    A kubelet's probes have none, and are let through; a scraper brings a token.
    """
    app = web.Application(middlewares=[gate.middleware()])
    return _with_admin(app, view, metrics, facts)


async def serve(
    app: web.Application,
    host: str,
    port: int,
    ssl_context: ssl.SSLContext | None = None,
    *,
    shutdown_seconds: float = SHUTDOWN_SECONDS,
    setting: str = "listen.port",
) -> web.AppRunner:
    """Listen; ``port`` 0 takes a free one, found in ``runner.addresses``.

    Stop with ``await runner.cleanup()``. A handler whose client has gone is cancelled.

    Raises OSError that names ``setting``, where the port comes from.
    """
    runner = _Runner(
        app,
        access_log=None,
        handler_cancellation=True,
        keepalive_timeout=KEEPALIVE_SECONDS,
        shutdown_timeout=shutdown_seconds,
        logger=_log_of(app[admin.METRICS]),
    )
    await runner.setup()
    try:
        await Site(runner, host, port, ssl_context=ssl_context, backlog=BACKLOG).start()
    except OSError as error:
        await runner.cleanup()
        if error.errno == errno.EADDRINUSE:
            why = f"{host}:{port} is taken by another program; see {setting}"
        else:
            why = (
                f"{host}:{port} cannot be listened on ({error.strerror or error}); see listen.host"
            )
        raise OSError(error.errno, why) from error
    return runner


class _Runner(web.AppRunner):
    """Leaves no connection behind. aiohttp forgets those whose TLS handshake ends while it stops; and one that
    it closes stays for 30 s until its peer says goodbye, which one that hangs or was killed never does.
    """

    async def cleanup(self) -> None:
        server = self.server
        if server is None:
            return
        transports = [each.transport for each in server.connections if each.transport is not None]
        sockets = [
            each.get_extra_info("socket")
            for each in transports
            if each.get_extra_info("ssl_object") is not None
        ]
        server.connection_made = _too_late  # type: ignore[method-assign, assignment] # of this server alone
        await super().cleanup()
        for each in sockets:
            # What is on its way out goes out; asyncio then sees the end, and closes.
            with contextlib.suppress(OSError):  # it has ended
                each.shutdown(socket.SHUT_RDWR)


class Site(web.TCPSite):
    """A listener that ends without a leak, whoever is just connecting."""

    async def stop(self) -> None:
        if isinstance(self._server, asyncio.Server):
            await stop_accepting(self._server)
        await super().stop()


async def stop_accepting(server: asyncio.Server) -> None:
    """To be called before ``server.close()``: a connection accepted just before that would be left open.

    asyncio makes its transport a turn later, and trips over the closed server (cpython gh-109564).
    """
    loop = asyncio.get_running_loop()
    for each in server.sockets:
        loop.remove_reader(each)
    await asyncio.sleep(0)


def _too_late(_: web.RequestHandler, transport: asyncio.Transport) -> None:
    transport.abort()


def _log_of(metrics: Metrics) -> logging.Logger:
    """aiohttp's, without what a caller got wrong: the answer says that, and a count.

    It quotes the line that is no HTTP, with the token in it, as an error; and whoever reaches a
    port could fill the log.
    """

    def ours(record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError | RequestPayloadError):
            return True
        metrics.malformed.labels("none").inc()
        return False

    # Each listener has its own, as each service has its own metrics.
    log = logging.Logger("muster.http")  # noqa: LOG001 - those of getLogger live for ever
    log.parent = logging.getLogger()
    log.addFilter(ours)
    return log


def _with_admin(
    app: web.Application, view: View, metrics: Metrics, facts: Callable[[], dict[str, Any]]
) -> web.Application:
    app[admin.VIEW] = view
    app[admin.FACTS] = facts
    app[admin.METRICS] = metrics
    app.add_routes(admin.routes())
    return app


def _renewing(tls: ServerTls) -> Middleware:
    """A connection from before the certificates changed ends with its next answer.

    kube-scheduler would keep it open for as long as it asks, whatever the client CA is by now.
    """

    @web.middleware
    async def renew(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        connection = request.get_extra_info("ssl_object")
        if connection is not None and tls.outdated(connection):
            response.force_close()
        return response

    return renew


async def _abandon_bindings(app: web.Application) -> None:
    app[BINDINGS].abandon_all("Muster is stopping; the pod is tried again")
