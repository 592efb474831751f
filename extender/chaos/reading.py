"""How far a replica's core has read: what was delivered to it may lie in its inbox for a while."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from extender.chaos.network import Shown
from extender.core.api import Resource
from extender.core.events import Event, Listed
from extender.loop import Loop


@dataclass(slots=True)
class _Reading:
    #: Events that have to be read before.
    after: int
    call: Callable[[], object]
    task: asyncio.Task[Any] | None


class ReadingLoop(Loop):
    """The service's loop, which says when it has read what."""

    def __init__(self, *args: Any, shown: Mapping[Resource, Shown], **more: Any) -> None:
        """``shown``: of each kind, kept up to date with the lists that were read."""
        super().__init__(*args, **more)
        self._shown = shown
        #: Events that ever came.
        self._came = 0
        #: What is to be called once so many of them have been read, in order.
        self._told: deque[_Reading] = deque()
        #: What a reflector was handed last, and whose events come before it waits for anything.
        self._handed: _Reading | None = None

    def put(self, event: Event) -> None:
        super().put(event)
        self._came += 1
        if self._handed is not None and self._handed.task is asyncio.current_task():
            self._handed.after = self._came
        if isinstance(event, Listed):
            shown = self._shown[event.resource]
            read = partial(shown.listed, int(event.version))
            self._told.append(_Reading(self._came, read, None))

    def once_read(self, call: Callable[[], object]) -> None:
        """Call as soon as everything is read that has come, and what the caller's task puts before
        it waits for anything: the events of a line that it is about to be handed.
        """
        self._handed = _Reading(self._came, call, asyncio.current_task())
        self._told.append(self._handed)

    def turn(self) -> None:
        super().turn()
        self._tell()

    def _tell(self) -> None:
        read = self._came - self.waiting
        while self._told and self._told[0].after <= read:
            self._told.popleft().call()
