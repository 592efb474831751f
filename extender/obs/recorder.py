"""Writes what the core was told and what it answered to a file, beside the loop and never before it.

The loop's thread encodes and queues; another one writes, some ten times a second, whatever has
queued up, so that a slow disk costs memory up to a bound, and then the log: what is dropped is
counted, and said in the header of the file that goes on after it. Every file can be replayed by
itself, as it begins with all that had been told before. A kill loses a tenth of a second.
"""

from __future__ import annotations

import asyncio
import errno
import glob
import os
import secrets
import threading
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from extender.core import codec
from extender.core.commands import Command
from extender.core.events import Event
from extender.core.redact import Redactor
from extender.core.replaying import at_rest
from extender.core.state import State
from extender.core.told import Told
from extender.obs.log import logger
from extender.obs.logfile import OBJECTS, Header, Lost, TurnLine
from extender.obs.metrics import Metrics

#: Seconds between two writes.
FLUSH_SECONDS = 0.1
#: Seconds between two tries to go on after something was lost, and between two looks for rest.
RETRY_SECONDS = 5.0
REST_SECONDS = 1.0
#: Objects written at once.
_CHUNK = 1000

_log = logger("recorder")
_encoder = msgspec.json.Encoder()


class Limits(Struct, frozen=True):
    """In bytes: a file (up to half as much again; three times the objects that it begins with,
    where that is more), and what may be queued. ``older``: files kept beside the current one.
    """

    file: int = 48 << 20
    older: int = 4
    buffer: int = 32 << 20


LIMITS = Limits()


class _Queued(Struct, frozen=True):
    """A turn, and how many events it has."""

    line: bytes
    events: int


class _Begin(Struct, frozen=True):
    """A new file."""

    header: Header
    told: Sequence[bytes]


