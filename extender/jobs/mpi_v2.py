"""kubeflow.org/v2beta1 MPIJob: the launcher reaches its workers by ssh.

Source: mpi-operator v0.8.2, pkg/controller/mpi_job_controller.go. Differences, on purpose: the launcher is
a pod that Muster makes, so that it is placed with its workers, and its batch/v1 Job shows what becomes of
it (:mod:`extender.jobs.batch`); the Service publishes pods that are not ready, so that every name is known while sshd
starts (#481), and the plan keeps a place for a launcher that waits for its workers (#608).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from extender.core.api import CONFIG_MAPS, MPI_JOBS, SECRETS, SERVICES
from extender.core.cluster import TERMINAL
from extender.core.errors import Faults, InvalidObject
from extender.core.framework import NO_NEWS, Child, JobStep, NodeNews, Replica
from extender.core.objects import Manifest, Pod
from extender.jobs import batch, conditions, fields, mpi
from extender.jobs.history import History
from extender.jobs.kind import BACKOFF, DEADLINE, Words
from extender.jobs.model import KindFacts, TrainingJob
from extender.jobs.mpi import CONFIG_PATH, LAUNCHER, NO_DEVICES, WORKER
from extender.jobs.pods import LABEL
from extender.jobs.rollcall import RollCall, Tally, owned

_OPERATOR: Final = "mpi-operator"
_RIGHTS: Final = "manifests/mpijob"
_IMPLEMENTATIONS: Final = ("OpenMPI", "Intel", "MPICH")
_POLICIES: Final = ("AtStartup", "WaitForWorkersReady")
_ROOT: Final = "/root/.ssh"
_HOSTFILE: Final = f"{CONFIG_PATH}/hostfile"
#: sshd of a worker that has just started refuses for a moment.
_PATIENCE: Final = "-o ConnectionAttempts=10"
#: batch/v1 Job's own.
_BACKOFF_LIMIT: Final = 6


class MPIJob(mpi.MPIKind):
    """OpenMPI, Intel MPI or MPICH over ssh."""

    resource = MPI_JOBS
    managed_by = "kubeflow.org/mpi-operator"
    facts = KindFacts(
        api_version=MPI_JOBS.api_version,
        kind=MPI_JOBS.kind,
        specs_key="mpiReplicaSpecs",
        roles=("Launcher", "Worker"),
        container="",
        port_name="",
        port=0,
        restart_policy="Never",
        operator=_OPERATOR,
        heads=("Launcher",),
        env_everywhere=False,
        restart_policies={"Launcher": "OnFailure"},
        replicas={"Worker": 0},
        single=("Launcher",),
    )

    def takes(self, job: Manifest) -> bool:
        """All but what was made as v1, which manifests/crds marks by a default of its own."""
        return made_as_v2(job) is not False

    def reconcile(
        self,
        job: Manifest,
        pods: Sequence[Pod],
        services: frozenset[str],
        now: float,
        ends: Sequence[Pod] = (),
        nodes: NodeNews = NO_NEWS,
    ) -> JobStep:
        """As for both versions; a launcher that waits for its workers is not who they wait for."""
        step = super().reconcile(job, pods, services, now, ends, nodes)
        if conditions.end(conditions.of(job)):
            # It is its Job's, which cleanPodPolicy leaves alone: its log says what the job did.
            name = f"{job['metadata']['name']}-{LAUNCHER}"
            over = {p.metadata.uid for p in pods if p.status.phase in TERMINAL}
            kept = [(n, uid) for n, uid in step.delete_pods if n != name or uid not in over]
            step = replace(step, delete_pods=tuple(kept))
        if (face := self._face(job, pods, now)) is not None:
            step = replace(step, children=(*step.children, face))
        if step.group is None or not _waits(parsed := self._read(job)):
            return step
        spec = {k: v for k, v in step.group["spec"].items() if k != "minTaskMember"}
        spec["minMember"] = min(spec["minMember"], len(mpi.worker_names(parsed)) or 1)
        return replace(step, group={**step.group, "spec": spec})

    def _face(self, job: Manifest, pods: Sequence[Pod], now: float) -> Child | None:
        """The launcher's Job, of a job that is valid, ours, and not long over."""
        managed_by = fields.dig(job, "spec", "runPolicy", "managedBy") or self.managed_by
        over = job["metadata"].get("deletionTimestamp") or batch.settled(job, now)
        if over or managed_by != self.managed_by:
            return None
        try:
            parsed = self.valid(job)
            history = History.read(parsed.annotations)
            name = parsed.pod_name(LAUNCHER, 0)
            made = self.pod(job, Replica(LAUNCHER, 0, name))
        except InvalidObject:
            return None
        seen = next((p for p in owned(pods, parsed.uid) if p.metadata.name == name), None)
        restarts = history.restarts.get((LAUNCHER, 0), 0)
        return batch.show(job, parsed, made, seen, restarts, _RIGHTS)

    def check(self, job: TrainingJob, faults: Faults) -> None:
        """What mpi-operator's validation refuses."""
        super().check(job, faults)
        for role in job.roles:
            with faults:
                if role.restart_policy not in ("Never", "OnFailure"):
                    path = f"spec.mpiReplicaSpecs.{role.type}.restartPolicy"
                    raise InvalidObject(path, role.restart_policy, "one of Never, OnFailure")
        with faults:
            specs = fields.mapping(job.spec, "mpiReplicaSpecs", "spec")
            if job.role(WORKER) is None and any(key.lower() == WORKER for key in specs):
                raise InvalidObject("spec.mpiReplicaSpecs.Worker.replicas", 0, "at least 1")
        faults.keep("", _implementation, job)
        faults.keep("", _mount_path, job)
        faults.keep(False, _waits, job)
        faults.keep(False, launcher_works, job)

    def later(self, job: TrainingJob, roll: RollCall) -> frozenset[str]:
        """The launcher, where it waits until all workers are ready; where fewer are enough, those that
        have a node: the others may lack the very place that is kept for it.
        """
        if not _waits(job):
            return frozenset()
        workers = len(mpi.worker_names(job))
        placed = [pod for r, pod in roll.present if r.role == WORKER and pod.spec.node_name]
        ready = [
            any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)
            for pod in placed
        ]
        whole = all(ready) and len(ready) >= min(job.policy.min_available or workers, workers)
        return frozenset() if whole else frozenset({job.pod_name(LAUNCHER, 0)})

    def running(self, job: TrainingJob, tallies: Mapping[str, Tally]) -> bool:
        """Launcher and all workers run."""
        return all(tallies[role.name].active >= role.replicas for role in job.roles)

    def words(self, job: TrainingJob) -> Words:
        """With its namespace, but for the ends of replicas."""
        full = f"{self.facts.kind} {job.namespace}/{job.name}"
        running, succeeded = f"{full} is running.", f"{full} successfully completed."
        return Words(running, succeeded, super().words(job).failed)

    def cause(self, job: TrainingJob, roll: RollCall, ended: str, why: str = "") -> str:
        """Limits have the word of its launcher's Job; the one of failures the last pod's, too."""
        if why == DEADLINE:
            return "DeadlineExceeded"
        if why != BACKOFF:
            return super().cause(job, roll, ended, why)
        (last,) = [p.status.reason for r, p in roll.present if r.role == LAUNCHER] or [""]
        return f"BackoffLimitExceeded/{last}"

    def variables(self, job: TrainingJob, replica: Replica) -> dict[str, str]:
        """What mpirun and mpiexec read; a launcher that does not work itself sees no device."""
        if replica.role == WORKER:
            return {"K_MPI_JOB_ROLE": WORKER}
        count = str(mpi.slots(job))
        of_implementation = {
            "OpenMPI": {
                "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
                "OMPI_MCA_orte_default_hostfile": _HOSTFILE,
                "OMPI_MCA_plm_rsh_args": _PATIENCE,
                "OMPI_MCA_orte_set_default_slots": count,
            },
            "Intel": {
                "I_MPI_HYDRA_HOST_FILE": _HOSTFILE,
                "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": _PATIENCE,
                "I_MPI_PERHOST": count,
            },
            "MPICH": {"HYDRA_HOST_FILE": _HOSTFILE, "HYDRA_LAUNCH_EXTRA_ARGS": _PATIENCE},
        }[_implementation(job)]
        unseen = {} if launcher_works(job) else NO_DEVICES
        return {"K_MPI_JOB_ROLE": LAUNCHER, **of_implementation, **unseen}

    def equip(self, job: TrainingJob, replica: Replica, pod: Manifest) -> None:
        """Names under the job's Service, keys, and for the launcher the hostfile."""
        meta, spec = pod["metadata"], pod["spec"]
        works = launcher_works(job)
        meta["labels"][LABEL + "job-role"] = replica.role
        if works and replica.role == WORKER:
            # The launcher is number 0 of those that compute.
            meta["labels"][LABEL + "replica-index"] = str(replica.index + 1)
        spec["hostname"], spec["subdomain"] = replica.pod_name, job.name
        if spec.get("hostNetwork"):
            spec["dnsPolicy"] = "ClusterFirstWithHostNet"
        container = spec["containers"][0]
        mpi.mount(pod, _keys(job), _mount_path(job), container)
        if replica.role == LAUNCHER:
            meta["labels"] |= batch.labels(replica.pod_name)
            spec["restartPolicy"] = _kubelet_policy(job)
            modes = {"hostfile": 0o444, "discover_hosts.sh": 0o555}
            mpi.mount(pod, mpi.config_volume(job, modes), CONFIG_PATH, container)
            return
        if not container.get("command") and not container.get("args"):
            container["command"] = ["/usr/sbin/sshd", "-De"]
        dns = spec["dnsConfig"] = dict(spec.get("dnsConfig") or {})
        search = f"{job.name}.{job.namespace}.svc.cluster.local"
        dns["searches"] = [*(dns.get("searches") or ()), search]

    def belongings(self, job: TrainingJob, running: Sequence[str]) -> tuple[Child, ...]:
        """The Service that gives all of them names, hostfile and list of hosts, and the keys."""
        launcher = [job.pod_name(LAUNCHER, 0)] if launcher_works(job) else []
        between = " slots=" if _implementation(job) == "OpenMPI" else ":"
        hosts = [_host(job, name) for name in (*launcher, *mpi.worker_names(job))]
        count = mpi.slots(job)
        found = [f"echo {_host(job, name)}" for name in (*launcher, *running)]
        config = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": mpi.metadata(job, f"{job.name}-config"),
            "data": {
                "hostfile": mpi.lines(f"{host}{between}{count}" for host in hosts),
                "discover_hosts.sh": mpi.lines(["#!/bin/sh", *found]),
            },
        }
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": mpi.metadata(job, job.name),
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": True,
                "selector": {LABEL + "operator-name": _OPERATOR, LABEL + "job-name": job.name},
            },
        }
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": mpi.metadata(job, f"{job.name}-ssh"),
            "type": "kubernetes.io/ssh-auth",
        }
        return (
            Child(SERVICES, service),
            Child(CONFIG_MAPS, config, follows=("data",), rights=_RIGHTS),
            Child(SECRETS, secret, rights=_RIGHTS),
        )

    def _read(self, job: Manifest) -> TrainingJob:
        """As the launcher's Job would have it: a launcher that fails is made again, six times unless
        backoffLimit says otherwise, whatever its restartPolicy tells the kubelet.
        """
        parsed = super()._read(job)
        roles = tuple(
            replace(role, restart_policy="OnFailure") if role.name == LAUNCHER else role
            for role in parsed.roles
        )
        policy = parsed.policy
        if policy.backoff_limit is None:
            policy = replace(policy, backoff_limit=_BACKOFF_LIMIT)
        return replace(parsed, roles=roles, policy=policy)


