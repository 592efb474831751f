"""One server process of the control plane: started so that it cannot outlive us, stopped by degrees.

Only the standard library, and no event loop: an asyncio caller uses `asyncio.to_thread`.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import os
import queue
import random
import select
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

#: Runs in the child before the server: the kernel kills the child when the thread that started it ends.
#: A program of its own, because code between fork and exec may deadlock in a process that has threads.
_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent died first")
os.execv(sys.argv[2], sys.argv[2:])
"""

#: Below the range that Linux gives to outgoing connections, else one of them could take the port of a
#: server that is being restarted.
_PORTS = range(20_000, 30_000)

#: Seconds between two looks at a server that is starting.
_POLL = 0.05

#: Seconds that a server may take to become ready, on a machine that is busy with other things.
_START_SECONDS = 300

#: Lines of a log that an error shows.
_TAIL = 20


class StartError(Exception):
    """A server did not become ready; the message ends with the last lines of its log."""


#: Ports that were given, in this process: whoever got one may not listen on it yet, or not at the moment.
_given: set[int] = set()


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on, and that was not given before."""
    for port in random.SystemRandom().sample(_PORTS, 100):
        if port in _given:
            continue
        with contextlib.closing(socket.socket()) as probe:
            # As the servers do: a connection of an earlier server that lingers is no obstacle.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            _given.add(port)
            return port
    raise StartError(f"no free port between {_PORTS.start} and {_PORTS.stop}")


class Daemon:
    """A server process and its log. `detached` ones live on when this process ends."""

    def __init__(
        self, name: str, command: list[str], log: Path, *, port: int, detached: bool = False
    ) -> None:
        self.name = name
        self.command = command
        self.log = log
        self.port = port
        self._detached = detached
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process's id, also after its end; 0 before its start."""
        return self._process.pid if self._process else 0

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, ready: Callable[[], bool]) -> None:
        """Starts the process and returns once `ready()`; if that fails, the process is gone again.

        The log of an earlier run is continued.
        """
        if self.alive:
            raise RuntimeError(f"{self.name} runs already")
        if self._detached:
            self._process = self._spawn(self.command)
        else:
            wrapper = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid())]
            self._process = _spawner.run(lambda: self._spawn([*wrapper, *self.command]))
        try:
            self._wait_until(ready)
        except BaseException:  # an interrupt from the keyboard too
            self.stop(signal.SIGKILL)
            raise

    def send(self, number: int) -> None:
        """Sends a signal and does not wait: SIGSTOP makes a server that hangs."""
        if self._process:
            self._process.send_signal(number)

    def stop(self, number: int = signal.SIGTERM, grace: float = 10.0) -> None:
        """Returns when the process is gone, by SIGKILL after `grace` seconds; harmless when it is."""
        if self._process is None:
            return
        self._process.send_signal(number)
        # One that was stopped by SIGSTOP takes no other signal until it continues.
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.wait(grace)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as out:
            # A session of its own: Ctrl-C at the terminal is ours to turn into an orderly stop.
            return subprocess.Popen(  # noqa: S603 - programs that we built, arguments of our own
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )

    def _wait_until(self, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not ready():
            if not self.alive:
                raise StartError(f"{self.name} ended while starting; {self._tail()}")
            if time.monotonic() > deadline:
                raise StartError(
                    f"{self.name} is not ready after {_START_SECONDS} s; {self._tail()}"
                )
            time.sleep(_POLL)

    def _tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-_TAIL:]
        return "\n".join([f"the end of {self.log}:", *lines])


def is_running(pid: int, mark: str) -> bool:
    """Whether this process runs and has `mark` in its command line: ids are given again."""
    try:
        return mark.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def kill_stranger(pid: int, mark: str) -> bool:
    """Kills a process that an earlier program started and returns when it is gone; False if it was."""
    try:
        # From here on the handle means this process and no later one with the same id.
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if not is_running(pid, mark):
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        select.select([handle], [], [])
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)


def get_status(port: int, path: str, context: ssl.SSLContext | None = None, token: str = "") -> int:
    """The status that 127.0.0.1 answers to a GET, 0 where nobody answers; HTTPS with a context."""
    connection = (
        http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=context)
        if context
        else http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    )
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with contextlib.closing(connection):
        try:
            connection.request("GET", path, headers=headers)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0


@functools.cache
def unverified() -> ssl.SSLContext:
    """For a server on loopback whose certificate nobody vouches for."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class _Spawner:
    """Starts children from one thread that lives as long as the process.

    The kernel ties a child to the thread that started it, not to the process: children of a worker thread
    would be killed when that thread ends.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._requests: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def run(self, spawn: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        with self._lock:
            # A fork copies this object, but not its thread.
            if self._owner != os.getpid():
                self._owner = os.getpid()
                self._requests = queue.SimpleQueue()
                threading.Thread(
                    target=_serve, args=(self._requests,), name="spawner", daemon=True
                ).start()
        answers: queue.SimpleQueue[subprocess.Popen[bytes] | OSError] = queue.SimpleQueue()

        def answer() -> None:
            try:
                answers.put(spawn())
            except OSError as error:
                answers.put(error)

        self._requests.put(answer)
        result = answers.get()
        if isinstance(result, OSError):
            raise result
        return result


def _serve(requests: queue.SimpleQueue[Callable[[], None]]) -> None:
    while True:
        requests.get()()


_spawner = _Spawner()
