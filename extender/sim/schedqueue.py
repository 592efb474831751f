"""The stand-in scheduler's queue: active, backing off, unschedulable, gated. Pure; time is given.

Source: kubernetes ``pkg/scheduler/backend/queue`` (1.37, SchedulerPopFromBackoffQ on).
"""

from __future__ import annotations

import heapq
import itertools
from enum import Enum, auto

from extender.core.objects import Manifest
from extender.sim.wakes import Wake

#: The fake plugin that stands for a refusal by an extender; any event wakes its pods.
EXTENDER = "Extender"

#: Seconds after which an unschedulable pod is tried again without an event, and between two looks.
_LEFTOVER_SECONDS = 300.0
_FLUSH_SECONDS = 30.0
_WOKEN_BY: dict[str, frozenset[Wake]] = {
    EXTENDER: frozenset(Wake),
    "NodeResourcesFit": frozenset({Wake.NODE_ADD, Wake.NODE_ALLOCATABLE, Wake.POD_DELETE}),
    "NodePorts": frozenset({Wake.NODE_ADD, Wake.POD_DELETE}),
    "NodeAffinity": frozenset({Wake.NODE_ADD, Wake.NODE_LABELS, Wake.SELF_SPEC}),
    "TaintToleration": frozenset({Wake.NODE_ADD, Wake.NODE_TAINTS, Wake.SELF_SPEC}),
    "NodeUnschedulable": frozenset({Wake.NODE_ADD, Wake.NODE_TAINTS, Wake.SELF_SPEC}),
}


class Place(Enum):
    """Where an entry is; IN_FLIGHT ones are in a scheduling cycle."""

    ACTIVE = auto()
    BACKOFF = auto()
    UNSCHEDULABLE = auto()
    GATED = auto()
    IN_FLIGHT = auto()


class Entry:
    """One pod that has no node yet."""

    def __init__(self, pod: Manifest, now: float) -> None:
        self.pod = pod
        #: When it was queued or failed last; the older goes first.
        self.since = now
        self.place = Place.GATED
        self.attempts = 0
        self.refusals = 0
        #: Consecutive failures that were no refusals (bind error, extender down).
        self.errors = 0
        #: Plugins that refused it last; empty after an error.
        self.rejectors: frozenset[str] = frozenset()
        #: What happened while it was in its cycle.
        self.missed: set[Wake] = set()
        #: Marks older heap items of this entry as stale.
        self.ticket = 0

    @property
    def uid(self) -> str:
        uid: str = self.pod["metadata"]["uid"]
        return uid


