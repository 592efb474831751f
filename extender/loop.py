"""The one task that owns the core: inbox in, commands out.

Nothing else writes state. Events are applied in the order they came, as many as have queued up,
and then the core decides once; so the cost of deciding is shared when the cluster is busy.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from extender.core.commands import Answer, Bind, Command, Create, Delete, Notice, Patch, WakeAt
from extender.core.coordinator import Coordinator
from extender.core.errors import InvariantViolated
from extender.core.events import Event, Tick
from extender.obs.log import logger
from extender.obs.metrics import Metrics
from extender.obs.placements import Placements
from extender.obs.recorder import Recorder

#: Events applied before the core decides and the event loop may serve others (50 µs each).
BATCH = 32
#: The same while nobody is served, as the first lists are read.
FIRST_BATCH = 256
#: Events waiting beyond which those that can wait do: what the API server has to tell.
CROWDED = 4096
#: A turn's rest: so many times what it took, and at most so long (seconds).
REST, LONGEST_REST = 3.0, 0.005
#: Seconds to which the core's wishes to be woken are rounded up.
WAKE_STEP = 0.01
#: Seconds between two looks at the invariants of a running process.
VERIFY_SECONDS = 60.0

_log = logger("loop")


def steady(wall: Callable[[], float], counter: Callable[[], float]) -> Callable[[], float]:
    """Seconds since the epoch, as ``counter`` goes on from ``wall``: setting the machine's clock
    does not move it.
    """
    offset = wall() - counter()
    return lambda: offset + counter()


def rest(taken: float) -> float:
    """Seconds from a turn that took so long to the next, which then decides for what has come
    meanwhile, too: a decision costs nearly the same for one event as for many.
    """
    return min(max(0.0, REST * taken), LONGEST_REST)


class Loop:
    """The inbox, and the task that empties it."""

    def __init__(
        self,
        coordinator: Coordinator,
        metrics: Metrics,
        *,
        clock: Callable[[], float],
        recorder: Recorder | None = None,
    ) -> None:
        """``clock``: seconds since the epoch. ``recorder`` is told of every turn."""
        self.coordinator = coordinator
        self.faults = 0
        self._metrics = metrics
        self._recorder = recorder
        self._clock = clock
        self._answer: Callable[[int, str], object] = lambda token, error: None
        self._submit: Callable[[Bind | Create | Patch | Delete | Notice], None] = lambda command: (
            None
        )
        self._queue: deque[Event] = deque()
        self._something = asyncio.Event()
        self._room = asyncio.Event()
        self._now = 0.0
        self._timer: asyncio.TimerHandle | None = None
        #: Times at which the core wants to be asked again: a heap, and the same as a set.
        self._wakes: list[float] = []
        self._wishes: set[float] = set()
        self._verified_at = 0.0
        self._counted: dict[str, int] = {}
        self._placements = Placements(metrics)
        metrics.queue_length.set_function(lambda: len(self._queue))
        metrics.evidence.set_function(lambda: len(coordinator.state.evidence))

    def connect(
        self,
        answer: Callable[[int, str], object],
        submit: Callable[[Bind | Create | Patch | Delete | Notice], None],
    ) -> None:
        """Where commands go: ``answer`` resolves an open /bind, ``submit`` takes the others."""
        self._answer, self._submit = answer, submit

    def put(self, event: Event) -> None:
        """Queue an event; never blocks."""
        self._queue.append(event)
        self._something.set()

    @property
    def waiting(self) -> int:
        """Events in the inbox."""
        return len(self._queue)

    async def room(self) -> None:
        """Let others run, and come back when fewer than CROWDED events wait."""
        await asyncio.sleep(0)
        while len(self._queue) >= CROWDED:
            self._room.clear()
            await self._room.wait()

    async def run(self) -> None:
        """Apply and decide until cancelled."""
        while True:
            await self._something.wait()
            began = self._clock()
            self.turn()
            rests = self.coordinator.state.synced and len(self._queue) < BATCH
            await asyncio.sleep(rest(self._clock() - began) if rests else 0)

    def turn(self) -> None:
        """One batch and one decision."""
        now = self._now = max(self._now, self._clock())
        most = BATCH if self.coordinator.state.synced else FIRST_BATCH
        events = [self._queue.popleft() for _ in range(min(most, len(self._queue)))]
        for event in events:
            self._guarded(partial(self.coordinator.apply, event, now))
        if not self._queue:
            self._something.clear()
        if len(self._queue) < CROWDED:
            self._room.set()
        if not self._guarded(lambda: self._decide(now, events)):
            self._set_aside(now)
        self._observe(now)
        self._metrics.turn_seconds.observe(max(0.0, self._clock() - now))

    def _decide(self, now: float, events: Sequence[Event]) -> None:
        state, began = self.coordinator.state, self._clock()
        plans = state.counters.get("plans", 0)
        commands = self._step(now, events)
        if state.counters.get("plans", 0) != plans:
            self._metrics.plan_seconds.observe(max(0.0, self._clock() - began))
        for command in commands:
            match command:
                case Answer(token, error):
                    self._answer(token, error)
                case WakeAt(at):
                    self._wake_by(at)
                case Bind() | Create() | Patch() | Delete() | Notice():
                    self._placements.sent(command, now)
                    self._submit(command)
                case _:
                    raise InvariantViolated("commands", f"nobody carries out {command!r}")

    def _step(self, now: float, events: Sequence[Event]) -> Sequence[Command]:
        """The core's decision; a broken one is recorded, too."""
        commands: Sequence[Command] | None = None
        try:
            commands = self.coordinator.step(now)
            return commands
        finally:
            if self._recorder is not None:
                self._recorder.turn(now, events, commands, self.coordinator.state)

    def _set_aside(self, now: float) -> None:
        """What a broken step was at must not break the next one too; that one comes at once."""
        if name := self.coordinator.set_aside(now):
            _log.error("left alone for a while, as it breaks the loop", object=name)
            self.put(Tick())

    def _guarded(self, work: Callable[[], None]) -> bool:
        """A fault of the core's own costs one event, is counted, and is never silent."""
        try:
            work()
            return True
        except Exception as error:  # noqa: BLE001 - the loop must outlive any fault of one event
            self.faults += 1
            self._metrics.invariant_violations.labels("loop").inc()
            _log.error("fault in the core", exc_info=error)
            return False

    def _wake_by(self, at: float) -> None:
        """Keep every wish, in steps of WAKE_STEP, so that none is lost behind an earlier one."""
        step = math.ceil(at / WAKE_STEP) * WAKE_STEP
        if step < at:
            step += WAKE_STEP  # the product is rounded, too
        if step in self._wishes:
            return
        self._wishes.add(step)
        heapq.heappush(self._wakes, step)
        if self._wakes[0] == step:
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay = max(0.0, self._wakes[0] - self._clock())
        self._timer = asyncio.get_running_loop().call_later(delay, self._woken)

    def _woken(self) -> None:
        """Tell the core the time, never before it wished: a moment too early is no wake at all,
        and timers need not go as fast as the clock.
        """
        now = self._clock()
        self._timer = None
        due = False
        while self._wakes and self._wakes[0] <= now:
            self._wishes.discard(heapq.heappop(self._wakes))
            due = True
        if self._wakes:
            self._set_timer()
        if due:
            self.put(Tick())

    def _observe(self, now: float) -> None:
        state = self.coordinator.state
        self._placements.look(state, now)
        for told, histogram in (
            (state.barriers, self._metrics.barrier_seconds),
            (state.holds, self._metrics.hold_seconds),
        ):
            for seconds in told:
                histogram.observe(max(0.0, seconds))
            told.clear()
        for code, value in state.refusals.items():
            self._metrics.refusals.labels(str(code)).inc(value)
        state.refusals.clear()
        for what, value in state.counters.items():
            if new := value - self._counted.get(what, 0):
                self._metrics.core.labels(what).inc(new)
                self._counted[what] = value
        if now - self._verified_at >= VERIFY_SECONDS:
            self._verified_at = now
            try:
                state.cluster.verify()
            except InvariantViolated as error:
                self._metrics.invariant_violations.labels(error.invariant).inc()
                _log.error("the state contradicts itself", error=str(error))
