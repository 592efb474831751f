"""What users submit: gangs of every convention, training jobs and plain pods, as manifests."""

from __future__ import annotations

import random

from msgspec import Struct

from extender.chaos import claims
from extender.core.api import (
    CONFIG_MAPS,
    JAX_JOBS,
    NATIVE_GROUPS,
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
_SPEC_OF_GROUP = {VOLCANO_GROUPS: "minMember", SIGS_GROUPS: "minMember"}


class JobKind(Struct, frozen=True):
    """A kind of training jobs, the container that it looks at, and its roles beside workers."""

    resource: Resource
    container: str
    leaders: tuple[str, ...] = ("Master",)


PYTORCH = JobKind(PYTORCH_JOBS, "pytorch")
JOB_KINDS = (
    PYTORCH,
    JobKind(TF_JOBS, "tensorflow", ("Chief", "PS")),
    JobKind(XGBOOST_JOBS, "xgboost"),
    JobKind(JAX_JOBS, "jax", ()),
    JobKind(PADDLE_JOBS, "paddle"),
)


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
    meta["annotations"] |= _outcome(work)
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
    spec = _spec(work)
    spec["containers"][0]["name"] = work.kind.container
    template = {"metadata": {"annotations": _outcome(work)}, "spec": spec}
    leaders = work.kind.leaders[: work.size] if not work.elastic else ()
    counts = dict.fromkeys(leaders, 1)
    if workers := work.size - len(leaders):
        counts["Worker"] = workers
    roles = {
        role: {"replicas": count, "restartPolicy": work.restarts, "template": template}
        for role, count in counts.items()
    }
    body: Manifest = {claims.JOBS[work.kind.resource]: roles}
    if work.least < work.size:
        body["runPolicy"] = {"schedulingPolicy": {"minAvailable": work.least}}
    if work.elastic:
        body["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": MOST_PODS}
    return {"metadata": {"name": work.name, "namespace": NAMESPACE}, "spec": body}


def foreign(name: str, node: str, gpus: int) -> Manifest:
    """A pod that another scheduler has bound."""
    spec: Manifest = {"nodeName": node, "containers": [_container(gpus)]}
    return {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def node(name: str, gpus: int) -> Manifest:
    resources = {"cpu": "16", "memory": "64Gi", "pods": "20", GPU: str(gpus)}
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
    amounts = {"cpu": "1", GPU: str(gpus)}
    return {"name": "main", "image": "train", "resources": {"requests": amounts, "limits": amounts}}


def _outcome(work: Workload) -> dict[str, str]:
    if work.seconds is None:
        return {}
    return {RUN_SECONDS: f"{work.seconds:.3f}", EXIT_CODE: str(work.exit_code)}
