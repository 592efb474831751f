"""What users submit: gangs of every convention, training jobs and plain pods, as manifests."""

from __future__ import annotations

import random

from msgspec import Struct

from extender.chaos import claims, shares
from extender.core.api import (
    CONFIG_MAPS,
    JAX_JOBS,
    MPI_JOBS,
    NATIVE_GROUPS,
    OLD_MPI_JOBS,
    PADDLE_JOBS,
    PYTORCH_JOBS,
    SIGS_GROUPS,
    TF_JOBS,
    VOLCANO_GROUPS,
    XGBOOST_JOBS,
    Resource,
)
from extender.core.objects import Manifest
from extender.sim.kubelet import EXIT_CODE, RUN_SECONDS

NAMESPACE = "default"
GPU = "nvidia.com/gpu"
#: Of one workload.
MOST_PODS = 5
#: Of a container that was killed, which restartPolicy ExitCode tries again.
SIGKILL_CODE = 137
_GATE = {"name": "scheduling.muster.dev/gang"}


class JobKind(Struct, frozen=True):
    """A kind of training jobs, the container that it looks at, and its roles beside workers."""

    resource: Resource
    container: str
    leaders: tuple[str, ...] = ("Master",)

    @property
    def launched(self) -> bool:
        """Whether its workers run until its launcher has ended."""
        return self.resource in claims.LAUNCHED


PYTORCH = JobKind(PYTORCH_JOBS, "pytorch")
JOB_KINDS = (
    PYTORCH,
    JobKind(TF_JOBS, "tensorflow", ("Chief", "PS")),
    JobKind(XGBOOST_JOBS, "xgboost"),
    JobKind(JAX_JOBS, "jax", ()),
    JobKind(PADDLE_JOBS, "paddle"),
)
#: Kinds with a launcher.
MPI_KINDS = tuple(JobKind(each, "main", ("Launcher",)) for each in claims.LAUNCHED)
#: Thousandths of a GPU that a pod asks for by annotation.
SHARES = (250, 300, 500, 600, 1000)


class Workload(Struct):
    """One gang as its user wants it. ``form`` is volcano, sigs, native, ack, job or plain."""

    name: str
    form: str
    gpus: int
    size: int
    least: int
    #: Somebody makes its pods again: an owner for whom a controller cares.
    owned: bool = True
    gated: bool = False
    #: Seconds that its pods run; None: until they are deleted.
    seconds: float | None = None
    exit_code: int = 0
    priority: str = ""
    rollback: bool = False
    #: Its group's record is made before its pods.
    record_first: bool = False
    #: Of a job: its kind, what becomes of a replica that fails, and whether it is elastic (workers
    #: that find each other, without a master).
    kind: JobKind = PYTORCH
    restarts: str = "OnFailure"
    elastic: bool = False
    #: Of a job with a launcher: it waits until all workers are ready, and computes itself.
    waits: bool = False
    computes: bool = False
    #: Of a pod that asks for no GPU but for a part of so many: thousandths of each.
    milli: int = 0
    devices: int = 1

    @property
    def record(self) -> Resource | None:
        """The kind of the group's record that its user makes."""
        return {"volcano": VOLCANO_GROUPS, "sigs": SIGS_GROUPS, "native": NATIVE_GROUPS}.get(
            self.form
        )

    def pod_names(self) -> list[str]:
        return [f"{self.name}-{index}" for index in range(self.size)]


def draw(rng: random.Random, name: str) -> Workload:
    """Any workload."""
    form = rng.choice(("volcano", "volcano", "sigs", "native", "ack", "job", "job", "plain"))
    size = rng.randint(1, MOST_PODS) if form != "plain" else rng.randint(1, 2)
    seconds = rng.choice((None, None, rng.uniform(5.0, 60.0)))
    work = Workload(
        name,
        form,
        gpus=rng.choice((1, 1, 2, 3, 4)),
        size=size,
        least=size if rng.random() < 0.7 else rng.randint(1, size),
        owned=rng.random() < 0.75,
        gated=rng.random() < 0.2,
        seconds=seconds,
        exit_code=int(rng.random() < 0.15),
        priority="high" if rng.random() < 0.15 else "",
        rollback=rng.random() < 0.3,
        record_first=rng.random() < 0.5,
    )
    if form == "job":
        work.kind = rng.choice(JOB_KINDS)
        work.restarts = rng.choice(("OnFailure", "OnFailure", "ExitCode", "Never"))
        work.elastic = work.kind == PYTORCH and rng.random() < 0.3
        work.exit_code *= rng.choice((1, SIGKILL_CODE))
    return work


def draw_launched(rng: random.Random, name: str) -> Workload:
    """A job with a launcher."""
    work = draw(rng, name)
    work.form, work.kind = "job", rng.choice(MPI_KINDS)
    work.size = rng.randint(1, MOST_PODS)
    work.least = work.size if rng.random() < 0.7 else rng.randint(1, work.size)
    work.seconds = rng.choice((None, rng.uniform(5.0, 60.0)))
    work.exit_code *= rng.choice((1, SIGKILL_CODE))
    work.restarts = rng.choice(("OnFailure", "Never"))
    work.waits = work.kind.resource == MPI_JOBS and work.size > 1 and rng.random() < 0.3
    work.elastic, work.computes = False, rng.random() < 0.3
    return work


def draw_shared(rng: random.Random, name: str) -> Workload:
    """Pods that share GPUs, as gangs or by themselves."""
    work = draw(rng, name)
    if work.form in ("ack", "job"):
        work.form = "volcano"
    return shared(rng, work)


def shared(rng: random.Random, work: Workload) -> Workload:
    """The same with parts of GPUs for GPUs."""
    work.gpus, work.milli = 0, rng.choice(SHARES)
    work.devices = rng.choice((1, 1, 1, 2))
    return work


