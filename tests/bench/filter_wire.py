"""/filter of 5,000 names through the service's socket, without deciding anything.

``python -m tests.bench.filter_wire`` prints JSON: milliseconds of a round trip over one kept
connection (server in a process of its own), per shape of answer. What the decision adds is
measured by the bench ``filter``.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import multiprocessing
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from extender.core.objects import Pod
from extender.core.verdict import FilterAnswer
from extender.http.app import make_app, serve
from extender.http.verbs import Bindings
from extender.obs.metrics import Metrics
from tests.http.conftest import Queue, ScriptedView

NODES = 5_000
ROUNDS = 300
MESSAGE = (
    "gang team-a/llama: 24 of 32 pods fit; 4,990 nodes: 3 of 8 nvidia.com/gpu free, 4 asked;"
    " 10 nodes: cordoned"
)

Decide = Callable[[Pod, Sequence[str]], FilterAnswer]
SHAPES: dict[str, Decide] = {
    "held": lambda _, names: FilterAnswer((), MESSAGE),
    "planned": lambda _, names: FilterAnswer(names[7:8], MESSAGE),
    "passed": lambda _, names: FilterAnswer(names),
}


def main() -> None:
    """Print one JSON document."""
    names = [f"gpu-node-{at:05d}.example.internal" for at in range(NODES)]
    pod = {"metadata": {"name": "w-0", "namespace": "team-a", "uid": "u-0"}}
    body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}).encode()
    print(json.dumps({shape: _measure(shape, body) for shape in SHAPES}, indent=1))


def _measure(shape: str, body: bytes) -> dict[str, float]:
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(shape, there))
    server.start()
    connection = http.client.HTTPConnection("127.0.0.1", here.recv())
    took, answer = [], b""
    for _ in range(ROUNDS):
        started = time.perf_counter()
        connection.request("POST", "/filter", body)
        answer = connection.getresponse().read()
        took.append((time.perf_counter() - started) * 1000)
    here.send(None)
    server.join()
    took.sort()
    in_service = here.recv()
    return {
        "answer_bytes": len(answer),
        "round_trip_p50_ms": round(took[ROUNDS // 2], 3),
        "round_trip_p99_ms": round(took[ROUNDS * 99 // 100], 3),
        "service_mean_ms": round(in_service * 1000 / ROUNDS, 3),
    }


def _serve(shape: str, pipe: Connection[Any, Any]) -> None:
    asyncio.run(_serve_until_told(shape, pipe))


async def _serve_until_told(shape: str, pipe: Connection[Any, Any]) -> None:
    inbox, metrics = Queue(), Metrics()
    view = ScriptedView(on_filter=SHAPES[shape])
    app = make_app(view, inbox, Bindings(inbox), prefix="/", metrics=metrics, bind_deadline=1.0)
    runner = await serve(app, "127.0.0.1", 0)
    pipe.send(runner.addresses[0][1])
    await asyncio.to_thread(pipe.recv)
    name = "muster_verb_seconds_sum"
    pipe.send(metrics.registry.get_sample_value(name, {"verb": "filter"}))
    await runner.cleanup()


if __name__ == "__main__":
    main()
