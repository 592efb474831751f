"""What both versions of MPIJob share: one launcher, which decides, and workers that wait for it.

Sources: mpi-operator v0.8.2 (v2beta1), kubeflow/trainer v1.9.4 pkg/controller.v1/mpi (v1). Differences,
on account of what users report: a job ends as soon as a worker has failed for good (upstream its
peers run on, mpi-operator #647), and ttlSecondsAfterFinished deletes the job itself (#644).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from extender.core.api import CONFIG_MAPS
from extender.core.errors import Faults, InvalidObject
from extender.core.framework import NO_NEWS, Child, JobStep, NodeNews, Replica
from extender.core.objects import Manifest, Pod
from extender.jobs import conditions, fields
from extender.jobs import pods as objects
from extender.jobs.lifecycle import TrainingKind
from extender.jobs.model import Role, TrainingJob
from extender.jobs.pods import Env
from extender.jobs.rollcall import RollCall

LAUNCHER: Final = "launcher"
WORKER: Final = "worker"
#: Where hostfile and scripts are mounted.
CONFIG_PATH: Final = "/etc/mpi"
#: Bytes that the API server lets a ConfigMap hold (core/v1 MaxSecretSize).
LARGEST_CONFIG: Final = 1 << 20
#: No files of so few hosts are larger: each is named twice, in at most 63 + 63 + 63 letters and a few more.
_FEW: Final = 2_000
#: What CUDA's runtime sees of a launcher that should not see any device.
NO_DEVICES: Final = {"NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}


class MPIKind(TrainingKind):
    """An MPIJob of either version."""

    def reconcile(
        self,
        job: Manifest,
        pods: Sequence[Pod],
        services: frozenset[str],
        now: float,
        ends: Sequence[Pod] = (),
        nodes: NodeNews = NO_NEWS,
    ) -> JobStep:
        """As for all kinds, but that no Service is a replica's: one that exists is left alone."""
        return super().reconcile(job, pods, frozenset(), now, ends, nodes)

    def static(self, job: TrainingJob) -> bool:
        """No: workers only wait for the launcher, which starts the processes, and which fails, and
        is started again, when one of them does.
        """
        return False

    def check(self, job: TrainingJob, faults: Faults) -> None:
        """Exactly one launcher, and a whole number of slots."""
        with faults:
            _check_launcher(job)
        faults.keep(1, slots, job)
        for role in job.roles:
            _check_template(role, faults)

    def cause(self, job: TrainingJob, roll: RollCall, ended: str, why: str = "") -> str:
        """Evicted workers have a word of their own."""
        evicted = any(
            replica.role == WORKER
            and pod.status.phase == "Failed"
            and pod.status.reason == "Evicted"
            for replica, pod in roll.present
        )
        if ended == conditions.FAILED and evicted:
            return f"{self.facts.kind}Evicted"
        return super().cause(job, roll, ended, why)

    def env(self, job: TrainingJob, replica: Replica) -> Env:
        """Of the first container of the replica."""
        values = self.variables(job, replica)
        return [{"name": name, "value": value} for name, value in values.items()]

    @abstractmethod
    def variables(self, job: TrainingJob, replica: Replica) -> dict[str, str]:
        """As :meth:`env`, by name."""

    def pod(self, job: Manifest, replica: Replica) -> Manifest:
        """The replica's pod, as of all kinds; then what its first container needs for MPI."""
        parsed, _ = self._role(job, replica)
        made = super().pod(job, replica)
        container = made["spec"]["containers"][0]
        container["env"] = [*(container.get("env") or ()), *self.env(parsed, replica)]
        self.equip(parsed, replica, made)
        return made

    @abstractmethod
    def equip(self, job: TrainingJob, replica: Replica, pod: Manifest) -> None:
        """Add commands, volumes, names to a pod that nobody else holds."""

    def children(self, job: TrainingJob, roll: RollCall) -> tuple[Child, ...]:
        """What the launcher finds its workers by; the list of those that run follows them."""
        running = sorted(
            replica.pod_name
            for replica, pod in roll.present
            if replica.role == WORKER
            and pod.status.phase == "Running"
            and not pod.metadata.deletion_timestamp
        )
        return self.belongings(job, running)

    def valid(self, job: Manifest) -> TrainingJob:
        """As for all kinds; raises InvalidObject where one ConfigMap cannot name all hosts, too."""
        parsed = super().valid(job)
        if parsed.total <= _FEW:
            return parsed
        (config,) = (
            child.body["data"]
            for child in self.belongings(parsed, worker_names(parsed))
            if child.resource == CONFIG_MAPS
        )
        size = sum(len(key) + len(text) for key, text in config.items())
        if size > LARGEST_CONFIG:
            raise InvalidObject(
                "spec.mpiReplicaSpecs",
                parsed.total,
                f"fewer workers, or shorter names: the files of hosts have {size} bytes, and a"
                f" ConfigMap holds {LARGEST_CONFIG}",
            )
        return parsed

    @abstractmethod
    def belongings(self, job: TrainingJob, running: Sequence[str]) -> tuple[Child, ...]:
        """As :meth:`children`; ``running`` names the workers that run, in order."""

    def _services(self, roll: RollCall, services: frozenset[str]) -> tuple[Replica, ...]:
        return ()


