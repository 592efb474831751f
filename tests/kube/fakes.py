"""Stand-ins for what the Kubernetes layer talks to: an inbox that can be waited on, a Lease store,
and a client whose answers are a script."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import orjson

from extender.kube.replies import Reply


class Recorder:
    """An inbox; `until` waits for what the events must come to say."""

    def __init__(self):
        self.events: list[Any] = []
        self._changed = asyncio.Event()

    def put(self, event):
        self.events.append(event)
        self._changed.set()

    async def room(self):
        await asyncio.sleep(0)

    def of(self, *kinds):
        return [event for event in self.events if isinstance(event, kinds)]

    async def until(self, condition: Callable[[], object]):
        while not condition():
            self._changed.clear()
            await self._changed.wait()


class Network:
    """One replica's way to the API server: may be cut before or after the server has acted."""

    def __init__(self, server, *, latency=0.0):
        self.server = server
        self.latency = latency
        self.cut = False
        self.lose_answers = False
        self.sent = []

    async def send(
        self,
        method,
        path,
        *,
        query=None,
        body=None,
        content_type="application/json",
        timeout=None,  # noqa: ASYNC109 (the signature of Requests)
    ):
        self.sent.append((method, path, body))
        try:
            async with asyncio.timeout(timeout):
                await asyncio.sleep(self.latency)
                if self.cut:
                    await asyncio.get_running_loop().create_future()
                reply = self.server.answer(method, path, body)
                if self.lose_answers:
                    await asyncio.get_running_loop().create_future()
                return reply
        except TimeoutError:
            return Reply(0, reason="Unreachable", message="TimeoutError")


class LeaseServer:
    """Leases and pod labels, with resourceVersion as a precondition."""

    def __init__(self):
        self.objects = {}
        self.version = 0

    def answer(self, method, path, body):
        change = orjson.loads(body) if body else {}
        if method == "POST":
            path += "/" + change["metadata"]["name"]
            if path in self.objects:
                return Reply(409, reason="AlreadyExists", message=path)
            return self._store(path, change)
        if path not in self.objects:
            return Reply(404, reason="NotFound", message=path)
        found = self.objects[path]
        if method == "PATCH":
            wanted = change.get("metadata", {}).pop("resourceVersion", None)
            if wanted not in (None, found["metadata"].get("resourceVersion")):
                return Reply(409, reason="Conflict", message=path)
            return self._store(path, merge(found, change))
        return Reply(200, orjson.dumps(found))

    def _store(self, path, value):
        self.version += 1
        value["metadata"]["resourceVersion"] = str(self.version)
        self.objects[path] = value
        return Reply(200, orjson.dumps(value))


class Scripted:
    """Answers requests with what the script says for them, in order; then with `default`.

    An entry is a Reply, or a function of the request's body that gives one; `gate` holds every
    request until it is set.
    """

    def __init__(self, default=None):
        self.default = default if default is not None else Reply(201, b"{}")
        self.script = {}
        self.sent = []
        self.running = 0
        self.most_running = 0
        self.gate = None

    def on(self, method, path, *replies):
        self.script.setdefault((method, path), []).extend(replies)

    async def send(
        self,
        method,
        path,
        *,
        query=None,
        body=None,
        content_type="application/json",
        timeout=None,  # noqa: ASYNC109 (the signature of Requests)
    ):
        self.sent.append((method, path, orjson.loads(body) if body else None, query))
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await asyncio.sleep(0.01)
            if self.gate is not None:
                await self.gate.wait()
        finally:
            self.running -= 1
        waiting = self.script.get((method, path))
        return waiting.pop(0) if waiting else self.default


def merge(target, change):
    """RFC 7386, as the API server applies it."""
    out = dict(target)
    for key, value in change.items():
        if value is None:
            out.pop(key, None)
        elif isinstance(value, dict):
            out[key] = merge(out.get(key) or {}, value)
        else:
            out[key] = value
    return out


def rng():
    return random.Random(7)
