"""News that come in another order than things happened, and askers with their own reasons."""

from __future__ import annotations

from msgspec import convert

from extender.core import commands as c
from extender.core import events as e
from extender.core.api import PODS, PYTORCH_JOBS, SERVICES
from extender.core.objects import Pod
from tests.core import machine_stories as do
from tests.core.machine import Fault, Machine, Replica


def leader(m: Machine) -> Replica:
    assert m.leader is not None
    return m.leader


def test_a_bind_that_comes_after_the_lease_was_lost_is_answered() -> None:
    m = Machine()
    do.nodes(m, 1)
    raw = do.pod(m, "p")
    replica = leader(m)
    m.flush()
    m.lose()
    replica.coordinator.apply(e.BindAsked(99, "default", "p", raw["metadata"]["uid"], "n0"), m.now)
    assert [x.token for x in replica.coordinator.step(m.now) if isinstance(x, c.Answer)] == [99]


def test_nothing_is_kept_of_a_job_whose_pods_and_services_outlived_it() -> None:
    m = Machine()
    do.nodes(m, 2)
    do.job(m, "j", 2)
    m.rest(20)
    state = leader(m).state
    pods = [place for place in m.api.objects if place[0] == PODS]
    services = [place for place in m.api.objects if place[0] == SERVICES]
    assert pods
    assert services
    leader(m).turn(e.JobGone(PYTORCH_JOBS, "default", "j", next(iter(state.jobs_by_uid))))
    for place in (*pods, *services):
        m.api.change(place, metadata={"labels": {"touched": "1"}})
    m.flush()
    assert state.orphans
    assert state.orphan_services
    for place in (*pods, *services):
        m.api.remove(place)
    m.flush()
    assert not state.orphans
    assert not state.orphan_services


def test_a_hint_is_not_taken_for_the_list_of_all_nodes() -> None:
    """OpportunisticBatching (1.35): a pod without a nomination is asked about on one node first."""
    m = Machine()
    do.nodes(m, 3)
    do.gang(m, "g", 2)
    m.scheduler.name = "nobody"
    m.flush()
    planned = {slot.name: slot.node for slot in do.of(m, "g").members.values()}
    raw = m.api.get(PODS, "g-0")
    assert raw is not None
    assert raw["status"]["nominatedNodeName"] == planned["g-0"]
    other = next(f"n{i}" for i in range(3) if f"n{i}" not in planned.values())
    told = convert(raw, Pod)
    unsaid = convert(raw | {"status": {"phase": "Pending"}}, Pod)
    asked = [leader(m).view.filter(pod, [other]).event for pod in (told, unsaid)]
    assert [isinstance(x, e.FilterAsked) and x.full for x in asked] == [True, False]


def test_a_job_s_older_state_does_not_replace_a_newer_one() -> None:
    m = Machine()
    do.job(m, "j", 2)
    m.rest(1.0)
    replica = leader(m)
    (job,) = replica.state.jobs.values()
    newest = m.api.get(PYTORCH_JOBS, "j")
    assert newest is not None
    assert job.raw["metadata"]["resourceVersion"] == newest["metadata"]["resourceVersion"]
    older = newest | {"metadata": newest["metadata"] | {"resourceVersion": "1"}, "spec": {}}
    replica.turn(e.JobSeen(PYTORCH_JOBS, older))
    assert job.raw["spec"]


def test_a_pod_on_its_way_out_is_not_planned_by_a_new_leader() -> None:
    m = Machine(replicas=2)
    do.gang(m, "g", 2)
    m.flush()
    gone = {"deletionTimestamp": "2027-01-15T08:00:00Z", "finalizers": ["batch.kubernetes.io/job"]}
    m.api.change((PODS, "default", "g-0"), metadata=gone)
    do.nodes(m, 2)
    m.lose()
    m.gain(m.replicas[1])
    for place in [*leader(m).backlog]:
        leader(m).deliver(place, 100)
    assert not do.of(m, "g").plans()
    assert do.reason(m, "g") == "NotEnoughPods"


def test_a_negative_priority_is_lower_than_none() -> None:
    m = Machine()
    do.group(m, "low", 1)
    do.pod(m, "low-0", "low", priority=-10)
    m.rest(5)
    do.gang(m, "usual", 1)
    m.rest(5)
    do.nodes(m, 1)
    m.rest(20)
    assert set(m.bound()) == {"usual-0"}


def test_a_stale_binding_is_sent_again_only_if_its_gang_still_stands() -> None:
    m = Machine()
    do.nodes(m, 3)
    m.faults.append(Fault("hold", "Bind", "Pod", "g-2"))
    do.gang(m, "g", 3)
    m.flush()
    replica = leader(m)
    assert set(m.bound()) == {"g-0", "g-1"}
    m.api.change((PODS, "default", "g-2"), metadata={"annotations": {"touched": "1"}})
    m.api.change((PODS, "default", "g-0"), status={"phase": "Failed"})
    (late,) = [key for key, chain in replica.chains.items() if isinstance(chain[0], c.Bind)]
    replica.carry_out(late)
    conflict = replica.replies.pop()
    assert conflict.code == 409
    replica.turn(conflict, *(event for told in replica.backlog.values() for event in told))
    assert not [x for x in replica.pending() if isinstance(x, c.Bind)]
