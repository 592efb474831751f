"""An event loop on virtual time, and processes on it that can be paused and killed.

Time passes only when nothing is left to do at the present instant. Callbacks run in the order that
asyncio promises; timers that come due at one instant, which it leaves open, in an order drawn from
the seed. There are no sockets, threads or signals: whatever waits for one waits for ever.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any

#: Seconds within which two timers count as due at one instant.
_INSTANT = 1e-9
#: Callbacks at one instant beyond which something goes round for ever.
_LIVELOCK = 200_000


class Stuck(RuntimeError):
    """Time does not pass any more: nobody waits for it, or somebody never does."""


class Process:
    """What runs in one memory: its tasks, and the callbacks that wait while it is paused."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.paused = False
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.parked: list[asyncio.Handle] = []
        self._fuse: tuple[int, Callable[[], object]] | None = None

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task that belongs to this process, as does what it starts."""
        context = copy_context()
        context.run(_OWNER.set, self)
        return asyncio.get_running_loop().create_task(work, context=context)

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """The same, where nobody waits for its end."""
        self.spawn(work).add_done_callback(_died)

    def kill(self) -> None:
        """End every task where it awaits. Nothing that it does from now on gets out."""
        self.dead = True
        self.resume()
        for task in list(self.tasks):
            task.cancel()

    def strike(self, steps: int, call: Callable[[], object]) -> None:
        """Call once it has run ``steps`` more callbacks: that is, between two of its awaits."""
        self._fuse = (steps, call)

    def disarm(self) -> None:
        """Nothing strikes any more."""
        self._fuse = None

    def stepped(self) -> None:
        """One of its callbacks has run."""
        if self._fuse is None:
            return
        left, call = self._fuse
        self._fuse = (left - 1, call) if left > 1 else None
        if left <= 1:
            OUTSIDE.copy().run(call)

    def pause(self) -> None:
        """Stop running; what happens meanwhile is found on :meth:`resume`."""
        self.paused = not self.dead

    def resume(self) -> None:
        self.paused = False
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.unpark(self)


def _died(task: asyncio.Task[Any]) -> None:
    """A program that ends with an error is reported at once, not when it is collected."""
    if not task.cancelled() and (error := task.exception()) is not None:
        task.get_loop().call_exception_handler({"message": "a program died", "exception": error})


_OWNER: ContextVar[Process | None] = ContextVar("owner", default=None)

#: The context of what belongs to no process: the network and the API server.
OUTSIDE: Context = Context()


class VirtualLoop(asyncio.BaseEventLoop):
    """``loop.time()`` starts at 0. ``turns`` counts callbacks that ran."""

    # Of asyncio.BaseEventLoop, the same from CPython 3.11 to 3.14.
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _timer_cancelled_count: int

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.turns = 0
        #: What asyncio reports of tasks and callbacks that failed with nobody looking.
        self.faults: list[str] = []
        self._now = 0.0
        #: Callbacks since time passed last.
        self._at_once = 0
        self._rng = rng
        self.set_task_factory(self._owned)  # type: ignore[arg-type]
        self.set_exception_handler(self._fault)

    def time(self) -> float:
        return self._now

    def unpark(self, process: Process) -> None:
        """What a paused process has missed is due now."""
        self._ready.extend(process.parked)
        process.parked.clear()

    def _write_to_self(self) -> None:
        """Nothing sleeps that a thread would have to wake."""

    def _run_once(self) -> None:
        if not self._ready:
            self._jump()
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if handle.cancelled():
                continue
            owner = handle._context.get(_OWNER)  # type: ignore[attr-defined]  # noqa: SLF001
            if owner is not None and owner.paused:
                owner.parked.append(handle)
                continue
            self.turns += 1
            self._at_once += 1
            handle._run()  # noqa: SLF001
            if owner is not None:
                owner.stepped()
        if self._at_once > _LIVELOCK:
            self._at_once = 0
            raise Stuck(f"{_LIVELOCK} callbacks and no time has passed")

    def _jump(self) -> None:
        """To the time of the next timer; those that are due then become ready."""
        heap = self._scheduled
        due: list[asyncio.Handle] = []
        while heap and (heap[0].cancelled() or not due or heap[0].when() <= self._now + _INSTANT):
            timer = heapq.heappop(heap)
            timer._scheduled = False  # type: ignore[attr-defined]  # noqa: SLF001
            if timer.cancelled():
                self._timer_cancelled_count -= 1
                continue
            if timer.when() > self._now:
                self._now, self._at_once = timer.when(), 0
            due.append(timer)
        if not due:
            raise Stuck("no timer is set")
        self._rng.shuffle(due)
        self._ready.extend(due)

    def _owned(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Coroutine[Any, Any, Any],
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        context = copy_context() if context is None else context
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, context=context)
        owner = context.get(_OWNER)
        if owner is not None:
            owner.tasks[task] = None
            task.add_done_callback(lambda done: owner.tasks.pop(done, None), context=OUTSIDE)
            if owner.dead:
                task.cancel()
        return task

    def _fault(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.faults.append(f"{context.get('message')}: {context.get('exception')!r}")


def later(seconds: float, call: Callable[..., object], *args: Any) -> None:
    """Call from outside of every process, after a while."""
    asyncio.get_running_loop().call_later(seconds, call, *args, context=OUTSIDE)
