"""A simulated kubelet, of one node or of all at once: bound pods start, run, end and are deleted.

Works over HTTP on the in-memory and on the real API server. How long a pod runs and how it ends
is the policy's to say; without one it is in the pod's annotations ``sim.muster.dev/run-seconds``
and ``sim.muster.dev/exit-code``, and a pod that has neither runs until it is deleted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Set
from contextlib import suppress
from typing import Any

from msgspec import Struct

from extender.core import api
from extender.core.errors import ApiError
from extender.core.objects import Manifest
from extender.sim.client import Client
from extender.sim.intake import timestamp
from extender.sim.podfit import Usage, over_committed

RUN_SECONDS = "sim.muster.dev/run-seconds"
EXIT_CODE = "sim.muster.dev/exit-code"

#: Seconds between two tries of a write that the server did not answer or was too busy for.
_RETRY_SECONDS = 0.1
_READY = ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")


class Outcome(Struct, frozen=True):
    """How a pod ends: after how many seconds of running, and with which exit code."""

    seconds: float
    exit_code: int = 0


#: None: it runs until it is deleted.
Policy = Callable[[Manifest], Outcome | None]


def annotated(pod: Manifest) -> Outcome | None:
    """The outcome that the pod's annotations ask for; nonsense in them is an exit at once with 2."""
    annotations = pod["metadata"].get("annotations") or {}
    if RUN_SECONDS not in annotations and EXIT_CODE not in annotations:
        return None
    try:
        return Outcome(float(annotations.get(RUN_SECONDS, 0)), int(annotations.get(EXIT_CODE, 0)))
    except ValueError:
        return Outcome(0, 2)


