"""Nodes that are not well: what they say of themselves, and which of them make gangs fail.

Failures are kept by the jobs (their restarts), so that a restart of Muster forgets none that a job
still tells.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from msgspec import Struct

from extender.core.framework import NO_NEWS, Failure, NodeNews

#: How often failures that are too old are dropped.
FORGET_SECONDS = 60.0


class Avoid(Struct, frozen=True):
    """When a node is avoided."""

    #: By all gangs: once so many of them failed there within so many seconds.
    gangs: int = 3
    window: float = 3600.0
    #: For so many seconds after its last failure; by the gang that failed there after its own.
    seconds: float = 1800.0


class Health:
    """What is the matter with nodes."""

    def __init__(self, rules: Avoid) -> None:
        self.news: NodeNews = NO_NEWS
        self._rules = rules
        self._forget_at = -math.inf
        #: Node → job's uid → when a member of its failed there last.
        self._failures: dict[str, dict[str, float]] = {}

    def note(self, failures: Iterable[Failure], job: str, now: float) -> None:
        """Where members of a job have failed; told again and again, it is the same failure. One that
        is still to come was written by a clock that was wrong, or by the job's user.
        """
        for each in failures:
            if each.at > now:
                continue
            jobs = self._failures.setdefault(each.node, {})
            jobs[job] = max(jobs.get(job, 0.0), each.at)

    def failed(self, node: str, now: float) -> int:
        """How many gangs have failed on a node of late."""
        since = now - self._rules.window
        return sum(at >= since for at in self._failures.get(node, {}).values())

    def avoided_until(self, node: str, now: float) -> float | None:
        """Until when all gangs avoid a node; None: they do not."""
        if self.failed(node, now) < self._rules.gangs:
            return None
        until = max(self._failures[node].values()) + self._rules.seconds
        return until if until > now else None

    def avoided(self, own: Iterable[Failure], now: float) -> list[str]:
        """Nodes that a gang with these failures avoids, sorted."""
        recent = {each.node for each in own if 0 <= now - each.at < self._rules.seconds}
        known = (node for node in self._failures if self.avoided_until(node, now) is not None)
        return sorted(recent.union(known))

    def forget(self, now: float) -> None:
        """Failures that are too old to count, now and then."""
        if now < self._forget_at:
            return
        self._forget_at = now + FORGET_SECONDS
        least = now - max(self._rules.window, self._rules.seconds)
        for node, jobs in list(self._failures.items()):
            self._failures[node] = {job: at for job, at in jobs.items() if at >= least}
            if not self._failures[node]:
                del self._failures[node]
