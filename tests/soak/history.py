"""The API server's watch history of a few kinds, as the standard library reads it.

An entry is a dict: ``at`` (seconds of a monotonic clock), and either ``mark`` (DOWN, UP, USER, QUIET)
with ``what``, or ``type`` (ADDED, MODIFIED, DELETED), ``kind`` and ``object``. Entries of one kind come
in the order of the API server; kinds are not ordered among each other. Where the API server has
forgotten the past (410 after its own restart) the difference to a new list is entered instead, and
counted in `relists`.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import queue
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode, urlsplit

Entry = dict[str, Any]

#: Kinds that the checker reads, with their collections.
PATHS = {
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/pods",
    "VolcanoGroup": "/apis/scheduling.volcano.sh/v1beta1/podgroups",
    "SigsGroup": "/apis/scheduling.x-k8s.io/v1alpha1/podgroups",
    "NativeGroup": "/apis/scheduling.k8s.io/v1beta1/podgroups",
    "PyTorchJob": "/apis/kubeflow.org/v1/pytorchjobs",
}
#: Seconds between two tries while the API server is down.
_RETRY = 0.05
#: Seconds without a byte after which a watch counts as dead; bookmarks come about once a minute.
_SILENCE = 120.0


class _Expired(Exception):
    """410: the past that was asked for is forgotten."""


class _Connection(http.client.HTTPSConnection):
    """Wraps its socket before it connects.

    Where a peer is killed between the two, `SSLContext.wrap_socket` raises and drops the new socket
    without closing it (CPython 3.11); one that is wrapped before belongs to the connection, which closes it.
    """

    def __init__(self, netloc: str, tls: ssl.SSLContext) -> None:
        super().__init__(netloc, timeout=_SILENCE, context=tls)
        self._tls = tls

    def connect(self) -> None:
        self.sock = self._tls.wrap_socket(socket.socket(), server_hostname=self.host)
        self.sock.settimeout(self.timeout)
        self.sock.connect((self.host, self.port))


class Recorder:
    """Follows all kinds, each in a thread of its own; ``with Recorder(url, ca, token) as it:``."""

    def __init__(self, url: str, ca: str, token: str) -> None:
        self.entries: queue.SimpleQueue[Entry] = queue.SimpleQueue()
        self.relists = 0
        self._netloc = urlsplit(url).netloc
        self._tls = ssl.create_default_context(cafile=ca)
        self._headers = {"Authorization": f"Bearer {token}"}
        self._stop = threading.Event()
        self._open: set[_Connection] = set()
        self._synced = {kind: threading.Event() for kind in PATHS}
        self._threads = [
            threading.Thread(target=self._follow, args=(kind,), name=f"record {kind}", daemon=True)
            for kind in PATHS
        ]

    def __enter__(self) -> Recorder:
        for thread in self._threads:
            thread.start()
        for kind, event in self._synced.items():
            if not event.wait(60):
                raise TimeoutError(f"no list of {kind} within 60 s")
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for connection in list(self._open):
            # Ends the read that its thread is in.
            with contextlib.suppress(OSError, AttributeError):  # it has ended by itself
                connection.sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def mark(self, mark: str, what: str) -> None:
        """Enter something that was done to the cluster."""
        self.entries.put({"at": time.monotonic(), "mark": mark, "what": what})

    def take(self) -> Iterator[Entry]:
        """Entries that have come since the last call."""
        while True:
            try:
                yield self.entries.get_nowait()
            except queue.Empty:
                return

    def _enter(self, kind: str, change: str, obj: dict[str, Any]) -> None:
        obj["metadata"].pop("managedFields", None)
        self.entries.put({"at": time.monotonic(), "type": change, "kind": kind, "object": obj})

    def _follow(self, kind: str) -> None:
        known: dict[str, dict[str, Any]] = {}
        version = ""
        while not self._stop.is_set():
            try:
                if not version:
                    version = self._list(kind, known)
                    self._synced[kind].set()
                for change, obj in self._watch(PATHS[kind], version):
                    version = obj["metadata"]["resourceVersion"]
                    if change == "BOOKMARK":
                        continue
                    known[obj["metadata"]["uid"]] = obj
                    if change == "DELETED":
                        del known[obj["metadata"]["uid"]]
                    self._enter(kind, change, obj)
            except _Expired:
                version = ""
            except (OSError, http.client.HTTPException):
                self._stop.wait(_RETRY)  # it is down, or not ready yet

    def _list(self, kind: str, known: dict[str, dict[str, Any]]) -> str:
        """Enter how a new list differs from what is known; its resourceVersion."""
        self.relists += self._synced[kind].is_set()
        with self._get(PATHS[kind], {}) as answer:
            listed = json.load(answer)
        now = {obj["metadata"]["uid"]: obj for obj in listed.get("items") or ()}
        for uid in known.keys() - now.keys():
            self._enter(kind, "DELETED", known.pop(uid))
        for uid, obj in now.items():
            old = known.get(uid)
            version = obj["metadata"]["resourceVersion"]
            if old is None or old["metadata"]["resourceVersion"] != version:
                self._enter(kind, "MODIFIED" if old else "ADDED", obj)
            known[uid] = obj
        return str(listed["metadata"]["resourceVersion"])

    def _watch(self, path: str, version: str) -> Iterator[tuple[str, dict[str, Any]]]:
        query = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version}
        with self._get(path, query) as answer:
            while line := answer.readline():
                if not line.endswith(b"\n"):
                    return  # cut off in the middle
                event = json.loads(line)
                if event["type"] == "ERROR":
                    if event["object"].get("code") == 410:
                        raise _Expired
                    return
                yield event["type"], event["object"]

    @contextmanager
    def _get(self, path: str, query: dict[str, str]) -> Iterator[http.client.HTTPResponse]:
        connection = _Connection(self._netloc, self._tls)
        self._open.add(connection)
        try:
            connection.request("GET", f"{path}?{urlencode(query)}", headers=self._headers)
            with connection.getresponse() as answer:
                if answer.status == 410:
                    raise _Expired
                if answer.status != 200:
                    raise http.client.HTTPException(f"{path}: {answer.status}")
                yield answer
        finally:
            self._open.discard(connection)
            connection.close()
