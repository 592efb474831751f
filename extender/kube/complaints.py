"""What the log says when the API server does not do what it is asked: a line for each change of the
situation, not for each request.

A dozen kinds are listed at once and each tries again; with a server that is gone they would all
say the same, for ever.
"""

from __future__ import annotations

from collections.abc import Callable

from extender.core.errors import ApiError
from extender.obs.log import logger

_log = logger("api")

#: What a code means for all requests together, and what to do.
_ALL = {
    0: ("the API server does not answer", ""),
    401: (
        "the API server does not accept the credentials",
        "see the kubeconfig, or the token of the service account (manifests/base/rbac.yaml)",
    ),
    429: ("the API server asks to wait", ""),
}
#: What helps where a right is missing: an upgrade may need more than the role of the version before.
RBAC = (
    "kubectl apply -k manifests/base (rbac.yaml), for MPIJobs manifests/mpijob or manifests/mpijob-v1,"
    " or give these rights to the user"
)

_WATCH = "watch"

#: A code, and what it concerns: everything (empty), every watch, or one request.
Cause = tuple[int, str]


class Complaints:
    """The causes that hold now. Several parts share one, as they share a server."""

    def __init__(self, server: Callable[[], str] = lambda: "") -> None:
        """``server``: its URL, for the lines."""
        self._server = server
        self._causes: set[Cause] = set()

    def wrong(self, what: str, error: ApiError, *, do: str = "") -> None:
        """``what`` was refused or not answered. ``do``: what would help, where it is known."""
        cause = _cause(what, error.code)
        if cause in self._causes:
            return
        self._causes.add(cause)
        sentence, help_ = _ALL.get(error.code, (f"the API server refuses to {what}", ""))
        if cause[1] == _WATCH:
            sentence = "watches break; they are taken up where they were"
        elif error.code >= 500:
            sentence = "the API server is in trouble"
        help_ = do or help_ or (RBAC if error.code == 403 else "")
        hint = {"do": help_} if help_ else {}
        text = " ".join((str(error) if error.code else error.message).split())
        _log.warning(sentence, server=self._server(), error=text, **hint)

    def right(self, what: str) -> None:
        """``what`` has been done: nothing that concerns all, or this, holds any more."""
        over = {cause for cause in self._causes if cause[1] in ("", what, _verb(what))}
        if not over:
            return
        self._causes -= over
        done = "answers" if any(not of for _, of in over) else f"lets us {what}"
        _log.info(f"the API server {done}", server=self._server())


def _cause(what: str, code: int) -> Cause:
    """A watch may break by itself, so a request that is answered does not say that it is mended."""
    if code == 0 and _verb(what) == _WATCH:
        return code, _WATCH
    return code, "" if code in _ALL or code >= 500 else what


def _verb(what: str) -> str:
    return what.partition(" ")[0]
