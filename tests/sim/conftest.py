from __future__ import annotations

import itertools

import pytest

from extender.core import api
from extender.sim.apiserver import ApiServer
from extender.sim.client import Client
from extender.sim.store import Store


@pytest.fixture
def store():
    """A store whose clock stands still and whose uids count up."""
    numbers = itertools.count(1)
    return Store(lambda: 1_700_000_000.0, lambda: f"uid-{next(numbers)}")


@pytest.fixture
async def server():
    async with ApiServer() as server:
        yield server


@pytest.fixture
async def client(server):
    async with Client(server.url) as client:
        yield client


async def pod_when(client, name, condition, namespace="default"):
    """The pod as soon as ``condition(pod)``; None stands for a pod that is gone."""
    query = {"fieldSelector": f"metadata.name={name}"}
    async for kind, objects in client.follow(api.PODS, namespace, **query):
        obj = objects[0] if objects and kind != "DELETED" else None
        if condition(obj):
            return obj
    raise AssertionError("follow never ends")
