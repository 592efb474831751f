"""Clusters out of nothing: nodes with GPUs in racks, namespaces and priority classes, over HTTP.

Works on the in-memory and on the real API server; what exists already is left as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from extender.core import api
from extender.core.api import Resource
from extender.core.errors import ApiError
from extender.core.objects import Manifest
from extender.sim.client import Client

GPU = "nvidia.com/gpu"
RACK_LABEL = "topology.kubernetes.io/rack"
HOST_LABEL = "kubernetes.io/hostname"

#: Creations under way at once.
_CONCURRENCY = 16


def node(
    name: str,
    *,
    gpus: int = 0,
    cpu: str = "64",
    memory: str = "512Gi",
    pods: int = 110,
    rack: str = "",
    product: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: Iterable[Manifest] = (),
) -> Manifest:
    """A ready node. ``product`` is GPU feature discovery's word, as ``NVIDIA-A100-SXM4-80GB``."""
    resources = {"cpu": cpu, "memory": memory, "pods": str(pods)}
    own = {HOST_LABEL: name}
    if gpus:
        resources[GPU] = str(gpus)
        own[f"{GPU}.count"] = str(gpus)
    if product:
        own[f"{GPU}.product"] = product
    if rack:
        own[RACK_LABEL] = rack
    metadata: Manifest = {"name": name, "labels": {**own, **(labels or {})}}
    if annotations:
        metadata["annotations"] = dict(annotations)
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    return {
        "metadata": metadata,
        "spec": {"taints": list(taints)},
        "status": {"capacity": resources, "allocatable": resources, "conditions": [ready]},
    }


def racks(
    count: int, *, per_rack: int = 8, gpus: int = 8, prefix: str = "node", product: str = ""
) -> list[Manifest]:
    """``count`` equal GPU nodes, numbered from 1 and filled into racks in order."""
    width = len(str(count))
    return [
        node(
            f"{prefix}-{i + 1:0{width}}",
            gpus=gpus,
            rack=f"rack-{i // per_rack + 1}",
            product=product,
        )
        for i in range(count)
    ]


async def add_node(client: Client, body: Manifest) -> None:
    """Create a node and take away the not-ready taint that admission puts on a new one."""
    await ensure(client, api.NODES, None, body)
    taints = body["spec"].get("taints") or None
    await client.patch(api.NODES, None, body["metadata"]["name"], {"spec": {"taints": taints}})


async def add_nodes(client: Client, bodies: Iterable[Manifest]) -> None:
    """Create many nodes, a few at a time."""
    room = asyncio.Semaphore(_CONCURRENCY)

    async def add(body: Manifest) -> None:
        async with room:
            await add_node(client, body)

    async with asyncio.TaskGroup() as tasks:
        for body in bodies:
            tasks.create_task(add(body))


async def add_namespace(client: Client, name: str) -> None:
    await ensure(client, api.NAMESPACES, None, {"metadata": {"name": name}})


async def add_priority_class(
    client: Client, name: str, value: int, *, default: bool = False
) -> None:
    body = {"metadata": {"name": name}, "value": value, "globalDefault": default}
    await ensure(client, api.PRIORITY_CLASSES, None, body)


async def ensure(client: Client, resource: Resource, namespace: str | None, body: Manifest) -> None:
    """Create an object unless there is one of its name."""
    try:
        await client.create(resource, namespace, body)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
