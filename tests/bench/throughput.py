"""Gangs on the real control plane, from the first creation to the last bind, beside the alternatives.

``bare``: no scheduler at all, the client posts each Binding after its pod, the floor of everything.
``alone``: kube-scheduler, pods one by one, no gangs. ``native``: kube-scheduler's own PodGroups.
``pinned``: kube-scheduler, pods created with their node given. ``passthrough``: the same with an
extender that decides nothing, in Go: what the protocol itself costs, a floor for every extender. ``jobs``: PyTorchJobs, whose pods
Muster makes. ``foreign``: pods that somebody else makes, with Volcano's annotation, not gated.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any

from extender.core import api
from extender.core.objects import Manifest
from extender.sim import fleet
from tests.bench import load
from tests.bench.plant import (
    Plant,
    muster_scheduler,
    passthrough_scheduler,
    plant,
    stock_scheduler,
)

HELP = "seconds from the first creation to the last bind, by way of scheduling"
CELLS = ("20x150", "200x15", "1x3000")
MODES = ("bare", "pinned", "passthrough", "alone", "native", "jobs", "foreign")
Work = list[tuple[api.Resource, list[Manifest]]]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--cells", nargs="+", default=CELLS, metavar="GANGSxSIZE")
    parser.add_argument("--modes", nargs="+", default=MODES, choices=MODES)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--patience", type=float, default=120.0, help="seconds a run may take")


def run(args: argparse.Namespace) -> dict[str, Any]:
    return asyncio.run(_run(args))


async def _run(args: argparse.Namespace) -> dict[str, Any]:
    runs: list[dict[str, Any]] = []
    async with plant(args.nodes) as p:
        for _ in range(args.repeat):
            for cell in args.cells:
                for mode in args.modes:
                    runs.append(await _measure(p, cell, mode, args))
                    load.say(runs[-1])
    return {"nodes": args.nodes, "runs": runs, "over_pinned": _ratios(runs)}


def _ratios(runs: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Mean seconds of each mode over those of ``pinned`` (of ``bare`` where that is not run), by cell."""
    table: dict[str, dict[str, list[float]]] = {}
    for each in runs:
        table.setdefault(each["cell"], {}).setdefault(each["mode"], []).append(each["seconds"])
    means = {
        cell: {mode: sum(taken) / len(taken) for mode, taken in row.items()}
        for cell, row in table.items()
    }
    ratios = {}
    for cell, row in means.items():
        base = row.get("pinned") or row.get("bare")
        if base:
            ratios[cell] = {mode: round(mean / base, 2) for mode, mean in row.items()}
    return ratios


async def _measure(p: Plant, cell: str, mode: str, args: argparse.Namespace) -> dict[str, Any]:
    gangs, size = (int(part) for part in cell.split("x"))
    muster = mode in ("jobs", "foreign")
    passthrough = mode == "passthrough"
    if passthrough:
        config: dict[str, Any] | str = passthrough_scheduler(p.muster_port)
    else:
        config = muster_scheduler(p.muster_port) if muster else stock_scheduler()
    gates = {"GenericWorkload": True} if mode == "native" else {}
    names = {name for gang in range(gangs) for name in _pods(mode, gang, size)}
    namespace = await p.namespace()
    running = p.running(config, gates, muster=muster, passthrough=passthrough)
    async with running, load.watching(p.client, namespace) as seen:
        work = _work(mode, gangs, size, args.nodes)
        before, started = p.cpu(), time.monotonic()
        for resource, bodies in work:
            targets = names_of(args.nodes) if mode == "bare" else ()
            await load.create_all(p.client, resource, namespace, bodies, targets)
        created = time.monotonic()
        try:
            ended = await seen.until(names, args.patience)
        except TimeoutError:
            raise RuntimeError(f"{len(seen.at)} bound; {await p.story()}") from None
        after = p.cpu()
        first = min(seen.at[name] for name in names)
        written = p.written() if muster else {}
    return {
        "cell": cell,
        "mode": mode,
        "seconds": round(ended - started, 2),
        "created_after": round(created - started, 2),
        "first_bind_after": round(first - started, 2),
        "muster_wrote": written,
        "cpu_seconds": {who: round(after[who] - before[who], 2) for who in before},
    }


def _pods(mode: str, gang: int, size: int) -> list[str]:
    middle = "-worker-" if mode == "jobs" else "-"
    return [f"g{gang}{middle}{index}" for index in range(size)]


def _work(mode: str, gangs: int, size: int, nodes: int) -> Work:
    """What the client creates, in order."""
    members = [(gang, name) for gang in range(gangs) for name in _pods(mode, gang, size)]
    match mode:
        case "jobs":
            return [(api.PYTORCH_JOBS, [load.job(f"g{gang}", size) for gang in range(gangs)])]
        case "foreign":
            groups = [load.volcano_group(f"g{gang}", size) for gang in range(gangs)]
            pods = [load.volcano_member(f"g{gang}", name) for gang, name in members]
            return [(api.VOLCANO_GROUPS, groups), (api.PODS, pods)]
        case "native":
            groups = [_native_group(f"g{gang}", size) for gang in range(gangs)]
            pods = [
                load.pod(name, schedulingGroup={"podGroupName": f"g{gang}"})
                for gang, name in members
            ]
            return [(api.NATIVE_GROUPS, groups), (api.PODS, pods)]
        case "pinned" | "passthrough":
            names = names_of(nodes)
            pinned = [
                load.pod(name, affinity=_pin(names[at % nodes]))
                for at, (_, name) in enumerate(members)
            ]
            return [(api.PODS, pinned)]
        case "bare":
            return [(api.PODS, [load.pod(name, schedulerName="nobody") for _, name in members])]
        case _:
            return [(api.PODS, [load.pod(name) for _, name in members])]


def names_of(nodes: int) -> list[str]:
    return [body["metadata"]["name"] for body in fleet.racks(nodes)]


def _native_group(name: str, least: int) -> Manifest:
    policy = {"gang": {"minCount": least}}
    return {"metadata": {"name": name}, "spec": {"schedulingPolicy": policy}}


def _pin(node: str) -> Manifest:
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    required = {"nodeSelectorTerms": [{"matchFields": fields}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
