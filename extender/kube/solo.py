"""Leadership without election."""

from __future__ import annotations

import asyncio

from extender.core.events import LeaderGained, LeaderLost
from extender.core.verdict import Inbox
from extender.obs.metrics import Metrics


class AlwaysLeader:
    """Leads from the start, without a Lease: for one replica only."""

    def __init__(self, inbox: Inbox, metrics: Metrics, *, epoch: int) -> None:
        """``epoch`` must grow from start to start: the seconds of the start will do."""
        self._inbox = inbox
        self._metrics = metrics
        self._epoch = epoch
        self._leading = False

    def may_write(self) -> bool:
        """Whether a request may be sent now."""
        return self._leading

    @property
    def identity(self) -> str:
        """This replica's name in a Lease: it needs none."""
        return ""

    def holder(self) -> str:
        """Who leads, as far as is known: nobody else can."""
        return ""

    async def run(self) -> None:
        """Lead until cancelled."""
        self._leading = True
        self._metrics.leader.set(1)
        self._metrics.leader_epoch.set(self._epoch)
        self._inbox.put(LeaderGained(self._epoch))
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._leading = False
            self._metrics.leader.set(0)
            self._inbox.put(LeaderLost())

    async def release(self) -> None:
        """Nothing is held."""

    async def close(self) -> None:
        """Nothing runs in the background."""
