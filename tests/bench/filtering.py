"""/filter of many names in a running Muster, idle and while a large gang commits.

The client is a process of its own with one kept connection, as kube-scheduler has. ``plain`` is a
pod of no group (every name passes), ``held`` a member of a gang that waits (every name is refused).
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import multiprocessing
import time
from multiprocessing.synchronize import Event
from typing import Any

from extender.core import api
from extender.core.objects import Manifest
from extender.sim import fleet
from tests.bench import load
from tests.bench.plant import GPUS, Plant, muster_scheduler, plant

HELP = "milliseconds of /filter, idle and while a gang commits"
#: Seconds between two requests: kube-scheduler's cycles at 100 pods a second.
PAUSE = 0.01
LIMIT = 0.003


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--members", type=int, default=3_000, help="pods of the gang that commits")
    parser.add_argument("--seconds", type=float, default=6.0, help="how long to ask while idle")
    parser.add_argument("--patience", type=float, default=180.0)
    parser.add_argument(
        "--nice",
        type=int,
        default=0,
        help="priority of Muster's process: -15 (root) is as if it had a core to itself",
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    return asyncio.run(_run(args))


async def _run(args: argparse.Namespace) -> dict[str, Any]:
    async with plant(args.nodes) as p:
        namespace = await p.namespace()
        names = [body["metadata"]["name"] for body in fleet.racks(args.nodes)]
        config = muster_scheduler(p.muster_port)
        running = p.running(config, {}, muster=True, nice=args.nice)
        async with running, load.watching(p.client, namespace) as seen:
            await load.create_all(
                p.client, api.VOLCANO_GROUPS, namespace, [load.volcano_group("wait", 2)]
            )
            held = load.volcano_member("wait", "wait-0", gpus=GPUS)
            await load.create_all(p.client, api.PODS, namespace, [held])
            found = await p.client.get(api.PODS, namespace, "wait-0")
            pods = {"plain": _plain(found), "held": found}
            result = {
                f"{shape}_idle": await _ask(p, pod, names, asyncio.sleep(args.seconds))
                for shape, pod in pods.items()
            }
            job = load.job("big", args.members)
            await load.create_all(p.client, api.PYTORCH_JOBS, namespace, [job])
            bound = {f"big-worker-{at}" for at in range(args.members)}
            landing = seen.until(bound, args.patience)
            result["plain_while_committing"] = await _ask(p, pods["plain"], names, landing)
    return {"nodes": args.nodes, "members": args.members, "nice": args.nice, **result}


def _plain(member: Manifest) -> Manifest:
    """A pod of no group that the API server has never seen."""
    meta = {"name": "plain", "namespace": "default", "uid": "plain"}
    return {**member, "metadata": meta}


async def _ask(p: Plant, pod: Manifest, names: list[str], until: Any) -> dict[str, float]:
    """Ask again and again until something has happened."""
    context = multiprocessing.get_context("spawn")
    stop, answers = context.Event(), context.SimpleQueue()
    body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}).encode()
    client = context.Process(target=_client, args=(p.muster_port, body, stop, answers))
    before = _within(p)
    client.start()
    try:
        await until
    finally:
        stop.set()
    took = await asyncio.to_thread(answers.get)
    await asyncio.to_thread(client.join)
    after = _within(p)
    return {
        "requests": len(took),
        "client_p50_ms": round(took[len(took) // 2] * 1000, 2),
        "client_p99_ms": round(took[len(took) * 99 // 100] * 1000, 2),
        # Those of kube-scheduler, with one name each, are among them.
        "service_within_3ms": round((after[0] - before[0]) / max(1.0, after[1] - before[1]), 4),
    }


def _within(p: Plant) -> tuple[float, float]:
    """Requests that took the service at most LIMIT, and all."""
    name = "muster_verb_seconds"
    return (
        p.sample(f"{name}_bucket", verb="filter", le=str(LIMIT)),
        p.sample(f"{name}_count", verb="filter"),
    )


def _client(port: int, body: bytes, stop: Event, answers: Any) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    took: list[float] = []
    while not stop.is_set():
        started = time.perf_counter()
        connection.request("POST", "/scheduler/filter", body)
        answer = connection.getresponse()
        answer.read()
        took.append(time.perf_counter() - started)
        if answer.status != 200:
            raise RuntimeError(f"/filter answered {answer.status}")
        time.sleep(PAUSE)
    answers.put(sorted(took))
