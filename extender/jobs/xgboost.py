"""kubeflow.org/v1 XGBoostJob, which serves LightGBM as well.

Source: kubeflow/trainer v1.9.4, pkg/controller.v1/xgboost. Difference, on account of what users
report of all kinds (#1570): a pod that was evicted is made again under OnFailure and Always, too.
"""

from __future__ import annotations

from extender.core.api import XGBOOST_JOBS
from extender.core.errors import Faults, InvalidObject
from extender.core.framework import Replica
from extender.jobs.lifecycle import TrainingKind
from extender.jobs.model import KindFacts, TrainingJob
from extender.jobs.pods import Env


class XGBoostJob(TrainingKind):
    """One master, which is rank 0 and runs the tracker, and workers."""

    resource = XGBOOST_JOBS
    facts = KindFacts(
        api_version=XGBOOST_JOBS.api_version,
        kind=XGBOOST_JOBS.kind,
        specs_key="xgbReplicaSpecs",
        roles=("Master", "Worker"),
        container="xgboost",
        port_name="xgboostjob-port",
        port=9999,
        restart_policy="Never",
        operator="xgboostjob-controller",
    )

    def check(self, job: TrainingJob, faults: Faults) -> None:
        """Exactly one master."""
        master = job.role("master")
        if master is None:
            types = [role.type for role in job.roles]
            raise InvalidObject("spec.xgbReplicaSpecs", types, "one Master, and Worker if wanted")
        if master.replicas != 1:
            path = "spec.xgbReplicaSpecs.Master.replicas"
            raise InvalidObject(path, master.replicas, "exactly 1")

    def env(self, job: TrainingJob, replica: Replica) -> Env:
        """What Rabit's tracker and its workers read; and LightGBM's list of machines."""
        master, worker = job.role("master"), job.role("worker")
        assert master is not None, "check() refuses a job without one"
        rank = replica.index + (master.replicas if replica.role == "worker" else 0)
        values = {
            "MASTER_PORT": str(master.port),
            "MASTER_ADDR": job.pod_name("master", 0),
            "WORLD_SIZE": str(job.total),
            "RANK": str(rank),
            "PYTHONUNBUFFERED": "1",
        }
        if worker:
            names = (job.pod_name("worker", index) for index in range(worker.replicas))
            values["WORKER_PORT"] = str(worker.port)
            values["WORKER_ADDRS"] = ",".join(names)
        return [{"name": name, "value": value} for name, value in values.items()]
