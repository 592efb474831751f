"""I3 while things go wrong: what is reserved for a gang of which nothing is bound is given back.

A plan whose members are nominated to its nodes keeps room from others. With nobody bound it may do
so for as long as members may take to come, and then has to be given up, or planned anew; unless its
leader could not write so. (The record alone keeps nothing: a plan that was given up is still there.)
"""

from __future__ import annotations

import asyncio

from extender.chaos import claims
from extender.chaos.plant import Plant
from extender.core import api
from extender.core.objects import Manifest

#: Seconds between two looks.
LOOK_SECONDS = 5.0
#: Seconds that a plan may stand like that: the longest chain of deadlines that Muster's own
#: settings add up to (told again with back-off, the barrier, a plan written once more).
PATIENCE = 150.0

#: A plan by the uid of its record, its epoch and its attempt.
_Plan = tuple[str, int, int]


class Waits:
    """Looks at the plans every now and then."""

    def __init__(self, plant: Plant) -> None:
        self._plant = plant
        #: Since when each stands with nothing bound, and a leader that could give it up.
        self._since: dict[_Plan, float] = {}

    async def run(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self._look()

    def _look(self) -> None:
        now, idle = self._plant.now(), {}
        for record in self._plant.store.list(api.GANG_PLANS):
            spec = record["spec"]
            members = self._members(record)
            if spec["state"] != "Planned" or not self._able(spec["epoch"], members):
                continue
            if not _holds(record, members):
                continue
            plan = (record["metadata"]["uid"], spec["epoch"], spec["attempt"])
            idle[plan] = since = self._since.get(plan, now)
            if now - since >= PATIENCE:
                name, seconds = record["metadata"]["name"], now - since
                self._plant.judge.violated(
                    "I3", f"plan {name} has kept its places for {seconds:.0f} s, and binds nothing"
                )
                idle[plan] = now
        self._since = idle

    def _members(self, record: Manifest) -> list[Manifest]:
        names, namespace = record["spec"]["members"], record["metadata"]["namespace"]
        return [
            pod
            for pod in self._plant.store.list(api.PODS, namespace)
            if pod["metadata"]["name"] in names
        ]

    def _able(self, epoch: int, members: list[Manifest]) -> bool:
        """Whether the leader of the epoch lives, runs, reaches the server and sees the members."""
        link = self._plant.judge.leader_of(epoch)
        return (
            link is not None
            and not (link.mute or link.deaf)
            and not (link.process.dead or link.process.paused)
            and all(
                int(pod["metadata"]["resourceVersion"]) <= link.shown[api.PODS].version
                for pod in members
            )
        )


def _holds(record: Manifest, members: list[Manifest]) -> bool:
    """Whether a member is nominated as planned, and none has a node."""
    spec = record["spec"]
    planned = dict(zip(spec["members"], (spec["nodes"][i] for i in spec["node"]), strict=True))
    return not any(map(claims.node_of, members)) and any(
        (pod.get("status") or {}).get("nominatedNodeName") == planned[pod["metadata"]["name"]]
        for pod in members
    )