def group(work: Workload, least: int) -> Manifest:
    """The record of a group whose convention has one."""
    assert work.record is not None, f"a workload of form {work.form} has no record"
    meta: Manifest = {"name": work.name, "namespace": NAMESPACE}
    if work.rollback:
        meta["annotations"] = {"scheduling.muster.dev/rollback": "delete"}
    if work.record == NATIVE_GROUPS:
        return {"metadata": meta, "spec": {"schedulingPolicy": {"gang": {"minCount": least}}}}
    return {"metadata": meta, "spec": {"minMember": least}}


def owner(work: Workload) -> Manifest:
    """What a controller's pods belong to (a ReplicaSet's place, in a kind that is served)."""
    return {"metadata": {"name": f"owner-{work.name}", "namespace": NAMESPACE}}


def pod(work: Workload, name: str, owner_uid: str) -> Manifest:
    """One member, or a plain pod."""
    meta: Manifest = {"name": name, "namespace": NAMESPACE, "annotations": {}, "labels": {}}
    spec = _spec(work)
    spec["schedulerName"] = "muster"
    meta["annotations"] |= _outcome(work) | _share(work)
    match work.form:
        case "volcano":
            meta["annotations"]["scheduling.k8s.io/group-name"] = work.name
        case "sigs":
            meta["labels"]["scheduling.x-k8s.io/pod-group"] = work.name
        case "native":
            spec["schedulingGroup"] = {"podGroupName": work.name}
        case "ack":
            meta["labels"]["pod-group.scheduling.sigs.k8s.io/name"] = work.name
            meta["labels"]["pod-group.scheduling.sigs.k8s.io/min-available"] = str(work.least)
        case "plain" | "job":
            pass
        case _:
            raise ValueError(work.form)
    if work.gated and work.form != "plain":
        spec["schedulingGates"] = [_GATE]
    if owner_uid:
        kind = CONFIG_MAPS
        meta["ownerReferences"] = [
            {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "name": f"owner-{work.name}",
                "uid": owner_uid,
                "controller": True,
            }
        ]
    return {"metadata": meta, "spec": spec}


def job(work: Workload) -> Manifest:
    """A training job: its leaders as far as they go, and the rest workers."""
    leaders = work.kind.leaders[: work.size] if not work.elastic else ()
    counts = dict.fromkeys(leaders, 1)
    if workers := work.size - len(leaders):
        counts["Worker"] = workers
    roles = {
        role: {"replicas": count, "restartPolicy": work.restarts, "template": _template(work, role)}
        for role, count in counts.items()
    }
    body: Manifest = {claims.JOBS[work.kind.resource]: roles}
    if work.kind.launched:
        body |= _launched(work)
    if work.least < work.size:
        body.setdefault("runPolicy", {})["schedulingPolicy"] = {"minAvailable": work.least}
    if work.elastic:
        body["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": MOST_PODS}
    return {"metadata": {"name": work.name, "namespace": NAMESPACE}, "spec": body}


def _template(work: Workload, role: str) -> Manifest:
    """Of a replica. A launcher asks for GPUs only if it computes, and of its kinds it alone ends."""
    spec, marks = _spec(work), _outcome(work)
    if work.kind.launched and role != "Launcher":
        marks = {}
    elif work.kind.launched and not work.computes:
        spec["containers"] = [_container(0)]
    spec["containers"][0]["name"] = work.kind.container
    return {"metadata": {"annotations": marks}, "spec": spec}


def _launched(work: Workload) -> Manifest:
    """What the spec of a job with a launcher has beside that; its definitions mark its version so."""
    body: Manifest = {"runPolicy": {"cleanPodPolicy": "Running"}, "slotsPerWorker": work.gpus}
    if work.kind.resource == OLD_MPI_JOBS:
        return body | {"mainContainer": work.kind.container}
    policy = "WaitForWorkersReady" if work.waits else "AtStartup"
    return body | {
        "mpiImplementation": "OpenMPI",
        "launcherCreationPolicy": policy,
        "runLauncherAsWorker": work.computes,
    }


def foreign(name: str, node: str, gpus: int, milli: int = 0) -> Manifest:
    """A pod that another scheduler has bound."""
    spec: Manifest = {"nodeName": node, "containers": [_container(gpus)]}
    meta: Manifest = {"name": name, "namespace": NAMESPACE}
    if milli:
        meta["annotations"] = {shares.MILLI: str(milli)}
    return {"metadata": meta, "spec": spec}


def node(name: str, gpus: int, devices: int = 0) -> Manifest:
    """``devices``: beside its GPUs so many that are given away in parts."""
    resources = {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "1Ti", "pods": "20"}
    resources[GPU] = str(gpus)
    if devices:
        resources[shares.COUNT] = str(devices)
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {"capacity": resources, "allocatable": resources, "conditions": [ready]},
    }


def _spec(work: Workload) -> Manifest:
    spec: Manifest = {"containers": [_container(work.gpus)], "restartPolicy": "Never"}
    if work.priority:
        spec["priorityClassName"] = work.priority
    return spec


def _container(gpus: int) -> Manifest:
    amounts = {"cpu": "1"}
    if gpus:
        amounts[GPU] = str(gpus)
    return {"name": "main", "image": "train", "resources": {"requests": amounts, "limits": amounts}}


def _share(work: Workload) -> dict[str, str]:
    if not work.milli:
        return {}
    return {shares.MILLI: str(work.milli), shares.COUNT: str(work.devices)}


def _outcome(work: Workload) -> dict[str, str]:
    if work.seconds is None:
        return {}
    return {RUN_SECONDS: f"{work.seconds:.3f}", EXIT_CODE: str(work.exit_code)}
