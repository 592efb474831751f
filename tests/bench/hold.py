"""Plain pods beside a gang that waits for room: what does waiting cost the others?

``none``: no gang. ``gated``: its pods carry Muster's scheduling gate. ``ungated``: they are held
in /filter, and every event of the cluster sends them through kube-scheduler again. ``alone`` and
``alone-gated``: as the first two with kube-scheduler as it comes and no Muster, so that what its own
queue makes of so many gated pods is known.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any

from extender.core import api
from extender.core.ingest import GATE
from tests.bench import load
from tests.bench.plant import GPUS, Plant, muster_scheduler, plant, stock_scheduler

HELP = "throughput of plain pods beside a waiting gang, over the same without it"
MODES = ("none", "gated", "ungated", "alone", "alone-gated")
#: Seconds without a /filter request after which the gang has come to rest.
QUIET = 2.0


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--members", type=int, default=3_000, help="pods of the waiting gang")
    parser.add_argument("--plain", type=int, default=600, help="plain pods that are measured")
    parser.add_argument("--modes", nargs="+", default=MODES, choices=MODES)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--patience", type=float, default=180.0)


def run(args: argparse.Namespace) -> dict[str, Any]:
    return asyncio.run(_run(args))


async def _run(args: argparse.Namespace) -> dict[str, Any]:
    runs = []
    async with plant(args.nodes) as p:
        for _ in range(args.repeat):
            for mode in args.modes:
                runs.append(await _measure(p, mode, args))
                load.say(runs[-1])
    rates: dict[str, list[float]] = {}
    for each in runs:
        rates.setdefault(each["mode"], []).append(each["pods_per_second"])
    means = {mode: sum(found) / len(found) for mode, found in rates.items()}
    bases = {mode: "alone" if mode.startswith("alone") else "none" for mode in means}
    over = {
        mode: round(mean / means[bases[mode]], 2)
        for mode, mean in means.items()
        if bases[mode] in means
    }
    return {"nodes": args.nodes, "members": args.members, "runs": runs, "over_without": over}


async def _measure(p: Plant, mode: str, args: argparse.Namespace) -> dict[str, Any]:
    namespace = await p.namespace()
    muster = not mode.startswith("alone")
    config = muster_scheduler(p.muster_port) if muster else stock_scheduler()
    async with p.running(config, {}, muster=muster), load.watching(p.client, namespace) as seen:
        if mode not in ("none", "alone"):
            await _wait_for_room(p, namespace, mode, args)
        names = [f"plain-{at}" for at in range(args.plain)]
        before, started = p.cpu(), time.monotonic()
        await load.create_all(
            p.client, api.PODS, namespace, [load.pod(name, gpus=0) for name in names]
        )
        ended = await seen.until(set(names), args.patience)
        after = p.cpu()
        if len(seen.at) != len(names):
            raise RuntimeError(f"{len(seen.at) - len(names)} of the waiting gang are bound")
    return {
        "mode": mode,
        "seconds": round(ended - started, 2),
        "pods_per_second": round(args.plain / (ended - started), 1),
        "cpu_seconds": {who: round(after[who] - before[who], 2) for who in before},
    }


async def _wait_for_room(p: Plant, namespace: str, mode: str, args: argparse.Namespace) -> None:
    """A gang that asks for more GPUs than there are, and has come to rest."""
    each = args.nodes * GPUS // args.members + 1
    gates = {} if mode == "ungated" else {"schedulingGates": [{"name": GATE}]}
    group = load.volcano_group("wait", args.members)
    await load.create_all(p.client, api.VOLCANO_GROUPS, namespace, [group])
    pods = [
        load.volcano_member("wait", f"wait-{at}", gpus=each, **gates) for at in range(args.members)
    ]
    await load.create_all(p.client, api.PODS, namespace, pods)
    if mode == "alone-gated":
        await asyncio.sleep(QUIET)
        return
    asked, since = -1.0, time.monotonic()
    async with asyncio.timeout(args.patience):
        while time.monotonic() - since < QUIET:
            now = p.sample("muster_verb_seconds_count", verb="filter")
            if now != asked:
                asked, since = now, time.monotonic()
            await asyncio.sleep(0.25)
