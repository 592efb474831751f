"""The clusters that the story can be told on, with the whole service beside each.

Embedded: API server, scheduler and kubelet of :mod:`extender.sim` in this process. Kubernetes: etcd,
kube-apiserver and kube-scheduler as processes. The service is the same, and so is the extender
protocol between it and the scheduler.
"""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from extender.kube import credentials
from extender.runtime import Service, running
from extender.settings import Settings, parse
from extender.sim.apiserver import ApiServer
from extender.sim.client import Client
from extender.sim.extenders import Extender
from extender.sim.kubelet import Kubelet
from extender.sim.realplane import RealPlane, binaries
from extender.sim.scheduler import Scheduler

#: schedulerName of the scheduler that carries the extender.
SCHEDULER = "muster"
#: Seconds that a simulated container takes to start.
START_SECONDS = 0.3
#: Seconds within which the service must lead: kernels may have to be compiled first.
LEAD_SECONDS = 300.0


class Cluster(Struct, frozen=True):
    """A running cluster: what the story acts on and watches."""

    engine: str
    client: Client
    service: Service


@asynccontextmanager
async def embedded() -> AsyncIterator[Cluster]:
    """Everything in this process."""
    async with (
        ApiServer() as server,
        running(_settings(), credentials.plain(server.url)) as service,
        Client(server.url) as client,
        Scheduler(
            client,
            [Extender.from_config(entry) for entry in _extenders(service.url)],
            names=[SCHEDULER],
            max_backoff=service.settings.muster.pod_max_backoff_seconds,
        ),
        Kubelet(client, start_seconds=START_SECONDS),
    ):
        await _leading(service)
        yield Cluster("embedded", client, service)


@asynccontextmanager
async def kubernetes(crds: list[Path]) -> AsyncIterator[Cluster]:
    """etcd, kube-apiserver and kube-scheduler on loopback; ``crds`` are applied first.

    Builds the programs when they are not there yet, which takes minutes.
    """
    folder = await asyncio.to_thread(binaries)
    with tempfile.TemporaryDirectory(prefix="muster-demo-") as work:
        plane = RealPlane(folder, Path(work))
        try:
            await asyncio.to_thread(_start, plane, crds)
            async with (
                running(
                    _settings(), credentials.from_kubeconfig(str(plane.kubeconfig_path))
                ) as service,
                _client(plane) as client,
                Kubelet(client, start_seconds=START_SECONDS),
            ):
                config = _scheduler_config(service)
                await asyncio.to_thread(plane.start_scheduler, config, SCHEDULER)
                await _leading(service)
                yield Cluster("kubernetes", client, service)
        finally:
            await asyncio.to_thread(plane.stop)


def _start(plane: RealPlane, crds: list[Path]) -> None:
    plane.start_etcd()
    plane.start_apiserver()
    for crd in crds:
        plane.kubectl("apply", "-f", str(crd))
    plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")


def _client(plane: RealPlane) -> Client:
    tls = ssl.create_default_context(cafile=str(plane.ca))
    return Client(plane.server_url, headers={"Authorization": f"Bearer {plane.token}"}, tls=tls)


def _settings() -> Settings:
    section = {
        "schedulerNames": [SCHEDULER],
        "listen": {"host": "127.0.0.1", "port": 0},
        "leaderElection": {"enabled": False},
    }
    return parse({"muster": section}, "demo")


def _scheduler_config(service: Service) -> dict[str, Any]:
    """As config/scheduler-own.yaml."""
    return {
        "percentageOfNodesToScore": 100,
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": int(service.settings.muster.pod_max_backoff_seconds),
        "profiles": [{"schedulerName": SCHEDULER}],
        "extenders": _extenders(service.url),
    }


def _extenders(url: str) -> list[dict[str, Any]]:
    common = {"urlPrefix": url, "nodeCacheCapable": True, "ignorable": False}
    return [
        {
            **common,
            "filterVerb": "filter",
            "prioritizeVerb": "prioritize",
            "preemptVerb": "preempt",
            "weight": 1,
            "httpTimeout": "2s",
        },
        {**common, "bindVerb": "bind", "httpTimeout": "120s"},
    ]


async def _leading(service: Service) -> None:
    """Until the service decides."""
    try:
        async with asyncio.timeout(LEAD_SECONDS):
            while not service.view.leads():  # noqa: ASYNC110 - it tells nobody when it leads
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise TimeoutError(f"the service did not lead within {LEAD_SECONDS:g} s") from None
