"""Nodes that are not well: what they say of themselves, and which of them make gangs fail.

Failures are kept by the jobs (their restarts), so that a restart of Muster forgets none that a job
still tells.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from extender.core.framework import NO_NEWS, Failure, NodeNews
from extender.core.objects import Node

#: Put on a node by its administrator (or cloud): it is off, and its pods may be given up (KEP-2268).
OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
#: Put on a node whose kubelet says so, and on one that has not been heard of for long.
NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
#: How often failures that are too old are dropped.
FORGET_SECONDS: Final = 60.0


class Avoid(Struct, frozen=True):
    """When a node is avoided."""

    #: By all gangs: once so many of them failed there within so many seconds.
    gangs: int = 3
    window: float = 3600.0
    #: For so many seconds after its last failure; by the gang that failed there after its own.
    seconds: float = 1800.0


class Notices(Struct, frozen=True):
    """How a node says that it will be gone soon."""

    #: Keys of taints, types of conditions that are True, keys of annotations.
    taints: frozenset[str] = frozenset()
    conditions: frozenset[str] = frozenset()
    annotations: frozenset[str] = frozenset()
    #: From the notice on, what its pods have left to stop in (seconds).
    seconds: int = 25


class Avoided(Struct, frozen=True):
    """A node that every gang avoids: how many failed there, and until when (epoch seconds)."""

    gangs: int
    until: float


class Health:
    """What is the matter with nodes."""

    def __init__(self, avoid: Avoid, notices: Notices) -> None:
        self._avoid, self._notices = avoid, notices
        self._lost: dict[str, str] = {}
        self._leaving: dict[str, str] = {}
        #: Nodes of whose pods nobody can say whether they run, and can end none.
        self._silent: set[str] = set()
        #: Nodes that were deleted, for as long as pods are shown there.
        self.gone: set[str] = set()
        self._news: NodeNews | None = NO_NEWS
        #: Node → job's uid → when a member of its failed there last.
        self._failures: dict[str, dict[str, float]] = {}
        #: Nodes that every gang avoids, as they were last judged.
        self.avoiding: dict[str, Avoided] = {}
        self._judge_at = math.inf

    @property
    def news(self) -> NodeNews:
        """What job kinds are told of nodes."""
        if self._news is None:
            self._news = NodeNews(dict(self._lost), dict(self._leaving), self._notices.seconds)
        return self._news

    # what nodes say

    def seen(self, node: Node) -> bool:
        """A node was added or changed; returns whether there is news of it."""
        name, taints = node.metadata.name, {taint.key for taint in node.spec.taints}
        self.gone.discard(name)
        # As Kubernetes' pod GC has it: whoever marks a node whose kubelet is there is not believed.
        off = OUT_OF_SERVICE in taints and not _ready(node)
        lost = "is out of service" if off else ""
        silent = not taints.isdisjoint({NOT_READY, UNREACHABLE})
        return self._tell(name, lost, self._notice(node, taints), silent=silent)

    def deleted(self, name: str) -> None:
        """A node was deleted."""
        self.gone.add(name)
        self._tell(name, "does not exist any more", "")

    def forget(self, name: str) -> None:
        """No pod is shown any more on a node that was deleted."""
        self.gone.discard(name)
        self._tell(name, "", "")

    def _notice(self, node: Node, taints: set[str]) -> str:
        known = self._notices
        for key in sorted(known.taints & taints):
            return f"is about to be terminated (taint {key})"
        for each in node.status.conditions:
            if each.status == "True" and each.type in known.conditions:
                return f"is about to be terminated (condition {each.type})"
        for key in sorted(known.annotations & node.metadata.annotations.keys()):
            return f"is about to be terminated (annotation {key})"
        return ""

    def _tell(self, name: str, lost: str, leaving: str, *, silent: bool = False) -> bool:
        before = (self._lost.get(name, ""), self._leaving.get(name, ""), name in self._silent)
        if before == (lost, leaving, silent):
            return False
        for news, words in ((self._lost, lost), (self._leaving, leaving)):
            news.pop(name, None)
            if words:
                news[name] = words
        (self._silent.add if silent else self._silent.discard)(name)
        self._news = None
        return True

    def dead(self, node: str) -> bool:
        """Whether a node's pods do not run any more, for certain."""
        return node in self._lost

    def leaves(self, node: str) -> bool:
        """Whether a node says that it will be gone soon."""
        return node in self._leaving

    def silent(self, node: str) -> bool:
        """Whether nobody can say if its pods still run."""
        return node in self._silent

    # where gangs fail

    def note(self, failures: Iterable[Failure], job: str, now: float) -> None:
        """Where members of a job have failed; told again and again, it is the same failure. One that
        is still to come was written by a clock that was wrong, or by the job's user.
        """
        for each in failures:
            if each.at > now:
                continue
            jobs = self._failures.setdefault(each.node, {})
            if each.at > jobs.get(job, -math.inf):
                jobs[job] = each.at
                self._judge_at = -math.inf

    def avoided(self, own: Iterable[Failure], now: float) -> list[str]:
        """Nodes that a gang with these failures avoids, sorted; of others', as last judged."""
        recent = {each.node for each in own if 0 <= now - each.at < self._avoid.seconds}
        return sorted(recent.union(self.avoiding))

    def judge(self, now: float) -> list[str]:
        """Look at what is known of failures, where that has changed or some are too old to count;
        returns the nodes that are avoided from now on, sorted.
        """
        if now < self._judge_at:
            return []
        least = now - max(self._avoid.window, self._avoid.seconds)
        for node, jobs in list(self._failures.items()):
            self._failures[node] = {job: at for job, at in jobs.items() if at >= least}
            if not self._failures[node]:
                del self._failures[node]
        before = self.avoiding
        self.avoiding = {
            node: verdict
            for node, jobs in sorted(self._failures.items())
            if (verdict := self._verdict(jobs, now)) is not None
        }
        self._judge_at = now + FORGET_SECONDS if self._failures else math.inf
        self._judge_at = min(self._judge_at, self.next_end() or math.inf)
        return [node for node in self.avoiding if node not in before]

    def next_end(self) -> float | None:
        """When the first node is avoided no longer, if no gang fails there again."""
        return min((each.until for each in self.avoiding.values()), default=None)

    def _verdict(self, jobs: dict[str, float], now: float) -> Avoided | None:
        gangs = sum(now - at <= self._avoid.window for at in jobs.values())
        until = max(jobs.values()) + self._avoid.seconds
        return Avoided(gangs, until) if gangs >= self._avoid.gangs and until > now else None


def _ready(node: Node) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)
