"""Kills: of Muster's replicas, kube-scheduler and the API server, at seeded moments; and the mending."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from extender.sim.realplane import RealPlane
from tests.controlplane.processes import Replica
from tests.soak.checker import Checker
from tests.soak.history import Recorder

SCHEDULER = "muster"
#: Seconds within which everything must be up again.
_MEND_SECONDS = 90.0
#: Seconds; the longest random wait before a kill, and for a gang that is bound in part.
_MOMENT, _CUT = 2.0, 4.0
#: Seconds for which a paused leader stays paused after another one leads.
_LATE = 1.0

#: Kinds of kills with how often each comes.
KINDS = {
    "leader killed": 30,
    "standby killed": 6,
    "both replicas killed": 5,
    "leader paused past its lease": 14,
    "kube-scheduler killed": 27,
    "API server killed": 14,
    "leader and kube-scheduler killed": 4,
}

Mend = Callable[[], Coroutine[Any, Any, None]]


class Faults:
    """Strikes and mends. ``start_scheduler`` starts kube-scheduler as it was (blocking)."""

    def __init__(
        self,
        plane: RealPlane,
        replicas: list[Replica],
        start_scheduler: Callable[[], None],
        recorder: Recorder,
        checker: Checker,
        rng: random.Random,
        slack: float = 1.0,
    ) -> None:
        self._mend_seconds = _MEND_SECONDS * slack
        self.kills: Counter[str] = Counter()
        self._plane = plane
        self._replicas = replicas
        self._start_scheduler = start_scheduler
        self._recorder = recorder
        self._checker = checker
        self._rng = rng
        self._strikes: dict[str, Callable[[], Awaitable[Mend]]] = {
            "leader killed": self._kill_leader,
            "standby killed": self._kill_standby,
            "both replicas killed": self._kill_both,
            "leader paused past its lease": self._pause_leader,
            "kube-scheduler killed": self._kill_scheduler,
            "API server killed": self._kill_apiserver,
            "leader and kube-scheduler killed": self._kill_two,
        }

    async def once(self, news: asyncio.Condition) -> None:
        """One kill at a random moment, every second time in the middle of a commit; then mend it."""
        await asyncio.sleep(self._rng.uniform(0.0, _MOMENT))
        if self._rng.random() < 0.5:
            await self._cut(news)
        (kind,) = self._rng.choices(list(KINDS), list(KINDS.values()))
        self.kills[kind] += 1
        self._recorder.mark("DOWN", kind)
        mend = await self._strikes[kind]()
        async with asyncio.timeout(self._mend_seconds):
            await mend()
            await self.leader()
        self._recorder.mark("UP", kind)

    async def leader(self) -> Replica:
        """The replica that leads, once one does."""
        while True:
            for each in self._replicas:
                if (await each.state()).get("leading"):
                    return each
            await asyncio.sleep(0.05)

    async def _cut(self, news: asyncio.Condition) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CUT), news:
                await news.wait_for(self._checker.is_cut)

    async def _leads(self) -> tuple[Replica, Replica]:
        """Who leads, and who stands by."""
        async with asyncio.timeout(self._mend_seconds):
            leader = await self.leader()
        (other,) = (each for each in self._replicas if each is not leader)
        return leader, other

    # --- strikes: each returns how it is mended

    async def _kill_leader(self) -> Mend:
        leader, _ = await self._leads()
        await leader.kill()
        return leader.start

    async def _kill_standby(self) -> Mend:
        _, other = await self._leads()
        await other.kill()
        return other.start

    async def _kill_both(self) -> Mend:
        await asyncio.gather(*(each.kill() for each in self._replicas))

        async def mend() -> None:
            await asyncio.gather(*(each.start() for each in self._replicas))

        return mend

    async def _pause_leader(self) -> Mend:
        leader, other = await self._leads()
        leader.signal(signal.SIGSTOP)

        async def mend() -> None:
            await other.until_leading()
            await asyncio.sleep(self._rng.uniform(0.0, _LATE))
            leader.signal(signal.SIGCONT)

        return mend

    async def _kill_scheduler(self) -> Mend:
        await asyncio.to_thread(self._plane.kill_scheduler, SCHEDULER)

        async def mend() -> None:
            await asyncio.to_thread(self._start_scheduler)

        return mend

    async def _kill_apiserver(self) -> Mend:
        await asyncio.to_thread(self._plane.kill_apiserver)

        async def mend() -> None:
            await asyncio.to_thread(self._plane.restart_apiserver)

        return mend

    async def _kill_two(self) -> Mend:
        leader, _ = await self._leads()
        await asyncio.gather(
            leader.kill(), asyncio.to_thread(self._plane.kill_scheduler, SCHEDULER)
        )

        async def mend() -> None:
            await asyncio.gather(leader.start(), asyncio.to_thread(self._start_scheduler))

        return mend
