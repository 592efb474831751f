"""kubeflow.org/v1 TFJob.

Source: kubeflow/trainer v1.9.4, pkg/controller.v1/tensorflow. Difference, on account of what its
users report (#1560): a replica that is made again never fails the job, whatever came before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from extender.core.api import TF_JOBS
from extender.core.errors import Faults, InvalidObject
from extender.core.framework import Replica
from extender.jobs import fields
from extender.jobs.kind import Words
from extender.jobs.lifecycle import TrainingKind
from extender.jobs.model import KindFacts, Role, TrainingJob
from extender.jobs.pods import Env
from extender.jobs.rollcall import Tally

_ALL_WORKERS: Final = "AllWorkers"


class TFJob(TrainingKind):
    """Workers with or without a chief, parameter servers and an evaluator."""

    resource = TF_JOBS
    facts = KindFacts(
        api_version=TF_JOBS.api_version,
        kind=TF_JOBS.kind,
        specs_key="tfReplicaSpecs",
        roles=("Chief", "Evaluator", "Master", "PS", "Worker"),
        container="tensorflow",
        port_name="tfjob-port",
        port=2222,
        restart_policy="Never",
        operator="tfjob-controller",
        heads=("Chief", "Master"),
        env_everywhere=False,
        aside=("Evaluator",),
    )

    def check(self, job: TrainingJob, faults: Faults) -> None:
        """Chief and Master are two names for one thing."""
        heads = [role.type for role in job.roles if role.type in self.facts.heads]
        with faults:
            if len(heads) > 1:
                raise InvalidObject("spec.tfReplicaSpecs", heads, "at most one of Chief and Master")
        faults.keep(False, fields.flag, job.spec, "enableDynamicWorker", "spec")
        policy = fields.text(job.spec, "successPolicy", "spec")
        if policy not in ("", _ALL_WORKERS):
            raise InvalidObject("spec.successPolicy", policy, f"{_ALL_WORKERS}, or nothing")

    def static(self, job: TrainingJob) -> bool:
        """Unless parameter servers keep what is trained, or workers may come and go."""
        return job.role("ps") is None and not job.spec.get("enableDynamicWorker")

    def succeeded(self, job: TrainingJob, tallies: Mapping[str, Tally]) -> bool:
        """The chief decides; without one worker 0, or all workers where successPolicy says so."""
        first_decides = (
            self.head(job) is None
            and job.role("worker") is not None
            and job.spec.get("successPolicy") != _ALL_WORKERS
        )
        if first_decides and tallies["worker"].first_succeeded:
            return True
        return super().succeeded(job, tallies)

    def tolerates(self, job: TrainingJob, role: Role, tally: Tally) -> bool:
        """Dynamic workers come and go: without a chief the job has failed when the last one has."""
        if role.name != "worker" or not job.spec.get("enableDynamicWorker"):
            return False
        return self.head(job) is not None or tally.succeeded + tally.broken < role.replicas

    def words(self, job: TrainingJob) -> Words:
        """With its namespace throughout."""
        full = f"{self.facts.kind} {job.namespace}/{job.name}"
        running, succeeded = f"{full} is running.", f"{full} successfully completed."
        return Words(running, succeeded, failed=f"{full} has failed because")

    def env(self, job: TrainingJob, replica: Replica) -> Env:
        """TF_CONFIG, which tf.distribute reads; none for a replica that is alone."""
        if job.total == 1:
            return []
        config = _sparse(job, replica) if job.spec.get("enableDynamicWorker") else _whole(job)
        config["task"] = {"type": replica.role, "index": replica.index}
        if not job.spec.get("enableDynamicWorker"):
            config["environment"] = "cloud"
        return [{"name": "TF_CONFIG", "value": msgspec.json.encode(config).decode()}]


def _whole(job: TrainingJob) -> dict[str, Any]:
    """Everybody's addresses, by role in order of names."""
    roles = sorted(job.roles, key=lambda role: role.name)
    return {"cluster": {role.name: _addresses(job, role) for role in roles}}


def _sparse(job: TrainingJob, replica: Replica) -> dict[str, Any]:
    """What a replica has to know where workers come and go: a worker itself and the parameter
    servers, a parameter server itself.
    """
    servers = job.role("ps")
    own = _address(job, job.role(replica.role), replica.index)
    worker: dict[str, str] = {}
    ps: list[str] = []
    if replica.role == "worker":
        worker = {str(replica.index): own}
        ps = _addresses(job, servers) if servers else []
    elif replica.role == "ps":
        ps = [own]
    return {"cluster": {"worker": worker, "ps": ps}}


def _addresses(job: TrainingJob, role: Role) -> list[str]:
    return [_address(job, role, index) for index in range(role.replicas)]


def _address(job: TrainingJob, role: Role | None, index: int) -> str:
    """A name that resolves in every namespace, with the port of the replica's role."""
    assert role is not None, "a replica's role is one of its job's"
    return f"{job.pod_name(role.name, index)}.{job.namespace}.svc:{role.port}"
