"""kubeflow.org/v1 PaddleJob.

Source: kubeflow/trainer v1.9.4, pkg/controller.v1/paddlepaddle. As there, spec.elasticPolicy is
accepted and has no effect.
"""

from __future__ import annotations

from extender.core.api import PADDLE_JOBS
from extender.core.errors import Faults
from extender.core.framework import Replica
from extender.core.objects import Manifest
from extender.jobs.lifecycle import TrainingKind
from extender.jobs.model import KindFacts, TrainingJob
from extender.jobs.pods import Env


class PaddleJob(TrainingKind):
    """Workers that train collectively; with masters, these serve parameters."""

    resource = PADDLE_JOBS
    facts = KindFacts(
        api_version=PADDLE_JOBS.api_version,
        kind=PADDLE_JOBS.kind,
        specs_key="paddleReplicaSpecs",
        roles=("Master", "Worker"),
        container="paddle",
        port_name="master",
        port=36543,
        restart_policy="OnFailure",
        operator="paddlejob-controller",
        worker_leads=False,
    )

    def check(self, job: TrainingJob, faults: Faults) -> None:
        """There is nothing that only this kind forbids."""

    def static(self, job: TrainingJob) -> bool:
        """Where workers train collectively; parameter servers take a trainer in again."""
        return job.role("master") is None

    def meets(self, job: TrainingJob, replica: Replica) -> tuple[str, int] | None:
        """The first replica, where launch's master is."""
        first = job.roles[0]
        if (replica.role, replica.index) == (first.name, 0):
            return None
        return job.pod_name(first.name, 0), first.port

    def env(self, job: TrainingJob, replica: Replica) -> Env:
        """What ``python -m paddle.distributed.launch`` reads."""
        master = job.role("master")
        values = {
            "PYTHONUNBUFFERED": "1",
            "PADDLE_JOB_ID": job.name,
            "PADDLE_NNODES": str(job.total),
        }
        if master:
            # Each pod runs one server, or one trainer.
            one = "PADDLE_SERVER_NUM" if replica.role == master.name else "PADDLE_TRAINER_NUM"
            values[one] = "1"
        env: Env = [{"name": name, "value": value} for name, value in values.items()]
        return env + _meeting_point(job, replica)


def _meeting_point(job: TrainingJob, replica: Replica) -> list[Manifest]:
    """The first replica listens, and is told its own address by number: launch compares it with
    the addresses of the pod to know that it is the one.
    """
    first = job.roles[0]
    if (replica.role, replica.index) != (first.name, 0):
        return [{"name": "PADDLE_MASTER", "value": f"{job.pod_name(first.name, 0)}:{first.port}"}]
    own = {"fieldRef": {"fieldPath": "status.podIP"}}
    return [
        # $(…) is expanded from what stands before it.
        {"name": "POD_IP_DUMMY", "valueFrom": own},
        {"name": "PADDLE_MASTER", "value": f"$(POD_IP_DUMMY):{first.port}"},
    ]
