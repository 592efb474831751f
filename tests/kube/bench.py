"""An executor between a scripted API server and a recorded inbox."""

import asyncio

import orjson

from extender.core.api import PODS
from extender.core.commands import Bind, Lane, Patch
from extender.kube.executor import Executor
from extender.kube.replies import Reply
from extender.obs.metrics import Metrics
from tests.kube.fakes import Recorder, Scripted, rng

POD = "/api/v1/namespaces/ns/pods/p"
BINDING = POD + "/binding"
BIND = Bind(1, "ns", "p", "u1", "7", "n1")


def status(code, reason, retry_after=None):
    return Reply(code, b"{}", reason, "told so", retry_after)


def pod(uid="u1", node="n1"):
    spec = {"nodeName": node} if node else {}
    return Reply(200, orjson.dumps({"kind": "Pod", "metadata": {"uid": uid}, "spec": spec}))


class Bench:
    def __init__(self, **options):
        self.client = Scripted()
        self.inbox = Recorder()
        self.metrics = Metrics()
        self.leading = True
        self.executor = Executor(
            self.client,
            self.inbox,
            lambda: self.leading,
            self.metrics,
            rng(),
            clock=asyncio.get_running_loop().time,
            **options,
        )

    async def run(self, *commands):
        for command in commands:
            self.executor.submit(command)
        await self.inbox.until(lambda: len(self.inbox.events) >= len(commands))
        return self.inbox.events

    @property
    def lines(self):
        return [(method, path) for method, path, _, _ in self.client.sent]


def patch(id_, lane=Lane.STATUS, name="p", body=None):
    return Patch(id_, lane, PODS, "ns", name, body if body is not None else {"id": id_}, "status")
