"""One soak from an empty folder to a report."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import random
import ssl
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TextIO

from extender.kernels.warm import compile_all
from extender.sim.binaries import binaries
from extender.sim.client import Client
from extender.sim.daemon import free_port
from extender.sim.kubelet import Kubelet
from extender.sim.realplane import RealPlane
from tests.controlplane import rights
from tests.controlplane.conftest import ROOT, scheduler_config
from tests.controlplane.processes import LEASE, replicas, service
from tests.soak.checker import Checker
from tests.soak.faults import SCHEDULER, Faults
from tests.soak.history import Recorder
from tests.soak.load import Load

#: One Binding at a time, so that a kill finds gangs bound in part; deadlines a moment long.
SECTION: dict[str, Any] = {
    "podMaxBackoffSeconds": 1,
    "planDeadlineSeconds": 10,
    "leaderElection": LEASE,
    "concurrency": 1,
}
#: Kills between two pauses in which everything must settle.
KILLS_A_ROUND = 20
#: Seconds within which it must, and between two looks at the history.
SETTLE_SECONDS = 40.0
_LOOK = 0.02


async def soak(
    kills: int, seed: int, folder: Path, *, slack: float = 1.0, minutes: float = math.inf
) -> dict[str, Any]:
    """Run so many kills, and report; the history is left in ``folder``.

    ``slack`` times as long is waited, and allowed, as on two idle cores. After ``minutes`` it ends with
    the round that is under way.
    """
    rng = random.Random(seed)
    started = time.monotonic()
    port = free_port()
    config = scheduler_config("scheduler-own.yaml", port)
    plane = RealPlane(
        await asyncio.to_thread(binaries),
        folder,
        users={rights.ACCOUNT: rights.GROUPS},
        apiserver_args=[rights.ADMISSION],
    )
    try:
        # Once for both replicas, which would compile them at the same time.
        await asyncio.to_thread(compile_all)
        await asyncio.to_thread(_start, plane, config)
        checker = Checker(slack)
        history = folder / "history.jsonl"
        with Recorder(plane.server_url, str(plane.ca), plane.token) as recorder:
            async with (
                _client(plane) as client,
                replicas(plane, folder, 2, SECTION, 0) as made,
                service(made, port),
                Kubelet(client),
            ):
                load = Load(client, checker, random.Random(rng.random()))
                faults = Faults(
                    plane,
                    made,
                    lambda: plane.start_scheduler(config, SCHEDULER),
                    recorder,
                    checker,
                    rng,
                    slack,
                )
                await load.prepare()
                await faults.leader()
                with history.open("w") as out:
                    async with _judging(recorder, checker, load, out):
                        ends = started + minutes * 60
                        await _rounds(kills, ends, slack, faults, load, checker, recorder)
                    _take(recorder, checker, out)
            relists = recorder.relists
    finally:
        await asyncio.to_thread(plane.stop)
    return {
        "seed": seed,
        "slack": slack,
        "kills": sum(faults.kills.values()),
        "by_kind": dict(sorted(faults.kills.items())),
        "made": dict(sorted(load.made.items())),
        **{key.replace(" ", "_"): value for key, value in sorted(checker.counts.items())},
        "longest_to_whole_again_seconds": round(checker.longest_cut, 2),
        "of_which_all_was_up_seconds": round(checker.longest_served, 2),
        "relists": relists,
        "seconds": round(time.monotonic() - started, 1),
        "violations": checker.violations,
    }


def judge(history: Iterable[str], slack: float = 1.0) -> list[dict[str, Any]]:
    """The violations of a history that an earlier run has left, one entry a line."""
    checker = Checker(slack)
    for line in history:
        checker.feed(json.loads(line))
    return checker.violations


async def _rounds(
    kills: int,
    ends: float,
    slack: float,
    faults: Faults,
    load: Load,
    checker: Checker,
    recorder: Recorder,
) -> None:
    """Kills under load; after each round the load stands still until everything has settled."""
    while (left := kills - sum(faults.kills.values())) > 0 and time.monotonic() < ends:
        for _ in range(min(left, KILLS_A_ROUND)):
            await faults.once(load.news)
        load.open.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS * slack), load.news:
                await load.news.wait_for(lambda: not checker.unsettled())
        recorder.mark("QUIET", "after a round")
        done = sum(faults.kills.values())
        print(f"{done} of {kills} kills, {len(checker.violations)} violations", file=sys.stderr)
        load.open.set()


@asynccontextmanager
async def _judging(
    recorder: Recorder, checker: Checker, load: Load, out: TextIO
) -> AsyncIterator[None]:
    """The load at work, and the checker fed with what comes of it."""

    async def look() -> None:
        while True:
            async with load.news:
                _take(recorder, checker, out)
                load.news.notify_all()
            await asyncio.sleep(_LOOK)

    tasks = [asyncio.create_task(load.run()), asyncio.create_task(look())]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result


def _take(recorder: Recorder, checker: Checker, out: TextIO) -> None:
    for entry in recorder.take():
        checker.feed(entry)
        out.write(json.dumps(entry, separators=(",", ":")) + "\n")


def _start(plane: RealPlane, config: str) -> None:
    plane.start_etcd()
    plane.start_apiserver()
    rights.grant(plane)
    for crd in sorted((ROOT / "manifests" / "crds").glob("*_*.yaml")):
        plane.kubectl("apply", "-f", str(crd))
    plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
    plane.start_scheduler(config, SCHEDULER)


def _client(plane: RealPlane) -> Client:
    tls = ssl.create_default_context(cafile=str(plane.ca))
    return Client(plane.server_url, headers={"Authorization": f"Bearer {plane.token}"}, tls=tls)
