"""Leader election: never two writers, whatever the network does; time is the loop's.

Excluded: a process that is really stopped (SIGSTOP), which tests/controlplane does.
"""

import asyncio
import contextlib
import random
from typing import Any

import orjson
import pytest
import structlog

from extender.core.errors import ConfigError
from extender.core.events import LeaderGained, LeaderLost
from extender.kube.label import LEADER_LABEL
from extender.kube.lease import LeaderElector, Timing
from extender.kube.replies import Reply
from extender.kube.solo import AlwaysLeader
from extender.obs.metrics import Metrics
from tests.kube.fakes import LeaseServer, Network, Recorder

pytestmark = [pytest.mark.looptime(start=1000), pytest.mark.timeout(20)]

LEASE = "/apis/coordination.k8s.io/v1/namespaces/muster/leases/muster"
POD = "/api/v1/namespaces/muster/pods/"
TIMING = Timing(duration=15, renew_deadline=10, retry=2, drain=5)


class Replica:
    def __init__(self, server, name, *, first_epoch=100, seed=1, latency=0.01, pod_namespace=""):
        self.name = name
        self.inbox = Recorder()
        self.net = Network(server, latency=latency)
        self.elector = LeaderElector(
            self.net,
            self.inbox,
            Metrics(),
            random.Random(seed),
            namespace="muster",
            name="muster",
            identity=f"{name}_x",
            first_epoch=first_epoch,
            timing=TIMING,
            pod=name,
            pod_namespace=pod_namespace,
            clock=asyncio.get_running_loop().time,
        )
        server.objects.setdefault(POD + name, {"metadata": {"name": name, "resourceVersion": "0"}})
        self.task: Any = None

    def start(self):
        self.task = asyncio.get_running_loop().create_task(self.elector.run())
        return self

    async def gained(self, times=1):
        await self.inbox.until(lambda: len(self.inbox.of(LeaderGained)) >= times)
        return asyncio.get_running_loop().time()

    async def stop(self, *, release):
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task
        if release:
            await self.elector.release()
        await self.elector.close()


class Factory:
    def __init__(self):
        self.server = LeaseServer()
        self.replicas = []

    def __call__(self, name, **options):
        self.replicas.append(Replica(self.server, name, **options))
        return self.replicas[-1]


@pytest.fixture
async def make():
    factory = Factory()
    yield factory
    for replica in factory.replicas:
        if replica.task is not None:
            await replica.stop(release=False)


def spec(server):
    return server.objects[LEASE]["spec"]


async def until(condition):
    while not condition():  # noqa: ASYNC110 (the loop's own time: nothing is waited for)
        await asyncio.sleep(0.1)


async def test_first_leader_waits_out_what_a_deleted_lease_may_have_left(make):
    a = make("a").start()
    assert await a.gained() >= 1005
    assert a.inbox.events == [LeaderGained(100)]
    assert a.elector.may_write()
    assert spec(make.server)["holderIdentity"] == "a_x"
    assert spec(make.server)["leaseTransitions"] == 100


async def test_clean_release_hands_over_without_the_wait(make):
    a, b = make("a").start(), make("b")
    await a.gained()
    b.start()
    await asyncio.sleep(5)
    assert b.inbox.events == []
    before = asyncio.get_running_loop().time()
    await a.stop(release=True)
    assert a.inbox.events == [LeaderGained(100), LeaderLost()]
    assert await b.gained() - before < 3
    assert b.inbox.events == [LeaderGained(101)]


async def test_dead_holder_is_succeeded_after_duration_and_drain(make):
    a, b = make("a").start(), make("b").start()
    await a.gained()
    last = asyncio.get_running_loop().time()
    await a.stop(release=False)
    assert await b.gained() - last >= TIMING.duration + TIMING.drain - TIMING.retry
    assert b.inbox.events == [LeaderGained(101)]