class Kubelet:
    """Runs the pods of all nodes; ``async with Kubelet(client):`` or await :meth:`run`."""

    def __init__(
        self,
        client: Client,
        *,
        policy: Policy = annotated,
        node: str = "",
        admission: bool = True,
        concurrency: int = 32,
        start_seconds: float = 0.0,
        stop_seconds: float = 0.0,
        dead: Set[str] = frozenset(),
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """``node``: of this node only; of all where it is empty.

        ``admission`` fails pods that do not fit their node (OutOfcpu, OutOfnvidia.com/gpu).

        ``start_seconds`` pass before Running, ``stop_seconds`` (at most the pod's grace) between
        a deletion and its completion. ``concurrency`` limits writes under way. Of nodes in ``dead``,
        which may change, it does not look at pods any more.
        """
        self._client = client
        self._policy = policy
        #: What restricts its lists and watches of nodes and of pods.
        self._of_nodes = {"fieldSelector": f"metadata.name={node}"} if node else {}
        self._of_pods = {"fieldSelector": f"spec.nodeName={node}"} if node else {}
        self._admission = admission
        self._room = asyncio.Semaphore(concurrency)
        self._start_seconds = start_seconds
        self._stop_seconds = stop_seconds
        self._dead = dead
        self._now = now
        self._sleep = sleep
        #: By uid, what runs the pod's next steps; a pod has at most one.
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._dying: set[str] = set()
        self._usage = Usage()
        self._addresses = 0
        self._main: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Kubelet:
        self._main = asyncio.create_task(self.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._main is not None
        self._main.cancel()
        with suppress(asyncio.CancelledError):
            await self._main

    async def run(self) -> None:
        """Serve until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._follow_nodes())
                tasks.create_task(self._follow_pods())
        finally:
            lives = list(self._lives.values())
            for life in lives:
                life.cancel()
            await asyncio.gather(*lives, return_exceptions=True)

    async def _follow_nodes(self) -> None:
        async for kind, nodes in self._client.follow(api.NODES, **self._of_nodes):
            for node in nodes:
                name = node["metadata"]["name"]
                self._usage.set_node(name, None if kind == "DELETED" else node)

    async def _follow_pods(self) -> None:
        async for kind, pods in self._client.follow(api.PODS, **self._of_pods):
            if kind == "SYNC":
                for uid in set(self._lives) - {pod["metadata"]["uid"] for pod in pods}:
                    self._forget(uid)
            for pod in pods:
                self._see(pod, gone=kind == "DELETED")

    def _see(self, pod: Manifest, *, gone: bool) -> None:
        uid, phase = pod["metadata"]["uid"], pod.get("status", {}).get("phase")
        if gone or not pod["spec"].get("nodeName"):
            self._forget(uid)
        elif pod["spec"]["nodeName"] in self._dead:
            return
        elif "deletionTimestamp" in pod["metadata"]:
            if uid not in self._dying:
                self._dying.add(uid)
                self._live(uid, self._die(pod))
        elif phase in ("Succeeded", "Failed"):
            self._usage.remove(uid)
        elif uid not in self._lives:
            self._live(uid, self._run_pod(pod))

    def _live(self, uid: str, steps: Coroutine[Any, Any, None]) -> None:
        old = self._lives.pop(uid, None)
        if old is not None:
            old.cancel()
        self._lives[uid] = asyncio.create_task(steps)

    def _forget(self, uid: str) -> None:
        self._usage.remove(uid)
        self._dying.discard(uid)
        if (life := self._lives.pop(uid, None)) is not None:
            life.cancel()

    async def _run_pod(self, pod: Manifest) -> None:
        """Admission, start, and the end that the policy decided."""
        status = pod.get("status") or {}
        if status.get("phase") != "Running":
            missing = self._admit(pod)
            if missing:
                await self._write(pod, _rejected(missing))
                return
            if self._start_seconds:
                await self._sleep(self._start_seconds)
            status = _running(pod, timestamp(self._now()), self._address())
            if not await self._write(pod, status):
                return
        else:
            self._usage.add(pod)
        outcome = self._policy(pod)
        if outcome is not None:
            await self._sleep(outcome.seconds)
            await self._write(pod, _ended(pod, status, timestamp(self._now()), outcome.exit_code))

    def _admit(self, pod: Manifest) -> str:
        """Charge the pod to its node; the resource that is missing there, or nothing."""
        missing = over_committed(self._usage, pod) if self._admission else ""
        if not missing:
            self._usage.add(pod)
        return missing

    async def _die(self, pod: Manifest) -> None:
        meta = pod["metadata"]
        grace = meta.get("deletionGracePeriodSeconds") or 0
        if self._stop_seconds:
            await self._sleep(min(self._stop_seconds, grace))
        await self._send(
            lambda: self._client.delete(
                api.PODS, meta["namespace"], meta["name"], uid=meta["uid"], grace=0
            )
        )

    async def _write(self, pod: Manifest, status: Manifest) -> bool:
        meta = pod["metadata"]
        body = {"metadata": {"uid": meta["uid"]}, "status": status}
        return await self._send(
            lambda: self._client.patch(api.PODS, meta["namespace"], meta["name"], body, "status")
        )

    async def _send(self, request: Callable[[], Awaitable[Manifest]]) -> bool:
        """Whether it took effect; a pod that is gone or another one by now is no fault."""
        while True:
            try:
                async with self._room:
                    await request()
                return True
            except ApiError as error:
                # Unreachable has code 0: tried again, as 429 and 5xx are.
                if error.code in (404, 409, 422):
                    return False
            await self._sleep(_RETRY_SECONDS)

    def _address(self) -> str:
        self._addresses += 1
        high, low = divmod(self._addresses, 250)
        return f"10.{high // 250 % 250}.{high % 250}.{low + 1}"


def _running(pod: Manifest, now: str, address: str) -> Manifest:
    conditions = [
        condition
        for condition in (pod.get("status") or {}).get("conditions") or ()
        if condition["type"] == "PodScheduled"
    ]
    conditions += [_condition(kind, "True", now) for kind in _READY]
    return {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": now,
        "conditions": conditions,
        "containerStatuses": [
            _container(container, {"running": {"startedAt": now}}, ready=True)
            for container in pod["spec"]["containers"]
        ],
    }


def _ended(pod: Manifest, status: Manifest, now: str, exit_code: int) -> Manifest:
    reason = "Error" if exit_code else "Completed"
    not_ready = "PodFailed" if exit_code else "PodCompleted"
    terminated = {"exitCode": exit_code, "reason": reason, "finishedAt": now}
    conditions = [
        _condition(condition["type"], "False", now, not_ready)
        if condition["type"] in ("Ready", "ContainersReady")
        else condition
        for condition in status.get("conditions") or ()
    ]
    return {
        "phase": "Failed" if exit_code else "Succeeded",
        "conditions": conditions,
        "containerStatuses": [
            _container(container, {"terminated": terminated}, ready=False)
            for container in pod["spec"]["containers"]
        ],
    }


def _rejected(resource: str) -> Manifest:
    """Source: kubernetes ``pkg/kubelet/lifecycle/predicate.go``."""
    message = f"Node didn't have enough resource: {resource}"
    reason = f"OutOf{resource}"
    return {"phase": "Failed", "reason": reason, "message": f"Pod was rejected: {message}"}


def _condition(kind: str, value: str, now: str, reason: str | None = None) -> Manifest:
    condition = {"type": kind, "status": value, "lastTransitionTime": now}
    return condition | ({"reason": reason} if reason else {})


def _container(container: Manifest, state: Manifest, *, ready: bool) -> Manifest:
    image = container.get("image", "")
    return {
        "name": container["name"],
        "image": image,
        "imageID": image,
        "containerID": f"sim://{container['name']}",
        "ready": ready,
        "started": ready,
        "restartCount": 0,
        "state": state,
    }
