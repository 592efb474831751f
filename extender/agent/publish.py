"""Writes Muster's annotations on the agent's own Node, and nothing else of it.

A merge patch of the keys that differ from what the API server holds; never one of other keys, and
never one that removes. What is there is read at the start, after every answer that leaves it open,
and from time to time, in case somebody else changed it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import msgspec
import orjson
from msgspec import Struct

from extender.core.api import NODES
from extender.core.errors import ApiError
from extender.kube.backoff import Backoff
from extender.kube.complaints import Complaints
from extender.kube.replies import MERGE_PATCH, Reply, Requests
from extender.obs.metrics import Metrics
from extender.settings import Agent


class _Metadata(Struct):
    annotations: dict[str, str] | None = None


class _Node(Struct):
    metadata: _Metadata


class Publisher:
    """The annotations of one Node as they should be, and as they are as far as is known."""

    def __init__(
        self,
        client: Requests,
        node: str,
        settings: Agent,
        rng: random.Random,
        metrics: Metrics,
        complaints: Complaints,
        clock: Callable[[], float],
    ) -> None:
        """``clock``: seconds that only grow; ``rng`` spreads the writes of many nodes."""
        self._client = client
        self._node = node
        self._settings = settings
        self._rng = rng
        self._metrics = metrics
        for result in ("ok", "refused", "later"):
            metrics.agent_writes.labels(result)
        self._complaints = complaints
        self._clock = clock
        self._backoff = Backoff(rng, first=1.0, most=300.0)
        #: What the Node has; None when that must be read.
        self._there: Mapping[str, str] | None = None
        self._read_again = 0.0
        #: No request before this.
        self._wait_until = 0.0
        #: No write before this.
        self._write_after = 0.0

    async def read(self) -> Mapping[str, str] | None:
        """The Node's annotations, from the API server where they may have changed; else None."""
        now = self._clock()
        if now < (self._read_again if self._there is not None else self._wait_until):
            return self._there
        # resourceVersion 0: from the API server's cache, which costs no read of etcd. One that is
        # a little old costs a write that changes nothing, and that makes no new version.
        path, query = NODES.path(None, self._node), {"resourceVersion": "0"}
        reply = await self._client.send("GET", path, query=query)
        self._there = self._judge("get its node", reply)
        self._read_again = now + self._settings.compare_every_seconds * self._spread()
        return self._there

    async def settle(self, wanted: Mapping[str, str]) -> bool:
        """Bring the Node to ``wanted`` if it is time to; whether it is as wanted now."""
        there = await self.read()
        if there is None:
            return False
        differs = {key: text for key, text in wanted.items() if there.get(key) != text}
        if not differs:
            return True
        now = self._clock()
        if now < max(self._write_after, self._wait_until):
            self._metrics.agent_writes.labels("later").inc()
            return False
        reply = await self._client.send(
            "PATCH",
            NODES.path(None, self._node),
            body=orjson.dumps({"metadata": {"annotations": differs}}),
            content_type=MERGE_PATCH,
        )
        self._there = self._judge("patch its node", reply)
        self._metrics.agent_writes.labels("ok" if reply.ok else "refused").inc()
        if reply.ok:
            self._write_after = now + self._settings.write_every_seconds * self._spread()
        return reply.ok

    def _judge(self, what: str, reply: Reply) -> Mapping[str, str] | None:
        """The annotations in an answer; None, and a pause before the next request, if it has none."""
        error = None if reply.ok else reply.error()
        if error is None:
            try:
                there = msgspec.json.decode(reply.body, type=_Node).metadata.annotations or {}
            except msgspec.DecodeError as wrong:
                error = ApiError(reply.code, "Garbage", f"this is no Node: {wrong}")
            else:
                self._complaints.right(what)
                self._backoff.reset()
                return there
        self._complaints.wrong(what, error, do=_DO.get(reply.code, ""))
        self._wait_until = self._clock() + self._backoff.pause(reply.retry_after)
        return None

    def _spread(self) -> float:
        return self._rng.uniform(1.0, 1.1)


_DO = {
    403: "kubectl apply -k manifests/agent (rbac.yaml, node.yaml): its role, and the policy that"
    " lets each agent write its own node alone",
    404: "--node, or NODE_NAME, must be the name of the Node that the agent runs on",
}
