"""One world twice: the programs of :mod:`extender.sim`, and the real ones, with the same Muster beside.

A scenario is a list of steps (tests/cases/twin.yaml). What both worlds showed must be equal, but for the
names of times, uids and versions, and for what may come in any order because it happens at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import aiohttp
import orjson
import yaml
from aiohttp import web

from extender.core import api
from extender.core.objects import Manifest
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
from tests.controlplane.world import World

NAMESPACE = "twin"
#: Whether a reason to wait was told before it was over is chance as well.
_OVER = ("Unschedulable", "False")
#: Seconds without an event after which nothing more is expected: more than kube-scheduler's back-off.
QUIET_SECONDS = 1.3
#: Fields of a condition that are compared.
CONDITION = ("type", "status", "reason", "message")
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
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()

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
class Story:
    """What an observer of the API server saw.

    How kube-scheduler and Muster meet is chance: one may ask before the other has read. So conditions count
    as they stand when nothing happens any more, and reasons to wait of events if they are among those. In a
    pod's condition Muster's own reason is left out: it is that of the last time that kube-scheduler asked.
    Where a pod went, and how it fared there, counts in full.
    """

    namespace: str
    lines: list[str] = field(default_factory=list)
    #: Set after each event of the watches.
    news: asyncio.Event = field(default_factory=asyncio.Event)
    #: Conditions of each object as they are, and as they were when things had settled last.
    now: dict[str, Any] = field(default_factory=dict)
    then: dict[str, Any] = field(default_factory=dict)
    #: By pod and aspect, the values one after the other.
    ways: dict[str, dict[str, list[Any]]] = field(default_factory=dict)
    events: set[tuple[str, ...]] = field(default_factory=set)
    #: Every message that stood when things had settled.
    stood: set[str] = field(default_factory=set)
    _lives: dict[str, list[str]] = field(default_factory=dict)

    async def settle(self, what: str, bound: dict[str, str]) -> None:
        """Wait until nothing happens any more; note what is new since the last time."""
        with contextlib.suppress(TimeoutError):
            while True:
                self.news.clear()
                async with asyncio.timeout(QUIET_SECONDS):
                    await self.news.wait()
        self.lines.append(f"{what}: bound {sorted(bound.items())}")
        for name, value in sorted(self.now.items()):
            if self.then.get(name) != value:
                self.lines.append(f"{what}: {name} {value}")
            self.stood |= {condition[3] for condition in value[1]}
        self.then = dict(self.now)

    def told(self) -> list[str]:
        """The whole story, a line for each thing."""
        lines = list(self.lines)
        for name, aspects in sorted(self.ways.items()):
            lines += [f"{name} {aspect}: {values}" for aspect, values in aspects.items()]
        for on, kind, reason, message in sorted(self.events):
            if kind == "Normal" or message in self.stood:
                lines.append(f"event on {on}: {kind} {reason} {message}")
        return lines

    def _see_pod(self, kind: str, pod: Manifest) -> None:
        meta, status = pod["metadata"], pod.get("status") or {}
        lives = self._lives.setdefault(meta["name"], [])
        if meta["uid"] not in lives:
            lives.append(meta["uid"])
        name = f"pod {meta['name']} life {lives.index(meta['uid']) + 1}"
        aspects = {
            "node": pod["spec"].get("nodeName"),
            "nominated": status.get("nominatedNodeName"),
            "gates": [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()],
            "phase": "gone" if kind == "DELETED" else status.get("phase"),
        }
        seen = self.ways.setdefault(name, {aspect: [] for aspect in aspects})
        for aspect, value in aspects.items():
            if value and seen[aspect][-1:] != [value]:
                seen[aspect].append(value)
        self._now(name, kind, ("", self._conditions(status, "PodScheduled")))

    def see(self, resource: api.Resource, kind: str, obj: Manifest) -> None:
        self.news.set()
        if resource == api.PODS:
            self._see_pod(kind, obj)
            return
        meta, status = obj["metadata"], obj.get("status") or {}
        if resource != api.EVENTS:
            shown = (str(status.get("phase")), self._conditions(status))
            self._now(f"{resource.kind} {meta['name']}", kind, shown)
            return
        on = obj["involvedObject"]
        what = (f"{on['kind']} {on['name']}", obj["type"], obj["reason"], obj["message"])
        self.events.add(self._normal(what))

    def _now(self, name: str, kind: str, shown: tuple[str, list[tuple[str, ...]]]) -> None:
        self.now[name] = ("gone", []) if kind == "DELETED" else shown

    def _conditions(self, status: Manifest, only: str = "") -> list[tuple[str, ...]]:
        return sorted(
            self._normal(tuple(str(each.get(key, "")) for key in CONDITION))
            for each in status.get("conditions") or ()
            if (not only or each["type"] == only) and (each["type"], each["status"]) != _OVER
        )

    def _normal(self, texts: tuple[str, ...]) -> tuple[str, ...]:
        """Without the namespace, uids, ports, times and durations."""
        found = []
        for text in texts:
            text = text.replace(self.namespace, "NAMESPACE")
            text = re.sub(r"\d+ (of at least \d+ pods bound)", r"SOME \1", text)
            text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID", text)
            text = re.sub(
                r"(Muster: gang \S+ waits: ).*?(?=(, \d+ (?!asked)|\. )[a-zA-Z(]+)", r"\1WHY", text
            )
            # Other tests leave PriorityClasses on the real control plane.
            text = re.sub(r"(does not exist; allowed: ).*", r"\1CLASSES", text)
            text = re.sub(r"127\.0\.0\.1:\d+", "HOST", text)
            found.append(re.sub(r"\d+(\.\d+)? ?(ms|s)\b", "SECONDS", text))
        return tuple(found)


@dataclass
class Twin:
    """One of the two worlds, with all that a step acts on."""

    world: World
    relay: Relay
    story: Story
    #: The in-memory API server; None where it is the real one.
    server: ApiServer | None = None


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
            _observed(world, credentials.plain(server.url), port) as (relay, story),
            scheduler,
            Kubelet(client),
        ):
            following = asyncio.create_task(world.follow())
            yield Twin(world, relay, story, server)
            following.cancel()


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
    async with _observed(world, rights.account(world.plane), port) as (relay, story):
        yield Twin(world, relay, story)


@asynccontextmanager
async def _observed(
    world: World, where: Credentials, port: int
) -> AsyncIterator[tuple[Relay, Story]]:
    story = Story(world.namespace)
    async with running(settings_for(0), where) as service, Relay(port, service) as relay:
        await leading(service)
        following = [
            asyncio.create_task(_follow(world.client, resource, story)) for resource in SHOWN
        ]
        try:
            yield relay, story
            check_service(service)
        finally:
            for task in following:
                task.cancel()
            for task in following:
                with contextlib.suppress(asyncio.CancelledError):
                    await task


async def _follow(client: Client, resource: api.Resource, story: Story) -> None:
    async for kind, objects in client.follow(resource, story.namespace):
        for each in objects:
            story.see(resource, kind, each)
