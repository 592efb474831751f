"""One policy on one order of arrivals: how much of the cluster's GPUs it gives away."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

from extender.traces.openb import Nodes, Tasks, arrivals
from extender.traces.policies import POLICIES, Fleet

#: What arrives in the end, and where it is looked at before, in parts of the cluster's GPUs.
RATIO = 1.3
FULL = 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Percent of the cluster's GPUs that are given to pods, when pods that ask for 100 and 130 % of
    them have arrived. Nothing departs.
    """

    policy: str
    seed: int
    allocated_percent_at_100: float
    allocated_percent_at_130: float
    #: Pods that arrived, and those that found no place.
    pods: int
    refused: int
    seconds: float


def replay(policy: str, nodes: Nodes, tasks: Tasks, seed: int) -> Outcome:
    """Place every arrival for good, or not at all. ``policy`` is a key of :data:`POLICIES`."""
    started = perf_counter()
    order = arrivals(tasks, nodes, RATIO, seed)
    fleet = Fleet(nodes, tasks)
    chooses = POLICIES[policy](fleet, seed)
    asked = tasks.asked
    arrived = given = refused = 0
    at_full: int | None = None
    for shape in order.tolist():
        arrived += int(asked[shape])
        place = chooses.choose(shape)
        if place is None:
            refused += 1
        else:
            fleet.place(shape, *place)
            chooses.placed(place[0])
            given += int(asked[shape])
        if at_full is None and arrived >= FULL * nodes.total:
            at_full = given
    percent = 100 / nodes.total
    return Outcome(
        policy=policy,
        seed=seed,
        allocated_percent_at_100=(given if at_full is None else at_full) * percent,
        allocated_percent_at_130=given * percent,
        pods=len(order),
        refused=refused,
        seconds=perf_counter() - started,
    )
