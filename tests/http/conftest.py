"""The real listener over a view and an inbox that the test controls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import aiohttp
import pytest

from extender.core.errors import ApiError
from extender.core.events import Event
from extender.core.objects import Pod
from extender.core.verdict import FilterAnswer, User
from extender.http.access import Gate
from extender.http.app import make_app, serve
from extender.http.verbs import Bindings
from extender.obs.metrics import Metrics


@dataclass
class ScriptedView:
    """Answers what the test says and keeps what it was asked."""

    leading: bool = True
    synced: bool = True
    #: Why its two gangs wait.
    reason: str = "NotEnoughRoom"
    on_filter: Callable[[Pod, Sequence[str]], FilterAnswer] = lambda _, names: FilterAnswer(names)
    on_prioritize: Callable[[Pod, Sequence[str]], Sequence[int]] = lambda _, names: [0] * len(names)
    on_preempt: Callable[[Pod, Any], Mapping[str, Sequence[str]]] = lambda _, victims: victims
    asked: list[tuple[Any, ...]] = field(default_factory=list)

    def leads(self) -> bool:
        return self.leading

    def ready(self) -> bool:
        return self.synced

    def filter(self, pod: Pod, names: Sequence[str]) -> FilterAnswer:
        self.asked.append(("filter", pod, names))
        return self.on_filter(pod, names)

    def prioritize(self, pod: Pod, names: Sequence[str]) -> Sequence[int]:
        self.asked.append(("prioritize", pod, names))
        return self.on_prioritize(pod, names)

    def preempt(
        self, pod: Pod, victims: Mapping[str, Sequence[str]]
    ) -> Mapping[str, Sequence[str]]:
        self.asked.append(("preempt", pod, victims))
        return self.on_preempt(pod, victims)

    def state(self) -> dict[str, Any]:
        return {"leader": self.leading, "epoch": 3}

    def gangs(self) -> list[dict[str, Any]]:
        return [{"namespace": "team-a", "name": "train"}]

    def gang(self, namespace: str, name: str) -> dict[str, Any] | None:
        if (namespace, name) != ("team-a", "train"):
            return None
        return {"namespace": namespace, "name": name, "phase": "Pending"}

    def gangless(self, namespace: str, name: str) -> str:
        return f"PyTorchJob {name} has none: Invalid: no" if name == "wrong" else ""

    def nodes(self) -> list[dict[str, Any]]:
        return [{"name": "n1"}]

    def phases(self) -> dict[str, int]:
        return {"Waiting": 2, "Running": 0}

    def avoided(self) -> int:
        return 0

    def waiting(self) -> tuple[dict[str, int], float]:
        return {self.reason: 2}, 1234.5

    def plans(self) -> list[dict[str, Any]]:
        return [{"attempt": 1}]


#: A header that :func:`open_gate` lets through.
BEARER = {"Authorization": "Bearer any"}


class Reviewer:
    """The API server's word on tokens and rights, which a test gives; and what was asked."""

    def __init__(self) -> None:
        self.users = {"any": User("any"), "reader": User("prometheus", groups=("monitoring",))}
        self.rights: set[tuple[str, str, str]] = set()
        self.down: ApiError | None = None
        self.asked: list[tuple[str, ...]] = []
        #: Cleared, an answer waits.
        self.answers = asyncio.Event()
        self.answers.set()

    async def user_of(self, token: str) -> User | None:
        self.asked.append(("token", token))
        await self.answers.wait()
        if self.down is not None:
            raise self.down
        return self.users.get(token)

    async def may(self, user: User, verb: str, path: str) -> bool:
        self.asked.append((user.username, verb, path))
        if self.down is not None:
            raise self.down
        return user.username == "any" or (user.username, verb, path) in self.rights


def open_gate(metrics: Metrics | None = None) -> Gate:
    """Lets every :data:`BEARER` read everything."""
    return Gate(Reviewer(), metrics or Metrics(), time.monotonic, lambda _: None)


class Queue(asyncio.Queue[Event]):
    """An inbox that a test reads with ``await queue.get()``."""

    def put(self, event: Event) -> None:  # type: ignore[override] # the loop's door never blocks
        self.put_nowait(event)


@dataclass
class Service:
    """A running service and a client of it."""

    view: ScriptedView
    inbox: Queue
    bindings: Bindings
    metrics: Metrics
    session: aiohttp.ClientSession
    runner: Any

    async def post(self, verb: str, body: Any) -> tuple[int, Any]:
        """Status and body (JSON where it is) of one call; bytes are sent as they are."""
        data = {"data": BytesIO(body)} if isinstance(body, bytes) else {"json": body}
        async with self.session.post(f"/muster/{verb}", **data) as response:
            if response.content_type == "application/json":
                return response.status, await response.json()
            return response.status, await response.text()

    def counted(self, verb: str, result: str) -> float:
        """How many answers of this kind were counted."""
        labels = {"verb": verb, "result": result}
        return self.metrics.registry.get_sample_value("muster_verb_results_total", labels) or 0.0

    def malformed(self, verb: str) -> float:
        """How many bodies of this verb were not understood."""
        name = "muster_malformed_bodies_total"
        return self.metrics.registry.get_sample_value(name, {"verb": verb}) or 0.0


Start = Callable[..., Any]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Start a service; what make_app takes may be given."""
    services: list[Service] = []

    async def begin(**options: Any) -> Service:
        view, inbox, metrics = ScriptedView(), Queue(), Metrics()
        bindings = Bindings(inbox)
        given: dict[str, Any] = {
            "prefix": "muster",
            "bind_deadline": 60.0,
            "clock": time.monotonic,
        } | options
        app = make_app(view, inbox, bindings, metrics=metrics, **given)
        runner = await serve(app, "127.0.0.1", 0, shutdown_seconds=0.1)
        host, port = runner.addresses[0][:2]
        session = aiohttp.ClientSession(f"http://{host}:{port}")
        services.append(Service(view, inbox, bindings, metrics, session, runner))
        return services[-1]

    yield begin
    for service in services:
        await service.session.close()
        await service.runner.cleanup()
        assert len(service.bindings) == 0


@pytest.fixture
async def service(start: Start) -> Service:
    """A service with the defaults."""
    begun: Service = await start()
    return begun
