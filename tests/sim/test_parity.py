"""The table of behaviours holds on the real API server too, with the same Status reasons."""

from __future__ import annotations

import ssl

import aiohttp
import pytest

from extender.sim.apiserver import ApiServer
from extender.sim.realplane import RealPlane, binaries
from tests.sim.behaviour import STORIES
from tests.sim.test_apiserver import run_step

pytestmark = pytest.mark.controlplane


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    with RealPlane(binaries(), tmp_path_factory.mktemp("plane")) as plane:
        plane.start_etcd()
        plane.start_apiserver()
        yield plane


@pytest.mark.parametrize("story", STORIES)
async def test_both_servers_answer_alike(plane, story):
    tls = ssl.create_default_context(cafile=str(plane.ca))
    headers = {"Authorization": f"Bearer {plane.token}"}
    connector = aiohttp.TCPConnector(ssl=tls)
    real_kept: dict[str, str] = {}
    kept: dict[str, str] = {}
    async with (
        ApiServer() as server,
        aiohttp.ClientSession() as session,
        aiohttp.ClientSession(headers=headers, connector=connector) as real_session,
    ):
        for step in STORIES[story]:
            real = await run_step(real_session, plane.server_url, step, real_kept)
            if real:  # a path under no known group is answered in plain text there
                assert await run_step(session, server.url, step, kept) == real
            else:
                await run_step(session, server.url, step, kept)
