"""kubeflow.org/v1 JAXJob.

Source: kubeflow/trainer v1.9.4, pkg/controller.v1/jax.
"""

from __future__ import annotations

from extender.core.api import JAX_JOBS
from extender.core.errors import Faults
from extender.core.framework import Replica
from extender.jobs.lifecycle import TrainingKind
from extender.jobs.model import KindFacts, TrainingJob
from extender.jobs.pods import Env


class JAXJob(TrainingKind):
    """Equal processes, of which the first is jax.distributed's coordinator."""

    resource = JAX_JOBS
    facts = KindFacts(
        api_version=JAX_JOBS.api_version,
        kind=JAX_JOBS.kind,
        specs_key="jaxReplicaSpecs",
        roles=("Worker",),
        container="jax",
        port_name="jaxjob-port",
        port=6666,
        restart_policy="Never",
        operator="jaxjob-controller",
    )

    def check(self, job: TrainingJob, faults: Faults) -> None:
        """There is nothing that only this kind forbids."""

    def meets(self, job: TrainingJob, replica: Replica) -> tuple[str, int] | None:
        """The coordinator."""
        worker = job.role("worker")
        assert worker is not None, "it is the only replica type"
        return (job.pod_name("worker", 0), worker.port) if replica.index else None

    def dialled(self, job: TrainingJob, replica: Replica) -> bool:
        """The coordinator."""
        return replica.index == 0

    def env(self, job: TrainingJob, replica: Replica) -> Env:
        """The arguments of jax.distributed.initialize; the address has no port in it."""
        worker = job.role("worker")
        assert worker is not None, "it is the only replica type"
        values = {
            "PYTHONUNBUFFERED": "1",
            "COORDINATOR_ADDRESS": job.pod_name("worker", 0),
            "COORDINATOR_PORT": str(worker.port),
            "NUM_PROCESSES": str(job.total),
            "PROCESS_ID": str(replica.index),
        }
        return [{"name": name, "value": value} for name, value in values.items()]
