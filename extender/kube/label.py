"""The label that makes the Service choose the leader's pod."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine

import orjson

from extender.core.api import MUSTER_GROUP, PODS
from extender.kube.backoff import Backoff
from extender.kube.replies import MERGE_PATCH, Reply, Requests
from extender.obs.log import logger

LEADER_LABEL = f"{MUSTER_GROUP}/leader"

#: Tries to take a label off. Missing one costs refused requests (503), never correctness.
_OFF_TRIES = 5

_log = logger("label")


class LeaderLabel:
    """Keeps the label of the own pod as wanted, and takes it off a predecessor's.

    The own pod counts as labelled until proved otherwise: the label outlives a container that was
    killed.
    """

    def __init__(self, client: Requests, rng: random.Random, namespace: str, pod: str) -> None:
        """``pod`` is the own pod's name."""
        self._client = client
        self._rng = rng
        self._namespace = namespace
        self._pod = pod
        self._wanted = False
        self._shown: bool | None = None
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def want(self, *, on: bool) -> None:
        """Set what the own pod should have; done in the background."""
        self._wanted = on
        self._spawn(self.settle())

    def confirm(self) -> None:
        """Put the own pod's label on once more: an older request that was late may have undone it."""
        self._shown = None
        self._spawn(self.settle())

    def take_off(self, holder: str) -> None:
        """Take the label off the pod of an old holder (``POD_anything``), in the background."""
        pod = holder.rpartition("_")[0]
        if pod and pod != self._pod:
            self._spawn(self._off(pod))

    async def settle(self) -> None:
        """Bring the own pod's label to what is wanted; gives up only on taking it off."""
        backoff = Backoff(self._rng)
        tries = 0
        async with self._lock:
            # Read anew each time: what is wanted may change while a request is on its way.
            while self._shown is not self._wanted and (self._wanted or tries < _OFF_TRIES):
                on = self._wanted
                reply = await self._patch(self._pod, on=on)
                if _done(reply):
                    self._shown = on
                else:
                    tries += 1
                    await asyncio.sleep(backoff.pause(reply.retry_after))

    async def close(self) -> None:
        """End what runs in the background."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _off(self, pod: str) -> None:
        backoff = Backoff(self._rng)
        for _ in range(_OFF_TRIES):
            reply = await self._patch(pod, on=False)
            if _done(reply):
                return
            await asyncio.sleep(backoff.pause(reply.retry_after))

    async def _patch(self, pod: str, *, on: bool) -> Reply:
        body = {"metadata": {"labels": {LEADER_LABEL: "true" if on else None}}}
        reply = await self._client.send(
            "PATCH",
            PODS.path(self._namespace, pod),
            body=orjson.dumps(body),
            content_type=MERGE_PATCH,
        )
        if not _done(reply):
            _log.warning("pod not labelled", pod=pod, on=on, error=reply.message)
        return reply

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="leader label")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _done(reply: Reply) -> bool:
    """A pod that is gone needs nothing more."""
    return reply.ok or reply.code == 404
