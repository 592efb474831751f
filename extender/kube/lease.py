"""Leader election on a Lease, without trusting anybody's clock but our own.

The API has no fencing token, so the promise is made of time. With T the moment (our monotonic
clock) just before the last renewal that succeeded was sent:

- the holder writes only before T + renew_deadline (:meth:`LeaderElector.may_write`);
- another replica takes the Lease only when it has seen it unchanged for ``duration``, which begins
  after T, so not before T + duration > T + renew_deadline;
- it then waits ``drain`` more, the longest that a request of the old holder can still be on its
  way, before it says LeaderGained. Only a holder that released the Lease (an empty holderIdentity,
  written after its last command was answered) spares it that wait.

``leaseTransitions`` is the epoch. It grows with every leadership, also of the same holder, and
starts from a number the caller gives (seconds of its start), so that it keeps growing when the
Lease was deleted or election was switched off for a while.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable

from msgspec import Struct

from extender.core.errors import ConfigError
from extender.core.events import LeaderGained, LeaderLost
from extender.core.verdict import Inbox
from extender.kube.backoff import Backoff
from extender.kube.complaints import Complaints
from extender.kube.label import LeaderLabel
from extender.kube.leaseobject import Lease, LeaseObject
from extender.kube.replies import Requests
from extender.obs.log import logger
from extender.obs.metrics import Metrics

#: Seconds between two looks of the holder at its own label.
LABEL_SECONDS = 15.0
#: leaseTransitions is an int32.
_MAX_EPOCH = 2**31 - 1

#: Ends of leading that nobody need look at.
_ON_PURPOSE = ("stopped", "released")

_log = logger("lease")


def boottime() -> float:
    """Monotonic seconds that also pass while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Timing(Struct, frozen=True):
    """Seconds. The defaults are client-go's 15, 10 and 2."""

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry: float = 2.0
    #: Longest that a request of a command may take: the executor's request time-out.
    drain: float = 10.0

    def check(self) -> None:
        """Raise ConfigError unless a holder gives up before others may take over."""
        if not 0 < self.retry < self.renew_deadline < self.duration:
            raise ConfigError(
                f"lease: retry {self.retry}, renew deadline {self.renew_deadline} and duration"
                f" {self.duration} (seconds) must grow in this order"
            )
        if self.drain < 0:
            raise ConfigError(f"lease: drain {self.drain} is not allowed: 0 or more seconds")


