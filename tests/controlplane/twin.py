"""One world twice: the programs of :mod:`extender.sim`, and the real ones, with the same Muster beside.

A scenario is a list of steps (tests/cases/twin.yaml). A step ends when what it did is there and Muster has read
it, so that the next one means the same in both; what both worlds show must be equal (:mod:`story`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import aiohttp
import orjson
import yaml
from aiohttp import web

from extender.core import api
from extender.core.state import State
from extender.http.app import Site
from extender.kube import credentials
from extender.kube.credentials import Credentials
from extender.runtime import Service, running
from extender.sim import fleet, statuses
from extender.sim.apiserver import ApiServer
from extender.sim.client import Client
from extender.sim.daemon import free_port
from extender.sim.extenders import Extender
from extender.sim.kubelet import Kubelet
from extender.sim.realplane import RealPlane
from extender.sim.rest import Answer, Request
from extender.sim.scheduler import Scheduler
from tests.controlplane import rights
from tests.controlplane.conftest import check_service, leading, scheduler_config, settings_for
from tests.controlplane.story import Story
from tests.controlplane.world import PATIENCE, World

NAMESPACE = "twin"
#: Nothing that Muster does for being tired of waiting is part of a scenario: whether it comes to that is
#: decided by how fast the machine is. (tests/controlplane/test_s* show what it does then.)
PATIENT = {
    "podMaxBackoffSeconds": 600,
    "bindTimeoutSeconds": 1800,
    "planDeadlineSeconds": 600,
}
#: Kinds whose objects are part of the story.
SHOWN = (
    api.PODS,
    api.VOLCANO_GROUPS,
    api.SIGS_GROUPS,
    api.NATIVE_GROUPS,
    api.PYTORCH_JOBS,
    api.EVENTS,
)


class Relay:
    """Stands between kube-scheduler and Muster: can be gone, and can keep /bind waiting."""

    def __init__(self, port: int, service: Service) -> None:
        self.bind = asyncio.Event()
        self.bind.set()
        #: Pods for which /bind was called.
        self.binding: set[str] = set()
        self.news = asyncio.Condition()
        self._port = port
        self._base = service.url.rpartition("/")[0]
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Relay:
        self._session = aiohttp.ClientSession()
        await self.up()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.down()
        assert self._session is not None
        await self._session.close()

    async def up(self) -> None:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/{path:.*}", self._pass)
        self._runner = web.AppRunner(
            app, keepalive_timeout=180, access_log=None, shutdown_timeout=0.1
        )
        await self._runner.setup()
        await Site(self._runner, "127.0.0.1", self._port).start()

    async def down(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _pass(self, request: web.Request) -> web.Response:
        body = await request.read()
        if request.path.endswith("/bind"):
            async with self.news:
                self.binding.add(json.loads(body)["PodName"])
                self.news.notify_all()
            await self.bind.wait()
        assert self._session is not None
        headers = {"Content-Type": "application/json"}
        async with self._session.post(
            self._base + request.path, data=body, headers=headers
        ) as answer:
            return web.Response(status=answer.status, body=await answer.read())


@dataclass
class Twin:
    """One of the two worlds, with all that a step acts on."""

    world: World
    relay: Relay
    story: Story
    service: Service
    #: The in-memory API server; None where it is the real one.
    server: ApiServer | None = None

    async def read(self, condition: Callable[[State], Any], what: str) -> None:
        """Wait until Muster has read something that the API server has."""
        state = self.service.loop.coordinator.state
        try:
            async with asyncio.timeout(PATIENCE):
                while not condition(state):  # noqa: ASYNC110 - the state has no event to wait for
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"Muster has not read {what}") from None


@asynccontextmanager
async def embedded() -> AsyncIterator[Twin]:
    """The in-memory API server, the stand-in scheduler, a kubelet, Muster."""
    port = free_port()
    config = yaml.safe_load(scheduler_config("scheduler-own.yaml", port))
    async with ApiServer() as server, Client(server.url) as client:
        await fleet.add_namespace(client, NAMESPACE)
        world = World(client, cast("RealPlane", None), NAMESPACE)
        scheduler = Scheduler(
            client,
            [Extender.from_config(entry) for entry in config["extenders"]],
            names=[profile["schedulerName"] for profile in config["profiles"]],
            initial_backoff=config["podInitialBackoffSeconds"],
            max_backoff=config["podMaxBackoffSeconds"],
        )
        async with (
            _observed(world, credentials.plain(server.url), port) as twin,
            scheduler,
            Kubelet(client),
            _beside(world.follow()),
        ):
            twin.server = server
            yield twin


def no_more_pods(server: ApiServer) -> None:
    """What admission answers under a ResourceQuota of no pods, which the in-memory server has not."""
    handle = server._rest.handle

    def refused(request: Request) -> Answer:
        if request.method != "POST" or not request.path.endswith("/pods"):
            return handle(request)
        name = json.loads(request.body)["metadata"]["name"]
        message = "exceeded quota: quota, requested: pods=1, used: pods=0, limited: pods=0"
        error = statuses.forbidden(api.PODS, name, message)
        return Answer(error.code, orjson.dumps(statuses.render(error, api.PODS, name)))

    server._rest.handle = refused  # type: ignore[method-assign] # admission of one test


@asynccontextmanager
async def real(world: World, port: int) -> AsyncIterator[Twin]:
    """A world on the real control plane (whose kubelet runs already), and Muster."""
    async with _observed(world, rights.account(world.plane), port) as twin:
        yield twin


@asynccontextmanager
async def _observed(world: World, where: Credentials, port: int) -> AsyncIterator[Twin]:
    story, settings = Story(world.namespace), settings_for(0, **PATIENT)
    async with running(settings, where) as service, Relay(port, service) as relay:
        await leading(service)
        async with _beside(*(_follow(world.client, resource, story) for resource in SHOWN)):
            yield Twin(world, relay, story, service)
            check_service(service)


@asynccontextmanager
async def _beside(*endless: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run these until the block is left."""
    tasks = [asyncio.create_task(each) for each in endless]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def _follow(client: Client, resource: api.Resource, story: Story) -> None:
    async for kind, objects in client.follow(resource, story.namespace):
        for each in objects:
            story.see(resource, kind, each)
