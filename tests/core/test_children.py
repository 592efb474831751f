"""What an MPI job owns beside its pods is there before them, and follows; nobody else's is touched."""

from __future__ import annotations

from typing import Any

from extender.core import jobsync
from extender.core.admission import ADMISSION_SECONDS
from extender.core.api import (
    BATCH_JOBS,
    CONFIG_MAPS,
    MPI_JOBS,
    NODES,
    OLD_MPI_JOBS,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from tests.builders import GPU
from tests.core import machine_stories as do
from tests.core.machine import Fault, Machine

READY = [{"type": "Ready", "status": "True"}]
CONFIG = (CONFIG_MAPS, "default", "j-config")


def machine(nodes: int = 3) -> Machine:
    m = Machine()
    do.nodes(m, nodes)
    for i in range(nodes):  # kubectl-delivery asks for some
        room = {"allocatable": {"ephemeral-storage": "100Gi"}}
        m.api.change((NODES, "", f"n{i}"), status=room)
    return m


def job(m: Machine, resource: Resource = MPI_JOBS, name: str = "j", **spec: Any) -> None:
    """A launcher and two workers, of one GPU each, so that a node takes one of them."""
    box = {"name": "main", "image": "i", "resources": {"requests": {GPU: "1"}}}
    roles = {
        type_: {"replicas": count, "template": {"spec": {"containers": [box]}}}
        for type_, count in (("Launcher", 1), ("Worker", 2))
    }
    body = {"apiVersion": resource.api_version, "kind": "MPIJob"}
    meta = {"name": name, "namespace": "default"}
    m.api.put(resource, body | {"metadata": meta, "spec": {"mpiReplicaSpecs": roles} | spec})


def test_who_leads_next_knows_its_workers_by_their_own_numbers() -> None:
    """Their labels are one more where the launcher computes, too."""
    m = Machine(replicas=2)
    do.nodes(m, 3)
    job(m, runLauncherAsWorker=True)
    m.rest()
    m.lose()
    m.gain(m.replicas[1])
    members = do.of(m, "j").members.values()
    found = {slot.name: slot.replica.index for slot in members if slot.replica}
    assert found == {"j-launcher": 0, "j-worker-0": 0, "j-worker-1": 1}
    m.finish()


def test_who_leads_next_knows_the_launcher_of_a_job_that_is_named_like_one() -> None:
    """Its pod has no number: what stands behind the last dash is its role."""
    m = Machine(replicas=2)
    do.nodes(m, 3)
    job(m, name="a-launcher")
    m.rest()
    m.lose()
    m.gain(m.replicas[1])
    slot = do.of(m, "a-launcher").members["a-launcher-launcher"]
    assert slot.replica is not None
    assert slot.replica.index == 0
    m.finish()


def hosts(m: Machine) -> list[str]:
    raw = m.api.get(CONFIG_MAPS, "j-config")
    assert raw is not None
    return [line.split()[1] for line in raw["data"]["discover_hosts.sh"].splitlines()[1:]]


def told(m: Machine, reason: str) -> list[str]:
    (replica,) = m.replicas
    return [notice.message for notice in replica.notices if notice.reason == reason]


def foreign(m: Machine, resource: Resource, name: str) -> None:
    meta = {"name": name, "namespace": "default"}
    m.api.put(resource, {"metadata": meta, "data": {"theirs": "x"}})


def test_all_of_it_is_made_and_the_gang_lands_whole() -> None:
    m = machine()
    job(m)
    m.rest()
    assert sorted(m.bound()) == ["j-launcher", "j-worker-0", "j-worker-1"]
    for resource, name in ((SERVICES, "j"), (CONFIG_MAPS, "j-config"), (SECRETS, "j-ssh")):
        assert m.api.get(resource, name) is not None
    secret = m.api.get(SECRETS, "j-ssh")
    assert secret is not None
    assert "data" not in secret  # what is in it, the executor alone knows
    m.finish()


def test_the_old_version_has_an_account_and_its_role() -> None:
    m = machine()
    job(m, OLD_MPI_JOBS)
    m.rest()
    assert len(m.bound()) == 3
    for resource in (SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS):
        assert m.api.get(resource, "j-launcher") is not None
    m.finish()


def test_a_role_that_is_somebody_else_s_is_granted_to_nobody() -> None:
    m = machine()
    foreign(m, ROLES, "j-launcher")
    job(m, OLD_MPI_JOBS)
    m.rest(ADMISSION_SECONDS / 2)
    assert m.api.get(ROLE_BINDINGS, "j-launcher") is None
    said = 'Resource "j-launcher" of Kind "Role" already exists and is not managed by MPIJob'
    assert set(told(m, "ErrResourceExists")) == {said}
    m.api.delete((ROLES, "default", "j-launcher"))
    m.rest()
    assert m.api.get(ROLE_BINDINGS, "j-launcher") is not None
    assert len(m.bound()) == 3
    m.finish()


def test_a_role_that_took_the_name_meanwhile_is_granted_to_nobody() -> None:
    m = machine()
    job(m, OLD_MPI_JOBS)
    m.rest()
    for resource in (ROLES, ROLE_BINDINGS):
        m.api.delete((resource, "default", "j-launcher"))
    foreign(m, ROLES, "j-launcher")
    m.rest(2 * jobsync.LOOK)
    assert m.api.get(ROLE_BINDINGS, "j-launcher") is None
    assert told(m, "ErrResourceExists")
    m.api.delete((ROLES, "default", "j-launcher"))
    m.rest()
    assert m.api.get(ROLE_BINDINGS, "j-launcher") is not None
    m.finish()


def test_what_a_pod_that_starts_cannot_mount_is_there_soon() -> None:
    m = machine()
    m.api.kubelets = False
    job(m)
    m.rest(jobsync.LOOK_STARTING / 2)
    assert len(m.bound()) == 3
    m.api.delete((SECRETS, "default", "j-ssh"))
    m.rest(jobsync.LOOK_STARTING)
    assert m.api.get(SECRETS, "j-ssh") is not None
    m.finish()


def test_no_pod_is_made_before_what_it_mounts() -> None:
    m = machine()
    m.faults.append(Fault("hold", "Create", "Secret"))
    job(m)
    m.rest()
    assert m.api.get(CONFIG_MAPS, "j-config") is not None
    assert m.api.pods() == []
    m.faults.clear()
    m.rest()
    assert len(m.bound()) == 3
    m.finish()


def test_hosts_follow_the_workers_that_run() -> None:
    m = machine()
    job(m)
    m.rest()
    assert hosts(m) == ["j-worker-0.j.default.svc", "j-worker-1.j.default.svc"]
    m.api.change((PODS, "default", "j-worker-0"), status={"phase": "Unknown"})
    m.rest()
    assert hosts(m) == ["j-worker-1.j.default.svc"]
    m.finish()


def test_somebody_else_s_is_left_alone_and_said() -> None:
    m = machine()
    foreign(m, SECRETS, "j-ssh")
    job(m)
    m.rest(ADMISSION_SECONDS / 2)
    assert m.api.pods() == []
    said = 'Resource "j-ssh" of Kind "Secret" already exists and is not managed by MPIJob'
    assert said in told(m, "ErrResourceExists")
    secret = m.api.get(SECRETS, "j-ssh")
    assert secret is not None
    assert secret["data"] == {"theirs": "x"}
    m.api.delete((SECRETS, "default", "j-ssh"))
    m.rest()
    assert len(m.bound()) == 3
    m.finish()


def test_one_that_took_the_name_meanwhile_is_left_alone_and_said() -> None:
    m = machine()
    job(m)
    m.rest()
    m.api.delete(CONFIG)
    foreign(m, CONFIG_MAPS, "j-config")
    m.api.change((PODS, "default", "j-worker-0"), status={"phase": "Unknown"})
    m.rest(ADMISSION_SECONDS / 2)
    config = m.api.get(CONFIG_MAPS, "j-config")
    assert config is not None
    assert config["data"] == {"theirs": "x"}
    assert len(set(told(m, "ErrResourceExists"))) == 1
    m.api.delete(CONFIG)
    m.rest()
    assert hosts(m) == ["j-worker-1.j.default.svc"]
    m.finish()


def test_another_leader_finds_what_is_there_and_brings_it_up_to_date() -> None:
    m = machine()
    job(m)
    m.rest()
    m.lose()
    m.api.change(CONFIG, data={"discover_hosts.sh": "stale"})
    m.gain(m.replicas[0])
    m.rest()
    assert hosts(m) == ["j-worker-0.j.default.svc", "j-worker-1.j.default.svc"]
    assert told(m, "ErrResourceExists") == []
    m.finish()


def test_what_was_deleted_is_made_again_when_it_would_change() -> None:
    m = machine()
    job(m)
    m.rest()
    m.api.delete(CONFIG)
    m.api.change((PODS, "default", "j-worker-0"), status={"phase": "Unknown"})
    m.rest()
    assert hosts(m) == ["j-worker-1.j.default.svc"]
    m.finish()


def test_a_refusal_is_said_and_tried_again() -> None:
    m = machine()
    m.faults.append(Fault("422", "Create", "ConfigMap"))
    job(m)
    m.rest(ADMISSION_SECONDS / 2)
    assert m.api.pods() == []
    (message,) = told(m, "ConfigMap")
    assert message.startswith("ConfigMap j-config could not be written: 422")
    assert "rights" not in message
    m.faults.clear()
    m.rest()
    assert len(m.bound()) == 3
    m.finish()


def test_what_only_another_role_allows_is_said_with_its_name() -> None:
    m = machine()
    m.faults.append(Fault("403", "Create", "Role"))
    job(m, OLD_MPI_JOBS)
    m.rest(ADMISSION_SECONDS / 2)
    (message,) = told(m, "Role")
    assert message.endswith("; the rights for it are in manifests/mpijob-v1")
    m.faults.clear()
    m.rest()
    assert len(m.bound()) == 3
    m.finish()


def test_a_launcher_that_waits_keeps_its_place() -> None:
    """mpi-operator #608: with a gang of all, workers waited for the launcher and it for them."""
    m = machine()
    job(m, launcherCreationPolicy="WaitForWorkersReady")
    m.rest()
    assert sorted(m.bound()) == ["j-worker-0", "j-worker-1"]
    assert [pod["metadata"]["name"] for pod in m.api.pods()] == ["j-worker-0", "j-worker-1"]
    # Nobody gets what is kept for it.
    do.gang(m, "other", 1)
    m.rest()
    assert m.bound("other") == {}
    made_ready(m)
    m.finish()


def made_ready(m: Machine) -> None:
    """Its workers are ready, and so the launcher comes."""
    for index in range(2):
        m.api.change((PODS, "default", f"j-worker-{index}"), status={"conditions": READY})
    m.rest()
    assert sorted(m.bound("j-")) == ["j-launcher", "j-worker-0", "j-worker-1"]


def test_workers_do_not_begin_without_a_place_for_the_launcher() -> None:
    m = machine(2)
    job(m, launcherCreationPolicy="WaitForWorkersReady")
    m.rest()
    # By now its pods are there to be seen by autoscalers, the launcher's too.
    assert m.bound() == {}
    do.node(m, "n2", 1)
    m.rest()
    assert sorted(m.bound()) == ["j-worker-0", "j-worker-1"]
    made_ready(m)
    m.finish()


def test_a_launcher_whose_pod_was_being_made_to_be_seen_waits_all_the_same() -> None:
    """Chaos seed 80205: it was let through, as its place was there when the answer came."""
    m = machine(2)
    hold = Fault("hold", verb="Create", kind="Pod", name="j-launcher")
    m.faults.append(hold)
    job(m, launcherCreationPolicy="WaitForWorkersReady")
    m.rest()
    assert [pod["metadata"]["name"] for pod in m.api.pods()] == ["j-worker-0", "j-worker-1"]
    do.node(m, "n2", 1)
    m.rest(10)
    assert sorted(m.bound()) == ["j-worker-0", "j-worker-1"]
    m.faults.clear()
    m.rest(10)
    assert len(m.api.pods()) == 3
    assert sorted(m.bound()) == ["j-worker-0", "j-worker-1"]
    made_ready(m)
    m.finish()


def test_a_launcher_does_not_wait_for_a_worker_that_lacks_its_place() -> None:
    """Chaos seed 80116: one worker was enough, and the other had no room beside the launcher's place."""
    m = machine(2)
    policy = {"schedulingPolicy": {"minAvailable": 1}}
    job(m, launcherCreationPolicy="WaitForWorkersReady", runPolicy=policy)
    m.rest()
    (first,) = m.bound()
    m.api.change((PODS, "default", first), status={"conditions": READY})
    m.rest()
    assert sorted(m.bound()) == ["j-launcher", first]
    do.node(m, "n2", 1)
    m.rest()
    assert sorted(m.bound()) == ["j-launcher", "j-worker-0", "j-worker-1"]
    m.finish()


def test_a_worker_that_is_lost_meanwhile_is_made_again() -> None:
    m = machine()
    job(m, launcherCreationPolicy="WaitForWorkersReady")
    m.rest()
    m.api.delete((PODS, "default", "j-worker-1"))
    m.rest()
    assert sorted(m.bound()) == ["j-worker-0", "j-worker-1"]
    do.gang(m, "other", 1)
    m.rest()
    assert m.bound("other") == {}
    made_ready(m)
    m.finish()


def shown(m: Machine) -> dict[str, Any]:
    """Status of the launcher's Job, its conditions by type alone."""
    raw = m.api.get(BATCH_JOBS, "j-launcher")
    assert raw is not None
    status = dict(raw.get("status") or {})
    return {**status, "conditions": [each["type"] for each in status.get("conditions") or ()]}


def ended(m: Machine, phase: str) -> None:
    m.api.change((PODS, "default", "j-launcher"), status={"phase": phase})
    m.rest()


def test_the_launcher_s_job_shows_what_becomes_of_it() -> None:
    m = machine()
    job(m)
    m.rest()
    assert shown(m)["active"] == 1
    m.lose()
    m.gain(m.replicas[0])
    ended(m, "Succeeded")
    found = shown(m)
    assert (found["active"], found["succeeded"]) == (0, 1)
    assert found["conditions"] == ["SuccessCriteriaMet", "Complete"]
    assert told(m, "Job") == []
    m.finish()


def test_it_holds_up_nobody_where_it_may_not_be_made() -> None:
    m = machine()
    m.faults.append(Fault("403", "Create", "Job"))
    job(m)
    m.rest(jobsync.LOOK / 2)
    assert len(m.bound()) == 3
    (message,) = told(m, "Job")
    assert message.startswith("Job j-launcher could not be written: 403")
    assert message.endswith("; the rights for it are in manifests/mpijob")
    m.faults.clear()
    m.rest(jobsync.LOOK)
    assert shown(m)["active"] == 1
    m.finish()


def test_nor_where_its_status_may_not_be_written() -> None:
    m = machine()
    m.faults.append(Fault("422", "Patch", "Job"))
    job(m)
    m.rest(jobsync.LOOK / 2)
    assert len(m.bound()) == 3
    assert len(told(m, "Job")) == 1
    m.faults.clear()
    m.rest(jobsync.LOOK)
    assert shown(m)["active"] == 1
    m.finish()


def test_one_of_its_name_that_is_somebody_else_s_is_left_alone() -> None:
    m = machine()
    foreign(m, BATCH_JOBS, "j-launcher")
    before = m.api.get(BATCH_JOBS, "j-launcher")
    job(m)
    m.rest(ADMISSION_SECONDS / 2)
    assert len(m.bound()) == 3
    assert len(told(m, "ErrResourceExists")) == 1
    ended(m, "Succeeded")
    assert m.api.get(BATCH_JOBS, "j-launcher") == before
    m.finish()


def test_what_shows_an_end_and_is_deleted_stays_away() -> None:
    m = machine()
    job(m)
    m.rest()
    m.api.delete((BATCH_JOBS, "default", "j-launcher"))
    m.rest()
    assert shown(m)["active"] == 1
    ended(m, "Succeeded")
    m.api.delete((BATCH_JOBS, "default", "j-launcher"))
    m.rest(2 * jobsync.LOOK)
    assert m.api.get(BATCH_JOBS, "j-launcher") is None
    m.finish()
