"""A network between one Muster and the API server that can keep Bindings on the way, and replicas behind such."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from aiohttp import web

from extender.core.objects import Manifest
from extender.sim.realplane import RealPlane
from tests.controlplane import rights
from tests.controlplane.processes import Replica

_BODY = 1 << 26


@dataclass
class Late:
    """A Binding that was sent, and what became of it."""

    pod: str
    node: str
    status: int = 0
    message: str = ""


@dataclass
class Wire:
    """Passes every request on; Bindings only while it is open, or among the next that it lets."""

    plane: RealPlane
    open: asyncio.Event = field(default_factory=asyncio.Event)
    #: So many more take effect though it is shut, one after the other.
    left: int = 0
    #: Bindings that wait are lost with the connection, and never come there.
    lost: bool = False
    #: Bindings that were sent while the way was shut, in the order of their arrival.
    late: list[Late] = field(default_factory=list)
    #: Set as soon as another one is on the way.
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)
    url: str = ""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def shut_after(self, count: int) -> None:
        """Let so many Bindings take effect, and keep the ones after them on the way."""
        self.left = count
        self.open.clear()

    def lose(self) -> None:
        """What is on the way is lost; what comes later passes."""
        self.lost = True
        self.open.set()

    async def until_sent(self, count: int, patience: float = 40.0) -> None:
        """Wait until so many Bindings are on the way."""
        async with asyncio.timeout(patience), self.arrived:
            await self.arrived.wait_for(lambda: len(self.late) >= count)

    async def until_answered(self, patience: float = 40.0) -> None:
        """Let everything through, and wait for the API server's word on each Binding."""
        self.open.set()
        async with asyncio.timeout(patience), self.arrived:
            await self.arrived.wait_for(lambda: all(each.status for each in self.late))

    def kubeconfig(self, like: Path, folder: Path) -> Path:
        """A kubeconfig as ``like`` that leads to this wire."""
        config = json.loads(like.read_text())
        config["clusters"][0]["cluster"] = {"server": self.url}
        path = folder / f"wire-{self.url.rpartition(':')[2]}.kubeconfig"
        path.write_text(json.dumps(config))
        return path

    async def passed(
        self, session: aiohttp.ClientSession, request: web.Request
    ) -> web.StreamResponse:
        """Carry one request there, and its answer back as it comes."""
        body = await request.read()
        if self.open.is_set() or not request.path.endswith("/binding"):
            return await self._carry(session, request, body)
        async with self._turn:
            if self.left:
                answer = await self._carry(session, request, body)
                self.left -= answer.status == 201
                return answer
        late = await self._keep(body)
        if self.lost:
            return web.Response(status=504)
        answer = await self._carry(session, request, body, late)
        async with self.arrived:
            late.status = answer.status
            self.arrived.notify_all()
        return answer

    async def _carry(
        self,
        session: aiohttp.ClientSession,
        request: web.Request,
        body: bytes,
        late: Late | None = None,
    ) -> web.StreamResponse:
        headers = {
            key: value
            for key, value in request.headers.items()
            if key in ("Authorization", "Content-Type", "Accept")
        }
        async with session.request(
            request.method, self.plane.server_url + request.path_qs, data=body, headers=headers
        ) as answer:
            response = web.StreamResponse(status=answer.status)
            response.content_type = answer.content_type
            try:
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    if late is not None:
                        late.message += chunk.decode()
                    await response.write(chunk)
                await response.write_eof()
            except ConnectionError:
                pass  # whoever asked is gone, or waits no more
        return response

    async def _keep(self, body: bytes) -> Late:
        binding = json.loads(body)
        late = Late(binding["metadata"]["name"], binding["target"]["name"])
        async with self.arrived:
            self.late.append(late)
            self.arrived.notify_all()
        await self.open.wait()
        return late


@asynccontextmanager
async def wire(plane: RealPlane) -> AsyncIterator[Wire]:
    """A wire that is open; ``open.clear()`` shuts it for Bindings."""
    made = Wire(plane)
    made.open.set()
    tls = aiohttp.TCPConnector(limit=0, ssl=ssl.create_default_context(cafile=str(plane.ca)))
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=tls, timeout=timeout) as session:

        async def passed(request: web.Request) -> web.StreamResponse:
            return await made.passed(session, request)

        app = web.Application(client_max_size=_BODY)
        app.router.add_route("*", "/{path:.*}", passed)
        runner = web.AppRunner(app, keepalive_timeout=180, access_log=None, shutdown_timeout=1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield made
        finally:
            made.open.set()
            await runner.cleanup()


@asynccontextmanager
async def wired(
    plane: RealPlane, folder: Path, ports: list[int], section: Manifest
) -> AsyncIterator[list[tuple[Replica, Wire]]]:
    """A replica for each port, started, each with a wire of its own; those left at the end are killed."""
    async with contextlib.AsyncExitStack() as stack:
        made = []
        for port in ports:
            way = await stack.enter_async_context(wire(plane))
            config = way.kubeconfig(plane.kubeconfig_of(rights.ACCOUNT), folder)
            replica = Replica(plane, folder, port, {**section, "kubeconfig": str(config)})
            stack.push_async_callback(replica.kill)
            made.append((replica, way))
        await asyncio.gather(*(replica.start() for replica, _ in made))
        yield made
