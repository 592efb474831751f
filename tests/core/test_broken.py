"""Attacks on the gang machine: input that nobody means, and people who change their mind half way.

Each is the smallest case of a fault that was found by attacking a running Muster.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from extender.core import asking, placing
from extender.core.advice import Advice
from extender.core.api import GANG_PLANS, NODES, PODS, PYTORCH_JOBS, SIGS_GROUPS, VOLCANO_GROUPS
from extender.core.commands import Create
from extender.core.coordinator import Coordinator
from extender.core.events import LeaderGained, Synced
from extender.core.framework import NO_NEWS, JobKind, JobStep, NodeNews, Replica
from extender.core.gang import Gang
from extender.core.groups import TIMEOUT_ANNOTATION
from extender.core.identity import GroupKey
from extender.core.ingest import version
from extender.core.objects import Pod
from extender.core.reasons import Refusal
from extender.core.record import record_name
from extender.core.state import State
from extender.jobs import KINDS
from extender.loop import Loop
from extender.obs.metrics import Metrics
from tests.core import machine_stories as do
from tests.core.machine import RULES, SESSION, START, Fault, Machine
from tests.core.machine_api import Raw

KOORDINATOR = "gang.scheduling.koordinator.sh"
#: More digits than int() reads.
DIGITS = "9" * 5000


def labelled(m: Machine, name: str, least: str) -> None:
    """A pod that names its group and minimum by itself (Koordinator)."""
    marks = {f"{KOORDINATOR}/name": name, f"{KOORDINATOR}/min-available": least}
    do.pod(m, f"{name}-0", annotations=marks)


def runs_on(m: Machine) -> None:
    """A gang of the usual kind beside it is placed as ever."""
    do.gang(m, "neighbour", 2)
    m.rest(60)
    assert len(m.bound("neighbour")) == 2
    m.finish()


@pytest.mark.parametrize("least", [DIGITS, "9" * 400, "-1", "0", "", "three", "\u0663", "1e3"])
def test_a_minimum_that_is_no_count_is_refused(least: str) -> None:
    m = Machine()
    do.nodes(m, 2)
    labelled(m, "odd", least)
    m.rest(60)
    assert do.reason(m, "odd") == "InvalidObject"
    runs_on(m)


@pytest.mark.parametrize("seconds", [DIGITS, "9" * 400, "99999999999"])
def test_a_timeout_that_is_no_time_counts_as_none(seconds: str) -> None:
    m = Machine()
    do.nodes(m, 2)
    marks = {TIMEOUT_ANNOTATION: seconds}
    body = {"metadata": {"name": "odd", "namespace": "default", "annotations": marks}}
    m.api.put(VOLCANO_GROUPS, body | {"spec": {"minMember": 3}})
    do.pod(m, "odd-0", "odd")
    m.rest(60)
    assert do.reason(m, "odd") == "NotEnoughPods"
    assert do.of(m, "odd").timeout is None
    runs_on(m)


@pytest.mark.parametrize("amount", ["-1", "1e99", "1e1.5"])
@pytest.mark.parametrize("resource", ["cpu", "memory"])
def test_min_resources_that_cannot_be_read_are_refused(resource: str, amount: str) -> None:
    m = Machine()
    do.nodes(m, 2)
    do.gang(m, "odd", 1, minResources={resource: amount})
    m.rest(60)
    assert do.reason(m, "odd") == "InvalidObject"
    runs_on(m)


def test_a_pod_group_that_cannot_be_made_is_not_asked_for_in_a_loop() -> None:
    m = Machine()
    do.nodes(m, 2)
    m.faults.append(Fault("422", verb="Create", kind="PodGroup", name="My_Group"))
    before = m.faults[0].times
    labelled(m, "My_Group", "1")
    m.rest(60)
    assert 2 <= before - m.faults[0].times <= 10
    assert do.reason(m, "My_Group") == "PodGroupRefused"
    runs_on(m)


def test_a_pod_group_made_for_labels_is_made_again() -> None:
    m = Machine()
    labelled(m, "train", "1")
    m.rest(20)
    m.api.delete((VOLCANO_GROUPS, "default", "train"))
    m.rest(20)
    do.nodes(m, 1)
    m.rest(60)
    assert m.bound() == {"train-0": "n0"}
    m.finish()


def test_a_jobs_pod_group_is_made_again() -> None:
    m = Machine()
    do.job(m, "ddp", 2)
    m.rest(20)
    m.api.delete((VOLCANO_GROUPS, "default", "ddp"))
    m.rest(20)
    do.nodes(m, 2)
    m.rest(60)
    assert len(m.bound("ddp")) == 2
    m.finish()


@pytest.mark.parametrize("verb", ["Patch", "Delete"])
def test_a_jobs_write_that_is_refused_is_not_repeated_in_a_loop(verb: str) -> None:
    m = Machine()
    do.nodes(m, 2)
    do.job(m, "ddp", 2, runPolicy={"cleanPodPolicy": "All"})
    m.rest(20)
    kind = "PyTorchJob" if verb == "Patch" else "Pod"
    m.faults.append(Fault("403", verb=verb, kind=kind))
    before = m.faults[0].times
    for name in list(m.bound("ddp")):
        m.api.change((PODS, "default", name), status={"phase": "Succeeded"})
    m.rest(30)
    assert 2 <= before - m.faults[0].times <= 20


@pytest.mark.parametrize("name", ["a" * 239 + ".b", "a" * 238 + "-.b" * 3, "a.b", "a" * 253])
def test_a_plans_name_is_an_object_name(name: str) -> None:
    found = record_name(GroupKey(VOLCANO_GROUPS, "default", name))
    part = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    assert re.fullmatch(rf"{part}(\.{part})*", found)
    assert len(found) <= 253
    assert found != record_name(GroupKey(SIGS_GROUPS, "default", name))


def test_a_foreign_pod_that_leaves_the_group_keeps_it_waiting_no_longer() -> None:
    m = Machine()
    do.nodes(m, 2)
    do.gang(m, "train", 2)
    do.pod(m, "stray", "train", schedulerName="other")
    m.rest(20)
    assert do.reason(m, "train") == "MemberOfAnotherScheduler"
    m.api.change((PODS, "default", "stray"), metadata={"annotations": {do.VOLCANO: None}})
    m.rest(20)
    assert len(m.bound("train")) == 2
    m.finish()


def test_a_job_larger_than_any_plan_is_refused_not_unrolled() -> None:
    m = Machine()
    do.nodes(m, 2)
    do.job(m, "huge", 2_147_483_647)
    m.rest(20)
    job: Raw | None = m.api.get(PYTORCH_JOBS, "huge")
    assert job is not None
    state = job["status"]["conditions"][-1]
    assert (state["type"], state["status"]) == ("Invalid", "True")
    assert "replicas" in state["message"]
    runs_on(m)


def forged(m: Machine, name: str, **spec: object) -> None:
    """A GangPlan that a user made, where Muster keeps the plan of the group ``name``."""
    key = GroupKey(VOLCANO_GROUPS, "default", name)
    reference = {"apiVersion": VOLCANO_GROUPS.api_version, "name": name, "uid": "forged"}
    table = {"nodes": ["n0"], "roles": [""], "members": [f"{name}-0"], "uids": [""]}
    numbers = {"epoch": 2**63 - 1, "attempt": 1, "minMember": 1, "memberCount": 1}
    body = {"groupRef": reference, "state": "Planned", **numbers, **table, "node": [0], "role": [0]}
    meta = {"name": record_name(key), "namespace": "default"}
    m.api.put(GANG_PLANS, {"metadata": meta, "spec": {**body, **spec}})


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"groupRef": {"apiVersion": VOLCANO_GROUPS.api_version, "name": "other", "uid": "x"}},
        {"groupRef": {"apiVersion": "v1", "name": "train"}},
        {"attempt": 2**63 - 1},
        {"attempt": -1},
        {"members": None},
        {"node": [7]},
        {"state": "Done"},
    ],
    ids=str,
)
@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
def test_a_forged_plan_keeps_nobody_waiting(spec: dict[str, object], restarted: bool) -> None:
    m = Machine(replicas=2)
    do.gang(m, "train", 2)
    m.rest(20)
    forged(m, "train", **spec)
    m.rest(20)
    if restarted:
        m.lose()
        m.gain(m.replicas[1])
    do.nodes(m, 2)
    m.rest(60)
    assert len(m.bound("train")) == 2
    m.finish()


def test_a_gang_that_is_whole_no_more_does_not_say_scheduled() -> None:
    m = Machine()
    do.nodes(m, 2)
    do.gang(m, "train", 2)
    m.rest(20)
    lost = m.bound()["train-1"]
    m.api.change((NODES, "", lost), spec={"unschedulable": True})
    m.api.delete((PODS, "default", "train-1"))
    m.flush()
    do.pod(m, "train-1", "train")
    m.rest(60)
    group = m.api.get(VOLCANO_GROUPS, "train")
    assert group is not None
    said = {each["type"]: each["status"] for each in group["status"]["conditions"]}
    assert said == {"Scheduled": "False", "Unschedulable": "True"}
    m.api.change((NODES, "", lost), spec={"unschedulable": False})
    m.rest(60)
    group = m.api.get(VOLCANO_GROUPS, "train")
    assert group is not None
    said = {each["type"]: each["status"] for each in group["status"]["conditions"]}
    assert said == {"Scheduled": "True", "Unschedulable": "False"}
    m.finish()


class Falls:
    """A job kind with a fault of its own, for jobs of one name."""

    def __init__(self, kind: JobKind) -> None:
        self._kind, self.resource = kind, kind.resource

    def takes(self, job: Raw) -> bool:
        return self._kind.takes(job)

    def reconcile(
        self,
        job: Raw,
        pods: Sequence[Pod],
        services: frozenset[str],
        now: float,
        ends: Sequence[Pod] = (),
        nodes: NodeNews = NO_NEWS,
    ) -> JobStep:
        if job["metadata"]["name"] == "odd":
            raise ZeroDivisionError
        return self._kind.reconcile(job, pods, services, now, ends, nodes)

    def advice(self, job: Raw) -> tuple[Advice, ...] | None:
        return self._kind.advice(job)

    def pod(self, job: Raw, replica: Replica) -> Raw:
        return self._kind.pod(job, replica)

    def service(self, job: Raw, replica: Replica) -> Raw:
        return self._kind.service(job, replica)


@pytest.mark.parametrize("what", ["job", "gang"])
async def test_a_fault_of_our_own_costs_its_object_alone(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = {kind.resource: Falls(kind) for kind in KINDS}
    coordinator = Coordinator(RULES, SESSION, kinds)
    loop = Loop(coordinator, Metrics(), clock=lambda: START)
    sent: list[object] = []
    loop.connect(lambda token, error: None, sent.append)
    m = Machine()
    m.api.watchers.append(lambda _, event: loop.put(event))
    loop.put(Synced())
    loop.put(LeaderGained(1))
    planned = asking.not_plannable

    def not_plannable(s: State, gang: Gang) -> Refusal | None:
        if gang.key.name == "odd":
            raise ZeroDivisionError
        return planned(s, gang)

    monkeypatch.setattr(placing, "not_plannable", not_plannable)
    do.nodes(m, 4)
    if what == "job":
        do.job(m, "odd", 2)
    else:
        do.gang(m, "odd", 2)
    do.gang(m, "train", 2)
    for _ in range(4):
        loop.turn()
    assert loop.faults == 1
    plans = [x.body["spec"]["groupRef"]["name"] for x in sent if isinstance(x, Create)]
    assert plans == ["train"]


def test_a_group_made_again_writes_over_the_plan_of_the_one_before() -> None:
    """As `kubectl replace --force` does it: the garbage collector comes to the plan later."""
    m = Machine()
    do.nodes(m, 2)
    for _ in range(3):
        do.gang(m, "train", 2)
        m.flush()
        assert len(m.bound("train")) == 2
        for pod in list(m.bound("train")):
            m.api.remove((PODS, "default", pod))
        plan = record_name(GroupKey(VOLCANO_GROUPS, "default", "train"))
        m.api.change((GANG_PLANS, "default", plan), metadata={"ownerReferences": []})
        m.api.remove((VOLCANO_GROUPS, "default", "train"))
        m.flush()
    assert "rollbacks" not in m.replicas[0].state.counters
    m.finish()


def test_a_gang_that_is_whole_after_all_does_not_say_that_it_was_rolled_back() -> None:
    m = Machine()
    do.nodes(m, 2)
    do.gang(m, "train", 2)
    m.faults.append(Fault("422", verb="Create", kind="GangPlan"))
    m.flush()
    assert do.reason(m, "train") == "BackOff"
    for number in range(2):
        m.api.change((PODS, "default", f"train-{number}"), spec={"nodeName": f"n{number}"})
    m.flush()
    assert do.reason(m, "train") == ""


def test_a_version_of_thousands_of_digits_stops_no_step() -> None:
    """Found by fuzzing: Python reads no such number."""
    assert [version(text) for text in ("7", "9" * 5000, "x", "")] == [7, 0, 0, 0]
