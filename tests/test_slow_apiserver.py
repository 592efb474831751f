"""An API server that is slow and asks Muster to wait: later, and nothing else."""

from __future__ import annotations

import asyncio
from collections import Counter

import aiohttp
import orjson
import pytest
from aiohttp import web

from extender.core import api
from extender.core.errors import ApiError
from extender.demo import engine
from extender.kube import credentials
from extender.kube.client import USER_AGENT
from extender.runtime import Service, running
from extender.sim import fleet, statuses
from extender.sim.apiserver import ApiServer
from extender.sim.client import Client
from extender.sim.extenders import Extender
from extender.sim.kubelet import Kubelet
from extender.sim.scheduler import Scheduler
from tests.bench import load

#: Seconds that every request of Muster's takes; each third write is refused first (429, one second).
SECONDS, EVERY = 0.2, 3


class Slow:
    """What the server does to Muster's requests, and which Bindings and creations it let pass."""

    def __init__(self) -> None:
        self.seen = 0
        self.refused = 0
        self.passed: Counter[tuple[str, str]] = Counter()

    def __call__(self, request: web.Request) -> web.StreamResponse | float | None:
        if request.headers.get("User-Agent") != USER_AGENT:
            return None
        if request.method in ("POST", "PATCH"):
            self.seen += 1
            if self.seen % EVERY == 0:
                self.refused += 1
                body = statuses.render(ApiError(429, "TooManyRequests", "later"))
                return web.json_response(body, status=429, headers={"Retry-After": "1"})
            if request.path.endswith("/binding"):
                self.passed["bind", request.path] += 1
        return SECONDS


async def answered(url: str, session: aiohttp.ClientSession) -> list[str]:
    """The nodes that /filter lets a pod of no group have."""
    pod = {"metadata": {"name": "plain", "namespace": "default", "uid": "plain"}, "spec": {}}
    body = {"Pod": pod, "NodeNames": ["n0", "n1"]}
    async with session.post(f"{url}/filter", data=orjson.dumps(body)) as answer:
        assert answer.status == 200
        return (await answer.json())["NodeNames"]


@pytest.mark.timeout(110)
async def test_gangs_and_jobs_become_whole_later_and_nothing_is_done_twice():
    slow = Slow()
    async with (
        ApiServer(fault=slow) as server,
        running(engine._settings(), credentials.plain(server.url)) as service,
        Client(server.url) as client,
        Scheduler(
            client,
            [Extender.from_config(entry) for entry in engine._extenders(service.url)],
            names=[engine.SCHEDULER],
            max_backoff=service.settings.muster.pod_max_backoff_seconds,
        ),
        Kubelet(client, start_seconds=0.01),
        aiohttp.ClientSession() as session,
    ):
        await engine._leading(service)
        await fleet.add_nodes(client, [fleet.node(f"n{at}", gpus=4) for at in range(2)])
        groups = [load.volcano_group(f"g{at}", 2) for at in range(2)]
        members = [load.volcano_member(f"g{at // 2}", f"g{at // 2}-{at % 2}") for at in range(4)]
        await load.create_all(client, api.VOLCANO_GROUPS, "default", groups)
        await load.create_all(client, api.PODS, "default", members)
        await load.create_all(client, api.PYTORCH_JOBS, "default", [load.job("j", 4)])
        wanted = {f"g{at // 2}-{at % 2}" for at in range(4)} | {f"j-worker-{at}" for at in range(4)}

        asked = 0
        while len(_bound(server)) < len(wanted):
            if service.metrics.registry.get_sample_value("muster_commands_running"):
                # Free places of no plan stay open to others, and nobody waits for the API server.
                assert set(await answered(service.url, session)) <= {"n0", "n1"}
                asked += 1
            await asyncio.sleep(0.02)
        assert asked, "/filter was asked while a write was under way"
        assert slow.refused > 3

        assert _bound(server).keys() == wanted
        assert Counter(_bound(server).values()) == {"n0": 4, "n1": 4}
        binds = {path: count for (_, path), count in slow.passed.items()}
        assert len(binds) == len(wanted)
        # Once each, but for those that lost their precondition or were not answered in time.
        state = service.loop.coordinator.state
        again = state.counters.get("bind_retries", 0) + _unheard(service)
        assert sum(binds.values()) <= len(wanted) + again
        pods = server.store.list(api.PODS)
        assert {pod["metadata"]["name"] for pod in pods} == wanted
        state.cluster.verify()
        assert state.cluster.over_committed() == []
        assert service.loop.faults == 0
        assert state.counters.get("rollbacks", 0) == 0


def _unheard(service: Service) -> float:
    """Bindings that were sent again for another reason than to be asked to."""
    return sum(
        each.value
        for family in service.metrics.registry.collect()
        for each in family.samples
        if each.name == "muster_command_retries_total"
        and each.labels["kind"] == "Bind"
        and each.labels["code"] != "429"
    )


def _bound(server: ApiServer) -> dict[str, str]:
    """Node by name of the pods that are bound."""
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in server.store.list(api.PODS)
        if pod["spec"].get("nodeName")
    }
