"""What a gang is owed depends on whether it has been whole in this life."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import msgspec

from extender.core import commands as c
from extender.core.api import NODES, PODS, VOLCANO_GROUPS, Resource
from extender.core.framework import Arguments, GroupFacts
from extender.core.ingest import GATE
from extender.core.session import Enabled, Session
from tests.builders import GPU
from tests.core import machine_stories as do
from tests.core.machine import RULES, Fault, Machine, Replica, place_of

#: minMember of a job of three whose last worker is beyond it.
ELASTIC = {"schedulingPolicy": {"minAvailable": 2}}


def sent(replica: Replica) -> Counter[tuple[str, Resource]]:
    """Counts, from here on, what a replica writes: by verb and resource."""
    counts: Counter[tuple[str, Resource]] = Counter()
    take = replica._take

    def counted(command: c.Command) -> None:
        if isinstance(command, c.Create | c.Delete):
            counts[type(command).__name__, command.resource] += 1
        take(command)

    replica._take = counted  # type: ignore[method-assign]
    return counts


def leader(m: Machine) -> Replica:
    assert m.leader is not None
    return m.leader


def test_a_replacement_that_admission_refuses_is_asked_for_at_intervals() -> None:
    m = Machine()
    do.nodes(m, 4)
    do.job(m, "j", 3, restart="pod", runPolicy=ELASTIC)
    m.rest(20)
    assert len(m.bound()) == 3
    counts = sent(leader(m))
    m.api.admission = lambda body: "exceeded quota"
    m.api.delete((PODS, "default", "j-worker-1"))
    m.rest(60)
    m.finish()
    assert 1 < counts["Create", PODS] <= 60 / m.rules.retry_seconds_max + 1
    words = [n.message for n in leader(m).notices if n.resource.kind == "PyTorchJob"]
    assert [text for text in words if "exceeded quota" in text]
    m.api.admission = lambda body: ""
    m.rest(60)
    assert len(m.bound()) == 3


def test_a_replica_beyond_the_minimum_that_is_refused_does_not_keep_the_others_from_starting() -> (
    None
):
    m = Machine()
    do.nodes(m, 4)
    m.api.admission = lambda body: "exceeded quota" if len(m.api.pods()) >= 2 else ""
    do.job(m, "j", 3, runPolicy=ELASTIC)
    m.rest(20)
    assert len(m.bound()) == 2
    words = [n.message for n in leader(m).notices if n.resource.kind == "PyTorchJob"]
    assert [text for text in words if "exceeded quota" in text]
    m.api.admission = lambda body: ""
    m.rest(60)
    m.finish()
    assert len(m.bound()) == 3


def test_pods_shown_to_autoscalers_and_refused_are_not_made_and_deleted_all_the_time() -> None:
    m = Machine()
    do.nodes(m, 1)
    do.job(m, "j", 3)
    m.api.admission = lambda body: "exceeded quota" if len(m.api.pods()) >= 2 else ""
    counts = sent(leader(m))
    m.rest(200)
    m.finish()
    assert 1 < counts["Delete", PODS] <= 2 * (200 / m.rules.retry_seconds_max + 5)


def test_the_nomination_of_a_member_that_only_its_gate_holds_ends_with_its_plan() -> None:
    """kube-scheduler counts nominated pods on their node, gated ones too."""
    m = Machine(msgspec.structs.replace(RULES, managed_resources=frozenset({GPU})))
    do.nodes(m, 2)
    do.group(m, "g", 2)
    m.scheduler.held_back.add("g-1")
    do.pod(m, "g-0", "g", gpus=0, schedulingGates=[{"name": GATE}])
    do.pod(m, "g-1", "g")
    m.flush()
    gated = m.api.get(PODS, "g-0")
    assert gated is not None
    assert gated["status"]["nominatedNodeName"]
    do.foreign(m, "x", "n0")
    do.foreign(m, "y", "n1")
    m.rest(60)
    gated = m.api.get(PODS, "g-0")
    assert gated is not None
    assert "nominatedNodeName" not in gated["status"]


def test_a_commit_after_all_members_were_lost_is_whole_or_rolled_back_again() -> None:
    m = Machine()
    do.nodes(m, 3)
    do.gang(m, "g", 3, delete=True)
    m.rest(20)
    assert len(m.bound()) == 3
    for i in range(3):
        m.api.delete((PODS, "default", f"g-{i}"))
    m.rest(10)
    m.faults.append(Fault("403", "Bind", "Pod", "g-2"))
    for i in range(3):
        do.pod(m, f"g-{i}", "g")
    m.rest(100)
    assert not m.bound()


def test_a_gang_that_was_whole_before_a_takeover_is_not_rolled_back_for_one_lost_member() -> None:
    m = Machine(replicas=2)
    do.nodes(m, 4)
    # It is whole, and its record does not say so: the leader dies in between.
    m.faults.append(Fault("unsent", "Patch", "GangPlan"))
    do.gang(m, "g", 3, delete=True)
    m.rest(20)
    assert do.plan_of(m, "g")["spec"]["state"] == "Planned"
    m.faults.clear()
    m.lose()
    m.gain(m.replicas[1])
    m.rest(20)
    assert do.plan_of(m, "g")["spec"]["state"] == "Done"
    m.api.delete((PODS, "default", "g-0"))
    m.rest(60)
    assert set(m.bound()) == {"g-1", "g-2"}


def test_a_group_that_came_when_its_members_were_bound_is_not_rolled_back_for_one_lost_member() -> (
    None
):
    """It was whole in this life of its record, without a commit of its own (chaos seed 519)."""
    m = Machine()
    do.nodes(m, 3)
    do.gang(m, "g", 3, delete=True)
    m.rest(20)
    assert len(m.bound()) == 3
    m.api.remove((VOLCANO_GROUPS, "default", "g"))
    do.group(m, "g", 3, delete=True)
    m.flush()
    counts = sent(leader(m))
    m.api.remove((NODES, "", "n0"))
    for raw in m.api.pods():
        if raw["spec"]["nodeName"] == "n0":
            m.api.remove(place_of(raw))
    m.rest()
    assert len(m.bound()) == 2
    assert not counts


def test_members_that_no_record_asks_for_make_nobody_whole() -> None:
    """The record of a namesake that is gone has let them through; the next one asks for more than
    there is room for (I4, chaos seeds 31868, 34276).
    """
    m = Machine()
    do.nodes(m, 2)
    do.gang(m, "g", 2, delete=True)
    m.rest(20)
    m.api.remove((VOLCANO_GROUPS, "default", "g"))
    m.rest(20)
    assert len(m.bound()) == 2
    do.group(m, "g", 3, delete=True)
    do.pod(m, "g-2", "g")
    m.rest(60)
    m.finish()
    assert not m.bound()


def rolled_back(m: Machine) -> None:
    """Two of three are bound and being deleted, as the third was refused; there is room for it now."""
    do.nodes(m, 3)
    m.lingering = True
    m.faults.append(Fault("403", "Bind", "Pod", "g-2"))
    do.gang(m, "g", 3, delete=True)
    m.rest(20)
    m.faults.clear()
    deleted = [
        raw["metadata"]["name"] for raw in m.api.pods() if "deletionTimestamp" in raw["metadata"]
    ]
    assert deleted == ["g-0", "g-1"]
    do.node(m, "n3", 1)


def test_members_of_a_commit_that_is_rolled_back_make_nobody_whole() -> None:
    """The rest would be bound beside them, be left alone, and count as a gang that was whole
    (chaos seed 11672).
    """
    m = Machine()
    rolled_back(m)
    m.rest(60)
    assert set(m.bound()) == {"g-0", "g-1"}
    assert do.reason(m, "g") == "PodsBeingStopped"
    m.lingering = False
    m.rest(20)
    for i in range(2):
        do.pod(m, f"g-{i}", "g")
    m.rest(60)
    m.finish()
    assert len(m.bound()) == 3


def test_nor_do_they_under_the_next_leader() -> None:
    m = Machine(replicas=2)
    rolled_back(m)
    m.lose()
    m.gain(m.replicas[1])
    m.rest(60)
    assert set(m.bound()) == {"g-0", "g-1"}


def test_members_of_an_earlier_life_that_are_being_deleted_make_nobody_whole() -> None:
    m = Machine()
    do.nodes(m, 5)
    do.gang(m, "g", 3)
    m.rest(20)
    m.lingering = True
    for i in range(3):
        m.api.delete((PODS, "default", f"g-{i}"))
    do.pod(m, "g-3", "g")
    do.pod(m, "g-4", "g")
    m.rest(60)
    assert set(m.bound()) == {"g-0", "g-1", "g-2"}
    assert do.reason(m, "g") == "PodsBeingStopped"
    do.pod(m, "g-5", "g")
    m.rest(60)
    assert do.reason(m, "g") == "NotEnoughRoom"
    do.node(m, "n5", 1)
    m.rest(60)
    assert set(m.bound()) == {f"g-{i}" for i in range(6)}


def test_an_attempt_beside_an_earlier_life_has_its_deadline() -> None:
    """A pod that terminates for long (its node is lost) keeps nothing for those that come (I3)."""
    m = Machine()
    do.nodes(m, 6)
    do.gang(m, "g", 3)
    m.rest(20)
    m.lingering = True
    m.scheduler.held_back.add("g-5")
    for i in range(3):
        m.api.delete((PODS, "default", f"g-{i}"))
        do.pod(m, f"g-{i + 3}", "g")
    m.flush()
    do.gang(m, "rival", 3)
    m.rest(60)
    assert set(m.bound()) == {*(f"g-{i}" for i in range(3)), *(f"rival-{i}" for i in range(3))}


def test_a_replacement_lands_beside_a_living_gang_while_old_members_still_terminate() -> None:
    m = Machine()
    do.nodes(m, 4)
    do.gang(m, "g", 3)
    m.rest(20)
    m.lingering = True
    for name in ("g-0", "g-1"):
        m.api.delete((PODS, "default", name))
    do.pod(m, "g-3", "g")
    m.rest(20)
    assert "g-3" in m.bound()


class Patient:
    """A plugin that starts a gang only when so many members have come."""

    name: ClassVar[str] = "patient"
    arguments: ClassVar[Arguments] = {"wanted": 3}

    def __init__(self, arguments: Arguments) -> None:
        self.wanted = int(arguments["wanted"])

    def ready(self, group: GroupFacts, placed: int) -> bool:
        return placed >= self.wanted


def test_a_plugins_word_on_readiness_holds_the_barrier() -> None:
    m = Machine()
    do.nodes(m, 3)
    patient = Patient({"wanted": 3})
    leader(m).state.session = Session([[Enabled(patient)]])
    do.group(m, "g", 2)
    for i in range(2):
        do.pod(m, f"g-{i}", "g")
    m.flush()
    assert not m.bound()
    do.pod(m, "g-2", "g")
    m.rest(60)
    assert len(m.bound()) == 3
