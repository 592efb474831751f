"""The cluster of one run: API server, two Musters, kube-scheduler, kubelets and controllers."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import Counter
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
#: By how much a replica's wall clock may be wrong from the beginning, in seconds.
_SKEWS = (0.0, 0.0, -90.0, -1.5, 1.5, 90.0)


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
        self.settings = settings()
        self._uids = 0
        self.store = Store(self.wall, self._uid)
        self.store.history = Ledger(20_000, self._changed)
        self.server = Server(Rest(self.store))
        self.links: dict[str, Link] = {}
        self._processes: list[Process] = []
        self.replicas: dict[str, Replica] = {}
        #: Error of each replica's clock on the wall, in seconds; its steady one is in _counters.
        self.skew = {pod: self.rng("skew", pod).choice(_SKEWS) for pod in PODS}
        self._counters = {pod: _counter(self.rng("counter", pod), loop.time) for pod in PODS}
        #: Replicas that kube-scheduler does not reach.
        self.unreachable: set[str] = set()
        #: Processes of kubelets by node.
        self.kubelets: dict[str, Process] = {}
        #: Acts, and requests and watches with which something went wrong.
        self.faults = 0
        #: Kills the sender of the n-th write from now: (pod, n).
        self.fuse: tuple[str, int] | None = None
        self._lives: Counter[str] = Counter()
        self._outside: set[asyncio.Task[Any]] = set()
        self._restarting: dict[str, Process] = {}
        self.store.create(api.NAMESPACES, "", {"metadata": {"name": NAMESPACE}})
        self.store.create(api.PRIORITY_CLASSES, "", {"metadata": {"name": "high"}, "value": 1000})
        for pod in PODS[:replicas]:
            self.store.create(api.PODS, NAMESPACE, _own_pod(pod))
            self.start_replica(pod)
        self.start_scheduler()

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
        process = Process(pod)
        link = self._link(process)
        life = self._lives[pod]
        identity = f"{pod}_{life}"
        replica = Replica(
            self.settings,
            pod,
            identity,
            link,
            self.judge,
            self.rng(pod, life, "own"),
            self._counters[pod],
            lambda: self.wall() + self.skew[pod],
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
        self._has_stopped(replica)

    def _has_stopped(self, replica: Replica) -> None:
        if replica.process.dead:
            return  # killed at its very end, and started again for that
        self._fail_if_failed(replica)
        replica.process.kill()
        self._again(replica.pod)

    def start_scheduler(self) -> None:
        process = Process("kube-scheduler")
        link = self._link(process, timeout=30.0)
        way = Way(self, self.rng("way", self._lives[process.name]))
        scheduler = Scheduler(
            LinkClient(link),
            [Extender.from_config(entry) for entry in EXTENDERS],
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
            self.rng("restart", self._lives["kube-scheduler"]).uniform(*RESTART_SECONDS),
            self.start_scheduler,
        )

    def start_kubelet(self, node: str) -> None:
        """Of one node."""
        process = Process(f"kubelet {node}")
        link = self._link(process, timeout=30.0)
        rng = self.rng(process.name, self._lives[process.name])
        kubelet = Kubelet(
            LinkClient(link),
            node=node,
            start_seconds=rng.uniform(0.1, 2.0),
            stop_seconds=rng.uniform(0.1, 4.0),
            now=self.wall,
        )
        self.kubelets[node] = process
        process.start(kubelet.run())

    def stop_kubelet(self, node: str) -> None:
        """And all that it did."""
        if (process := self.kubelets.pop(node, None)) is not None:
            process.kill()

    def hears_of(self, node: str) -> bool:
        """Whether its kubelet lives and reaches the server."""
        return node in self.kubelets and not self.links[f"kubelet {node}"].mute

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

    def _again(self, pod: str) -> None:
        rng = self.rng("restart", pod, self._lives[pod])
        self._later(rng.uniform(*RESTART_SECONDS), lambda: self.start_replica(pod))

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        async def wait() -> None:
            await asyncio.sleep(seconds)
            call()

        self.outside(wait())

    def _link(self, process: Process, timeout: float = 10.0) -> Link:
        """The way to the server of a process that begins; it counts the lives of its name."""
        self._lives[process.name] += 1
        rng = self.rng(process.name, self._lives[process.name], "link")
        link = Link(process, self.server, self.weather, rng, self, timeout=timeout)
        self.links[process.name] = link
        self._processes.append(process)
        return link

    def endpoint(self) -> Replica | None:
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

    def struck(self) -> None:
        self.faults += 1

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
        # Keys are drawn by no seed.
        body = {field: value for field, value in change.object.items() if field != "data"}
        said = body if change.resource == api.SECRETS else change.object
        text = (change.version, change.resource.plural, change.key, change.kind, said)
        self.digest.update(orjson.dumps(text, option=orjson.OPT_SORT_KEYS))
        self.judge.changed(change, self.server.author, self.server.request)

    def _uid(self) -> str:
        self._uids += 1
        return f"uid-{self._uids:06}"


def _counter(rng: random.Random, true: Callable[[], float]) -> Callable[[], float]:
    """A machine's steady clock: seconds since it started, and a little too fast or too slow."""
    since, rate = rng.uniform(0.0, 1e6), 1.0 + rng.choice((-2e-4, 0.0, 2e-4))
    return lambda: since + rate * true()


_COMMON = {"urlPrefix": "http://muster", "nodeCacheCapable": True, "ignorable": False}
#: Muster's entries in kube-scheduler's configuration.
EXTENDERS: tuple[dict[str, Any], ...] = (
    {
        **_COMMON,
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "weight": 1,
        "httpTimeout": "2s",
    },
    {**_COMMON, "bindVerb": "bind", "httpTimeout": "30s"},
)


def settings() -> Settings:
    """Of every Muster here: deadlines a moment long."""
    section = {
        "schedulerNames": [SCHEDULER],
        "leaderElection": {"namespace": NAMESPACE},
        "bindTimeoutSeconds": 30,
        "planDeadlineSeconds": 20,
        "visibleAfterSeconds": 15,
        "nodeLoss": {
            "tolerateSeconds": 5,
            "forceDeleteAfterSeconds": 5,
            "noticedAfterSeconds": 10,
            "deletedAfterSeconds": 5,
        },
    }
    return parse({"muster": section}, "chaos")


def _own_pod(name: str) -> dict[str, Any]:
    """Muster's own pod, on a node that is no part of the story."""
    return {
        "metadata": {"name": name},
        "spec": {"nodeName": "control", "containers": [{"name": "muster", "image": "muster"}]},
        "status": {"phase": "Running"},
    }
