"""kubeflow.org/v1 MPIJob: the launcher reaches its workers by kubectl exec.

Source: kubeflow/trainer v1.9.4, pkg/controller.v1/mpi. It needs an account that may do so, whose Role
Muster may make only where it holds these rights itself: manifests/mpijob-v1 grants them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from extender.core.api import (
    CONFIG_MAPS,
    OLD_MPI_JOBS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
)
from extender.core.errors import Faults
from extender.core.framework import Child, Replica
from extender.core.objects import Manifest
from extender.jobs import fields, mpi
from extender.jobs.model import KindFacts, TrainingJob
from extender.jobs.mpi import CONFIG_PATH, LAUNCHER, NO_DEVICES
from extender.jobs.mpi_v2 import made_as_v2

#: Copies a kubectl into the launcher before it starts.
DELIVERY_IMAGE: Final = "kubeflow/kubectl-delivery:latest"
_RIGHTS: Final = "manifests/mpijob-v1"
_DELIVERY: Final = "kubectl-delivery"
_KUBECTL: Final = "mpi-job-kubectl"
_KUBECTL_PATH: Final = "/opt/kube"
_SCRIPT: Final = f"{CONFIG_PATH}/kubexec.sh"
#: Of the container that copies it.
_DELIVERY_SIZE: Final = {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "5Gi"}


class OldMPIJob(mpi.MPIKind):
    """OpenMPI or Intel MPI over kubectl exec."""

    resource = OLD_MPI_JOBS
    facts = KindFacts(
        api_version=OLD_MPI_JOBS.api_version,
        kind=OLD_MPI_JOBS.kind,
        specs_key="mpiReplicaSpecs",
        roles=("Launcher", "Worker"),
        container="",
        port_name="",
        port=0,
        restart_policy="Never",
        operator="mpijob-controller",
        heads=("Launcher",),
        env_everywhere=False,
        replicas={"Worker": 0},
        single=("Launcher",),
    )

    def takes(self, job: Manifest) -> bool:
        """All but what was made as v2beta1, which its definitions mark by their defaults."""
        return not made_as_v2(job)

    def check(self, job: TrainingJob, faults: Faults) -> None:
        """The name of the main container is text."""
        super().check(job, faults)
        fields.text(job.spec, "mainContainer", "spec")

    def variables(self, job: TrainingJob, replica: Replica) -> dict[str, str]:
        """What mpirun reads; a launcher that asks for no GPU sees none."""
        if replica.role != LAUNCHER:
            return {}
        return {
            "OMPI_MCA_plm_rsh_agent": _SCRIPT,
            "OMPI_MCA_orte_default_hostfile": f"{CONFIG_PATH}/hostfile",
            **({} if _computes(job) else NO_DEVICES),
            **_bootstrap(job),
        }

    def equip(self, job: TrainingJob, replica: Replica, pod: Manifest) -> None:
        """Scripts for all (OpenMPI looks for them in every rank), kubectl for the launcher."""
        spec = pod["spec"]
        container = spec["containers"][0]
        modes = {"kubexec.sh": 0o555}
        if replica.role != LAUNCHER:
            mpi.mount(pod, mpi.config_volume(job, modes), CONFIG_PATH, container)
            if not container.get("command"):
                container["command"], container["args"] = ["sleep"], ["365d"]
            return
        delivery = {
            "name": _DELIVERY,
            "image": DELIVERY_IMAGE,
            "imagePullPolicy": "IfNotPresent",
            "env": [
                {"name": "TARGET_DIR", "value": _KUBECTL_PATH},
                {"name": "NAMESPACE", "value": job.namespace},
            ],
            "resources": {"limits": dict(_DELIVERY_SIZE), "requests": dict(_DELIVERY_SIZE)},
        }
        spec["initContainers"] = [*(spec.get("initContainers") or ()), delivery]
        spec["serviceAccountName"] = _account(job)
        mpi.mount(pod, {"name": _KUBECTL, "emptyDir": {}}, _KUBECTL_PATH, container, delivery)
        modes |= {"hostfile": 0o444, "discover_hosts.sh": 0o555}
        mpi.mount(pod, mpi.config_volume(job, modes), CONFIG_PATH, container, delivery)

    def belongings(self, job: TrainingJob, running: Sequence[str]) -> tuple[Child, ...]:
        """Hostfile, list of hosts and script; the launcher's account, which may exec into workers.

        An account that the job names is taken as it is.
        """
        name, workers = job.pod_name(LAUNCHER, 0), mpi.worker_names(job)
        launcher = [name] if _computes(job) else []
        count = mpi.slots(job)
        found = (f"echo {each}:{count}" for each in (*launcher, *running))
        config = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": mpi.metadata(job, f"{job.name}-config"),
            "data": {
                "hostfile": mpi.lines(f"{each} slots={count}" for each in (*launcher, *workers)),
                "kubexec.sh": _kubexec(job),
                "discover_hosts.sh": mpi.lines(["#!/bin/sh", *found]),
            },
        }
        rbac = "rbac.authorization.k8s.io"
        role = {
            "apiVersion": f"{rbac}/v1",
            "kind": "Role",
            "metadata": mpi.metadata(job, name),
            "rules": [
                {"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["pods"]},
                {
                    "verbs": ["create"],
                    "apiGroups": [""],
                    "resources": ["pods/exec"],
                    "resourceNames": workers,
                },
            ],
        }
        account = _account(job)
        subject = {"kind": "ServiceAccount", "name": account, "namespace": job.namespace}
        binding = {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": mpi.metadata(job, name),
            "subjects": [subject],
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
        }
        meta = mpi.metadata(job, name)
        own = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}
        return (
            Child(CONFIG_MAPS, config, follows=("data",), rights=_RIGHTS),
            *((Child(SERVICE_ACCOUNTS, own, rights=_RIGHTS),) if account == name else ()),
            Child(ROLES, role, follows=("rules",), rights=_RIGHTS),
            # A Role of that name that is somebody else's would be granted to the launcher.
            Child(ROLE_BINDINGS, binding, rights=_RIGHTS, last=True),
        )


def _template(job: TrainingJob) -> Manifest:
    launcher = job.role(LAUNCHER)
    assert launcher is not None, "check() refuses a job without one"
    spec: Manifest = launcher.template["spec"]
    return spec


def _account(job: TrainingJob) -> str:
    """The launcher's ServiceAccount: the user's, or its own."""
    return _template(job).get("serviceAccountName") or job.pod_name(LAUNCHER, 0)


def _computes(job: TrainingJob) -> bool:
    """Whether the launcher asks for a GPU, and so runs processes of its own."""
    limits = (
        fields.dig(container, "resources", "limits") for container in _template(job)["containers"]
    )
    return any("gpu" in name for each in limits if isinstance(each, dict) for name in each)


def _bootstrap(job: TrainingJob) -> dict[str, str]:
    """How Intel MPI starts its processes, where the user does not say it."""
    own = {each.get("name") for each in _template(job)["containers"][0].get("env") or ()}
    values = {"I_MPI_HYDRA_BOOTSTRAP": "rsh", "I_MPI_HYDRA_BOOTSTRAP_EXEC": _SCRIPT}
    return {name: value for name, value in values.items() if name not in own}


def _kubexec(job: TrainingJob) -> str:
    """As rsh is called: a host, which is a pod, and a command."""
    chosen = f" --container {name}" if (name := job.spec.get("mainContainer")) else ""
    run = f'{_KUBECTL_PATH}/kubectl exec ${{POD_NAME}}{chosen} -- /bin/sh -c "$*"'
    return f"#!/bin/sh\nset -x\nPOD_NAME=$1\nshift\n{run}"
