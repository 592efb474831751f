"""S13: metrics and debug pages are for bearers of a token that the real API server knows and lets."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass

import aiohttp
import pytest

from extender.runtime import running
from extender.sim.daemon import free_port
from tests.controlplane.conftest import leading, settings_for
from tests.controlplane.rights import account
from tests.controlplane.world import World

GUARDED = ("/metrics", "/debug/", "/debug/state", "/debug/gangs/team/train")


@dataclass
class Pages:
    """The admin port."""

    http: aiohttp.ClientSession

    async def get(self, path: str, token: str = "") -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self.http.get(path, headers=headers) as answer:
            return answer.status, await answer.text()


@pytest.fixture
async def pages(world: World, extender_port: int) -> AsyncIterator[Pages]:
    """Those of a Muster with the rights of manifests/base."""
    port = free_port()
    listen = {"host": "127.0.0.1", "port": extender_port, "adminPort": port}
    settings = settings_for(extender_port, listen=listen)
    async with running(settings, account(world.plane)) as service:
        await leading(service)
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:
            yield Pages(http)


def token_of(world: World, name: str) -> str:
    """A token of a new ServiceAccount."""
    where = ("-n", world.namespace)
    world.plane.kubectl("create", "serviceaccount", name, *where)
    return world.plane.kubectl("create", "token", name, *where).stdout.strip()


async def test_a_reader_by_role_a_stranger_and_nobody(world: World, pages: Pages) -> None:
    reader, stranger = token_of(world, "prometheus"), token_of(world, "stranger")
    world.plane.kubectl(
        "create", "clusterrolebinding", f"reader-{world.namespace}", "--clusterrole=muster-reader",
        f"--serviceaccount={world.namespace}:prometheus",
    )  # fmt: skip
    for probe in ("/healthz", "/readyz"):
        assert await pages.get(probe) == (200, "ok\n")
    for path in GUARDED:
        assert (await pages.get(path))[0] == 401
        assert (await pages.get(path, "forged"))[0] == 401
        status, said = await pages.get(path, stranger)
        assert status == 403
        assert f"system:serviceaccount:{world.namespace}:stranger has no right to get" in said
        # No such gang is what only a reader is told.
        assert (await pages.get(path, reader))[0] == (404 if path.endswith("/train") else 200)
    assert (await pages.get("/other", reader))[0] == 403


async def test_without_the_api_server_nobody_new_reads(world: World, pages: Pages) -> None:
    reader = token_of(world, "prometheus")
    world.plane.kill_apiserver(signal.SIGSTOP)
    try:
        status, said = await pages.get("/metrics", reader)
        assert (status, said.split(":")[0]) == (503, "refused")
        assert (await pages.get("/healthz"))[0] == 200
    finally:
        world.plane.kill_apiserver(signal.SIGCONT)
