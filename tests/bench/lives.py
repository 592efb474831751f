"""Gangs that live and die: what Muster keeps of them, and how long its queues become.

One life: created, held or waiting for room, planned, bound, run, finished, deleted. Everything is
in one process on virtual time, so memory is that of Muster, the API server and the scheduler together.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from extender.chaos import claims, workloads
from extender.chaos.clock import VirtualLoop
from extender.chaos.workloads import Workload
from extender.core import api
from extender.core.events import Tick
from extender.core.objects import Manifest
from extender.core.reasons import Code
from extender.obs import log
from tests.bench import load
from tests.bench.lives_cluster import Cluster
from tests.retained import BOUNDED, grown, sizes

HELP = "memory and queue lengths over thousands of lives of gangs"
#: Lives that overlap: more than the nodes hold at once, so that some wait for room.
AT_ONCE = 16
#: GPUs of a gang, of 32: nothing is kept free for a larger one while smaller ones keep coming
#: (docs/limits.md).
MOST_GPUS = 12
#: Virtual seconds after the last life in which everything comes to rest.
REST = 400.0
#: Virtual seconds after which who waits for room is deleted, where nobody would ever fit.
PATIENCE = 30.0
#: Pods that may be there at once: what has a place for each grows to the most that there were.
_PODS_AT_ONCE = AT_ONCE * workloads.MOST_PODS + 1
#: What is kept up to a bound, and so may have grown.
BOUNDS = {
    **{
        f"loop.coordinator.state.{path}": most
        for path, most in {
            **BOUNDED,
            "line.reached": 4,  # schedulers and priorities
            "counters": 64,  # names
            "cluster.pods.names": _PODS_AT_ONCE,
            "cluster.pods.nodes": _PODS_AT_ONCE,
            "cluster.pods._free": _PODS_AT_ONCE,
            **{
                f"cluster.{which}.{each}": _PODS_AT_ONCE
                for which in ("occupancy", "leaving")
                for each in ("_shapes", "_references", "_free", "_counts")
            },
        }.items()
    },
    "loop._counted": 64,
    # Of Events a number of objects and of texts is remembered.
    "executor._events._series": 4096,
    "executor._events._buckets": 4096,
}
_FORMS = ("volcano", "job", "sigs", "native", "ack", "volcano", "job")


class Sample(Struct):
    """What is kept when nobody lives."""

    lives: int
    #: Of the process.
    rss_mb: float
    #: Entries of all containers of Muster, by where they are.
    kept: dict[str, int]
    #: Objects that Python's collector knows, whoever's they are.
    objects: int
    #: Time series of Muster's metrics.
    series: int


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lives", type=int, default=10_000)
    parser.add_argument("--each", type=int, default=1_000, help="lives between two looks")
    parser.add_argument("--seed", type=int, default=1)


def run(args: argparse.Namespace) -> dict[str, Any]:
    log.configure("console", "critical")
    started = time.monotonic()
    report = simulate(args.lives, args.each, args.seed)
    return {**report, "seconds": round(time.monotonic() - started, 1)}


def simulate(lives: int, each: int, seed: int) -> dict[str, Any]:
    """Live so many lives, looking after ``each`` of them. Raises TimeoutError for one that hangs."""
    loop = VirtualLoop(random.Random(f"{seed}:loop"))
    try:
        asyncio.set_event_loop(loop)
        cluster = loop.run_until_complete(_begin(loop))
        try:
            return loop.run_until_complete(_simulate(loop, cluster, lives, each, seed))
        finally:
            loop.run_until_complete(cluster.end())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


async def _begin(loop: VirtualLoop) -> Cluster:
    cluster = Cluster(loop)
    await cluster.until(lambda: cluster.replica.loop.coordinator.state.leading, "nobody leads")
    return cluster


async def _simulate(
    loop: VirtualLoop, cluster: Cluster, lives: int, each: int, seed: int
) -> dict[str, Any]:
    rng = random.Random(seed)
    ends: Counter[str] = Counter()
    samples: list[Sample] = []
    longest: list[Mapping[str, int]] = []
    for first in range(0, lives, each):
        cluster.longest.clear()
        works = [_draw(rng, number) for number in range(first, min(first + each, lives))]
        await _live_all(cluster, works, ends)
        await asyncio.sleep(REST)
        # What is over by time goes with the next step, whatever that is for.
        cluster.replica.loop.put(Tick())
        await asyncio.sleep(1.0)
        cluster.forget_events()
        samples.append(_look(cluster, first + len(works)))
        longest.append(dict(cluster.longest))
        load.say({**_numbers(samples[-1]), "longest": longest[-1]})
    faults = cluster.faults()
    # What is there from the beginning, rows and free lists, has its size after the first look.
    before, after = samples[0].kept, samples[-1].kept
    return {
        "lives": lives,
        "ends": dict(sorted(ends.items())),
        "virtual_seconds": round(loop.time()),
        "samples": [
            {**_numbers(sample), "longest": most}
            for sample, most in zip(samples, longest, strict=True)
        ],
        "grown": grown(before, after, BOUNDS),
        "faults": faults,
    }


def _numbers(sample: Sample) -> dict[str, Any]:
    return {
        "lives": sample.lives,
        "rss_mb": sample.rss_mb,
        "kept": sum(sample.kept.values()),
        "objects": sample.objects,
        "series": sample.series,
    }


def _draw(rng: random.Random, number: int) -> Workload:
    """A gang of a few pods. Some fail, some never fit, some are gated or of high priority."""
    work = workloads.draw(rng, f"g{number:05}")
    form = _FORMS[number % len(_FORMS)]
    work = replace(work, form=form, owned=False, seconds=rng.uniform(1.0, 20.0))
    least = work.size if form == "job" else work.least
    work = replace(work, least=least, gpus=min(work.gpus, MOST_GPUS // work.size))
    if number % 20 == 7:  # more GPUs than a node has
        work = replace(work, gpus=9, least=work.size)
    return work


async def _live_all(cluster: Cluster, works: list[Workload], ends: Counter[str]) -> None:
    room = asyncio.Semaphore(AT_ONCE)

    async def one(work: Workload) -> None:
        async with room:
            ends[await _live(cluster, work)] += 1

    async with asyncio.TaskGroup() as tasks:
        for work in works:
            tasks.create_task(one(work))


async def _live(cluster: Cluster, work: Workload) -> str:
    """One life; how it ended. All that was made is gone after it."""
    async with _made(cluster, work):
        if work.gpus > 4:
            await asyncio.sleep(PATIENCE)
            assert not any(_phase(cluster, name) for name in _names(work))
            return "never fitted"
        if work.form == "job":
            await cluster.until(lambda: bool(_ended(cluster, work)), f"the end of job {work.name}")
            return _ended(cluster, work)
        await cluster.until(lambda: bool(_outcome(cluster, work)), f"the end of {work}")
        return _outcome(cluster, work)


@contextlib.asynccontextmanager
async def _made(cluster: Cluster, work: Workload) -> AsyncIterator[None]:
    if work.form == "job":
        if work.exit_code:
            work.restarts = "Never"  # or it would fail for ever
        cluster.create(work.kind.resource, workloads.job(work))
    elif work.record is not None:
        cluster.create(work.record, workloads.group(work, work.least))
    if work.form != "job":
        for name in work.pod_names():
            cluster.create(api.PODS, workloads.pod(work, name, ""))
    yield
    if work.form == "job":
        cluster.delete(work.kind.resource, work.name)
    for name in _names(work):
        cluster.delete(api.PODS, name)
    # What Muster makes for a group that labels alone name is its users' to delete.
    cluster.delete(work.record or api.VOLCANO_GROUPS, work.name)
    await cluster.until(
        lambda: not any(cluster.find(api.PODS, name) for name in _names(work)),
        f"pods of {work.name} are gone",
    )


def _names(work: Workload) -> list[str]:
    if work.form != "job":
        return work.pod_names()
    return list(claims.replicas(work.kind.resource, workloads.job(work)))


def _outcome(cluster: Cluster, work: Workload) -> str:
    """How a gang of bare pods has ended; "" while any of them runs or will.

    Failed pods count no more: whoever came beyond the minimum and found no room then never gets any,
    and is told so.
    """
    phases = Counter(_phase(cluster, name) for name in _names(work))
    if phases.keys() <= {"Succeeded", "Failed"}:
        return max(phases)
    if phases.keys() == {"Failed", ""} and cluster.reason(work.name) == Code.TOO_FEW_PODS:
        return "Failed, too few left"
    return ""


def _phase(cluster: Cluster, name: str) -> str:
    """Of a pod that has been bound; "" before."""
    pod = cluster.find(api.PODS, name)
    return str(pod["status"]["phase"]) if pod and pod["spec"].get("nodeName") else ""


def _ended(cluster: Cluster, work: Workload) -> str:
    job = cluster.find(work.kind.resource, work.name)
    status: Manifest = (job or {}).get("status") or {}
    for condition in status.get("conditions") or ():
        if condition["type"] in ("Succeeded", "Failed") and condition["status"] == "True":
            return f"job {condition['type']}"
    return ""


def _look(cluster: Cluster, lives: int) -> Sample:
    gc.collect()
    replica = cluster.replica
    kept = sizes(replica, but=(cluster.link, replica.process))
    series = sum(len(family.samples) for family in replica.metrics.registry.collect())
    return Sample(lives, _rss_mb(), kept, len(gc.get_objects()), series)


def _rss_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)
