"""Events, written through this replica's client while it leads."""

from __future__ import annotations

import time
from collections.abc import Callable

import orjson

from extender.core.api import EVENTS
from extender.core.objects import Manifest
from extender.kube.replies import MERGE_PATCH, Requests
from extender.obs.events import UNSENT, Answer, EventWriter
from extender.obs.metrics import Metrics


def event_writer(
    client: Requests,
    may_write: Callable[[], bool],
    metrics: Metrics,
    *,
    instance: str,
    clock: Callable[[], float],
    wall: Callable[[], float] = time.time,
    busy: Callable[[], bool] = lambda: False,
) -> EventWriter:
    """An :class:`EventWriter` that writes through ``client`` while this replica leads, slowly while
    it is ``busy``.
    """

    async def post(namespace: str, body: Manifest) -> Answer:
        if not may_write():
            return Answer(UNSENT)
        path = EVENTS.path(namespace)
        reply = await client.send("POST", path, body=orjson.dumps(body))
        return Answer(reply.code, reply.retry_after)

    async def patch(namespace: str, name: str, body: Manifest) -> Answer:
        if not may_write():
            return Answer(UNSENT)
        path, data = EVENTS.path(namespace, name), orjson.dumps(body)
        reply = await client.send("PATCH", path, body=data, content_type=MERGE_PATCH)
        return Answer(reply.code, reply.retry_after)

    return EventWriter(post, patch, metrics, instance=instance, clock=clock, wall=wall, busy=busy)
