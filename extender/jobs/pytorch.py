"""kubeflow.org/v1 PyTorchJob.

Source: kubeflow/trainer v1.9.4, pkg/controller.v1/pytorch/{envvar,master,elastic}.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from extender.core.api import PYTORCH_JOBS
from extender.core.errors import Faults, InvalidObject
from extender.core.framework import Replica
from extender.core.objects import Manifest
from extender.core.quantity import count
from extender.jobs import fields
from extender.jobs import pods as objects
from extender.jobs.lifecycle import TrainingKind
from extender.jobs.model import KindFacts, Role, TrainingJob
from extender.jobs.pods import Env
from extender.jobs.rollcall import Tally

_BACKENDS: Final = ("c10d", "etcd", "etcd-v2")


class PyTorchJob(TrainingKind):
    """One master and its workers, or workers alone under torchrun's rendezvous."""

    resource = PYTORCH_JOBS
    facts = KindFacts(
        api_version=PYTORCH_JOBS.api_version,
        kind=PYTORCH_JOBS.kind,
        specs_key="pytorchReplicaSpecs",
        roles=("Master", "Worker"),
        container="pytorch",
        port_name="pytorchjob-port",
        port=23456,
        restart_policy="OnFailure",
        operator="pytorchjob-controller",
    )

    def check(self, job: TrainingJob, faults: Faults) -> None:
        """One master at most; an elastic job has workers, and its bounds are in order."""
        master = job.role("master")
        with faults:
            if master and master.replicas != 1:
                path = "spec.pytorchReplicaSpecs.Master.replicas"
                raise InvalidObject(path, master.replicas, "exactly 1")
        with faults:
            elastic = _elastic(job)
            if elastic is not None:
                _check_elastic(job, elastic, faults)
        nproc = job.spec.get("nprocPerNode")
        if nproc is not None and (isinstance(nproc, bool) or not isinstance(nproc, str | int)):
            raise InvalidObject("spec.nprocPerNode", nproc, "a number, auto, cpu or gpu")

    def static(self, job: TrainingJob) -> bool:
        """Unless it is elastic: torchrun's rendezvous takes in who comes back."""
        return _elastic(job) is None

    def succeeded(self, job: TrainingJob, tallies: Mapping[str, Tally]) -> bool:
        """The master decides; without one all workers, of an elastic job any worker."""
        if _elastic(job) is not None and not job.role("master"):
            return tallies["worker"].succeeded > 0
        return super().succeeded(job, tallies)

    def autoscaler(self, job: TrainingJob) -> Manifest | None:
        """One where elasticPolicy names metrics; a job that is not elastic never had any."""
        elastic, worker = _elastic(job), job.role("worker")
        if elastic is None or worker is None:
            return None
        if elastic.get("metrics") is None:
            return {}
        metrics = fields.items(elastic, "metrics", "spec.elasticPolicy")
        return objects.autoscaler(job, *_bounds(worker, elastic), metrics)

    def meets(self, job: TrainingJob, replica: Replica) -> tuple[str, int] | None:
        """The master; without one torchrun's store, where that is in worker 0."""
        master, worker = job.role("master"), job.role("worker")
        if master:
            return (job.pod_name("master", 0), master.port) if replica.role == "worker" else None
        elastic = _elastic(job)
        if worker is None or elastic is None or replica.index == 0:
            return None
        elsewhere = elastic.get("rdzvHost") or (elastic.get("rdzvBackend") or "c10d") != "c10d"
        if elsewhere or elastic.get("standalone"):
            return None
        return job.pod_name("worker", 0), elastic.get("rdzvPort") or worker.port

    def dialled(self, job: TrainingJob, replica: Replica) -> bool:
        """The master, or the worker that torchrun's rendezvous is at."""
        return replica.index == 0 and (replica.role == "master" or not job.role("master"))

    def env(self, job: TrainingJob, replica: Replica) -> Env:
        """What torch.distributed and torchrun (its ``PET_`` variables) read."""
        values = {"PYTHONUNBUFFERED": "1"}
        if master := job.role("master"):
            values |= _env_of_master(job, master, replica)
        elastic = _elastic(job)
        nproc = job.spec.get("nprocPerNode")
        if nproc is None and elastic is not None:
            nproc = elastic.get("nProcPerNode")  # deprecated upstream
        values["PET_NPROC_PER_NODE"] = "auto" if nproc is None else str(nproc)
        if elastic is not None:
            values |= _env_of_elastic(job, elastic)
        else:
            values["PET_NNODES"] = str(job.total)
        return [{"name": name, "value": value} for name, value in values.items()]


