"""One dry run serves the jobs of a namespace whose pods are alike: what is told by it, and what not."""

from __future__ import annotations

from typing import Any

from extender.core import commands as c
from extender.core.api import MPI_JOBS, NODES, PODS, PYTORCH_JOBS
from extender.core.gang import Gang, Slot
from extender.core.job import Admission
from extender.core.reasons import Code, refuse
from tests.builders import GPU
from tests.core import machine_stories as do
from tests.core.machine import Fault, Machine

NAME_LABEL = "training.kubeflow.org/job-name"


def job(m: Machine, name: str, **spec: Any) -> None:
    """Workers of one GPU each, two if ``replicas`` does not say so."""
    box = {"name": "pytorch", "image": "train", "resources": {"requests": {GPU: "1"}}}
    box |= {"env": spec.pop("env", [])}
    replicas = spec.pop("replicas", 2)
    role = {"replicas": replicas, "template": {"spec": {"containers": [box], **spec}}}
    do_job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
    meta = {"name": name, "namespace": "default"}
    specs = {"pytorchReplicaSpecs": {"Worker": role}}
    m.api.put(PYTORCH_JOBS, do_job | {"metadata": meta, "spec": specs})


def dry_runs(m: Machine) -> list[str]:
    """Names of the pods that are asked about from here on."""
    asked: list[str] = []
    carry_out = m.api.carry_out

    def kept(command: c.Command) -> Any:
        if isinstance(command, c.Create) and command.dry_run:
            asked.append(command.body["metadata"]["name"])
        return carry_out(command)

    m.api.carry_out = kept  # type: ignore[method-assign]
    return asked


def zones(m: Machine, **gpus: int) -> None:
    """A node in each zone."""
    for zone, count in gpus.items():
        do.node(m, f"n-{zone}", count)
        m.api.change((NODES, "", f"n-{zone}"), metadata={"labels": {"zone": zone}})


def together() -> dict[str, Any]:
    """A job's pods in one zone, whichever job it is."""
    term = {
        "topologyKey": "zone",
        "labelSelector": {"matchLabels": {"training.kubeflow.org/replica-type": "worker"}},
        "matchLabelKeys": [NAME_LABEL],
    }
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def resolved(m: Machine) -> None:
    """The API server writes the values of matchLabelKeys into the selector (since 1.29)."""
    carry_out = m.api.carry_out

    def merged(command: c.Command) -> Any:
        code, made = carry_out(command)
        if isinstance(command, c.Create) and command.resource == PODS and code == 201:
            assert made is not None
            required = "requiredDuringSchedulingIgnoredDuringExecution"
            for term in made["spec"]["affinity"]["podAffinity"][required]:
                value = made["metadata"]["labels"][NAME_LABEL]
                row = {"key": NAME_LABEL, "operator": "In", "values": [value]}
                term["labelSelector"]["matchExpressions"] = [row]
        return code, made

    m.api.carry_out = merged  # type: ignore[method-assign]


def places(gang: Gang) -> set[str]:
    return {slot.node for slot in gang.members.values()}


def test_jobs_that_are_alike_are_asked_about_once() -> None:
    m = Machine()
    do.nodes(m, 2, gpus=4)
    asked = dry_runs(m)
    for name in ("a", "b", "c"):
        job(m, name, env=[{"name": "NCCL_DEBUG", "value": "INFO"}])
    m.rest()
    m.finish()
    assert len(m.bound()) == 6
    assert asked == ["a-worker-0", "a-worker-1"]


def test_a_job_stays_with_itself_and_not_with_the_one_that_was_asked_about() -> None:
    m = Machine()
    zones(m, x=2, y=2)
    job(m, "a", affinity=together())
    m.flush()
    job(m, "b", affinity=together())
    m.flush()
    assert len(m.bound()) == 4
    assert {frozenset(places(do.of(m, name))) for name in "ab"} == {
        frozenset({"n-x"}),
        frozenset({"n-y"}),
    }


