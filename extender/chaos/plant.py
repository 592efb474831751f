"""The cluster of one run: API server, two Musters, kube-scheduler, kubelets and controllers."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any

import orjson

from extender.chaos.clock import OUTSIDE, Process, VirtualLoop
from extender.chaos.judge import Judge
from extender.chaos.network import Link, LinkClient, Listener, Server, Weather
from extender.chaos.replica import Replica, Way
from extender.core import api
from extender.kube.label import LEADER_LABEL
from extender.settings import Settings, parse
from extender.sim.extenders import Extender
from extender.sim.history import Change, History
from extender.sim.kubelet import Kubelet
from extender.sim.rest import Request, Rest
from extender.sim.scheduler import Scheduler
from extender.sim.store import Store

#: Seconds since the epoch at which every run begins.
EPOCH = 1_800_000_000.0
NAMESPACE = "muster-system"
SCHEDULER = "muster"
PODS = ("muster-0", "muster-1")
#: Seconds that pass before a killed program is started again.
RESTART_SECONDS = (0.5, 6.0)


class Ledger(History):
    """A history that tells of every change."""

    def __init__(self, limit: int, tell: Callable[[Change], None]) -> None:
        super().__init__(limit)
        self._tell = tell

    def add(self, change: Change) -> None:
        super().add(change)
        self._tell(change)


class Plant(Listener):
    """Everything of one run; the loop must be running."""

    def __init__(self, loop: VirtualLoop, seed: int, replicas: int) -> None:
        self.loop, self.seed = loop, seed
        self.weather = Weather()
        self.diary: list[str] = []
        self.judge = Judge(loop.time)
        self.digest = hashlib.sha256()
        self.steps = 0
        self.settings = _settings()
        self._uids = 0
        self.store = Store(self.wall, self._uid)
        self.store.history = Ledger(20_000, self._changed)
        self.server = Server(Rest(self.store))
        self.links: dict[str, Link] = {}
        self._processes: list[Process] = []
        self.replicas: dict[str, Replica] = {}
        #: Clock error of each replica's machine, in seconds.
        self.skew = dict.fromkeys(PODS, 0.0)
        #: Kills the sender of the n-th write from now: (pod, n).
        self.fuse: tuple[str, int] | None = None
        self._lives = 0
        self._outside: set[asyncio.Task[Any]] = set()
        self._restarting: dict[str, Process] = {}
        self.store.create(api.NAMESPACES, "", {"metadata": {"name": NAMESPACE}})
        self.store.create(api.PRIORITY_CLASSES, "", {"metadata": {"name": "high"}, "value": 1000})
        for pod in PODS[:replicas]:
            self.store.create(api.PODS, NAMESPACE, _own_pod(pod))
            self.start_replica(pod)
        self.start_scheduler()
        self._start_kubelet()

    def now(self) -> float:
        """Virtual seconds."""
        return self.loop.time()

    def wall(self) -> float:
        return EPOCH + self.loop.time()

    def rng(self, *parts: object) -> random.Random:
        """A stream of its own for each part, so that one does not shift the others."""
        return random.Random(":".join(map(str, (self.seed, *parts))))

    def note(self, text: str) -> None:
        """For whoever reads a failing run."""
        self.diary.append(f"{self.now():8.3f} {text}")

    # --- programs

    def start_replica(self, pod: str) -> None:
        life = self._life()
        process = Process(pod)
        identity = f"{pod}_{life}"
        link = self._link(process, life)
        skew = self.skew[pod]
        replica = Replica(
            self.settings,
            pod,
            identity,
            link,
            self.judge,
            self.rng(pod, life, "own"),
            self.now,
            lambda: self.wall() + skew,
        )
        self.replicas[pod] = replica
        self.judge.started(link, identity)
        replica.start()
        self.note(f"{identity} starts")

    def kill_replica(self, pod: str) -> None:
        """SIGKILL; kubelet starts it again after a while."""
        replica = self.replicas[pod]
        if replica.process.dead:
            return
        self.note(f"{replica.identity} is killed")
        self._fail_if_failed(replica)
        replica.process.kill()
        self._again(pod)

    async def stop_replica(self, pod: str) -> None:
        """SIGTERM, and another life."""
        replica = self.replicas[pod]
        if replica.process.dead or replica.process.paused or replica.stopping:
            return
        self.note(f"{replica.identity} is asked to stop")
        await replica.process.spawn(replica.stop())
        self._fail_if_failed(replica)
        replica.process.kill()
        self._again(pod)

    def start_scheduler(self) -> None:
        life = self._life()
        process = Process("kube-scheduler")
        link = self._link(process, life, timeout=30.0)
        way = Way(self._endpoint, self.rng("way", life), lambda: self.weather.lost)
        scheduler = Scheduler(
            LinkClient(link),
            [Extender.from_config(entry) for entry in _EXTENDERS],
            names=[SCHEDULER],
            max_backoff=self.settings.muster.pod_max_backoff_seconds,
            now=self.wall,
            post=way.post,
        )
        self._restarting["scheduler"] = process
        process.start(scheduler.run())

    def restart_scheduler(self) -> None:
        self.note("kube-scheduler is killed")
        self._restarting["scheduler"].kill()
        self._later(
            self.rng("restart", self._lives).uniform(*RESTART_SECONDS), self.start_scheduler
        )

    def outside(self, work: Coroutine[Any, Any, Any]) -> None:
        """Something that belongs to no program."""
        task = asyncio.get_running_loop().create_task(work, context=Context())
        self._outside.add(task)
        task.add_done_callback(self._outside.discard)

    async def end(self) -> None:
        """Kill everything and let it go."""
        self.check_faults()
        for process in self._processes:
            process.kill()
        mine = asyncio.current_task()
        left = [task for task in asyncio.all_tasks() if task is not mine]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _start_kubelet(self) -> None:
        process = Process("kubelet")
        link = self._link(process, self._life(), timeout=30.0)
        rng = self.rng("kubelet")
        kubelet = Kubelet(
            LinkClient(link),
            start_seconds=rng.uniform(0.1, 2.0),
            stop_seconds=rng.uniform(0.1, 4.0),
            now=self.wall,
        )
        process.start(kubelet.run())

    def _again(self, pod: str) -> None:
        rng = self.rng("restart", pod, self._lives)
        self._later(rng.uniform(*RESTART_SECONDS), lambda: self.start_replica(pod))

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        async def wait() -> None:
            await asyncio.sleep(seconds)
            call()

        self.outside(wait())

    def _link(self, process: Process, life: int, timeout: float = 10.0) -> Link:
        rng = self.rng(process.name, life, "link")
        link = Link(process, self.server, self.weather, rng, self, timeout=timeout)
        self.links[process.name] = link
        self._processes.append(process)
        return link

    def _life(self) -> int:
        self._lives += 1
        return self._lives

    def _endpoint(self) -> Replica | None:
        """The Service chooses pods by the leader's label."""
        labelled = [
            pod
            for pod in self.replicas
            if (self.store.get(api.PODS, NAMESPACE, pod)["metadata"].get("labels") or {}).get(
                LEADER_LABEL
            )
        ]
        if not labelled:
            return None
        return self.replicas[labelled[self.steps % len(labelled)]]

    # --- what the judge is told

    def sent(self, link: Link, request: Request) -> None:
        self.judge.sent(link, request)
        if self.fuse is None or request.method == "GET" or link.process.name != self.fuse[0]:
            return
        pod, left = self.fuse
        self.fuse = (pod, left - 1) if left else None
        if not left:
            # The request is on its way when its sender dies.
            self.loop.call_soon(self.kill_replica, pod, context=OUTSIDE)

    def check_faults(self) -> None:
        """What no program may do: fail by itself."""
        for replica in self.replicas.values():
            self._fail_if_failed(replica)
        for text in self.loop.faults:
            self.judge.violated("fault", text)
        self.loop.faults.clear()

    def _fail_if_failed(self, replica: Replica) -> None:
        if replica.loop.faults:
            self.judge.violated("fault", f"{replica.loop.faults} in the core of {replica.identity}")
            replica.loop.faults = 0
        for error in replica.failures:
            self.judge.violated("fault", f"{replica.identity}: {error!r}")
        replica.failures.clear()

    def _changed(self, change: Change) -> None:
        self.steps += 1
        self.judge.step = self.steps
        text = (change.version, change.resource.plural, change.key, change.kind, change.object)
        self.digest.update(orjson.dumps(text, option=orjson.OPT_SORT_KEYS))
        self.judge.changed(change, self.server.author)

    def _uid(self) -> str:
        self._uids += 1
        return f"uid-{self._uids:06}"


_COMMON = {"urlPrefix": "http://muster", "nodeCacheCapable": True, "ignorable": False}
_EXTENDERS: tuple[dict[str, Any], ...] = (
    {
        **_COMMON,
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "weight": 1,
        "httpTimeout": "2s",
    },
    {**_COMMON, "bindVerb": "bind", "httpTimeout": "30s"},
)


def _settings() -> Settings:
    section = {
        "schedulerNames": [SCHEDULER],
        "leaderElection": {"namespace": NAMESPACE},
        "bindTimeoutSeconds": 30,
        "planDeadlineSeconds": 20,
        "visibleAfterSeconds": 15,
    }
    return parse({"muster": section}, "chaos")


def _own_pod(name: str) -> dict[str, Any]:
    """Muster's own pod, on a node that is no part of the story."""
    return {
        "metadata": {"name": name},
        "spec": {"nodeName": "control", "containers": [{"name": "muster"}]},
        "status": {"phase": "Running"},
    }