def made_as_v2(job: Manifest) -> bool | None:
    """Whether an MPIJob was made as v2beta1, by what the definitions put into one; None: it has no
    mark, and is what it is seen as.
    """
    spec = fields.dig(job, "spec") or {}
    if fields.dig(spec, "mpiImplementation") is not None:
        return True
    return False if fields.dig(spec, "mainContainer") is not None else None


def launcher_works(job: TrainingJob) -> bool:
    """Whether the launcher runs processes of its own. Raises InvalidObject."""
    return fields.flag(job.spec, "runLauncherAsWorker", "spec")


def _implementation(job: TrainingJob) -> str:
    return fields.choice(job.spec, "mpiImplementation", "spec", _IMPLEMENTATIONS, "OpenMPI")


def _waits(job: TrainingJob) -> bool:
    chosen = fields.choice(job.spec, "launcherCreationPolicy", "spec", _POLICIES, "AtStartup")
    return chosen == "WaitForWorkersReady"


def _kubelet_policy(job: TrainingJob) -> str:
    """The launcher's restartPolicy as it is written: with OnFailure its kubelet starts it again."""
    specs = job.spec["mpiReplicaSpecs"]
    launcher = next(spec for key, spec in specs.items() if key.lower() == LAUNCHER)
    return launcher.get("restartPolicy") or "OnFailure"


def _mount_path(job: TrainingJob) -> str:
    return fields.text(job.spec, "sshAuthMountPath", "spec") or _ROOT


def _host(job: TrainingJob, name: str) -> str:
    return f"{name}.{job.name}.{job.namespace}.svc"


def _keys(job: TrainingJob) -> Manifest:
    """The Secret as sshd and ssh look for it; ssh refuses root's keys that others may read."""
    paths = {"ssh-privatekey": ("id_rsa",), "ssh-publickey": ("id_rsa.pub", "authorized_keys")}
    items = [{"key": key, "path": path} for key, of_key in paths.items() for path in of_key]
    mode = {"defaultMode": 0o600} if _mount_path(job) == _ROOT else {}
    return {"name": "ssh-auth", "secret": {**mode, "secretName": f"{job.name}-ssh", "items": items}}
