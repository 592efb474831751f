"""Muster as processes of their own, to be killed, paused and replaced; and the Service before them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from extender.core.objects import Manifest
from extender.http.app import stop_accepting
from extender.sim.daemon import free_port
from extender.sim.realplane import RealPlane
from tests.controlplane import rights

#: Seconds. A lease short enough for a test to see it expire.
LEASE = {
    "enabled": True,
    "namespace": rights.NAMESPACE,
    "leaseDurationSeconds": 3,
    "renewDeadlineSeconds": 2,
    "retryPeriodSeconds": 0.5,
}


class Replica:
    """One ``muster serve``."""

    def __init__(self, plane: RealPlane, folder: Path, port: int, section: Manifest) -> None:
        self.port = port
        self._log = folder / f"muster-{port}.log"
        self._config = folder / f"muster-{port}.yaml"
        listen = {"host": "127.0.0.1", "port": port}
        muster = {
            "kubeconfig": str(plane.kubeconfig_of(rights.ACCOUNT)),
            "listen": listen,
            **section,
        }
        self._config.write_text(yaml.safe_dump({"muster": muster}))
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start, and wait until it is ready (standby or leader)."""
        command = ["-m", "extender.cli", "serve", "--config", str(self._config)]
        with self._log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, *command, stdout=log, stderr=log
            )
        async with asyncio.timeout(60):
            while not await self._ready():
                assert self.process.returncode is None, self.log()
                await asyncio.sleep(0.05)

    async def until_leading(self) -> None:
        """Wait until it leads."""
        await self.until(lambda state: state["leading"])

    async def state(self) -> dict[str, Any]:
        """``/debug/state``; empty when it does not answer at once."""
        try:
            async with self._session() as http, http.get("/debug/state") as answer:
                return dict(await answer.json())
        except (aiohttp.ClientError, TimeoutError):
            return {}

    async def until(self, condition: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """``/debug/state`` as soon as it answers so."""
        async with asyncio.timeout(60):
            while not ((found := await self.state()) and condition(found)):  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.05)
        return found

    def signal(self, number: int) -> None:
        """Send it a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    async def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
                self.process.kill()
            await self.process.wait()

    async def stop(self) -> None:
        """SIGTERM, and wait until it is gone."""
        assert self.process is not None
        self.process.terminate()
        await self.process.wait()

    def log(self) -> str:
        """The end of what it printed."""
        return self._log.read_text()[-4000:]

    async def _ready(self) -> bool:
        try:
            async with self._session() as http, http.get("/readyz") as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    def _session(self) -> aiohttp.ClientSession:
        timeout = aiohttp.ClientTimeout(total=1.0)
        return aiohttp.ClientSession(f"http://127.0.0.1:{self.port}", timeout=timeout)


@asynccontextmanager
async def replicas(
    plane: RealPlane, folder: Path, count: int, section: Manifest, port: int
) -> AsyncIterator[list[Replica]]:
    """``count`` replicas, started; those left at the end are killed. One alone takes ``port``."""
    ports = [port] if count == 1 else [free_port() for _ in range(count)]
    made = [Replica(plane, folder, each, section) for each in ports]
    try:
        await asyncio.gather(*(each.start() for each in made))
        yield made
    finally:
        await asyncio.gather(*(each.kill() for each in made))


@asynccontextmanager
async def service(made: list[Replica], port: int) -> AsyncIterator[None]:
    """What a Service that selects the leader does: connections go to the replica that leads."""

    carrying: set[asyncio.Task[Any]] = set()

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        carrying.add(task)
        try:
            states = await asyncio.gather(*(each.state() for each in made))
            leaders = [r for r, state in zip(made, states, strict=True) if state.get("leading")]
            if leaders:
                there, back = await asyncio.open_connection("127.0.0.1", leaders[0].port)
                await asyncio.gather(pipe(reader, back), pipe(there, writer))
        except ConnectionError:
            pass  # one of both is gone, and the other hears of it
        except asyncio.CancelledError:
            pass  # at the end, by `ending`; streams of Python 3.11 report a cancelled handler as a fault
        finally:
            writer.close()
            carrying.discard(task)

    server = await asyncio.start_server(connected, "127.0.0.1", port)
    try:
        async with server:
            yield
            await stop_accepting(server)
    finally:
        ending = list(carrying)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
