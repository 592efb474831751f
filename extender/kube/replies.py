"""Answers of the API server as values, and what the other parts need of a client."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Protocol

import aiohttp
import orjson
from msgspec import Struct

from extender.core.api import Resource
from extender.core.errors import ApiError, Gone, Unreachable
from extender.core.objects import Manifest

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"

Query = Mapping[str, str | int]


class Reply(Struct, frozen=True):
    """An answer. ``code`` 0 means none came: whether the request took effect is not known."""

    code: int
    body: bytes = b""
    #: The Status object's reason and message, when the server refused.
    reason: str = ""
    message: str = ""
    #: Seconds that the server asks to wait before the next try.
    retry_after: float | None = None

    @property
    def ok(self) -> bool:
        """Whether it took effect."""
        return 200 <= self.code < 300

    def error(self) -> ApiError:
        """The exception that stands for this refusal."""
        if self.code == 0:
            return Unreachable(0, self.reason, self.message)
        kind = Gone if self.code == 410 else ApiError
        return kind(self.code, self.reason, self.message, self.retry_after)

    def unwrap(self) -> bytes:
        """The body.

        Raises ApiError: the server refused, or (Unreachable) did not answer.
        """
        if not self.ok:
            raise self.error()
        return self.body


class Requests(Protocol):
    """Sends one request; what the lease and the executor need of a client."""

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
        """Send; refusals and missing answers are replies, nothing is raised."""


class Lists(Protocol):
    """Lists and watches; what a reflector needs of a client."""

    async def list_page(self, resource: Resource, *, limit: int = 500, after: str = "") -> bytes:
        """As :meth:`ApiClient.list_page`."""

    def watch_lines(
        self, resource: Resource, resource_version: str, *, timeout_seconds: int
    ) -> AsyncGenerator[list[bytes], None]:
        """As :meth:`ApiClient.watch_lines`."""


def delete_options(uid: str, grace: int | None = None) -> bytes:
    """The body of a DELETE (metav1.DeleteOptions); dependents are left to the garbage collector.
    ``grace``: gracePeriodSeconds; None is the object's own.
    """
    options: Manifest = {"apiVersion": "v1", "kind": "DeleteOptions"}
    options["propagationPolicy"] = "Background"
    if uid:
        options["preconditions"] = {"uid": uid}
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    return orjson.dumps(options)


def reply_of(got: aiohttp.ClientResponse, body: bytes) -> Reply:
    """A response as a value; the Status object of a refusal is read."""
    if 200 <= got.status < 300:
        return Reply(got.status, body)
    reason, message = got.reason or "", body[:300].decode(errors="replace")
    try:
        status = orjson.loads(body)
    except orjson.JSONDecodeError:
        # Not from the API server proper (a proxy, 429 of its front): the text is the message.
        status = None
    if isinstance(status, dict):
        reason = str(status.get("reason") or reason)
        message = str(status.get("message") or message)
    return Reply(got.status, body, reason, message, _seconds(got.headers.get("Retry-After")))


def _seconds(text: str | None) -> float | None:
    """Retry-After in seconds; the API server never sends the form with a date."""
    return float(text) if text is not None and text.isdecimal() else None
