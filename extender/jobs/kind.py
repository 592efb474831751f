"""What a kind of training job says of itself; most of it is the same for all of them.

Source: kubeflow/trainer v1.9.4, pkg/controller.v1, each kind's UpdateJobStatus and IsMasterRole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from extender.core.api import Resource
from extender.core.errors import Faults, InvalidObject
from extender.core.framework import Child, Replica
from extender.core.objects import Manifest
from extender.jobs import capacity, meeting, restarts
from extender.jobs import pods as objects
from extender.jobs.model import KindFacts, Role, TrainingJob, read
from extender.jobs.pods import Env
from extender.jobs.rollcall import RollCall, Tally

#: Bytes of one variable, with its name and =, that Linux lets a program start with (MAX_ARG_STRLEN
#: less the byte that ends it).
LONGEST_VARIABLE: Final = 131_071
#: No list of addresses of so few replicas is longer than that: each is a name, a namespace and a port.
_SHORT: Final = 800
#: Why a job failed that no replica's end failed, in the words of its status.
BACKOFF: Final = "it has reached the specified backoff limit"
DEADLINE: Final = "it was active longer than specified deadline"


class Words(Struct, frozen=True):
    """Messages of a job's conditions in its operator's words, which people look for."""

    running: str
    succeeded: str
    #: Followed by how many replicas did.
    failed: str


class Kind(ABC):
    """The facts of a kind, and what its framework asks for."""

    resource: Resource
    facts: KindFacts
    #: runPolicy.managedBy of jobs that this controller runs; absent means the same.
    managed_by = "kubeflow.org/training-operator"

    def takes(self, job: Manifest) -> bool:
        """Whether an object of this resource is this kind's."""
        return True

    @abstractmethod
    def check(self, job: TrainingJob, faults: Faults) -> None:
        """Add to the faults what this kind does not allow. A single one may be raised."""

    @abstractmethod
    def env(self, job: TrainingJob, replica: Replica) -> Env:
        """Environment variables of the replica's containers."""

    def head(self, job: TrainingJob) -> Role | None:
        """The role that speaks for the whole job, if it has one."""
        return next((role for role in job.roles if role.type in self.facts.heads), None)

    def leads(self, job: TrainingJob, replica: Replica) -> bool:
        """Whether the replica carries the label job-role: master."""
        if head := self.head(job):
            return replica.role == head.name
        return self.facts.worker_leads and (replica.role, replica.index) == ("worker", 0)

    def succeeded(self, job: TrainingJob, tallies: Mapping[str, Tally]) -> bool:
        """Whether the job as a whole has succeeded: all whose success counts have."""
        return all(tallies[role.name].succeeded >= role.replicas for role in self._voices(job))

    def running(self, job: TrainingJob, tallies: Mapping[str, Tally]) -> bool:
        """Whether the job as a whole runs: any whose success counts does."""
        return any(tallies[role.name].active for role in self._voices(job))

    def autoscaler(self, job: TrainingJob) -> Manifest | None:
        """The HorizontalPodAutoscaler of an elastic job, empty for none; None: it is no such kind."""
        return None

    def words(self, job: TrainingJob) -> Words:
        """Messages of its conditions. Where no head speaks for the job, its namespace is named."""
        who, kind = job.name, self.facts.kind
        full = f"{job.namespace}/{who}"
        led = self.head(job) is not None
        return Words(
            running=f"{kind} {who if led else full} is running.",
            succeeded=f"{kind} {f'{who} is' if led else full} successfully completed.",
            failed=f"{kind} {who} is failed because",
        )

    def cause(self, job: TrainingJob, roll: RollCall, ended: str, why: str = "") -> str:
        """Reason of the condition that the job has ended with, in its operator's word. ``why``: one of
        :data:`BACKOFF` and :data:`DEADLINE`, where it is neither its success nor a replica's end.
        """
        return f"{self.facts.kind}{ended}"

    def children(self, job: TrainingJob, roll: RollCall) -> tuple[Child, ...]:
        """What the job needs beside its pods and their Services."""
        return ()

    def later(self, job: TrainingJob, roll: RollCall) -> frozenset[str]:
        """Names of replicas that get their places with the others, and are made later."""
        return frozenset()

    def meets(self, job: TrainingJob, replica: Replica) -> tuple[str, int] | None:
        """Host and port that the replica dials as it starts, where a connection may be tried; or None."""
        return None

    def dialled(self, job: TrainingJob, replica: Replica) -> bool:
        """Whether other replicas are told this one's address, so that its Service is waited for."""
        return True

    def tolerates(self, job: TrainingJob, role: Role, tally: Tally) -> bool:
        """Whether the job goes on without the broken replicas of a role."""
        return False

    def static(self, job: TrainingJob) -> bool:
        """Whether its processes cannot go on without one of them, nor take one in again."""
        return True

    def _voices(self, job: TrainingJob) -> tuple[Role, ...]:
        """The head; without one the workers; a job without workers is all that it has."""
        voice = self.head(job) or job.role("worker")
        return (voice,) if voice else job.roles

    def pod(self, job: Manifest, replica: Replica) -> Manifest:
        """The replica's pod, complete but for scheduler name, pin and Muster's own marks.

        Raises InvalidObject if the job has changed since the replica was wanted and is invalid now.
        """
        parsed, role = self._role(job, replica)
        env = self.env(parsed, replica)
        leads = self.leads(parsed, replica)
        made = objects.pod(parsed, self.facts, role, replica, env, leads=leads)
        image, point = meeting.wish(parsed, self.facts.specs_key), self.meets(parsed, replica)
        if image and point:
            meeting.wait(made, image, self.facts.container, *point)
        return made

    def service(self, job: Manifest, replica: Replica) -> Manifest:
        """The replica's Service. Raises InvalidObject as :meth:`pod` does."""
        parsed, role = self._role(job, replica)
        return objects.service(parsed, self.facts, role, replica)

    def _role(self, job: Manifest, replica: Replica) -> tuple[TrainingJob, Role]:
        parsed = self._read(job)
        role = parsed.role(replica.role)
        if role is None:
            types = ", ".join(role.type for role in parsed.roles)
            raise InvalidObject(f"spec.{self.facts.specs_key}", replica.role, f"one of {types}")
        return parsed, role

    def replicas(self, job: Manifest) -> list[Replica]:
        """Every replica of the job, in order. Raises InvalidObject if the job is not valid."""
        return self.valid(job).replicas()

    def valid(self, job: Manifest) -> TrainingJob:
        """The job, defaulted. Raises InvalidObject if it is not valid, or could not start: where each
        replica is told of all, a variable of so many names is too long for a program.
        """
        parsed = self._read(job)
        if parsed.total <= _SHORT:
            return parsed
        for each in self.env(parsed, parsed.replicas()[-1]):
            size = len(f"{each['name']}={each.get('value', '')}".encode())
            if size > LONGEST_VARIABLE:
                raise InvalidObject(
                    f"spec.{self.facts.specs_key}",
                    parsed.total,
                    f"fewer replicas: {each['name']}, which names them all, has {size} bytes, and a"
                    f" program starts with {LONGEST_VARIABLE} in a variable at most",
                )
        return parsed

    def _read(self, job: Manifest) -> TrainingJob:
        faults = Faults()
        parsed = faults.keep(None, read, job, self.facts, faults)
        if parsed is not None:
            with faults:
                meeting.wish(parsed, self.facts.specs_key)
            with faults:
                self.check(parsed, faults)
            with faults:
                capacity.wishes(parsed)
        with faults:
            restarts.unit(job["metadata"].get("annotations") or {})
        faults.end()
        assert parsed is not None, "a job of which nothing is known has a fault"
        return parsed