class Recorder:
    """The log at ``path``; older parts are ``path.1``, ``path.2``, … the highest being the latest."""

    def __init__(
        self, path: Path, header: Header, metrics: Metrics, *, key: bytes, limits: Limits = LIMITS
    ) -> None:
        """``header``: of the first file. ``key``: secret and random, see Redactor."""
        self.path = path
        self._header, self._limits, self._metrics = header, limits, metrics
        self._redactor = Redactor(key)
        self._told = Told()
        #: What is missing since the file before; both threads lose turns.
        self._lost = Lost()
        self._losing = threading.Lock()
        #: Time of the last try to go on after a loss, and of the last look for rest.
        self._tried_at = self._looked_at = 0.0
        self._seeks_rest = False
        #: Bytes of the present file, and those of them that it began with.
        self._size = self._began_with = 0
        self._queue: deque[_Queued | _Begin] = deque()
        #: Bytes queued ever, by the loop's thread alone, and written or dropped, by the other.
        self._put = self._taken = 0
        #: Set by the writing thread when it could not write; cleared when a file is to begin.
        self._broken = False
        self._file: BinaryIO | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)

    def start(self) -> None:
        """Create the file and begin to write. Raises OSError."""
        self._open(_Begin(self._header, ()))
        self._thread.start()

    def close(self) -> None:
        """Write what is queued, and end; waits for the disk."""
        self._stop.set()
        self._thread.join()
        if self._file is not None:
            self._file.close()

    # on the loop's thread

    def turn(
        self, now: float, events: Sequence[Event], commands: Sequence[Command] | None, state: State
    ) -> None:
        """One turn: what was applied, and what the step gave (None: broken off by a fault).

        Never raises: a fault of the log's costs the log.
        """
        try:
            self._turn(now, events, commands, state)
        except Exception as error:  # noqa: BLE001 - the loop must outlive any fault in here
            self._lose(len(events))
            self._metrics.invariant_violations.labels("recorder").inc()
            _log.error("fault in the recorder", exc_info=error)

    def _turn(
        self, now: float, events: Sequence[Event], commands: Sequence[Command] | None, state: State
    ) -> None:
        raw = []
        for event in events:
            encoded = codec.encode(self._redactor.event(event))
            self._told.tell(event, encoded)
            raw.append(Raw(encoded))
        if self._lost.turns or self._broken:
            self._lose(len(raw))
            self._go_on(now, state)
            return
        given = [Raw(codec.encode(self._redactor.command(each))) for each in commands or ()]
        line = TurnLine(now, raw, given, commands is None, self._rests(now, state))
        self._append(_encoder.encode(line) + b"\n", len(raw))
        if self._full(now, state):
            self._begin(state)

    def _append(self, line: bytes, events: int) -> None:
        if self._waiting() + len(line) > self._limits.buffer:
            _log.warning("the disk is too slow for the log, which has a gap", file=str(self.path))
            self._lose(events)
            return
        self._put += len(line)
        self._size += len(line)
        self._queue.append(_Queued(line, events))

    def _lose(self, events: int) -> None:
        with self._losing:
            self._lost.turns += 1
            self._lost.events += events
        self._metrics.record_lost.inc()

    def _go_on(self, now: float, state: State) -> None:
        """After a loss: with a new file, once there is room, and not again at once if that fails."""
        if self._waiting() <= self._limits.buffer // 2 and now >= self._tried_at + RETRY_SECONDS:
            self._tried_at = now
            self._begin(state)

    def _waiting(self) -> int:
        """Bytes that are queued."""
        return self._put - self._taken

    def _full(self, now: float, state: State) -> bool:
        """Whether a new file is due; a moment of rest is waited for, as long as half a file."""
        limit = max(self._limits.file, 2 * self._began_with)
        return self._size >= limit and (self._size >= 1.5 * limit or self._looks(now, state))

    def _begin(self, state: State) -> None:
        told = self._told.again()
        with self._losing:
            lost, self._lost = self._lost, Lost()
        rest = at_rest(state)
        self._header = replace(
            self._header,
            part=self._header.part + 1,
            begins=OBJECTS,
            rest=rest,
            lost=lost if lost.turns else None,
        )
        self._began_with = self._size = sum(map(len, told))
        self._seeks_rest, self._broken = not rest, False
        self._queue.append(_Begin(self._header, told))

    def _rests(self, now: float, state: State) -> bool:
        """Whether this is the first moment of rest in a file that began without."""
        if not self._seeks_rest or not self._looks(now, state):
            return False
        self._seeks_rest = False
        return True

    def _looks(self, now: float, state: State) -> bool:
        """Whether all is at rest. Looked at now and then: it takes a look at every gang."""
        if now < self._looked_at + REST_SECONDS:
            return False
        self._looked_at = now
        return at_rest(state)

    # on the writing thread

    def _run(self) -> None:
        while not self._stop.wait(FLUSH_SECONDS):
            self._drain()
        self._drain()

    def _drain(self) -> None:
        batch: list[_Queued] = []
        while self._queue:
            item = self._queue.popleft()
            if isinstance(item, _Queued):
                batch.append(item)
                continue
            self._append_all(batch)
            batch = []
            self._anew(item)
        self._append_all(batch)

    def _anew(self, begin: _Begin) -> None:
        try:
            self._open(begin)
        except OSError as error:
            self._fail(error, begin.header.lost or Lost())

    def _append_all(self, batch: Sequence[_Queued]) -> None:
        """Write turns; without a file, because it failed, they are dropped."""
        if not batch:
            return
        data = b"".join(queued.line for queued in batch)
        try:
            if self._file is None:
                raise OSError(errno.EBADF, "there is no file to write to")
            _write(self._file, data)
        except OSError as error:
            self._metrics.record_lost.inc(len(batch))
            self._fail(error, Lost(len(batch), sum(queued.events for queued in batch)))
        self._taken += len(data)

    def _open(self, begin: _Begin) -> None:
        """Begin a file; an earlier one of this name, be it another process's, is kept for a while."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._put_aside()
        # Not for everybody: names, images and hosts are in it.
        number = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        file = os.fdopen(number, "wb", buffering=0)
        try:
            _write(file, _encoder.encode(begin.header) + b"\n")
            for start in range(0, len(begin.told), _CHUNK):
                some = begin.told[start : start + _CHUNK]
                _write(file, b"".join(b'{"told":' + each + b"}\n" for each in some))
        except OSError:
            file.close()
            # A beginning of a beginning is worth nothing, and each further try would push one of
            # the files before out.
            self.path.unlink(missing_ok=True)
            raise
        self._file = file

    def _put_aside(self) -> None:
        numbers = sorted(
            int(each.suffix[1:])
            for each in self.path.parent.glob(f"{glob.escape(self.path.name)}.*")
            if each.suffix[1:].isdecimal()
        )
        if self.path.exists():
            numbers.append(numbers[-1] + 1 if numbers else 1)
            self.path.rename(f"{self.path}.{numbers[-1]}")
        for number in numbers[: -self._limits.older]:
            Path(f"{self.path}.{number}").unlink(missing_ok=True)

    def _fail(self, error: OSError, lost: Lost) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        if not self._broken:
            _log.error("the log cannot be written", file=str(self.path), error=str(error))
        with self._losing:
            self._lost.turns += lost.turns
            self._lost.events += lost.events
        self._broken = True


@asynccontextmanager
async def recording(
    path: Path | None, header: Header, metrics: Metrics, limits: Limits = LIMITS
) -> AsyncIterator[Recorder | None]:
    """A recorder that writes to ``path`` inside a ``with``; None where there is no path."""
    if path is None:
        yield None
        return
    recorder = Recorder(path, header, metrics, key=secrets.token_bytes(), limits=limits)
    await asyncio.to_thread(recorder.start)
    try:
        yield recorder
    finally:
        await asyncio.to_thread(recorder.close)


def _write(file: BinaryIO, data: bytes) -> None:
    """All of it: a raw file may take less at once."""
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]
