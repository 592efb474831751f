"""The simulation itself: quiet clusters, seeds that repeat, and seeds without violations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter

import pytest

from extender import cli
from extender.chaos import claims, workloads
from extender.chaos.plant import Plant
from extender.chaos.run import run
from extender.chaos.workloads import NAMESPACE, Workload
from extender.core import api
from extender.core.gang import Gang
from extender.core.session import Session

SEEDS = range(30)


class Quiet:
    """A scene in which nothing goes wrong: two nodes of 4 GPUs, perhaps with others to share, and some
    workloads.
    """

    def __init__(self, *works, devices=0):
        self.works, self.devices = works, devices
        self.plant: Plant | None = None

    def __call__(self, plant, users, faults):
        self.plant = plant
        for name in ("n0", "n1"):
            users.add_node(name, 4, self.devices)
        for work in self.works:
            users.submit(work)

    @property
    def store(self):
        assert self.plant is not None
        return self.plant.store

    def bound(self):
        pods = self.store.list(api.PODS, NAMESPACE)
        return {pod["metadata"]["name"] for pod in pods if claims.node_of(pod)}


@pytest.mark.parametrize("form", ["volcano", "sigs", "native", "ack", "job"])
def test_one_replica_and_no_faults_a_gang_is_whole(form):
    scene = Quiet(Workload("g", form, gpus=2, size=4, least=4))
    outcome = run(1, scene, replicas=1)
    assert outcome.violations == []
    assert len(scene.bound()) == 4


@pytest.mark.parametrize("elastic", [False, True])
@pytest.mark.parametrize("kind", workloads.JOB_KINDS, ids=lambda each: each.resource.kind)
def test_a_job_of_each_kind_runs_to_its_end(kind, elastic):
    work = Workload("j", "job", gpus=2, size=4, least=4, seconds=5.0, kind=kind)
    work.elastic = elastic and kind == workloads.PYTORCH
    scene = Quiet(work)
    assert run(1, scene, replicas=1).violations == []
    job = scene.store.get(kind.resource, NAMESPACE, "j")
    assert claims.verdict(job) == "Succeeded"
    assert len(claims.replicas(kind.resource, job)) == 4


@pytest.mark.parametrize("kind", workloads.JOB_KINDS, ids=lambda each: each.resource.kind)
def test_a_part_of_a_job_is_enough_if_it_says_so(kind):
    scene = Quiet(Workload("j", "job", gpus=4, size=4, least=2, kind=kind))
    assert run(1, scene, replicas=1).violations == []
    assert len(scene.bound()) == 2


@pytest.mark.parametrize("computes", [False, True])
@pytest.mark.parametrize(
    ("kind", "waits"),
    [
        *((kind, False) for kind in workloads.MPI_KINDS),
        *((kind, True) for kind in workloads.MPI_KINDS if kind.resource == api.MPI_JOBS),
    ],
    ids=["v2beta1", "v1", "v2beta1-waits"],
)
def test_a_job_with_a_launcher_ends_with_it(kind, waits, computes):
    work = Workload("j", "job", gpus=2, size=4, least=4, seconds=5.0, kind=kind)
    work.waits, work.computes = waits, computes
    scene = Quiet(work)
    assert run(1, scene, replicas=1).violations == []
    assert claims.verdict(scene.store.get(kind.resource, NAMESPACE, "j")) == "Succeeded"
    assert {pod["metadata"]["name"] for pod in scene.store.list(api.PODS, NAMESPACE)} == {
        "j-launcher"  # cleanPodPolicy
    }


@pytest.mark.parametrize(
    ("milli", "devices", "size", "by_node"),
    [
        (500, 1, 4, [4]),
        (600, 1, 4, [2, 2]),
        (600, 1, 5, []),
        (250, 2, 8, [4, 4]),
        (1000, 1, 4, [2, 2]),
    ],
)
def test_gangs_that_share_gpus(milli, devices, size, by_node):
    """On two nodes of two devices each."""
    work = Workload("s", "volcano", gpus=0, size=size, least=size, milli=milli, devices=devices)
    scene = Quiet(work, devices=2)
    assert run(1, scene, replicas=1).violations == []
    nodes = Counter(map(claims.node_of, scene.store.list(api.PODS, NAMESPACE)))
    assert sorted(nodes[name] for name in ("n0", "n1") if name in nodes) == by_node


@pytest.mark.parametrize(
    ("restarts", "code", "verdict"),
    [
        ("OnFailure", 1, ""),
        ("ExitCode", workloads.SIGKILL_CODE, ""),
        ("ExitCode", 1, "Failed"),
        ("Never", 1, "Failed"),
    ],
)
def test_what_becomes_of_a_job_whose_replicas_fail(restarts, code, verdict):
    work = Workload("j", "job", gpus=2, size=2, least=2, seconds=5.0, exit_code=code)
    work.restarts = restarts
    scene = Quiet(work)
    assert run(1, scene, seconds=60.0, replicas=1).violations == []
    job = scene.store.get(api.PYTORCH_JOBS, NAMESPACE, "j")
    assert claims.verdict(job) == verdict


@pytest.mark.parametrize("size", [1, 2, 6, 9])
@pytest.mark.parametrize("at", [0.05, 20.0])
def test_a_job_has_the_pods_that_it_asks_for_now(at, size):
    work = Workload("j", "job", gpus=1, size=4, least=4)
    quiet = Quiet(work)

    def scene(plant, users, faults):
        quiet(plant, users, faults)
        faults._after(at, lambda: users.scale(work, size))

    assert run(1, scene).violations == []
    every = {"j-master-0", *(f"j-worker-{index}" for index in range(size - 1))}
    if size <= 8:
        assert quiet.bound() == every
    else:  # the others of a job that runs stay when it asks for more than there is room for
        assert len(quiet.bound()) in (0, 4, 8)


@pytest.mark.usefixtures("groups_are_told_late")
@pytest.mark.parametrize("size", [2, 4])
def test_a_job_that_was_edited_before_its_group_was_shown_has_the_group_it_asks_for(size):
    """Seed 200694; before, the group kept the minimum that it had been made with."""
    work = Workload("j", "job", gpus=9, size=3, least=3)
    quiet = Quiet(work)

    def scene(plant, users, faults):
        quiet(plant, users, faults)
        faults._after(30.0, lambda: users.scale(work, size))

    assert run(1, scene).violations == []
    assert quiet.store.get(api.VOLCANO_GROUPS, NAMESPACE, "j")["spec"]["minMember"] == size


def test_a_gang_that_does_not_fit_holds_nothing_and_says_why():
    small = Workload("small", "sigs", gpus=1, size=2, least=2)
    scene = Quiet(Workload("large", "volcano", gpus=4, size=3, least=3), small)
    assert run(1, scene).violations == []
    assert scene.bound() == {"small-0", "small-1"}
    record = scene.store.get(api.VOLCANO_GROUPS, NAMESPACE, "large")
    (condition,) = record["status"]["conditions"]
    assert condition["type"] == "Unschedulable"
    assert "2 of 3 pods would fit" in condition["message"]


def test_a_plain_pod_passes_at_once():
    scene = Quiet(Workload("p", "plain", gpus=4, size=1, least=1))
    assert run(1, scene).violations == []
    assert scene.bound() == {"p-0"}


@pytest.mark.parametrize("seed", SEEDS)
def test_no_violation(seed):
    outcome = run(seed)
    assert outcome.steps > 20
    assert outcome.violations == [], "\n".join(outcome.diary)


PRINT = """
from extender.chaos.run import run
from extender.obs import log
log.configure("console", "critical")
for seed in (3, 9, 19):
    outcome = run(seed)
    print(seed, outcome.steps, outcome.digest)
"""


def digests(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", PRINT], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_seed_gives_the_same_history_in_every_process():
    first = digests("1")
    assert len(first.split()) == 9
    assert first == digests("2")


def test_two_seeds_give_two_histories():
    assert run(3).digest != run(4).digest


def test_the_command(capsys):
    assert cli.main(["simulate", "chaos", "--seeds", "2", "--first", "5", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["seeds"] == 2
    assert answer["steps"] > 40
    assert answer["violations"] == []
    assert cli.main(["simulate", "chaos", "--seeds", "0"]) == 2


def test_the_command_says_no_when_an_invariant_is_broken(capsys, monkeypatch):
    satisfied = Gang.satisfied

    def at_once(self, *more):
        return True if more else satisfied(self)

    monkeypatch.setattr(Gang, "satisfied", at_once)
    monkeypatch.setattr(Session, "ready", lambda self, group, placed: True)
    assert cli.main(["simulate", "chaos", "--seeds", "4", "--json"]) == 1
    first = json.loads(capsys.readouterr().out)["violations"][0]
    assert set(first) == {"seed", "step", "invariant", "message"}
    assert first["invariant"] == "I1"