async def test_a_holder_cut_off_gives_up_before_the_other_may_write(make):
    a, b = make("a").start(), make("b").start()
    await a.gained()
    a.net.cut = True
    await until(lambda: not a.elector.may_write())
    lost = asyncio.get_running_loop().time()
    assert a.inbox.events[-1] == LeaderLost()
    assert not b.elector.may_write()
    assert await b.gained() - lost > TIMING.duration - TIMING.renew_deadline
    a.net.cut = False
    await asyncio.sleep(30)
    assert not a.elector.may_write()


async def test_lost_answers_do_not_lose_the_lease(make):
    a = make("a").start()
    await a.gained()
    a.net.lose_answers = True
    await asyncio.sleep(4)
    a.net.lose_answers = False
    await asyncio.sleep(30)
    assert a.elector.may_write()
    assert a.inbox.events == [LeaderGained(100)]


async def test_a_process_that_wakes_past_its_lease_says_so_before_it_may_write(make):
    a = make("a")
    now = [0.0]
    a.elector._clock = lambda: asyncio.get_running_loop().time() + now[0]
    a.start()
    await a.gained()
    now[0] = 3600.0  # nothing else of the process has run yet
    assert not a.elector.may_write()
    assert a.inbox.events == [LeaderGained(100), LeaderLost()]
    await a.gained(times=2)
    assert a.inbox.events[-1] == LeaderGained(101)


async def test_stolen_lease_is_noticed(make):
    a = make("a").start()
    await a.gained()
    stolen = {"holderIdentity": "thief_x", "leaseTransitions": 500}
    make.server.answer("PATCH", LEASE, orjson.dumps({"spec": stolen}))
    await a.inbox.until(lambda: a.inbox.of(LeaderLost))
    assert not a.elector.may_write()
    await a.gained(times=2)
    assert a.inbox.of(LeaderGained)[-1] == LeaderGained(501)


async def test_deleted_lease_ends_the_leadership_and_epochs_still_grow(make):
    a = make("a").start()
    await a.gained()
    b = make("b", first_epoch=200).start()
    await asyncio.sleep(3)
    del make.server.objects[LEASE]
    await a.inbox.until(lambda: a.inbox.of(LeaderLost))
    await until(lambda: a.elector.may_write() or b.elector.may_write())
    epochs = [e.epoch for r in (a, b) for e in r.inbox.of(LeaderGained)]
    assert len(epochs) == 2
    assert LEASE in make.server.objects


async def test_lease_taken_but_not_led_with_is_not_released_as_clean(make):
    a, b = make("a").start(), make("b").start()
    await a.gained()
    await a.stop(release=False)
    await until(lambda: spec(make.server)["holderIdentity"] == "b_x")
    await b.stop(release=True)
    assert b.inbox.of(LeaderGained) == []
    assert spec(make.server)["holderIdentity"] == "b_x"


async def test_label_follows_the_leader(make):
    def labelled():
        return [
            path.removeprefix(POD)
            for path, pod in make.server.objects.items()
            if path.startswith(POD) and pod["metadata"].get("labels", {}).get(LEADER_LABEL)
        ]

    make.server.objects[POD + "b"] = {"metadata": {"name": "b", "labels": {LEADER_LABEL: "true"}}}
    a, b = make("a").start(), make("b").start()
    await a.gained()
    await until(lambda: labelled() == ["a"])  # what an earlier life of b left is gone, too
    a.net.cut = True  # a cannot take off its own
    await b.gained()
    await until(lambda: labelled() == ["b"])
    await b.stop(release=True)
    assert labelled() == []


async def test_the_label_is_put_where_the_pod_is(make):
    pod = {"metadata": {"name": "a", "resourceVersion": "0"}}
    make.server.objects["/api/v1/namespaces/elsewhere/pods/a"] = pod
    make("a", pod_namespace="elsewhere").start()

    def labels(namespace):
        found = make.server.objects[f"/api/v1/namespaces/{namespace}/pods/a"]
        return found["metadata"].get("labels") or {}

    await until(lambda: labels("elsewhere").get(LEADER_LABEL) == "true")
    assert LEADER_LABEL not in labels("muster")


