"""The objects that a training job is made of: pods, headless Services, the PodGroup.

Source: kubeflow/trainer v1.9.4, pkg/controller.v1/common/{pod,service,job}.go. Differences, on
purpose: Services publish addresses of pods that are not ready, so that peers find each other
while they start; workers get no init container that waits for the master's name, so a gang asks
for exactly what its user wrote (but see :mod:`extender.jobs.meeting`).
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Final

from extender.core.api import AUTOSCALERS, MUSTER_GROUP, VOLCANO_GROUPS
from extender.core.capacity import CAPACITY
from extender.core.framework import Replica
from extender.core.objects import Labels, Manifest
from extender.jobs import capacity
from extender.jobs.history import RESTARTS, History
from extender.jobs.model import KindFacts, Role, TrainingJob
from extender.jobs.restarts import RECORD, Restarts

LABEL: Final = "training.kubeflow.org/"
GROUP_NAME: Final = "scheduling.k8s.io/group-name"
TASK_SPEC: Final = "volcano.sh/task-spec"
#: Volcano's annotation of a job, which mpi-operator reads, and Kueue's label.
QUEUE: Final = "scheduling.volcano.sh/queue-name"
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
SCHEDULE_TIMEOUT: Final = f"{MUSTER_GROUP}/schedule-timeout-seconds"
#: Holds the whole job once more; the PodGroup need not.
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

Env = list[Manifest]


def owner(job: TrainingJob) -> list[Manifest]:
    """metadata.ownerReferences of everything that the job owns."""
    return [
        {
            "apiVersion": job.api_version,
            "kind": job.kind,
            "name": job.name,
            "uid": job.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def labels(job: TrainingJob, facts: KindFacts, role: str) -> Labels:
    """Labels of all replicas of a role."""
    return {
        LABEL + "job-name": job.name,
        LABEL + "operator-name": facts.operator,
        LABEL + "replica-type": role,
    }


def selector(job: TrainingJob, facts: KindFacts, role: str) -> str:
    """The label selector of a role, as status.replicaStatuses shows it."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels(job, facts, role).items()))


def pod(
    job: TrainingJob, facts: KindFacts, role: Role, replica: Replica, env: Env, *, leads: bool
) -> Manifest:
    """The pod of a replica: the user's template with names, labels, env and restart policy.

    ``env`` is appended, so that of two entries of one name it counts. ``leads`` marks the master. The kubelet does not know ExitCode: such a pod never restarts in place.
    """
    template = role.template
    meta = template.get("metadata") or {}
    spec = deepcopy(template["spec"])
    spec["restartPolicy"] = "Never" if role.restart_policy == "ExitCode" else role.restart_policy
    for container in spec["containers"]:
        main = facts.container and container.get("name") == facts.container
        if main or facts.env_everywhere:
            container["env"] = [*(container.get("env") or ()), *deepcopy(env)]
        if main:
            _ensure_port(container, facts)
    restarts = History.read(job.annotations).restarts.get((replica.role, replica.index), 0)
    number = Restarts.read(job.annotations).number
    where = capacity.of_role(job, role.name)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": replica.pod_name,
            "namespace": job.namespace,
            "labels": {
                **(meta.get("labels") or {}),
                **labels(job, facts, role.name),
                LABEL + "replica-index": str(replica.index),
                **({LABEL + "job-role": "master"} if leads else {}),
            },
            "annotations": {
                **_given(meta.get("annotations") or {}),
                GROUP_NAME: job.name,
                TASK_SPEC: role.name,
                **({RESTARTS: str(restarts)} if restarts else {}),
                **({RECORD: str(number)} if number else {}),
                **({CAPACITY: where} if where else {}),
            },
            "ownerReferences": owner(job),
        },
        "spec": spec,
    }


def _given(annotations: Labels) -> Labels:
    """A template's annotations without those that count restarts: a template that was copied from a
    pod would begin with that pod's.
    """
    return {key: value for key, value in annotations.items() if key not in (RESTARTS, RECORD)}


