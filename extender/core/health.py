"""Nodes that are not well: what they say of themselves, and which of them make gangs fail.

A failure counts for others' gangs where this process saw it. What jobs tell of failures is for their own
gangs alone: whoever may edit a job may edit that, and would choose where others are placed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from extender.core import times
from extender.core.framework import Failure, NodeNews
from extender.core.objects import Node

#: Put on a node by its administrator (or cloud): it is off, and its pods may be given up (KEP-2268).
OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
#: Put on a node whose kubelet says so, and on one that has not been heard of for long.
NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
_GONE: Final = "does not exist any more"
#: How often failures that are too old are dropped.
FORGET_SECONDS: Final = 60.0


class Avoid(Struct, frozen=True):
    """When a node is avoided."""

    #: By all gangs: once so many of them failed there within so many seconds.
    gangs: int = 3
    window: float = 3600.0
    #: For so many seconds after its last failure; by the gang that failed there after its own.
    seconds: float = 1800.0


class Loss(Struct, frozen=True):
    """When a node is believed to be lost."""

    #: What kube-controller-manager takes at most to say that a node is not heard of (seconds):
    #: --node-monitor-grace-period, 50 s, 40 s before 1.32, and a round of 5 s.
    noticed: float = 60.0
    #: So many seconds after it was deleted, where it was well: a Node may be deleted by mistake, or
    #: made again. Kubernetes' own pod garbage collector waits as long.
    deleted: float = 40.0


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

    def __init__(self, avoid: Avoid, notices: Notices, loss: Loss) -> None:
        self._avoid, self._notices, self._loss = avoid, notices, loss
        self._lost: dict[str, str] = {}
        self._leaving: dict[str, str] = {}
        #: Nodes of whose pods nobody can say whether they run, and can end none.
        self._silent: dict[str, str] = {}
        #: Of lost and silent nodes, since when they are known to be.
        self._since: dict[str, float] = {}
        #: Nodes that were deleted, for as long as pods are shown there, and when that is believed.
        self.gone: dict[str, float] = {}
        self._news: NodeNews | None = None
        #: Node → job's uid → when a member of its failed there last.
        self._failures: dict[str, dict[str, float]] = {}
        #: Nodes that every gang avoids, as they were last judged.
        self.avoiding: dict[str, Avoided] = {}
        self._judge_at = math.inf

    @property
    def news(self) -> NodeNews:
        """What job kinds are told of nodes."""
        if self._news is None:
            self._news = NodeNews(
                lost=dict(self._lost),
                silent=dict(self._silent),
                since=dict(self._since),
                noticed=self._loss.noticed,
                leaving=dict(self._leaving),
                seconds=self._notices.seconds,
            )
        return self._news

    # what nodes say

    def seen(self, node: Node, now: float) -> bool:
        """A node was added or changed; returns whether there is news of it."""
        name, taints = node.metadata.name, {taint.key for taint in node.spec.taints}
        self.gone.pop(name, None)
        # As Kubernetes' pod GC has it: whoever marks a node whose kubelet is there is not believed.
        off = OUT_OF_SERVICE in taints and not _ready(node)
        lost = "is out of service" if off else ""
        silent = "" if taints.isdisjoint({NOT_READY, UNREACHABLE}) else "is not heard of"
        return self._tell(name, lost, self._notice(node, taints), silent, _unready_since(node, now))

    def deleted(self, name: str, now: float) -> None:
        """A node was deleted. That is believed at once of one that was not well, or about to go."""
        if name in self.gone:
            return
        if name in self._lost or name in self._leaving or name in self._silent:
            self.gone[name] = now
            self._tell(name, _GONE, "", "", now)
        else:
            self.gone[name] = now + self._loss.deleted
            self._tell(name, "", "", "was deleted", now)

    def believe(self, now: float) -> list[str]:
        """Nodes that were deleted so long ago that they count as lost from now on."""
        due = [node for node, at in self.gone.items() if at <= now]
        due = [node for node in due if self._lost.get(node) != _GONE]
        for node in due:
            self._tell(node, _GONE, "", "", now)
        return due

    def next_loss(self, now: float) -> float | None:
        """When the next node that was deleted counts as lost."""
        return min((at for at in self.gone.values() if at > now), default=None)

    def forget(self, name: str) -> None:
        """No pod is shown any more on a node that was deleted."""
        self.gone.pop(name, None)
        self._tell(name, "", "", "", 0.0)

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

    def _tell(self, name: str, lost: str, leaving: str, silent: str, since: float) -> bool:
        """``since``: when it was lost or fell silent, if it just has."""
        told = ((self._lost, lost), (self._leaving, leaving), (self._silent, silent))
        if all(news.get(name, "") == words for news, words in told):
            return False
        for news, words in told:
            news.pop(name, None)
            if words:
                news[name] = words
        if lost or silent:
            self._since.setdefault(name, since)
        else:
            self._since.pop(name, None)
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

    def note(self, failed: Failure, job: str) -> None:
        """A member of a job was seen to fail. Of one job a node has one failure, the last."""
        jobs = self._failures.setdefault(failed.node, {})
        if failed.at > jobs.get(job, -math.inf):
            jobs[job] = failed.at
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


def _unready_since(node: Node, now: float) -> float:
    """Since when its condition says that it is not ready; now, where it does not say so."""
    said = [c for c in node.status.conditions if c.type == "Ready" and c.status != "True"]
    at = times.parse(said[0].last_transition_time) if said else None
    return now if at is None else min(at, now)
