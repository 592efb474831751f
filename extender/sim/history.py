"""Past changes of a store, and the watches that follow them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Literal

import msgspec
import orjson

from extender.core.api import Resource
from extender.core.errors import ApiError
from extender.core.objects import Manifest
from extender.sim.selectors import Selector
from extender.sim.statuses import expired_list, expired_watch, render

Key = tuple[str, str]  # namespace ("" for what has none), name
Kind = Literal["ADDED", "MODIFIED", "DELETED"]
Shape = Callable[[Manifest], Manifest]


class Change(msgspec.Struct, frozen=True):
    """One write. ``object`` carries the write's resourceVersion, also when it was a deletion."""

    version: int
    resource: Resource
    key: Key
    kind: Kind
    object: Manifest
    previous: Manifest | None


class History:
    """The last ``limit`` changes of all kinds, oldest first."""

    def __init__(self, limit: int) -> None:
        self._changes: deque[Change] = deque()
        self._limit = limit
        #: The newest version that is no longer kept: a watch may start at it, not before it.
        self._forgotten = 0

    def add(self, change: Change) -> None:
        self._changes.append(change)
        self.forget(keep=self._limit)

    def forget(self, keep: int = 0) -> None:
        """Drop all but the newest ``keep`` changes, as etcd's compaction does."""
        while len(self._changes) > keep:
            self._forgotten = self._changes.popleft().version

    def since(self, version: int) -> Iterator[Change]:
        """The changes after ``version``; :class:`Gone` if some of them are forgotten."""
        if version < self._forgotten:
            raise expired_watch(version, self._forgotten)
        return (change for change in self._changes if change.version > version)

    def rewind(self, resource: Resource, table: dict[Key, Manifest], version: int) -> None:
        """Undo in ``table``, which is the present one, what came after ``version``."""
        if version < self._forgotten:
            raise expired_list()
        for change in reversed(self._changes):
            if change.version <= version:
                return
            if change.resource != resource:
                continue
            if change.previous is None:
                table.pop(change.key, None)
            else:
                table[change.key] = change.previous


class Watch:
    """What one watch request has yet to be told: encoded events, one JSON line each.

    ``wake`` is called on every new line. A reader that lets ``limit`` lines pile up is cut off
    without an error, as the API server does: ``cut`` becomes true and no more lines come.
    """

    def __init__(
        self,
        resource: Resource,
        namespace: str | None,
        selector: Selector,
        *,
        limit: int,
        shape: Shape | None,
        wake: Callable[[], None],
    ) -> None:
        self.cut = False
        self._resource = resource
        self._namespace = namespace
        self._selector = selector
        self._limit = limit
        self._shape = shape
        self._wake = wake
        self._lines: list[bytes] = []

    def take(self) -> list[bytes]:
        """All lines since the last call."""
        lines, self._lines = self._lines, []
        return lines

    def initial(self, objects: list[Manifest]) -> None:
        """Begin with objects that exist, as ADDED events."""
        for obj in objects:
            self._put("ADDED", obj)

    def offer(self, change: Change) -> None:
        """Tell of a change if it concerns this watch; entering and leaving the selector count."""
        if change.resource != self._resource or self.cut:
            return
        if self._namespace is not None and change.key[0] != self._namespace:
            return
        before = change.previous is not None and self._selector.matches(change.previous)
        after = change.kind != "DELETED" and self._selector.matches(change.object)
        if after:
            self._put("MODIFIED" if before else "ADDED", change.object)
        elif before:
            self._put("DELETED", change.object)

    def bookmark(self, version: int, *, initial_end: bool = False) -> None:
        """Tell how far this watch has come, without an object."""
        metadata: Manifest = {"resourceVersion": str(version)}
        if initial_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        self._write(
            "BOOKMARK",
            {
                "kind": self._resource.kind,
                "apiVersion": self._resource.api_version,
                "metadata": metadata,
            },
        )

    def fail(self, error: ApiError) -> None:
        """End with an ERROR event (the HTTP status stays 200)."""
        self._write("ERROR", render(error))
        self.cut = True

    def end(self, resource: Resource) -> None:
        """End, if this watch follows ``resource``, which is no longer served."""
        if resource == self._resource:
            self.cut = True
            self._wake()

    def _put(self, kind: Kind, obj: Manifest) -> None:
        self._write(kind, self._shape(obj) if self._shape else obj)

    def _write(self, kind: str, obj: Manifest) -> None:
        if len(self._lines) >= self._limit:
            self.cut = True
        else:
            self._lines.append(b'{"type":"%b","object":%b}\n' % (kind.encode(), orjson.dumps(obj)))
        self._wake()
