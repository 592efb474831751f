"""Whose token it is, and what that user may do, as the API server says.

TokenReview (authentication.k8s.io/v1) and SubjectAccessReview (authorization.k8s.io/v1): created,
answered in their status, stored nowhere.
"""

from __future__ import annotations

from typing import Any, TypeVar

import orjson
from msgspec import DecodeError, Struct, ValidationError, json

from extender.core.api import Resource
from extender.core.errors import ApiError
from extender.core.verdict import User
from extender.kube.replies import Requests

TOKEN_REVIEWS = Resource(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False
)
ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
#: Seconds. Who asks for a page waits meanwhile.
REVIEW_SECONDS = 5.0

_T = TypeVar("_T")


class _TokenStatus(Struct):
    authenticated: bool = False
    user: User = User()


class _TokenReview(Struct):
    status: _TokenStatus


class _AccessStatus(Struct):
    allowed: bool = False
    denied: bool = False


class _AccessReview(Struct):
    status: _AccessStatus


class Reviews:
    """Both raise ApiError when the API server does not answer, or lets us not ask."""

    def __init__(self, client: Requests) -> None:
        self._client = client

    async def user_of(self, token: str) -> User | None:
        """The token's user; None when the API server does not know it."""
        status = (await self._ask(TOKEN_REVIEWS, {"token": token}, _TokenReview)).status
        return status.user if status.authenticated and status.user.username else None

    async def may(self, user: User, verb: str, path: str) -> bool:
        """Whether the user (of :meth:`user_of`) may do ``verb`` to a path that is no resource."""
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "nonResourceAttributes": {"path": path, "verb": verb},
        }
        status = (await self._ask(ACCESS_REVIEWS, spec, _AccessReview)).status
        return status.allowed and not status.denied

    async def _ask(self, resource: Resource, spec: dict[str, Any], kind: type[_T]) -> _T:
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        reply = await self._client.send(
            "POST", resource.path(), body=orjson.dumps(body), timeout=REVIEW_SECONDS
        )
        try:
            return json.decode(reply.unwrap(), type=kind)
        except (DecodeError, ValidationError) as error:
            raise ApiError(reply.code, "InvalidAnswer", f"{resource.kind}: {error}") from error
