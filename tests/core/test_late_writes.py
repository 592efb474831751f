"""Writes that are late, or refused while what they tell of goes away."""

from __future__ import annotations

import pytest

from extender.core import commands as c
from extender.core.api import PODS, PYTORCH_JOBS
from extender.core.standing import stands
from tests.core import machine_stories as do
from tests.core.machine import Fault, Machine
from tests.core.machine_api import Place

WORKER: Place = (PODS, "default", "j-worker-0")
JOB: Place = (PYTORCH_JOBS, "default", "j")


def test_a_status_that_is_late_does_not_put_back_what_a_later_one_has_changed() -> None:
    """I6: a request that its sender has given up may still arrive after its successor."""
    m = Machine()
    do.nodes(m, 1)
    patches: list[c.Patch] = []
    take = m.replicas[0]._take

    def kept(command: c.Command) -> None:
        if isinstance(command, c.Patch) and command.resource.kind == "PyTorchJob":
            patches.append(command)
        take(command)

    m.replicas[0]._take = kept  # type: ignore[method-assign]
    do.job(m, "j", 1)
    m.rest(1.0)
    m.api.change(WORKER, status={"phase": "Succeeded"})
    m.rest(1.0)
    first = patches[0]
    assert len(patches) > 1
    code, _ = m.api.carry_out(first)
    assert code == 409


def finished_unwritten(replicas: int = 1, workers: int = 2) -> Machine:
    """A replica has succeeded, and nothing that Muster writes of the job is taken."""
    m = Machine(replicas=replicas)
    do.nodes(m, 1, gpus=4)
    do.job(m, "j", workers)
    m.flush()
    assert m.bound(WORKER[2])
    m.faults.append(Fault("409", verb="Patch", kind="PyTorchJob"))
    m.api.change(WORKER, status={"phase": "Succeeded"})
    m.flush()
    return m


@pytest.mark.parametrize("rests", [True, False])
def test_a_finished_replica_is_not_made_again_when_its_pod_goes_first(rests: bool) -> None:
    """I6, chaos seed 118: its pod is gone, and the job does not say yet that it has succeeded."""
    m = finished_unwritten()
    m.api.remove(WORKER)
    if rests:
        m.rest(20.0)
    m.faults.clear()
    m.rest()
    assert m.binding_order.count(WORKER[2]) == 1
    assert m.api.get(PODS, WORKER[2], "default") is None
    m.finish()


def test_a_finished_replica_whose_pod_is_being_deleted_has_finished_all_the_same() -> None:
    m = finished_unwritten()
    m.api.change(WORKER, metadata={"deletionTimestamp": "2027-01-15T08:00:00Z"})
    m.flush()
    m.api.remove(WORKER)
    m.faults.clear()
    m.rest()
    assert m.binding_order.count(WORKER[2]) == 1


def test_a_standby_that_takes_over_has_seen_who_had_finished() -> None:
    m = finished_unwritten(replicas=2)
    m.api.remove(WORKER)
    m.flush()
    m.lose()
    m.faults.clear()
    m.gain(m.replicas[1])
    m.rest()
    assert m.binding_order.count(WORKER[2]) == 1


def test_a_job_that_has_succeeded_does_not_run_again_when_its_pods_go_first() -> None:
    """The end itself is not written yet."""
    m = finished_unwritten(workers=1)
    m.api.remove(WORKER)
    m.rest(20.0)
    m.faults.clear()
    m.rest()
    assert m.binding_order.count(WORKER[2]) == 1
    last = m.api.objects[JOB]["status"]["conditions"][-1]
    assert (last["type"], last["status"]) == ("Succeeded", "True")


def test_while_a_groups_record_is_being_made_its_gang_waits_for_no_moment() -> None:
    """Its answer comes: a wake at the end of all time broke the step (chaos seed 100049)."""
    m = Machine()
    do.nodes(m, 1, gpus=4)
    marks = {
        "pod-group.scheduling.sigs.k8s.io/name": "g",
        "pod-group.scheduling.sigs.k8s.io/min-available": "2",
    }
    for name in ("g-0", "g-1"):
        do.pod(m, name, labels=marks)
        m.replicas[0].deliver((PODS, "default", name))
    m.rest()
    assert m.bound("g-0")
    assert m.bound("g-1")
    m.finish()