def service(job: TrainingJob, facts: KindFacts, role: Role, replica: Replica) -> Manifest:
    """The headless Service that gives a replica its name."""
    chosen = {
        **labels(job, facts, role.name),
        LABEL + "replica-index": str(replica.index),
    }
    containers = role.template["spec"]["containers"]
    main = next(each for each in containers if each.get("name") == facts.container)
    ports = _ensure_port({**main, "ports": list(main.get("ports") or ())}, facts)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": replica.pod_name,
            "namespace": job.namespace,
            "labels": chosen,
            "ownerReferences": owner(job),
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": chosen,
            "ports": [_service_port(port) for port in ports],
        },
    }


def group(job: TrainingJob, gone: Iterable[Replica], master: Role | None) -> Manifest:
    """The job's PodGroup.

    ``gone`` are finished replicas whose pods no longer exist: nobody waits for them. Where a part
    of the job is enough (minAvailable), the master has to be in that part.
    """
    policy = job.policy
    missing = list(gone)
    most = max(1, job.total - len(missing))
    spec: Manifest = {
        "minMember": min(policy.min_available or most, most),
        "queue": policy.queue
        or job.annotations.get(QUEUE)
        or job.labels.get(QUEUE_LABEL)
        or "default",
    }
    if policy.min_available and master:
        needed = master.replicas - sum(replica.role == master.name for replica in missing)
        if needed:
            spec["minTaskMember"] = {master.name: needed}
    priority_class = policy.priority_class or _first_priority_class(job)
    if priority_class:
        spec["priorityClassName"] = priority_class
    if policy.min_resources:
        spec["minResources"] = policy.min_resources
    annotations = {
        key: value
        for key, value in job.annotations.items()
        if key != LAST_APPLIED and not key.startswith(f"{MUSTER_GROUP}/")
    }
    if policy.schedule_timeout is not None:
        annotations[SCHEDULE_TIMEOUT] = str(policy.schedule_timeout)
    return {
        "apiVersion": VOLCANO_GROUPS.api_version,
        "kind": VOLCANO_GROUPS.kind,
        "metadata": {
            "name": job.name,
            "namespace": job.namespace,
            "labels": {LABEL + "job-name": job.name},
            "annotations": annotations,
            "ownerReferences": owner(job),
        },
        "spec": spec,
    }


def autoscaler(job: TrainingJob, least: int, most: int, metrics: list[Manifest]) -> Manifest:
    """The HorizontalPodAutoscaler (autoscaling/v2) of a job's workers, between these bounds."""
    return {
        "apiVersion": AUTOSCALERS.api_version,
        "kind": AUTOSCALERS.kind,
        "metadata": {
            "name": job.name,
            "namespace": job.namespace,
            "labels": {LABEL + "job-name": job.name},
            "ownerReferences": owner(job),
        },
        "spec": {
            "scaleTargetRef": {"apiVersion": job.api_version, "kind": job.kind, "name": job.name},
            "minReplicas": least,
            "maxReplicas": most,
            "metrics": metrics,
        },
    }


def _ensure_port(container: Manifest, facts: KindFacts) -> list[Manifest]:
    ports: list[Manifest] = container.setdefault("ports", []) or []
    if all(port.get("name") != facts.port_name for port in ports):
        ports.append({"name": facts.port_name, "containerPort": facts.port})
    container["ports"] = ports
    return ports


def _service_port(port: Manifest) -> Manifest:
    number = port["containerPort"]
    return {
        # A Service of several ports has to name each of them.
        "name": port.get("name") or f"port-{number}",
        "port": number,
        "targetPort": number,
        **({"protocol": port["protocol"]} if "protocol" in port else {}),
    }


def _first_priority_class(job: TrainingJob) -> str:
    named = (role.template["spec"].get("priorityClassName") or "" for role in job.roles)
    return next(filter(None, named), "")
