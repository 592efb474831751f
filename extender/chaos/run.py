"""One run of a script, and the runs of many seeds."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from msgspec import Struct

from extender.chaos import schedule
from extender.chaos.clock import Stuck, VirtualLoop
from extender.chaos.controllers import Controllers
from extender.chaos.faults import Faults
from extender.chaos.judge import Violation
from extender.chaos.plant import Plant
from extender.chaos.schedule import REST_SECONDS, Script
from extender.chaos.settled import Problem, Settled
from extender.chaos.users import Users
from extender.chaos.waits import Waits
from extender.chaos.workloads import NAMESPACE
from extender.obs import log

#: Virtual seconds between two looks at whether the cluster is at rest.
LOOK_SECONDS = 15.0
#: Looks in a row that must find nothing wrong.
LOOKS = 2


class Outcome(Struct):
    """What a run came to."""

    script: Script
    #: Changes of the store, each of which was judged.
    steps: int
    #: Acts, and requests and watches with which something went wrong.
    faults: int
    #: Virtual seconds that it took.
    seconds: float
    #: Of the store's whole history.
    digest: str
    violations: list[Violation]
    #: What happened, for people; empty unless something was violated.
    diary: list[str]

    @property
    def seed(self) -> int:
        return self.script.seed


#: Called with the plant before anything happens; a test's own cluster or mutation.
Scene = Callable[[Plant, Users, Faults], None]


def simulate(seeds: int, first: int = 0, processes: int = 1) -> Iterator[Outcome]:
    """Run the seeds ``first``, ``first`` + 1, …, in this order, in so many processes."""
    numbers = range(first, first + seeds)
    if processes == 1:
        yield from map(run, numbers)
        return
    context = get_context("spawn")
    with ProcessPoolExecutor(processes, context, initializer=silence) as pool:
        yield from pool.map(run, numbers, chunksize=8)


def silence() -> None:
    """What the service logs of faults is expected here, thousands of times."""
    log.configure("console", "critical")


def run(
    seed: int,
    scene: Scene | None = None,
    *,
    replicas: int = 2,
    seconds: float = 0.0,
    rest: float = REST_SECONDS,
) -> Outcome:
    """Run one seed from its beginning to rest (``rest`` seconds at most), or to a violation.

    A ``scene`` that lasts so many ``seconds`` stands in place of what the seed would have happen.
    """
    if scene is None:
        return play(schedule.draw(seed))
    return play(Script(seed, seconds, (), replicas, rest), scene)


def play(script: Script, scene: Scene | None = None) -> Outcome:
    """Run a script until it is at rest, or enough is violated."""
    loop = VirtualLoop(random.Random(f"{script.seed}:loop"))
    try:
        asyncio.set_event_loop(loop)
        story = _Run(loop, script)
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

    def __init__(self, loop: VirtualLoop, script: Script) -> None:
        self._loop, self._script = loop, script

    async def begin(self) -> None:
        """Build the cluster, which needs the loop to run."""
        self.plant = Plant(self._loop, self._script.seed, self._script.replicas)

    async def run(self, scene: Scene | None) -> None:
        """Faults or a scene, and then rest."""
        plant = self.plant
        users = Users(plant, plant.rng("users"))
        faults = Faults(plant, users)
        plant.outside(Waits(plant).run())
        plant.outside(Controllers(plant, users, plant.rng("controllers")).run())
        if scene is not None:
            scene(plant, users, faults)
        await faults.play(self._script.acts, self._script.seconds, self._over)
        faults.stop()
        await self._rest(plant)

    def outcome(self) -> Outcome:
        """What it came to, once everything has ended."""
        plant = self.plant
        violations = plant.judge.violations
        return Outcome(
            self._script,
            plant.steps,
            plant.faults,
            plant.now(),
            plant.digest.hexdigest(),
            violations,
            plant.diary if violations else [],
        )

    def _over(self) -> bool:
        self.plant.check_faults()
        return len(self.plant.judge.violations) >= self._script.enough

    async def _rest(self, plant: Plant) -> None:
        """Until nothing is wrong any more; what is wrong after the longest rest is a violation."""
        longest = self._script.rest
        end, good = plant.now() + longest, 0
        found: list[Problem] = []
        while plant.now() < end and good < LOOKS:
            await asyncio.sleep(min(LOOK_SECONDS, longest / LOOKS))
            if self._over():
                return
            judge = plant.judge
            found = Settled(
                plant.store, NAMESPACE, judge.whole, judge.bound, judge.pauses.rests
            ).problems()
            good = 0 if found else good + 1
        if good < LOOKS:
            for invariant, message in found:
                plant.judge.violated(invariant, f"after {longest:.0f} s of rest: {message}")
