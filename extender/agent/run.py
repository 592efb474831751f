"""The agent's life: read the node, publish, wait; and end when told to."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from prometheus_client import start_http_server

from extender.agent import kubelet, tree
from extender.agent.assemble import Node, assemble
from extender.agent.driver import Driver
from extender.agent.lacks import Lacks
from extender.agent.publish import Publisher
from extender.agent.pulse import Pulse, served
from extender.core.errors import InvalidObject
from extender.core.topology import annotation
from extender.core.topology.model import Topology
from extender.kube.client import ApiClient
from extender.kube.complaints import Complaints
from extender.kube.credentials import Credentials
from extender.obs.log import logger
from extender.obs.metrics import Metrics
from extender.settings import Agent

_log = logger("agent")


class Reader:
    """Reads one node, again and again."""

    def __init__(
        self, settings: Agent, nvml: Any, lacks: Lacks, pulse: Pulse | None = None
    ) -> None:
        """``nvml``: NVML's Python module."""
        self._pulse = pulse or Pulse(time.monotonic)
        self._settings = settings
        self._driver = Driver(nvml)
        self._lacks = lacks

    def read(self, before: Topology | None = None) -> Node | None:
        """What the node has now; None where no device is found. Blocks.

        ``before``: what is published of its links.
        """
        try:
            self._pulse.reads("nvml")
            driven = self._driver.read(self._lacks)
            self._pulse.reads("sysfs")
            bus = tree.read(Path(self._settings.sysfs), self._lacks)
            self._pulse.reads("podresources")
            held = kubelet.read(self._settings.pod_resources_socket, self._lacks)
        finally:
            self._pulse.rests()
        try:
            node = assemble(driven, bus, held, before)
        except InvalidObject as error:
            self._lacks.add("nvml", error.field, error)
            return None
        if node is None:
            self._lacks.add("nvml", "devices", "no GPU is found, nothing is published")
        elif self._settings.kubelet_config is not None:
            policy, scope = kubelet.alignment(self._settings.kubelet_config, self._lacks)
            node = replace(node, devices=replace(node.devices, policy=policy, scope=scope))
        return node

    def close(self) -> None:
        """Leave the driver."""
        self._driver.close()


async def publish(
    settings: Agent,
    node: str,
    where: Credentials,
    nvml: Any,
    *,
    stop: asyncio.Event,
    metrics: Metrics | None = None,
    rng: random.Random | None = None,
    health_port: int | None = None,
) -> None:
    """Keep the Node's annotations true until ``stop`` is set.

    ``health_port``: where /healthz is answered, see :mod:`extender.agent.pulse`.
    Raises ConfigError: there are no credentials; OSError: a port is taken.
    """
    metrics, rng = metrics or Metrics(), rng or random.Random()
    lacks = Lacks(metrics)
    pulse = Pulse(time.monotonic)
    reader = Reader(settings, nvml, lacks, pulse)
    with contextlib.ExitStack() as stack:
        stack.callback(reader.close)
        if health_port is not None:
            stack.enter_context(served(pulse, health_port))
        if settings.metrics_port is not None:
            server, thread = start_http_server(settings.metrics_port, registry=metrics.registry)
            stack.callback(thread.join)
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
        async with ApiClient(where, metrics, connections=2) as client:
            complaints = Complaints(lambda: client.server)
            publisher = Publisher(
                client, node, settings, rng, metrics, complaints, clock=time.monotonic
            )
            _log.info("publishing", node=node, api_server=client.server)
            # Nodes that start together do not read and write together.
            await _pause(stop, settings.read_every_seconds * rng.random())
            while not stop.is_set():
                before = published(await publisher.read() or {}, lacks)
                found = await asyncio.to_thread(reader.read, before)
                lacks.end()
                if found is not None:
                    await publisher.settle(found.annotations())
                await _pause(stop, settings.read_every_seconds * rng.uniform(0.9, 1.1))
    _log.info("stopped", node=node)


async def until_told(
    settings: Agent, node: str, where: Credentials, nvml: Any, health_port: int | None = None
) -> None:
    """``muster agent``: publish until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await publish(settings, node, where, nvml, stop=stop, health_port=health_port)


def published(annotations: Mapping[str, str], lacks: Lacks) -> Topology | None:
    """The topology that a Node has; None if it has none that can be read."""
    text = annotations.get(annotation.KEY)
    if text is None:
        return None
    try:
        return annotation.decode(text)
    except InvalidObject as error:
        # It is written anew, from what is read alone.
        lacks.add("annotation", error.field, error)
        return None


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()
