"""The listeners of the service, as muster.yaml asks for them: who may call is decided here."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from extender.core.errors import ConfigError
from extender.core.verdict import Inbox, View
from extender.http.access import Gate
from extender.http.app import make_admin_app, make_app, serve
from extender.http.tls import ServerTls, follow
from extender.http.verbs import Bindings
from extender.obs.log import logger
from extender.obs.metrics import Metrics
from extender.settings import Muster

#: Seconds between two looks at rotated certificates.
TLS_RELOAD_SECONDS = 30.0

_log = logger("http")


@dataclass(frozen=True)
class Doors:
    """One listener for the verbs, and one for the pages where ``listen.adminPort`` is set.

    ``gate`` lets readers of the pages in; ``facts`` are shown in /debug/state. What ``stack`` gets
    is closed with the service.
    """

    settings: Muster
    metrics: Metrics
    gate: Gate
    facts: Callable[[], dict[str, Any]]
    stack: contextlib.AsyncExitStack

    async def open(
        self, view: View, inbox: Inbox, bindings: Bindings, *, bind_deadline: float
    ) -> web.AppRunner:
        """Listen; the runner is the verbs'.

        Raises ConfigError where the certificates cannot be used, or callers would not be told
        apart; OSError where an address cannot be had.
        """
        m = self.settings
        verbs, pages = certificates(m)
        for each in (verbs, pages):
            if each is not None:
                following = follow(each, self.metrics, TLS_RELOAD_SECONDS)
                self.stack.callback(asyncio.create_task(following, name="tls").cancel)
        app = make_app(
            view,
            inbox,
            bindings,
            prefix=m.listen.prefix,
            metrics=self.metrics,
            bind_deadline=bind_deadline,
            body_limit=m.body_limit_bytes,
            facts=self.facts,
            tls=verbs,
        )
        host, at = m.listen.host, m.listen.admin_port
        if at is not None:
            admin = make_admin_app(view, self.metrics, self.facts, gate=self.gate)
            context = pages.context if pages is not None else None
            runner = await serve(admin, host, at, context, setting="listen.adminPort")
            self.stack.push_async_callback(runner.cleanup)
        return await serve(app, host, m.listen.port, verbs.context if verbs is not None else None)


def certificates(m: Muster) -> tuple[ServerTls | None, ServerTls | None]:
    """For the verbs, and for the pages, which ask for no certificate; None for plain HTTP.

    Raises ConfigError where callers of the verbs would not be told apart.
    """
    if why := m.unguarded():
        raise ConfigError(why)
    if m.tls is None:
        if not m.listen.loopback:
            _log.warning(
                "plain HTTP beyond loopback, as listen.allowPlainHTTP says: whoever reaches the"
                " port may bind pods",
                host=m.listen.host,
            )
        return None, None
    assert m.tls.client_ca_file is not None
    cert, key = Path(m.tls.cert_file), Path(m.tls.key_file)
    return ServerTls(cert, key, Path(m.tls.client_ca_file)), ServerTls(cert, key, None)
