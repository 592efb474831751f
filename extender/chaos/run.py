"""One run of a seed, and many of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator

from msgspec import Struct

from extender.chaos.clock import Stuck, VirtualLoop
from extender.chaos.faults import Faults
from extender.chaos.judge import Violation
from extender.chaos.plant import Plant
from extender.chaos.settled import Problem, Settled
from extender.chaos.users import Users
from extender.chaos.workloads import NAMESPACE

#: Virtual seconds: of faults, of rest at most, and between two looks at whether it is at rest.
FAULT_SECONDS = (20.0, 150.0)
REST_SECONDS = 900.0
LOOK_SECONDS = 15.0
#: Looks in a row that must find nothing wrong.
LOOKS = 2
#: Violations after which a run is over: what follows one tells little.
ENOUGH = 3


class Outcome(Struct):
    """What a run of one seed came to. ``digest`` is of the store's whole history."""

    seed: int
    steps: int
    seconds: float
    digest: str
    violations: list[Violation]
    diary: list[str]


#: Called with the plant before anything happens; a test's own cluster or mutation.
Scene = Callable[[Plant, Users, Faults], None]


def simulate(seeds: int, first: int = 0) -> Iterator[Outcome]:
    """Run the seeds ``first``, ``first`` + 1, … one after the other."""
    for seed in range(first, first + seeds):
        yield run(seed)


def run(
    seed: int, scene: Scene | None = None, *, replicas: int = 2, rest: float = REST_SECONDS
) -> Outcome:
    """Run one seed from its beginning to rest (``rest`` seconds at most), or to a violation."""
    loop = VirtualLoop(random.Random(f"{seed}:loop"))
    try:
        asyncio.set_event_loop(loop)
        story = _Run(loop, seed, replicas, rest)
        loop.run_until_complete(story.begin())
        try:
            loop.run_until_complete(story.run(scene))
        except Stuck as error:
            story.plant.judge.violated("fault", str(error))
        loop.run_until_complete(story.plant.end())
        return story.outcome()
    finally:
        asyncio.set_event_loop(None)
        loop.close()


class _Run:
    plant: Plant

    def __init__(self, loop: VirtualLoop, seed: int, replicas: int, rest: float) -> None:
        self._loop, self._seed, self._replicas, self._longest = loop, seed, replicas, rest

    async def begin(self) -> None:
        """Build the cluster, which needs the loop to run."""
        self.plant = Plant(self._loop, self._seed, self._replicas)

    async def run(self, scene: Scene | None) -> None:
        """Faults or a scene, and then rest."""
        plant = self.plant
        users = Users(plant, plant.rng("users"))
        faults = Faults(plant, users, plant.rng("faults"))
        plant.outside(users.control())
        if scene is None:
            faults.begin()
            await faults.run(plant.rng("length").uniform(*FAULT_SECONDS))
        else:
            scene(plant, users, faults)
        faults.stop()
        await self._rest(plant)

    def outcome(self) -> Outcome:
        """What it came to, once everything has ended."""
        plant = self.plant
        return Outcome(
            self._seed,
            plant.steps,
            plant.now(),
            plant.digest.hexdigest(),
            plant.judge.violations,
            plant.diary,
        )

    async def _rest(self, plant: Plant) -> None:
        """Until nothing is wrong any more; what is wrong after the longest rest is a violation."""
        end, good = plant.now() + self._longest, 0
        found: list[Problem] = []
        while plant.now() < end and good < LOOKS:
            await asyncio.sleep(min(LOOK_SECONDS, self._longest / LOOKS))
            plant.check_faults()
            if len(plant.judge.violations) >= ENOUGH:
                return
            found = Settled(plant.store, NAMESPACE, plant.judge.whole).problems()
            good = 0 if found else good + 1
        if good < LOOKS:
            for invariant, message in found:
                plant.judge.violated(invariant, f"after {self._longest:.0f} s of rest: {message}")
