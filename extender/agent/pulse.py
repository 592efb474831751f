"""Whether the agent still reads.

A call of the driver's, or a read of /sys, may never return (a device that fell off its bus), and a thread
that waits in one cannot be ended from outside. The kubelet's liveness probe asks here and starts the
agent anew; should the whole process hang, nobody answers, which is the same to the probe.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer

from extender.obs.log import logger

#: Seconds that one source of a reading may take; all together take one or two, and a driver that has
#: to load first some twenty.
STALLED_SECONDS = 120.0
PATH = "/healthz"

_log = logger("agent")


class Pulse:
    """Which source is being read, and since when. ``clock`` counts seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        #: Written by the thread that reads, in one piece.
        self._reading: tuple[str, float] | None = None
        self._told = False

    def reads(self, source: str) -> None:
        """A source is read from now on."""
        self._reading = (source, self._clock())

    def rests(self) -> None:
        """The reading has come to its end."""
        self._reading = None
        self._told = False

    def stalled(self) -> str:
        """What does not come to an end; "" while all is well."""
        reading = self._reading
        if reading is None:
            return ""
        source, since = reading
        seconds = self._clock() - since
        if seconds < STALLED_SECONDS:
            return ""
        if not self._told:
            self._told = True
            _log.error("a reading does not end", source=source, seconds=round(seconds))
        return f"reading {source} has not ended for {seconds:.0f} s"


@contextmanager
def served(pulse: Pulse, port: int) -> Iterator[int]:
    """Answer :data:`PATH` on all addresses with 200, or 503 while a reading is stalled.

    ``port`` 0 is any; yields the one that was had. Raises OSError: it is taken.
    """

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            stalled = pulse.stalled()
            code = 404 if self.path != PATH else 503 if stalled else 200
            body = f"{stalled or 'ok'}\n".encode() if code != 404 else b""
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's
            """Probes are nothing to tell of."""

    server = _Server(("", port), Answer)
    thread = threading.Thread(target=server.serve_forever, name="health", daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    """On IPv4 and, where there is any, IPv6."""

    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # HTTPServer's own asks DNS for the machine's name.
        TCPServer.server_bind(self)