def test_a_refused_service_does_not_put_a_jobs_deadline_off() -> None:
    """Each wish to be looked at is kept, the earliest first."""
    m = Machine()
    do.nodes(m, 1)
    m.faults.append(Fault("403", verb="Create", kind="Service"))
    do.job(m, "j", 1, runPolicy={"activeDeadlineSeconds": 3})
    m.flush()
    assert len(m.bound("j")) == 1
    for _ in range(8):
        m.advance(0.5)
        m.flush()
    job = m.api.get(PYTORCH_JOBS, "j")
    assert job is not None
    assert [row["type"] for row in job["status"]["conditions"]][-1] == "Failed"


@pytest.mark.parametrize("end", ["failed", "suspended", "deleted"])
@pytest.mark.parametrize("outcome", ["unsent", "500", "409"])
def test_a_pod_is_not_created_once_its_job_does_not_want_it(end: str, outcome: str) -> None:
    """I6, chaos seed 1283: its creation was refused, and tried again after the job had failed."""
    m = Machine()
    do.nodes(m, 2)
    hold = Fault("hold", verb="Create", kind="Pod", name=WORKER[2])
    m.faults.append(hold)
    do.job(m, "j", 2, runPolicy={"schedulingPolicy": {"minAvailable": 1}})
    m.api.change(JOB, spec={"pytorchReplicaSpecs": {"Master": {"restartPolicy": "Never"}}})
    m.flush()
    assert m.leader is not None
    (create,) = m.leader.pending()
    assert stands(m.leader.state, create, again=True)
    match end:
        case "failed":
            m.api.change((PODS, "default", "j-master-0"), status={"phase": "Failed"})
        case "suspended":
            m.api.change(JOB, spec={"runPolicy": {"suspend": True}})
        case _:
            m.api.remove(JOB)
    m.flush()
    assert m.leader.pending() == [create]
    assert not stands(m.leader.state, create, again=False)
    hold.outcome = outcome
    m.rest()
    assert hold.times == 1_000_000 - 1
    assert m.api.get(PODS, WORKER[2]) is None
    members = [slot for gang in m.leader.state.gangs.values() for slot in gang.members.values()]
    assert WORKER[2] not in {slot.name for slot in members}
    m.finish()


def test_a_pod_that_its_job_wants_again_is_created() -> None:
    m = Machine()
    do.nodes(m, 2)
    hold = Fault("hold", verb="Create", kind="Pod", name=WORKER[2])
    m.faults.append(hold)
    do.job(m, "j", 2, runPolicy={"schedulingPolicy": {"minAvailable": 1}})
    m.flush()
    assert m.leader is not None
    for on in (True, False):
        m.api.change(JOB, spec={"runPolicy": {"suspend": on}})
        m.flush()
    hold.outcome, hold.times = "500", 1
    m.rest()
    assert set(m.bound()) == {"j-master-0", WORKER[2]}
    m.finish()


def test_one_that_failed_in_a_commit_leaves_its_place_when_it_goes() -> None:
    """I2: it had given back what was reserved there, and was made again on its node all the same."""
    m = Machine()
    do.nodes(m, 2)
    m.faults.append(Fault("hold", verb="Bind", name=WORKER[2]))
    do.job(m, "j", 2, restart="pod")
    m.flush()
    assert set(m.bound()) == {"j-master-0"}
    m.api.change((PODS, "default", "j-master-0"), status={"phase": "Failed"})
    m.flush()
    m.api.remove((PODS, "default", "j-master-0"))
    m.flush()
    m.faults.clear()
    m.rest()
    assert set(m.bound()) == {"j-master-0", WORKER[2]}
    m.finish()