async def test_the_label_comes_back_when_a_late_request_has_taken_it_off(make):
    # The label is the Service's only way to the leader: without it kube-scheduler finds nobody.
    make.server.objects[POD + "a"] = {"metadata": {"name": "a"}}

    def labels():
        return make.server.objects[POD + "a"]["metadata"].get("labels", {})

    await make("a").start().gained()
    await until(lambda: LEADER_LABEL in labels())
    make.server.objects[POD + "a"]["metadata"]["labels"] = {}
    await until(lambda: LEADER_LABEL in labels())


async def test_timing_must_let_a_holder_give_up_first():
    with pytest.raises(ConfigError, match="must grow"):
        Timing(duration=10, renew_deadline=10).check()


async def test_without_election_the_only_replica_leads_until_stopped():
    inbox = Recorder()
    leader = AlwaysLeader(inbox, Metrics(), epoch=42)
    assert not leader.may_write()
    task = asyncio.get_running_loop().create_task(leader.run())
    await inbox.until(lambda: inbox.events)
    assert leader.may_write()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert inbox.events == [LeaderGained(42), LeaderLost()]
    assert not leader.may_write()


@pytest.mark.parametrize("seed", range(6))
async def test_never_two_writers_under_random_faults(make, seed):
    """Three replicas, links that break and lose answers; sampled every 100 ms for 5 minutes."""
    chance = random.Random(seed)
    replicas = [make(name, seed=seed + i).start() for i, name in enumerate("abc")]
    last_write: dict[str, float] = {}
    clock = asyncio.get_running_loop().time
    for _ in range(3000):
        await asyncio.sleep(0.1)
        writers = [r.name for r in replicas if r.elector.may_write()]
        assert len(writers) <= 1
        for name in writers:
            others = [at for other, at in last_write.items() if other != name]
            # A request sent at `at` is on its way for `drain` at most.
            if others and name not in last_write:
                assert clock() - max(others) >= TIMING.drain
            last_write = {name: clock()}
        if chance.random() < 0.02:
            replica = chance.choice(replicas)
            replica.net.cut = chance.random() < 0.4
            replica.net.lose_answers = chance.random() < 0.3
            replica.net.latency = chance.choice([0.01, 0.5, 3.0])
    epochs = sorted(e.epoch for r in replicas for e in r.inbox.of(LeaderGained))
    assert len(set(epochs)) == len(epochs) >= 1


async def test_a_standby_names_the_holder_once(make):
    with structlog.testing.capture_logs() as lines:
        first = make("a").start()
        await first.gained()
        make("b").start()
        await asyncio.sleep(TIMING.retry * 5)
    told = [(line["event"], line.get("holder")) for line in lines]
    assert told == [("leading", None), ("standing by", "a_x")]
    assert make.replicas[1].elector.holder() == "a_x"


async def test_a_namespace_that_is_not_there_is_said_once_with_what_to_do(make):
    replica = make("a")
    missing = Reply(404, reason="NotFound", message='namespaces "muster" not found')
    replica.net.server.answer = lambda method, path, body: missing
    with structlog.testing.capture_logs() as lines:
        replica.start()
        await asyncio.sleep(TIMING.retry * 10)
    (line,) = [line for line in lines if line["event"].endswith("create Lease muster/muster")]
    assert "kubectl create namespace muster, or set leaderElection.namespace" in line["do"]


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH"])
async def test_the_server_s_wish_to_wait_is_respected(make, method):
    """The first read, the creation, and the label of the pod or a renewal, whichever comes first."""
    a = make("a")
    answer, asked = make.server.answer, []

    def busy(verb, path, body):
        if verb != method:
            return answer(verb, path, body)
        asked.append((path, asyncio.get_running_loop().time()))
        if len([p for p, _ in asked if p == path]) == 1:
            return Reply(429, reason="TooManyRequests", message="later", retry_after=7.0)
        return answer(verb, path, body)

    make.server.answer = busy
    a.start()
    await a.gained()
    await asyncio.sleep(30)
    path = asked[0][0]
    first, second = [at for each, at in asked if each == path][:2]
    assert 7.0 <= second - first < 9.0
