"""Who may read metrics and debug pages: bearers of a token that the API server knows and lets.

A token is shown to the API server (TokenReview), and its user's right to ``get`` the path is asked for
(SubjectAccessReview on a nonResourceURL), as kube-rbac-proxy and controller-runtime do. Both answers
are kept briefly. Whatever cannot be asked is refused.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from extender.core.errors import ApiError
from extender.core.verdict import User
from extender.obs.metrics import Metrics

#: For a kubelet, which has no token; they say nothing but ok.
OPEN = frozenset({"/healthz", "/readyz"})
#: Seconds that the API server's word counts. A token taken back works no longer than this.
ALLOWED_SECONDS, DENIED_SECONDS = 60.0, 10.0
#: Answers kept; the oldest goes first.
ANSWERS = 1024
#: Callers whose token is being asked about: a flood of wrong tokens must not become one of reviews.
ASKING = 16


class Reviewer(Protocol):
    """Asks the API server. Both raise ApiError when it does not answer, or refuses to."""

    async def user_of(self, token: str) -> User | None:
        """The token's user; None when it is not valid."""

    async def may(self, user: User, verb: str, path: str) -> bool:
        """Whether the user may do this to the path."""


class Verdict(StrEnum):
    """What is said to a caller, and counted."""

    ALLOWED = "allowed"
    NO_TOKEN = "no_token"  # noqa: S105 - a word for none
    UNKNOWN_TOKEN = "unknown_token"  # noqa: S105 - a word for one that is refused
    FORBIDDEN = "forbidden"
    NO_ANSWER = "no_answer"
    BUSY = "busy"


_SAID = {
    Verdict.NO_TOKEN: (401, "a bearer token is needed: Authorization: Bearer TOKEN"),
    Verdict.UNKNOWN_TOKEN: (401, "the API server does not know this token"),
    Verdict.FORBIDDEN: (403, "{user} has no right to {verb} {path} (nonResourceURLs of a ClusterRole)"),
    Verdict.NO_ANSWER: (503, "refused: the API server cannot be asked about this token; see the log"),
    Verdict.BUSY: (503, "refused: too many tokens are being asked about; try again"),
}  # fmt: skip


class Gate:
    """Lets readers in. One for all listeners, so that they share what was answered.

    ``clock``: seconds, never going back. ``heard`` is told of each try to ask the API server: what
    was wrong, or None.
    """

    def __init__(
        self,
        reviewer: Reviewer,
        metrics: Metrics,
        clock: Callable[[], float],
        heard: Callable[[ApiError | None], None],
    ) -> None:
        self._reviewer = reviewer
        self._metrics = metrics
        self._heard = heard
        self._users: _Kept[bytes, User | None] = _Kept(clock)
        self._rights: _Kept[tuple[bytes, str, str], bool] = _Kept(clock)
        self._asking = 0

    async def verdict(self, authorization: str, verb: str, path: str) -> tuple[Verdict, str]:
        """Of a request with this Authorization header; and the user's name where it is known."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return Verdict.NO_TOKEN, ""
        # Never the token itself: it would be in every dump of this process.
        digest = hashlib.sha256(token.encode(errors="surrogateescape")).digest()
        known, user = self._users.get(digest)
        asked, allowed = self._rights.get((digest, verb, path))
        if not (known and (user is None or asked)):
            if self._asking >= ASKING:
                return Verdict.BUSY, ""
            self._asking += 1
            try:
                user = user if known else await self._user(digest, token)
                allowed = user is not None and await self._right(digest, user, verb, path)
                self._heard(None)
            except ApiError as error:
                self._heard(error)
                return Verdict.NO_ANSWER, ""
            finally:
                self._asking -= 1
        if user is None:
            return Verdict.UNKNOWN_TOKEN, ""
        return (Verdict.ALLOWED if allowed else Verdict.FORBIDDEN), user.username

    async def _user(self, digest: bytes, token: str) -> User | None:
        user = await self._reviewer.user_of(token)
        self._users.keep(digest, user, allowed=user is not None)
        return user

    async def _right(self, digest: bytes, user: User, verb: str, path: str) -> bool:
        allowed = await self._reviewer.may(user, verb, path)
        self._rights.keep((digest, verb, path), allowed, allowed=allowed)
        return allowed

    def middleware(self) -> Middleware:
        """For an application whose pages it guards; :data:`OPEN` is let through."""

        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            if request.path in OPEN:
                return await handler(request)
            verb, path = request.method.lower(), request.path
            verdict, user = await self.verdict(request.headers.get("Authorization", ""), verb, path)
            self._metrics.page_access.labels(verdict).inc()
            if verdict is Verdict.ALLOWED:
                return await handler(request)
            status, text = _SAID[verdict]
            headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
            return web.Response(
                status=status,
                text=text.format(user=user, verb=verb, path=path) + "\n",
                headers=headers,
            )

        return guard


K = TypeVar("K")
V = TypeVar("V")


class _Kept(Generic[K, V]):
    """Answers that count for a while: at most :data:`ANSWERS`, the oldest is dropped."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: OrderedDict[K, tuple[V, float]] = OrderedDict()

    def get(self, key: K) -> tuple[bool, V | None]:
        """Whether there is an answer, and the answer."""
        value, until = self._kept.get(key, (None, 0.0))
        if self._clock() >= until:
            self._kept.pop(key, None)
            return False, None
        return True, value

    def keep(self, key: K, value: V, *, allowed: bool) -> None:
        """Count the answer from now on."""
        until = self._clock() + (ALLOWED_SECONDS if allowed else DENIED_SECONDS)
        self._kept[key] = value, until
        self._kept.move_to_end(key)
        while len(self._kept) > ANSWERS:
            self._kept.popitem(last=False)
