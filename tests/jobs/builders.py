"""A job and the pods that a kubelet would show for it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec

from extender.core.framework import JobStep
from extender.core.objects import Pod
from extender.core.times import rfc3339
from extender.jobs.jax import JAXJob
from extender.jobs.lifecycle import TrainingKind
from extender.jobs.mpi_v1 import OldMPIJob
from extender.jobs.mpi_v2 import MPIJob
from extender.jobs.paddle import PaddleJob
from extender.jobs.pytorch import PyTorchJob
from extender.jobs.tensorflow import TFJob
from extender.jobs.xgboost import XGBoostJob

KIND = PyTorchJob()
#: Kind to replicas by type of a job as small as it is usual.
KINDS: dict[str, tuple[TrainingKind, dict[str, int]]] = {
    "pytorch": (KIND, {"Master": 1, "Worker": 2}),
    "tensorflow": (TFJob(), {"PS": 1, "Worker": 2}),
    "xgboost": (XGBoostJob(), {"Master": 1, "Worker": 2}),
    "jax": (JAXJob(), {"Worker": 3}),
    "paddle": (PaddleJob(), {"Worker": 3}),
    "mpi": (MPIJob(), {"Launcher": 1, "Worker": 2}),
    "mpi_v1": (OldMPIJob(), {"Launcher": 1, "Worker": 2}),
}
NOW = 1_790_000_000.0  # 2026-09-21T14:13:20Z


def role(replicas: int = 1, restart_policy: str | None = None, **container: Any) -> dict:
    found: dict[str, Any] = {
        "replicas": replicas,
        "template": {"spec": {"containers": [{"name": "pytorch", "image": "train", **container}]}},
    }
    if restart_policy:
        found["restartPolicy"] = restart_policy
    return found


def job(roles: dict | None = None, name: str = "ddp", uid: str = "job-1", **spec: Any) -> dict:
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "namespace": "team", "uid": uid},
        "spec": {
            "pytorchReplicaSpecs": {"Master": role(), "Worker": role(2)}
            if roles is None
            else roles,
            **spec,
        },
    }


def alone(manifest: dict) -> dict:
    """The job, of which a replica that fails is started again without its peers."""
    return merged(manifest, {"metadata": {"annotations": {"scheduling.muster.dev/restart": "pod"}}})


def of_kind(kind: TrainingKind, roles: dict[str, int], policy: str | None = None) -> dict:
    """A job named ddp of uid job-1."""
    facts = kind.facts
    name = facts.container or "main"
    specs = {type_: role(count, policy, name=name) for type_, count in roles.items()}
    return {
        "apiVersion": facts.api_version,
        "kind": facts.kind,
        "metadata": {"name": "ddp", "namespace": "team", "uid": "job-1"},
        "spec": {facts.specs_key: specs},
    }


def pod(
    name: str,
    phase: str = "Running",
    *,
    owner: str | None = "job-1",
    owner_kind: str = "PyTorchJob",
    node: str = "n1",
    deleting: bool = False,
    grace: int = 0,
    exit_code: int | None = None,
    restarts: int = 0,
    inherited: int = 0,
    of: int = 0,
    disruption: str = "",
    finished: float = 0,
    why: str = "",
    last_exit: int | None = None,
    init_restarts: int = 0,
    started: float = 0,
    sick: str = "",
    uid: str = "",
    container: str = "pytorch",
    ready: bool = False,
    reason: str = "",
) -> Pod:
    """``of``: the restart of its gang that it was made in. ``finished`` and ``started``: seconds
    after NOW. ``grace``: of its deletion, which was asked for 20 s before NOW. ``why``: reason of
    its container's end. ``sick``: a device that it was given.
    """
    owners = [{"kind": owner_kind, "name": "ddp", "uid": owner, "controller": True}]
    metadata: dict[str, Any] = {
        "name": name,
        "uid": uid or f"uid-{name}",
        "ownerReferences": owners if owner else [],
        "annotations": {"scheduling.muster.dev/restarts": str(inherited)} if inherited else {},
    }
    if of:
        metadata["annotations"]["scheduling.muster.dev/gang-restart"] = str(of)
    if deleting:
        metadata["deletionTimestamp"] = rfc3339(NOW - 20 + grace)
        metadata["deletionGracePeriodSeconds"] = grace
    state: dict[str, Any] = {}
    if exit_code is not None:
        end = {"exitCode": exit_code, "reason": why, "finishedAt": rfc3339(NOW + finished)}
        state["terminated"] = end
    raw = {
        "metadata": metadata,
        "spec": {"nodeName": node},
        "status": {
            "phase": phase,
            "reason": reason,
            "conditions": [{"type": "Ready", "status": "True"}] if ready else [],
            "containerStatuses": [{"name": container, "restartCount": restarts, "state": state}],
        },
    }
    status: dict[str, Any] = raw["status"]
    status["startTime"] = rfc3339(NOW + started)
    (box,) = status["containerStatuses"]
    if last_exit is not None:
        box["lastState"] = {"terminated": {"exitCode": last_exit}}
        if finished:
            box["lastState"]["terminated"]["finishedAt"] = rfc3339(NOW + finished)
    if init_restarts:
        status["initContainerStatuses"] = [{"name": "init", "restartCount": init_restarts}]
    if sick:
        device = {"resourceID": sick, "health": "Unhealthy"}
        box["allocatedResourcesStatus"] = [{"name": "nvidia.com/gpu", "resources": [device]}]
    if disruption:
        target = {"type": "DisruptionTarget", "status": "True", "reason": disruption}
        status["conditions"] = [*status.get("conditions", ()), target]
    if reason and exit_code is None:
        status["containerStatuses"] = []
    return msgspec.convert(raw, Pod)


def run(
    manifest: dict, pods: list[Pod] | None = None, services: tuple = (), now: float = NOW
) -> JobStep:
    return KIND.reconcile(manifest, pods or [], frozenset(services), now)


def merged(target: dict, patch: dict) -> dict:
    """RFC 7396 merge patch, as the API server does it."""
    result = dict(target)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            old = result.get(key)
            result[key] = merged(old if isinstance(old, dict) else {}, value)
        else:
            result[key] = deepcopy(value)
    return result


def written(manifest: dict, step: Any) -> dict:
    """The job after the shell has done what the step says about the job itself."""
    result = deepcopy(manifest)
    if step.status is not None:
        result["status"] = merged(result.get("status") or {}, step.status)
    if step.annotations:
        metadata = result["metadata"]
        metadata["annotations"] = merged(metadata.get("annotations") or {}, step.annotations)
    return result


def settled(
    manifest: dict, pods: list[Pod] | None = None, now: float = NOW, times: int = 3
) -> dict:
    """The job after some passes over the same pods."""
    for _ in range(times):
        step = KIND.reconcile(manifest, pods or [], frozenset(), now)
        manifest = written(manifest, step)
    return manifest


def state(manifest: dict) -> dict[str, str]:
    """Type to status of all conditions, in their order."""
    conditions = manifest.get("status", {}).get("conditions", [])
    return {condition["type"]: condition["status"] for condition in conditions}