class Queue:
    """Every pod that waits for a node. ``pop`` gives the next one; seconds throughout."""

    def __init__(self, *, initial_backoff: float = 1.0, max_backoff: float = 10.0) -> None:
        self.entries: dict[str, Entry] = {}
        self._initial_backoff = initial_backoff
        self._max_backoff = max_backoff
        self._active: list[tuple[tuple[float, ...], int, Entry]] = []
        self._backoff: list[tuple[tuple[float, ...], int, Entry]] = []
        self._errors: list[tuple[tuple[float, ...], int, Entry]] = []
        #: The unschedulable ones, and the one in its scheduling cycle: those that events concern.
        self._idle: dict[str, Entry] = {}
        self._cycle: Entry | None = None
        self._tickets = itertools.count(1)
        self._flushed = 0.0

    def see(self, pod: Manifest, now: float) -> None:
        """A pending pod was added or changed."""
        uid = pod["metadata"]["uid"]
        entry = self.entries.get(uid)
        if entry is None:
            entry = self.entries[uid] = Entry(pod, now)
            if not pod["spec"].get("schedulingGates"):
                self._activate(entry)
            return
        old, entry.pod = entry.pod, pod
        if entry.place is Place.GATED:
            if not pod["spec"].get("schedulingGates"):
                entry.since = now
                self._activate(entry)
            return
        changed = {Wake.SELF} if old != pod else set()
        if old["spec"] != pod["spec"] or _labels(old) != _labels(pod):
            changed.add(Wake.SELF_SPEC)
        self._tell(entry, changed, now)

    def remove(self, uid: str) -> None:
        """A pod is gone or has its node."""
        entry = self.entries.pop(uid, None)
        self._idle.pop(uid, None)
        if entry is not None:
            entry.ticket = next(self._tickets)

    def move(self, wake: Wake, now: float) -> None:
        """Something happened: pods that it may help leave the unschedulable ones."""
        if self._cycle is not None:
            self._cycle.missed.add(wake)
        for entry in list(self._idle.values()):
            self._tell(entry, {wake}, now)

    def pop(self, now: float) -> Entry | None:
        """The next pod to try, by priority and then age; it is in flight until :meth:`failed`."""
        self._flush(now)
        entry = _take(self._active)
        if entry is None:
            # An idle scheduler does not wait for the back-off of refused pods to end.
            entry = _take(self._backoff)
        if entry is not None:
            entry.place = Place.IN_FLIGHT
            entry.ticket = next(self._tickets)
            entry.missed.clear()
            entry.attempts += 1
        self._cycle = entry
        return entry

    def failed(self, entry: Entry, rejectors: frozenset[str], now: float) -> None:
        """Its cycle (or, with no ``rejectors``, cycle or bind) failed."""
        if entry is self._cycle:
            self._cycle = None
        if self.entries.get(entry.uid) is not entry:
            return
        entry.since, entry.rejectors = now, rejectors
        entry.refusals += bool(rejectors)
        entry.errors = 0 if rejectors else entry.errors + 1
        if not rejectors or _woken(entry, entry.missed):
            self._after_backoff(entry, now)
        else:
            entry.place = Place.UNSCHEDULABLE
            self._idle[entry.uid] = entry

    def next_time(self) -> float | None:
        """When something comes due if nothing happens before; None if nothing will."""
        times = [heap[0][0][0] + 1 for heap in (self._backoff, self._errors) if heap]
        if self._idle:
            times.append(self._flushed + _FLUSH_SECONDS)
        return min(times, default=None)

    def counts(self) -> dict[str, int]:
        """Pods by place."""
        result = {place.name.lower(): 0 for place in Place}
        for entry in self.entries.values():
            result[entry.place.name.lower()] += 1
        return result

    def _tell(self, entry: Entry, wakes: set[Wake], now: float) -> None:
        if entry.place is Place.IN_FLIGHT:
            entry.missed |= wakes
        elif entry.place is Place.UNSCHEDULABLE and _woken(entry, wakes):
            self._after_backoff(entry, now)

    def _after_backoff(self, entry: Entry, now: float) -> None:
        self._idle.pop(entry.uid, None)
        expiry = self._expiry(entry)
        if expiry < int(now):
            self._activate(entry)
            return
        entry.place = Place.BACKOFF
        heap = self._backoff if entry.rejectors else self._errors
        self._push(heap, (expiry, *_order(entry)), entry)

    def _expiry(self, entry: Entry) -> float:
        count = entry.errors or entry.refusals
        seconds = min(self._initial_backoff * 2.0 ** min(count - 1, 30), self._max_backoff)
        # Back-offs end together at whole seconds, so that priority decides among them.
        return float(int(entry.since + seconds))

    def _activate(self, entry: Entry) -> None:
        entry.place = Place.ACTIVE
        self._push(self._active, _order(entry), entry)

    def _push(
        self, heap: list[tuple[tuple[float, ...], int, Entry]], key: tuple[float, ...], entry: Entry
    ) -> None:
        entry.ticket = next(self._tickets)
        heapq.heappush(heap, (key, entry.ticket, entry))

    def _flush(self, now: float) -> None:
        for heap in (self._backoff, self._errors):
            while heap:
                key, ticket, entry = heap[0]
                if ticket == entry.ticket and key[0] >= int(now):
                    break
                heapq.heappop(heap)
                if ticket == entry.ticket:
                    self._activate(entry)
        if now >= self._flushed + _FLUSH_SECONDS:
            self._flushed = now
            for entry in list(self._idle.values()):
                if now - entry.since > _LEFTOVER_SECONDS:
                    self._after_backoff(entry, now)


def _take(heap: list[tuple[tuple[float, ...], int, Entry]]) -> Entry | None:
    while heap:
        _, ticket, entry = heapq.heappop(heap)
        if ticket == entry.ticket:
            return entry
    return None


def _order(entry: Entry) -> tuple[float, ...]:
    return (-(entry.pod["spec"].get("priority") or 0), entry.since)


def _woken(entry: Entry, wakes: set[Wake]) -> bool:
    return any(not _WOKEN_BY[plugin].isdisjoint(wakes) for plugin in entry.rejectors)


def _labels(pod: Manifest) -> Manifest:
    return pod["metadata"].get("labels") or {}
