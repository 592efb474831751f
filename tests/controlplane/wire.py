"""A network between one Muster and the API server that can keep Bindings on the way."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from aiohttp import web

from extender.sim.realplane import RealPlane

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
    """Passes every request on; Bindings only while it is open."""

    plane: RealPlane
    open: asyncio.Event = field(default_factory=asyncio.Event)
    #: Bindings that were sent while the way was shut, in the order of their arrival.
    late: list[Late] = field(default_factory=list)
    #: Set as soon as another one is on the way.
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)
    url: str = ""

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
        late = await self._delayed(request, body)
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
        if late is not None:
            async with self.arrived:
                late.status = answer.status
                self.arrived.notify_all()
        return response

    async def _delayed(self, request: web.Request, body: bytes) -> Late | None:
        if self.open.is_set() or not request.path.endswith("/binding"):
            return None
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
