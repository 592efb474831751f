"""A small API client for the simulated components, for the in-memory and the real API server."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Literal

import aiohttp
import orjson

from extender.core.api import Resource
from extender.core.errors import ApiError, Gone, Unreachable
from extender.core.objects import Manifest

#: Seconds between a watch that broke and the next try.
_RETRY_SECONDS = 0.1
_MERGE_PATCH = "application/merge-patch+json"

Seen = tuple[Literal["SYNC", "ADDED", "MODIFIED", "DELETED"], list[Manifest]]


class Client:
    """Talks to one API server; use as an async context manager."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        connections: int = 64,
    ) -> None:
        """``headers`` carry the bearer token, if the server asks for one."""
        self.url = url.rstrip("/")
        self._headers = dict(headers or {})
        self._tls: ssl.SSLContext | bool = True if tls is None else tls
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Client:
        connector = aiohttp.TCPConnector(limit=self._connections, ssl=self._tls)
        self._session = aiohttp.ClientSession(
            connector=connector, headers=self._headers, timeout=aiohttp.ClientTimeout(total=None)
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Manifest:
        return await self._call("GET", resource.path(namespace, name))

    async def list(
        self, resource: Resource, namespace: str | None = None, **query: str
    ) -> Manifest:
        """The list object: ``items`` and ``metadata.resourceVersion``."""
        return await self._call("GET", resource.path(namespace), query=query)

    async def create(
        self,
        resource: Resource,
        namespace: str | None,
        body: Manifest,
        *,
        name: str = "",
        subresource: str = "",
        dry_run: bool = False,
    ) -> Manifest:
        """POST an object, or with a name and subresource (``binding``) that."""
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        query = {"dryRun": "All"} if dry_run else None
        path = resource.path(namespace, name, subresource)
        return await self._call("POST", path, body, query=query)

    async def patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        body: Manifest,
        subresource: str = "",
    ) -> Manifest:
        """Merge-patch an object or its subresource."""
        path = resource.path(namespace, name, subresource)
        return await self._call("PATCH", path, body, content_type=_MERGE_PATCH)

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        uid: str = "",
        grace: int | None = None,
    ) -> Manifest:
        options: Manifest = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        return await self._call("DELETE", resource.path(namespace, name), options)

    async def follow(
        self, resource: Resource, namespace: str | None = None, **query: str
    ) -> AsyncIterator[Seen]:
        """List, then watch, for ever: first ``("SYNC", all objects)``, then one object at a time.

        After a lost history there is another SYNC, whose absences are deletions. A server that is
        down or refuses is asked again until it answers, as an informer does.
        """
        while True:
            try:
                listed = await self.list(resource, namespace, **query)
            except ApiError:
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            yield "SYNC", listed.get("items") or []
            version = listed["metadata"]["resourceVersion"]
            while version:
                try:
                    async for kind, obj in self._watch(resource, namespace, version, query):
                        version = obj["metadata"]["resourceVersion"]
                        if kind != "BOOKMARK":
                            yield kind, [obj]
                except Gone:
                    version = ""
                except ApiError:
                    await asyncio.sleep(_RETRY_SECONDS)

    async def _watch(
        self, resource: Resource, namespace: str | None, version: str, query: Mapping[str, str]
    ) -> AsyncIterator[tuple[Any, Manifest]]:
        assert self._session is not None
        params = {
            **query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
        }
        try:
            async with self._session.get(
                self.url + resource.path(namespace), params=params
            ) as answer:
                if answer.status != 200:
                    raise _error(answer.status, await answer.read())
                rest = b""
                async for chunk in answer.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        event = orjson.loads(line)
                        if event["type"] == "ERROR":
                            status = event["object"]
                            raise _error(status["code"], orjson.dumps(status))
                        yield event["type"], event["object"]
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _unreachable(error) from error

    async def _call(
        self,
        method: str,
        path: str,
        body: Manifest | None = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Manifest:
        assert self._session is not None, "use the client as an async context manager"
        data = None if body is None else orjson.dumps(body)
        try:
            async with self._session.request(
                method,
                self.url + path,
                data=data,
                params=query,
                headers={"Content-Type": content_type},
            ) as answer:
                raw = await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _unreachable(error) from error
        if answer.status >= 400:
            raise _error(answer.status, raw)
        result: Manifest = orjson.loads(raw)
        return result


def _unreachable(error: Exception) -> Unreachable:
    return Unreachable(0, "Unreachable", f"{type(error).__name__}: {error}")


def _error(code: int, raw: bytes) -> ApiError:
    try:
        status = orjson.loads(raw)
        reason, message = status["reason"], status["message"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        reason, message = "Unknown", raw[:200].decode(errors="replace")
    return Gone(code, reason, message) if code == 410 else ApiError(code, reason, message)
