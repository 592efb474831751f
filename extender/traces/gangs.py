"""Jobs that come and go, placed whole or not at all by a rule for where their workers go.

All rules share one queue: in the order of submission, and who does not fit is passed over. So what
differs is where gangs land, and what that leaves for those behind them. Durations are the trace's,
whatever bandwidth a job gets: nothing published says how much longer each would run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from time import perf_counter

import numpy as np

from extender.traces.philly import Fleet, Int64s, Jobs, Plant

#: Where a gang's workers go: how many workers of how many GPUs each, to workers by node (N,), or None
#: where they do not all fit.
Rule = Callable[[Fleet, int, int], Int64s | None]
#: Milliseconds in an hour.
HOUR = 3_600_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """One trace under one rule. Means over jobs; of jobs with one GPU only waiting counts."""

    rule: str
    jobs: int
    #: Jobs of several GPUs: bandwidth that the model predicts, GB/s; nodes and leaves that they are on.
    bandwidth_gbs: float
    nodes: float
    leaves: float
    #: Jobs that are on several nodes.
    spread: int
    #: Hours from submission to start; from the first submission to the last end.
    waiting_hours: float
    makespan_hours: float
    #: Jobs that the empty cluster has no room for.
    too_large: int
    seconds: float


def replay(name: str, rule: Rule, made: Plant, jobs: Jobs, most: int) -> Outcome:
    """``most``: GPUs of one worker at most. A job of k GPUs is as few workers as that allows."""
    started = perf_counter()
    fleet = Fleet(made)
    waiting: list[int] = []
    running: list[tuple[int, int, dict[int, int]]] = []
    got: dict[int, tuple[int, float, int, int]] = {}
    too_large, end, coming = 0, 0, 0
    while coming < len(jobs.names) or running:
        arrives = int(jobs.submitted[coming]) if coming < len(jobs.names) else None
        if running and (arrives is None or running[0][0] <= arrives):
            now, _, given = heappop(running)
            fleet.take_back(given)
            end = max(end, now)
        else:
            assert arrives is not None
            now = arrives
            if _fits_empty(made, jobs, coming, most):
                waiting.append(coming)
            else:
                too_large += 1
            coming += 1
        no_room: set[int] = set()
        for job in list(waiting):
            gpus = int(jobs.gpus[job])
            if gpus in no_room:
                continue
            workers, each = _workers(gpus, most)
            counts = rule(fleet, workers, each)
            if counts is None:
                no_room.add(gpus)
                continue
            assert int(counts.sum()) == workers
            assert (counts * each <= fleet.free).all()
            given = fleet.give(counts * each)
            waiting.remove(job)
            leaves = len(set(made.leaf[list(given)].tolist()))
            got[job] = now, fleet.bandwidth(given), len(given), leaves
            heappush(running, (now + int(jobs.duration[job]), job, given))
    assert not waiting
    several = [of for job, (_, *of) in got.items() if jobs.gpus[job] > 1]
    waits = [start - int(jobs.submitted[job]) for job, (start, *_) in got.items()]
    return Outcome(
        rule=name,
        jobs=len(got),
        bandwidth_gbs=_mean([gbs for gbs, _, _ in several]),
        nodes=_mean([nodes for _, nodes, _ in several]),
        leaves=_mean([leaves for _, _, leaves in several]),
        spread=sum(nodes > 1 for _, nodes, _ in several),
        waiting_hours=_mean(waits) / HOUR,
        makespan_hours=(end - int(jobs.submitted[0])) / HOUR,
        too_large=too_large,
        seconds=perf_counter() - started,
    )


def _workers(gpus: int, most: int) -> tuple[int, int]:
    """Workers of equal size, as large as ``most`` and the number allow."""
    each = next(size for size in range(min(gpus, most), 0, -1) if gpus % size == 0)
    return gpus // each, each


def _fits_empty(made: Plant, jobs: Jobs, job: int, most: int) -> bool:
    workers, each = _workers(int(jobs.gpus[job]), most)
    return int((made.gpus // each).sum()) >= workers


def _mean(values: list[int] | list[float]) -> float:
    return float(np.mean(values)) if values else 0.0