def _check_launcher(job: TrainingJob) -> None:
    launcher = job.role(LAUNCHER)
    if launcher is None:
        types = [role.type for role in job.roles]
        raise InvalidObject("spec.mpiReplicaSpecs", types, "one Launcher, and Worker if wanted")
    if launcher.replicas != 1:
        path = "spec.mpiReplicaSpecs.Launcher.replicas"
        raise InvalidObject(path, launcher.replicas, "exactly 1")


def _check_template(role: Role, faults: Faults) -> None:
    """Fields that something is added to have to be such fields."""
    spec, path = role.template["spec"], f"spec.mpiReplicaSpecs.{role.type}.template.spec"
    for field in ("volumes", "initContainers"):
        faults.keep([], fields.items, spec, field, path)
    faults.keep("", fields.text, spec, "serviceAccountName", path)
    with faults:
        searches = fields.mapping(spec, "dnsConfig", path).get("searches")
        if searches is not None and not isinstance(searches, list):
            raise InvalidObject(f"{path}.dnsConfig.searches", searches, "a list of domains")
    faults.keep([], fields.items, spec["containers"][0], "volumeMounts", f"{path}.containers[0]")


def slots(job: TrainingJob) -> int:
    """Processes of a worker. Raises InvalidObject."""
    found = fields.whole(job.spec, "slotsPerWorker", "spec", least=1)
    return 1 if found is None else found


def worker_names(job: TrainingJob) -> list[str]:
    """Pods of all workers, in order."""
    worker = job.role(WORKER)
    return [job.pod_name(WORKER, index) for index in range(worker.replicas)] if worker else []


def metadata(job: TrainingJob, name: str) -> Manifest:
    """Of an object that the job owns."""
    return {
        "name": name,
        "namespace": job.namespace,
        "labels": {"app": job.name},
        "ownerReferences": objects.owner(job),
    }


def lines(values: Iterable[str]) -> str:
    """Text of which each line ends."""
    return "".join(f"{value}\n" for value in values)


def mount(pod: Manifest, volume: Manifest, path: str, *containers: Manifest) -> None:
    """Give a pod a volume, and these of its containers a view of it."""
    spec = pod["spec"]
    spec["volumes"] = [*(spec.get("volumes") or ()), volume]
    for container in containers:
        view = {"name": volume["name"], "mountPath": path}
        container["volumeMounts"] = [*(container.get("volumeMounts") or ()), view]


def config_volume(job: TrainingJob, modes: Mapping[str, int]) -> Manifest:
    """The job's ConfigMap as a volume of these files, by name and mode."""
    return {
        "name": "mpi-job-config",
        "configMap": {
            "name": f"{job.name}-config",
            "items": [{"key": key, "path": key, "mode": mode} for key, mode in modes.items()],
        },
    }