class LeaderElector:
    """One replica's side. :meth:`run` campaigns until cancelled; then call :meth:`release`."""

    def __init__(
        self,
        client: Requests,
        inbox: Inbox,
        metrics: Metrics,
        rng: random.Random,
        *,
        namespace: str,
        name: str,
        identity: str,
        first_epoch: int,
        timing: Timing,
        pod: str = "",
        pod_namespace: str = "",
        clock: Callable[[], float] = boottime,
        wall: Callable[[], float] = time.time,
        complaints: Complaints | None = None,
    ) -> None:
        """``identity`` is unique to this process and starts with the pod's name and ``_`` (as
        client-go's), so that a successor can take the label off a holder that cannot. ``pod`` is
        the own pod's name; "" when there is none to label. ``pod_namespace``: where that pod is
        (the Lease's ``namespace`` if empty).
        """
        timing.check()
        self._inbox = inbox
        self._metrics = metrics
        self._identity = identity
        self._first_epoch = first_epoch
        self._timing = timing
        self._label = LeaderLabel(client, rng, pod_namespace or namespace, pod) if pod else None
        self._clock = clock
        self._rng = rng
        self._complaints = complaints or Complaints()
        self._lease = LeaseObject(
            client,
            self._complaints,
            namespace=namespace,
            name=name,
            duration=timing.duration,
            timeout=timing.renew_deadline / 2,
            clock=clock,
            wall=wall,
        )
        #: Whom the log named last as the holder that we stand by for.
        self._named = ""
        #: Whether LeaderGained was said and LeaderLost was not.
        self._leading = False
        #: Nothing may be sent from here on, unless a renewal moves it.
        self._valid_until = float("-inf")
        #: Whether the old holder's requests are known to be over, so that ours may be the last.
        self._settled = False

    def may_write(self) -> bool:
        """Whether a request may be sent now; to be asked immediately before every one.

        The first call after the time has run out (a process that was paused) says LeaderLost
        before it returns false.
        """
        if self._leading and self._clock() >= self._valid_until:
            self._lose("the Lease was not renewed in time")
        return self._leading

    @property
    def identity(self) -> str:
        """This replica's name in the Lease."""
        return self._identity

    def holder(self) -> str:
        """Who holds the Lease, as last read; empty where nobody does or it was never read."""
        return self._lease.holder

    async def run(self) -> None:
        """Campaign, lead, and campaign again, until cancelled."""
        self._show()
        try:
            while True:
                self._settled = False
                clean = await self._acquire()
                if await self._settle(clean=clean):
                    await self._keep()
        finally:
            self._lose("stopped")

    async def release(self) -> None:
        """Give the Lease up at once, so that the next holder need not wait.

        Call after :meth:`run` has ended, and only when every command has been answered. A Lease
        that was taken but not led with is kept: its old holder may not have stopped.
        """
        self._lose("released")
        if self._label is not None:
            await self._label.settle()
        lease = self._lease.seen
        if not self._settled or lease is None or lease.spec.holder_identity != self._identity:
            return
        reply = await self._lease.write(
            "", lease, lease.spec.lease_transitions or 0, self._timing.retry
        )
        if not reply.ok:
            _log.warning("not released", error=reply.message)
        self._lease.forget()

    async def close(self) -> None:
        """End what runs in the background."""
        if self._label is not None:
            await self._label.close()

    async def _acquire(self) -> bool:
        """Wait until the Lease is ours; whether its last holder has certainly stopped writing."""
        backoff = Backoff(self._rng, first=self._timing.retry / 4, most=self._timing.retry)
        while True:
            reply = await self._lease.read()
            sent = self._clock()
            if reply.code == 404:
                reply = await self._lease.create(self._identity, self._first_epoch)
                if reply.ok:
                    self._valid_until = sent + self._timing.renew_deadline
                    return False
            elif not reply.ok:
                self._complaints.wrong(f"read Lease {self._lease.place}", reply.error())
            elif (lease := self._lease.seen) is not None and self._free(lease):
                clean = not lease.spec.holder_identity
                epoch = max((lease.spec.lease_transitions or 0) + 1, self._first_epoch)
                old = lease.spec.holder_identity or ""
                reply = await self._lease.write(self._identity, lease, min(epoch, _MAX_EPOCH))
                if reply.ok:
                    self._valid_until = sent + self._timing.renew_deadline
                    if self._label is not None:
                        self._label.take_off(old)
                    return clean
            else:
                backoff.reset()
                self._stand_by()
                await asyncio.sleep(self._timing.retry * self._rng.uniform(1.0, 1.2))
                continue
            await asyncio.sleep(backoff.pause(reply.retry_after))

    def _stand_by(self) -> None:
        """Say who leads, once for each holder."""
        holder = self.holder()
        if holder != self._named:
            self._named = holder
            _log.info("standing by", lease=self._lease.place, holder=holder)

    def _free(self, lease: Lease) -> bool:
        """Whether the Lease, as last read, may be taken: nobody's, our own of before, or expired."""
        if lease.spec.holder_identity in (None, "", self._identity):
            return True
        duration = max(self._timing.duration, float(lease.spec.lease_duration_seconds or 0))
        return self._clock() > self._lease.seen_at + duration

    async def _settle(self, *, clean: bool) -> bool:
        """Renew while requests of the old holder may still arrive; then lead, unless lost again."""
        until = self._clock() + (0.0 if clean else self._timing.drain)
        while (left := until - self._clock()) > 0:
            await asyncio.sleep(min(left, self._timing.retry))
            if not await self._renew():
                return False
        lease = self._lease.seen
        if lease is None or self._clock() >= self._valid_until:
            return False
        self._leading = self._settled = True
        epoch = lease.spec.lease_transitions or 0
        self._metrics.leader.set(1)
        self._metrics.leader_epoch.set(epoch)
        self._named = ""
        _log.info("leading", lease=self._lease.place, epoch=epoch)
        self._inbox.put(LeaderGained(epoch))
        self._show()
        return True

    async def _keep(self) -> None:
        """Renew until that fails for good."""
        labelled_at = self._clock()
        while self.may_write():
            await asyncio.sleep(self._timing.retry)
            if not self.may_write() or not await self._renew():
                break
            if self._label is not None and self._clock() - labelled_at >= LABEL_SECONDS:
                labelled_at = self._clock()
                self._label.confirm()
        self._lose("the Lease could not be renewed")

    async def _renew(self) -> bool:
        """One renewal, tried again until the deadline; false when the Lease is no longer ours."""
        backoff = Backoff(self._rng, first=self._timing.retry / 8, most=self._timing.retry)
        while (left := self._valid_until - self._clock()) > 0:
            lease = self._lease.seen
            if lease is None or lease.spec.holder_identity != self._identity:
                return False
            sent = self._clock()
            reply = await self._lease.write(
                self._identity,
                lease,
                lease.spec.lease_transitions or 0,
                min(left, self._timing.renew_deadline / 2),
            )
            if reply.ok:
                self._metrics.lease_renewals.labels("ok").inc()
                self._valid_until = sent + self._timing.renew_deadline
                return True
            self._metrics.lease_renewals.labels("refused" if reply.code else "unreachable").inc()
            if reply.code != 409:
                self._complaints.wrong(f"renew Lease {self._lease.place}", reply.error())
            if reply.code == 404:
                self._lease.forget()
                return False
            # Somebody changed it, or our own write arrived though its answer did not.
            if reply.code == 409 and (await self._lease.read()).ok:
                continue
            await asyncio.sleep(backoff.pause(reply.retry_after))
        return False

    def _lose(self, why: str) -> None:
        self._valid_until = float("-inf")
        if not self._leading:
            return
        self._leading = False
        self._metrics.leader.set(0)
        level = logging.INFO if why in _ON_PURPOSE else logging.WARNING
        _log.log(level, "no longer leading", why=why)
        self._inbox.put(LeaderLost())
        self._show()

    def _show(self) -> None:
        if self._label is not None:
            self._label.want(on=self._leading)