def test_what_admission_writes_of_one_jobs_name_is_no_answer_for_another() -> None:
    m = Machine()
    zones(m, x=2, y=2)
    resolved(m)
    asked = dry_runs(m)
    for name in "ab":
        job(m, name, affinity=together())
    m.rest()
    m.finish()
    assert len(m.bound()) == 4
    assert {frozenset(places(do.of(m, name))) for name in "ab"} == {
        frozenset({"n-x"}),
        frozenset({"n-y"}),
    }
    assert sorted(asked) == ["a-worker-0", "a-worker-1", "b-worker-0", "b-worker-1"]


def test_a_policy_on_environment_refuses_whom_it_is_about_alone() -> None:
    """As many clusters have: NVIDIA_VISIBLE_DEVICES=all goes round the device plugin."""
    m = Machine()
    do.nodes(m, 2, gpus=2)

    def refuses(body: dict[str, Any]) -> str:
        sees = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
        return "not all devices" if sees in body["spec"]["containers"][0]["env"] else ""

    m.api.admission = refuses
    job(m, "bad", env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}])
    m.flush()
    assert do.reason(m, "bad") == "AdmissionRefused"
    job(m, "good", env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}])
    m.flush()
    assert len(m.bound("good")) == 2


def test_jobs_of_mpi_are_alike_though_each_mounts_its_own_keys() -> None:
    m = Machine()
    do.nodes(m, 6)
    asked = dry_runs(m)
    for name in ("a", "b"):
        box = {"name": "main", "image": "i", "resources": {"requests": {GPU: "1"}}}
        roles = {
            type_: {"replicas": count, "template": {"spec": {"containers": [box]}}}
            for type_, count in (("Launcher", 1), ("Worker", 2))
        }
        body = {"apiVersion": MPI_JOBS.api_version, "kind": "MPIJob"}
        meta = {"name": name, "namespace": "default"}
        m.api.put(MPI_JOBS, body | {"metadata": meta, "spec": {"mpiReplicaSpecs": roles}})
    m.rest()
    assert len(m.bound()) == 6
    assert sorted(name.partition("-")[2] for name in asked) == ["launcher", "worker-0"]
    m.finish()


def test_a_job_that_fails_to_be_made_asks_again_about_its_own_pods_alone() -> None:
    m = Machine()
    do.nodes(m, 4)
    assert m.leader is not None
    known = m.leader.state.admissions
    others = [("default", "another form"), ("elsewhere", "another form")]
    for key in others:
        known[key] = Admission(at=m.now, answer=refuse(Code.ADMISSION, pod="p", message=""))
    asked = dry_runs(m)
    m.faults.append(Fault("403", verb="Create", kind="Pod", name="j-", times=1))
    job(m, "j")
    m.flush()
    assert m.leader.state.counters["rollbacks"] == 1
    assert asked == ["j-worker-0", "j-worker-1", "j-worker-1"]
    assert set(others) < set(known)
    m.rest(60)
    assert set(m.bound()) == {"j-worker-0", "j-worker-1"}
    assert not known


def test_a_first_replica_with_a_label_of_its_own_is_planned_as_it_is_admitted() -> None:
    """Worker 0 leads where there is no Master, and says so in a label. The others were planned with
    its shape, and their places changed once more as each pod was shown.
    """
    m = Machine()
    asked = dry_runs(m)
    do.node(m, "n", 2)
    job(m, "train")
    assert m.leader is not None
    changed: list[str] = []
    assign = m.leader.state.assign

    def noted(gang: Gang, slot: Slot, node: str) -> None:
        changed.append(slot.name)
        assign(gang, slot, node)

    m.leader.state.assign = noted  # type: ignore[method-assign]
    m.flush()
    assert asked == ["train-worker-0", "train-worker-1"]
    assert set(m.bound()) == set(asked)
    assert changed == []
