"""Requests to the API server: bytes in, bytes out, over one pooled session.

A refused request is a value (:class:`Reply`) for :meth:`ApiClient.send`, which the executor and the
lease judge by code; the named methods raise the errors of :mod:`extender.core.errors` instead.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Callable
from types import TracebackType

import aiohttp
import orjson

from extender import __version__
from extender.core.api import Resource
from extender.core.errors import ConfigError, Unreachable
from extender.core.objects import Manifest
from extender.kube.credentials import REFRESH_SECONDS, Access, Credentials
from extender.kube.replies import (
    JSON,
    MERGE_PATCH,
    Query,
    Reply,
    delete_options,
    reply_of,
)
from extender.obs.metrics import Metrics

#: The API server takes the part before the slash as the field manager.
USER_AGENT = f"muster/{__version__}"

#: Seconds without a byte after which a watch is taken for dead. The API server sends a bookmark
#: about every minute.
WATCH_IDLE_SECONDS = 150.0
#: Bytes that aiohttp reads ahead of us. Small, and a burst makes the API server cut the watch.
_READ_AHEAD = 1 << 20
#: Of Secrets the API server is asked for nothing but metadata, whatever is asked for.
_SECRETS = re.compile(r"/api/v1(/namespaces/[^/]+)?/secrets(/|$)")
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
#: Unknown and doubled fields of what is written are dropped, and nobody would read the warning: to look
#: for them is a fifth of what the API server allocates for a pod.
_UNCHECKED = {"fieldValidation": "Ignore"}
_WRITES = frozenset({"POST", "PUT", "PATCH"})
_SSL_REPR = re.compile(r" ssl:(<[^>]*>|\w+)")
#: Least seconds between two complete reloads of the credentials, whatever the server says.
_RELOAD_PAUSE = 5.0


class ApiClient:
    """One API server. Use as an async context manager; safe for any number of tasks."""

    def __init__(
        self,
        credentials: Credentials,
        metrics: Metrics,
        *,
        timeout: float = 10.0,
        connections: int = 128,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``timeout`` bounds every request but watches (seconds); ``connections`` the pool."""
        self._credentials = credentials
        self._metrics = metrics
        self._timeout = timeout
        self._connections = connections
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        self._access: Access | None = None
        self._authorization = ""
        self._renew_at = 0.0
        self._reloaded_at = 0.0
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> ApiClient:
        await self._load()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._connections, keepalive_timeout=75.0),
            # Compression costs the API server more than the network saves inside a cluster.
            headers={"User-Agent": USER_AGENT, "Accept": JSON, "Accept-Encoding": "identity"},
            read_bufsize=_READ_AHEAD,
            auto_decompress=True,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    @property
    def server(self) -> str:
        """Its URL; empty before the client is entered."""
        return self._access.server if self._access is not None else ""

    async def send(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        timeout: float | None = None,  # noqa: ASYNC109 (part of the request)
    ) -> Reply:
        """One request, sent again only when fresh credentials turn a 401 into something else."""
        if method in _WRITES:
            query = {**(query or {}), **_UNCHECKED}
        reply = await self._once(method, path, query, body, content_type, timeout)
        if reply.code == 401 and await self._reload():
            reply = await self._once(method, path, query, body, content_type, timeout)
        return reply

    async def get(self, resource: Resource, namespace: str | None, name: str) -> bytes:
        """One object."""
        return (await self.send("GET", resource.path(namespace, name))).unwrap()

    async def list_page(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        limit: int = 500,
        after: str = "",
        labels: str = "",
    ) -> bytes:
        """One page of a list, from where ``after`` (metadata.continue of the page before) says."""
        query: dict[str, str | int] = {"limit": limit}
        if after:
            query["continue"] = after
        if labels:
            query["labelSelector"] = labels
        return (await self.send("GET", resource.path(namespace), query=query)).unwrap()

    async def post(
        self,
        resource: Resource,
        namespace: str | None,
        body: Manifest,
        *,
        name: str = "",
        subresource: str = "",
        query: Query | None = None,
    ) -> bytes:
        """Create an object, or (with name and subresource) e.g. a pod's binding."""
        path = resource.path(namespace, name, subresource)
        return (await self.send("POST", path, query=query, body=orjson.dumps(body))).unwrap()

    async def patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        body: Manifest,
        *,
        subresource: str = "",
    ) -> bytes:
        """Merge-patch (RFC 7386): None removes a field, lists are replaced whole."""
        path = resource.path(namespace, name, subresource)
        data = orjson.dumps(body)
        return (await self.send("PATCH", path, body=data, content_type=MERGE_PATCH)).unwrap()

    async def delete(
        self, resource: Resource, namespace: str | None, name: str, *, uid: str = ""
    ) -> bytes:
        """Delete an object; a ``uid`` is a precondition."""
        path = resource.path(namespace, name)
        return (await self.send("DELETE", path, body=delete_options(uid))).unwrap()

    async def watch_lines(
        self,
        resource: Resource,
        resource_version: str,
        *,
        timeout_seconds: int,
        idle: float = WATCH_IDLE_SECONDS,
    ) -> AsyncGenerator[list[bytes], None]:
        """The lines of one watch, as many at a time as arrived together; ends when the server ends.

        Bookmarks are asked for. A last line that was cut off is dropped: the watch is resumed from
        the one before.

        Raises ApiError: the watch was refused (Gone: list again), or (Unreachable) broke.
        """
        query: dict[str, str | int] = {
            "watch": 1,
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": timeout_seconds,
        }
        limits = aiohttp.ClientTimeout(total=None, sock_connect=self._timeout, sock_read=idle)
        try:
            began = self._clock()
            async with await self._open("GET", resource.path(), query, None, JSON, limits) as got:
                self._count("watch", got.status, began)
                if got.status != 200:
                    refusal = reply_of(got, await got.read())
                    if refusal.code == 401:
                        await self._reload()
                    raise refusal.error()
                rest = b""
                async for chunk in got.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    if lines:
                        yield lines
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(0, "Unreachable", _words(error)) from error

    async def _once(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: bytes | None,
        content_type: str,
        timeout: float | None,  # noqa: ASYNC109 (handed to aiohttp, which also closes the connection)
    ) -> Reply:
        limits = aiohttp.ClientTimeout(total=timeout if timeout is not None else self._timeout)
        began = self._clock()
        try:
            async with await self._open(method, path, query, body, content_type, limits) as got:
                reply = reply_of(got, await got.read())
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reply = Reply(0, reason="Unreachable", message=_words(error))
        self._count(method.lower(), reply.code, began)
        return reply

    def _count(self, verb: str, code: int, began: float) -> None:
        self._metrics.api_requests.labels(verb, str(code)).inc()
        self._metrics.api_seconds.labels(verb).observe(self._clock() - began)

    async def _open(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: bytes | None,
        content_type: str,
        limits: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        if self._session is None or self._access is None:
            raise RuntimeError("ApiClient is used outside of its context")
        if self._clock() >= self._renew_at:
            await self._renew()
        access = self._access
        headers = {"Content-Type": content_type} if body is not None else {}
        if _SECRETS.match(path):
            headers["Accept"] = _METADATA
        if self._authorization:
            headers["Authorization"] = self._authorization
        return await self._session.request(
            method,
            access.server + path,
            params=query,
            data=body,
            headers=headers,
            ssl=access.tls if access.tls is not None else True,
            server_hostname=access.server_name,
            proxy=access.proxy,
            timeout=limits,
            allow_redirects=False,
        )

    async def _renew(self) -> None:
        """Look whether the token changed. A failure keeps the old one: a 401 will tell."""
        async with self._lock:
            if self._access is None or self._clock() < self._renew_at:
                return
            self._renew_at = self._clock() + REFRESH_SECONDS
            try:
                self._authorization = await self._credentials.authorization(self._access)
            except (ConfigError, OSError):
                self._metrics.token_reloads.labels("failed").inc()

    async def _reload(self) -> bool:
        """Read all credentials again after a 401; whether it is worth a second try."""
        async with self._lock:
            if self._clock() < self._reloaded_at + _RELOAD_PAUSE:
                return False
            before = self._authorization
            try:
                await self._load()
            except ConfigError:
                self._metrics.token_reloads.labels("failed").inc()
                return False
            self._metrics.token_reloads.labels("ok").inc()
            return self._authorization != before

    async def _load(self) -> None:
        self._reloaded_at = self._clock()
        self._access = await self._credentials.load()
        self._authorization = self._access.authorization
        self._renew_at = self._clock() + REFRESH_SECONDS


def _words(error: BaseException) -> str:
    # aiohttp puts the repr of its SSLContext, with its address in memory, into the sentence.
    text = _SSL_REPR.sub("", str(error))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