def _elastic(job: TrainingJob) -> Manifest | None:
    """spec.elasticPolicy, with which a job is elastic even if it says nothing; None: it is not."""
    said = job.spec.get("elasticPolicy") is not None
    return fields.mapping(job.spec, "elasticPolicy", "spec") if said else None


def _env_of_master(job: TrainingJob, master: Role, replica: Replica) -> dict[str, str]:
    address = job.pod_name("master", 0)
    rank = str(0 if replica.role == "master" else replica.index + 1)
    return {
        "MASTER_PORT": str(master.port),
        "PET_MASTER_PORT": str(master.port),
        "MASTER_ADDR": address,
        "PET_MASTER_ADDR": address,
        "WORLD_SIZE": str(job.total * _processes(job)),
        "RANK": rank,
        "PET_NODE_RANK": rank,
    }


def _processes(job: TrainingJob) -> int:
    """Processes per replica where spec.nprocPerNode is a number; its words count as 1."""
    nproc = str(job.spec.get("nprocPerNode", ""))
    number = count(nproc)
    return 1 if number is None else number


def _env_of_elastic(job: TrainingJob, elastic: Manifest) -> dict[str, str]:
    worker = job.role("worker")
    assert worker is not None, "check() refuses an elastic job without workers"
    least, most = _bounds(worker, elastic)
    host = elastic.get("rdzvHost") or job.pod_name("worker", 0)
    values = {
        "PET_NNODES": f"{least}:{most}",
        "PET_RDZV_ENDPOINT": f"{host}:{elastic.get('rdzvPort') or worker.port}",
        "PET_RDZV_BACKEND": str(elastic.get("rdzvBackend") or "c10d"),
    }
    if elastic.get("maxRestarts") is not None:
        values["PET_MAX_RESTARTS"] = str(elastic["maxRestarts"])
    if elastic.get("rdzvId") is not None:
        values["PET_RDZV_ID"] = str(elastic["rdzvId"])
    if conf := elastic.get("rdzvConf"):
        values["PET_RDZV_CONF"] = ",".join(f"{pair['key']}={pair['value']}" for pair in conf)
    if elastic.get("standalone"):
        values["PET_STANDALONE"] = ""
    return values


def _bounds(worker: Role, elastic: Manifest) -> tuple[int, int]:
    """Least and most workers; one that is missing is as the other, both as Worker.replicas."""
    path = "spec.elasticPolicy"
    least = fields.whole(elastic, "minReplicas", path, least=1)
    most = fields.whole(elastic, "maxReplicas", path, least=1)
    return least or most or worker.replicas, most or least or worker.replicas


def _check_elastic(job: TrainingJob, elastic: Manifest, faults: Faults) -> None:
    path = "spec.elasticPolicy"
    for key, least_of in (("rdzvPort", 1), ("nProcPerNode", 1), ("maxRestarts", 0)):
        faults.keep(None, fields.whole, elastic, key, path, least=least_of)
    faults.keep("", fields.choice, elastic, "rdzvBackend", path, _BACKENDS, "c10d")
    faults.keep([], fields.items, elastic, "metrics", path)
    for pair in faults.keep([], fields.items, elastic, "rdzvConf", path):
        with faults:
            if not {"key", "value"} <= pair.keys():
                raise InvalidObject(f"{path}.rdzvConf", pair, "key and value")
    worker = job.role("worker")
    if worker is None:
        types = [role.type for role in job.roles]
        raise InvalidObject("spec.pytorchReplicaSpecs", types, "an elastic job has Worker")
    least, most = _bounds(worker, elastic)
    if least > most:
        raise InvalidObject(f"{path}.minReplicas", least, f"at most maxReplicas ({most})")
