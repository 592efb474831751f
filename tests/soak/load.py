"""Load on a cluster: tenants that make gangs of every convention and size, jobs and plain pods."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable

from extender.core import api
from extender.core.errors import ApiError
from extender.core.ingest import GATE
from extender.core.objects import Manifest
from extender.sim import fleet
from extender.sim.client import Client
from tests.controlplane.gangs import CONVENTIONS, Convention
from tests.controlplane.test_s10_jobs import job
from tests.controlplane.world import pod
from tests.soak.checker import Checker

NAMESPACE = "soak"
NODES, GPUS = 6, 8
#: Tenants at work at once; their gangs together ask for more than there is.
TENANTS = 8
#: Members of a gang. Two of the largest do not fit together.
SIZES = (2, 3, 4, 6, 8, 12, 28)
WEIGHTS = (4, 4, 4, 3, 3, 2, 1)

#: Seconds after which a tenant gives up a gang that is not whole.
_PATIENCE = 90.0
_RETRY = 0.1


class Load:
    """Tenants at work until cancelled. They write nothing while `open` is clear."""

    def __init__(self, client: Client, checker: Checker, rng: random.Random) -> None:
        self.made: Counter[str] = Counter()
        self.open = asyncio.Event()
        self.open.set()
        #: Set whenever the checker was fed.
        self.news = asyncio.Condition()
        self._client = client
        self._checker = checker
        self._rng = rng
        self._number = 0

    async def prepare(self) -> None:
        """Nodes and the namespace."""
        await fleet.add_namespace(self._client, NAMESPACE)
        nodes = [fleet.node(f"n{i}", gpus=GPUS, rack=f"r{i // 3}") for i in range(NODES)]
        await fleet.add_nodes(self._client, nodes)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(TENANTS):
                tasks.create_task(self._tenant())

    async def _tenant(self) -> None:
        kinds: list[Callable[[str], Awaitable[None]]] = [self._gang, self._job, self._plain]
        while True:
            self._number += 1
            (kind,) = self._rng.choices(kinds, (10, 4, 3))
            await kind(f"t{self._number}")
            await asyncio.sleep(self._rng.uniform(0.0, 0.5))

    # --- what tenants do

    async def _gang(self, name: str) -> None:
        """Bare pods of one convention, some gated; sometimes more than minMember of them."""
        convention = self._rng.choice(CONVENTIONS)
        (size,) = self._rng.choices(SIZES, WEIGHTS)
        least = max(2, size - self._rng.choice((0, 0, 0, 1)))
        gated = self._rng.random() < 0.3
        more: Manifest = {"schedulingGates": [{"name": GATE}]} if gated else {}
        self.made["gated gangs" if gated else "gangs"] += 1
        pods = convention.pods(name, size, least, **more)
        self._rng.shuffle(pods)
        late = self._rng.random() < 0.2  # the record comes after its pods
        if convention.recorded and not late:
            await self._make(convention.resource, convention.record(name, least))
        await asyncio.gather(*(self._make(api.PODS, each) for each in pods))
        if convention.recorded and late:
            await self._make(convention.resource, convention.record(name, least))
        key = (_kind(convention), NAMESPACE, name)
        if self._rng.random() < 0.08:
            await asyncio.sleep(self._rng.uniform(0.0, 1.0))  # taken back, whatever it has got
            self.made["gangs taken back"] += 1
        elif await self._until(
            lambda: key in self._checker.gangs and self._checker.gangs[key].whole
        ):
            await asyncio.sleep(self._rng.uniform(0.5, 6.0))
            if self._rng.random() < 0.2:
                await self._replace(pods)
        await asyncio.gather(*(self._drop(api.PODS, each["metadata"]["name"]) for each in pods))
        await self._drop(convention.resource, name)

    async def _replace(self, pods: list[Manifest]) -> None:
        """A member is lost, and made again under its name."""
        lost = self._rng.choice(pods)
        self.made["members replaced"] += 1
        await self._drop(api.PODS, lost["metadata"]["name"])
        await self._make(api.PODS, lost)
        await asyncio.sleep(self._rng.uniform(0.5, 3.0))

    async def _job(self, name: str) -> None:
        """A PyTorchJob; one in eight fails."""
        body = job(name, self._rng.choice((1, 2, 3, 7, 11)))
        fails = self._rng.random() < 0.12
        for role in body["spec"]["pytorchReplicaSpecs"].values():
            notes = role["template"]["metadata"]["annotations"]
            notes["sim.muster.dev/run-seconds"] = str(round(self._rng.uniform(2.0, 6.0), 1))
            if fails:
                role["restartPolicy"] = "Never"
                notes["sim.muster.dev/exit-code"] = "1"
        self.made["jobs"] += 1
        await self._make(api.PYTORCH_JOBS, body)
        await self._until(lambda: self._ended(name))
        await self._drop(api.PYTORCH_JOBS, name)
        await self._sweep(name)

    def _ended(self, name: str) -> bool:
        return any(
            each["metadata"]["name"] == name
            and any(
                c["type"] in ("Succeeded", "Failed") and c["status"] == "True"
                for c in (each.get("status") or {}).get("conditions") or ()
            )
            for each in self._checker.jobs.values()
        )

    async def _sweep(self, name: str) -> None:
        """What the garbage collector of a controller manager would delete."""
        for each in list(self._checker.pods.values()):
            if each["metadata"]["name"].startswith(f"{name}-"):
                await self._drop(api.PODS, each["metadata"]["name"])
        await self._drop(api.VOLCANO_GROUPS, name)

    async def _plain(self, name: str) -> None:
        """A pod that is no gang."""
        self.made["plain pods"] += 1
        await self._make(api.PODS, pod(name, run_seconds=self._rng.uniform(0.5, 4.0)))
        await self._until(lambda: "Succeeded" in self._phases(name))
        await self._drop(api.PODS, name)

    def _phases(self, name: str) -> set[str]:
        pods = self._checker.pods.values()
        return {p["status"].get("phase", "") for p in pods if p["metadata"]["name"] == name}

    # --- ways to write and wait

    async def _until(self, condition: Callable[[], bool]) -> bool:
        """Whether it came true before the tenant's patience ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE), self.news:
                await self.news.wait_for(condition)
                return True
        self.made["waits given up"] += 1
        return False

    async def _make(self, resource: api.Resource, body: Manifest) -> None:
        create = self._client.create
        await self._insist(lambda: create(resource, NAMESPACE, body), done=(409,))

    async def _drop(self, resource: api.Resource, name: str) -> None:
        delete = self._client.delete
        await self._insist(lambda: delete(resource, NAMESPACE, name, grace=0), done=(404,))

    async def _insist(
        self, request: Callable[[], Awaitable[Manifest]], done: tuple[int, ...]
    ) -> None:
        """Until it took effect, perhaps at an earlier try whose answer was lost."""
        while True:
            await self.open.wait()
            try:
                await request()
                return
            except ApiError as error:
                if error.code in done:
                    return
                starting = "not yet ready" in error.message  # its admission: a 403
                if 400 <= error.code < 500 and error.code != 429 and not starting:
                    raise
            await asyncio.sleep(_RETRY)


def _kind(convention: Convention) -> str:
    groups = {api.SIGS_GROUPS: "SigsGroup", api.NATIVE_GROUPS: "NativeGroup"}
    return groups.get(convention.resource, "VolcanoGroup")
