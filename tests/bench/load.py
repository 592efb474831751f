"""A client that creates objects many at a time and sees, from raw bytes, when pods are bound."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp
import orjson

from extender.core import api
from extender.core.objects import Manifest
from extender.sim.client import Client
from tests.bench.plant import SCHEDULER

GPU = "nvidia.com/gpu"
#: Creations under way at once.
CONCURRENCY = 32
_NAME = re.compile(rb'"metadata":\{"name":"([^"]+)"')
_VERSION = re.compile(rb'"resourceVersion":"(\d+)"')


class Binds:
    """Names of bound pods, and when each was first seen (monotonic seconds)."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}
        self._news = asyncio.Event()

    def note(self, lines: Sequence[bytes]) -> None:
        now = time.monotonic()
        for line in lines:
            found = _NAME.search(line, 0, 400)
            # "nominatedNodeName" does not end in this one: the quote tells them apart.
            if found is not None and b'"nodeName":"' in line:
                self.at.setdefault(found[1].decode(), now)
        self._news.set()

    async def until(self, names: set[str], patience: float) -> float:
        """When the last of ``names`` was bound."""
        async with asyncio.timeout(patience):
            while not names <= self.at.keys():
                self._news.clear()
                await self._news.wait()
        return max(self.at[name] for name in names)


@contextlib.asynccontextmanager
async def watching(client: Client, namespace: str) -> AsyncIterator[Binds]:
    """Follow the pods of a fresh namespace."""
    binds = Binds()
    listed = await client.list(api.PODS, namespace)
    task = asyncio.create_task(
        _follow(client, namespace, binds, listed["metadata"]["resourceVersion"])
    )
    try:
        yield binds
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _follow(client: Client, namespace: str, binds: Binds, version: str) -> None:
    session = client._session
    assert session is not None
    url = client.url + api.PODS.path(namespace)
    query = {"watch": "1", "fieldSelector": "spec.nodeName!=", "resourceVersion": version}
    while True:
        # The API server ends the stream of a reader that fell behind (34 times for 1,000 pods): on
        # from the last whole line, else it tells everything once more each time.
        async with session.get(url, params=query) as answer:
            rest = b""
            with contextlib.suppress(aiohttp.ClientPayloadError):
                async for chunk in answer.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    binds.note(lines)
                    if lines and (found := _VERSION.search(lines[-1])):
                        query["resourceVersion"] = found[1].decode()


async def create_all(
    client: Client,
    resource: api.Resource,
    namespace: str,
    bodies: Sequence[Manifest],
    nodes: Sequence[str] = (),
) -> None:
    """POST bodies, :data:`CONCURRENCY` at a time; answers are not decoded.

    Pods are bound at once where ``nodes`` says to which.
    """
    session = client._session
    assert session is not None
    url = client.url + resource.path(namespace)
    kind = {"apiVersion": resource.api_version, "kind": resource.kind}
    todo = iter(enumerate(bodies))

    async def post(url: str, body: Manifest) -> None:
        headers = {"Content-Type": "application/json"}
        async with session.post(url, data=orjson.dumps(body), headers=headers) as answer:
            text = await answer.read()
            if answer.status != 201:
                raise RuntimeError(f"{answer.status}: {text[:300].decode()}")

    async def work() -> None:
        for at, body in todo:
            await post(url, {**kind, **body})
            if nodes:
                name = body["metadata"]["name"]
                await post(f"{url}/{name}/binding", _binding(name, nodes[at % len(nodes)]))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(CONCURRENCY, len(bodies))):
            tasks.create_task(work())


def _binding(pod: str, node: str) -> Manifest:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    meta = {"name": pod}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}


def pod(name: str, gpus: int = 1, **spec: Any) -> Manifest:
    """A pod of one GPU."""
    meta: Manifest = {"name": name, "labels": {"app": "bench"}, **spec.pop("metadata", {})}
    limits = {GPU: str(gpus)} if gpus else {}
    box = {"name": "main", "image": "none", "resources": {"limits": limits}}
    return {
        "metadata": meta,
        "spec": {"schedulerName": SCHEDULER, "containers": [box], **spec},
    }


def volcano_group(name: str, least: int) -> Manifest:
    return {"metadata": {"name": name}, "spec": {"minMember": least}}


def volcano_member(group: str, name: str, **spec: Any) -> Manifest:
    """A member by Volcano's annotation."""
    return pod(name, metadata={"annotations": {"scheduling.k8s.io/group-name": group}}, **spec)


def job(name: str, workers: int) -> Manifest:
    """A PyTorchJob of workers with a GPU each."""
    box = {"name": "pytorch", "image": "none", "resources": {"limits": {GPU: "1"}}}
    template = {"spec": {"containers": [box]}}
    worker = {"replicas": workers, "restartPolicy": "Never", "template": template}
    return {"metadata": {"name": name}, "spec": {"pytorchReplicaSpecs": {"Worker": worker}}}


def say(result: dict[str, Any]) -> None:
    """Progress, for people."""
    print(result, file=sys.stderr, flush=True)
