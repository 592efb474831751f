"""How far a replica's core has read: what was delivered to it may lie in its inbox for a while."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from extender.chaos.network import Shown
from extender.core.api import Resource
from extender.core.events import Event, Listed
from extender.loop import Loop


class ReadingLoop(Loop):
    """The service's loop, which says when it has read what."""

    def __init__(self, *args: Any, shown: Mapping[Resource, Shown], **more: Any) -> None:
        """``shown``: of each kind, kept up to date with the lists that were read."""
        super().__init__(*args, **more)
        self._shown = shown
        #: Events that ever came.
        self._came = 0
        #: What is to be called once so many of them have been read, in order.
        self._told: deque[tuple[int, Callable[[], object]]] = deque()

    def put(self, event: Event) -> None:
        super().put(event)
        self._came += 1
        if isinstance(event, Listed):
            shown = self._shown[event.resource]
            self.once_read(partial(shown.listed, int(event.version)))

    def once_read(self, call: Callable[[], object]) -> None:
        """Call as soon as everything that has come so far is read."""
        self._told.append((self._came, call))
        self._tell()

    def turn(self) -> None:
        super().turn()
        self._tell()

    def _tell(self) -> None:
        read = self._came - self.waiting
        while self._told and self._told[0][0] <= read:
            _, call = self._told.popleft()
            call()
