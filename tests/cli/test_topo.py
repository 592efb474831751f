"""``muster topo show NODE``: a node as the running service knows it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from extender import cli
from extender.core.topology import annotation, catalogue, devices
from extender.core.topology.devices import Devices
from extender.kube import credentials
from extender.runtime import running
from extender.settings import parse
from extender.sim import fleet
from extender.sim.apiserver import ApiServer
from extender.sim.client import Client
from extender.sim.daemon import free_port

HGX = "NVIDIA-H100-80GB-HBM3"


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """Of a Muster that knows a node by its agent, one by its labels, and one of which nothing is told."""
    section = {"listen": {"host": "127.0.0.1", "port": 0}, "leaderElection": {"enabled": False}}
    shape = catalogue.shape("NVIDIA-H100-NVL", 4)
    assert shape is not None
    held = Devices(
        ids=("",) * 4,
        health=("ok", "ok", "ecc", "ok"),
        held=(("team/a",), (), (), ()),
        memory=(None,) * 4,
    )
    told = {annotation.KEY: annotation.encode(shape.topology), devices.KEY: devices.encode(held)}
    nodes = [
        fleet.node("told", gpus=4, annotations=told),
        fleet.node("sold", gpus=8, product=HGX),
        fleet.node("dark", gpus=8),
    ]
    async with (
        ApiServer() as server,
        Client(server.url) as client,
        running(parse({"muster": section}, "test"), credentials.plain(server.url)) as service,
    ):
        await fleet.add_nodes(client, nodes)
        cluster = service.loop.coordinator.state.cluster
        names = [node["metadata"]["name"] for node in nodes]

        def reads() -> bool:
            return service.view.ready() and None not in map(cluster.row_of, names)

        async with asyncio.timeout(60):
            while not reads():  # noqa: ASYNC110 - the state has no event to wait for
                await asyncio.sleep(0.01)
        yield service.url.removesuffix("/scheduler")
        assert service.loop.faults == 0


async def topo(capsys, *words: str) -> tuple[int, str, str]:
    capsys.readouterr()  # the service's own log
    code = await asyncio.to_thread(cli.main, ["topo", *words])
    out, err = capsys.readouterr()
    return code, out, err


async def test_a_node_of_an_agent(url: str, capsys) -> None:
    code, out, err = await topo(capsys, "show", "told", "--url", url, "--json")
    document = json.loads(out)
    assert (code, err) == (0, "")
    assert document["links"][0][:2] == ["X", "NV12"]
    assert [each["busy"] for each in document["gpus"]] == ["team/a", None, "ecc", None]
    code, out, _ = await topo(capsys, "place", "told", "--gpus", "2", "--url", url, "--json")
    assert json.loads(out)["devices"] == [1, 3]
    # Three are not free.
    assert (await topo(capsys, "place", "told", "--gpus", "3", "--url", url))[0] == 1


async def test_a_node_of_labels(url: str, capsys) -> None:
    code, out, err = await topo(capsys, "parse", "sold", "--url", url, "--json")
    assert code == 0
    assert json.loads(out)["links"][0] == ["X", *["NV18"] * 7]
    assert json.loads(out)["warnings"] == ["no links are published: these are as it is sold"]
    assert err == ""


async def test_nodes_that_are_not_known(url: str, capsys) -> None:
    code, _, err = await topo(capsys, "show", "dark", "--url", url)
    assert code == 1
    assert "node dark: what joins its GPUs is not known; `muster agent` tells it" in err
    code, _, err = await topo(capsys, "show", "gone", "--url", url)
    assert code == 1
    assert f"no node gone is known at {url}" in err
    assert (await topo(capsys, "show", "told", "--url", "ftp://there"))[0] == 2
    code, _, err = await topo(capsys, "show", "told", "--url", f"127.0.0.1:{free_port()}")
    assert code == 1
    assert "no answer" in err
