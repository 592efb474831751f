"""What a pod and its group say, in a reading of its own: the judge shares no code with the core."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from extender.core.api import (
    CONFIG_MAPS,
    JAX_JOBS,
    MPI_JOBS,
    NATIVE_GROUPS,
    OLD_MPI_JOBS,
    PADDLE_JOBS,
    PYTORCH_JOBS,
    SECRETS,
    SIGS_GROUPS,
    TF_JOBS,
    VOLCANO_GROUPS,
    XGBOOST_JOBS,
    Resource,
)
from extender.core.objects import Manifest

#: Annotation of a pod: its task in a Volcano group.
TASK = "volcano.sh/task-spec"

GROUPS = (VOLCANO_GROUPS, SIGS_GROUPS, NATIVE_GROUPS)
#: Kinds of training jobs, with the field that says what replicas they have.
JOBS = {
    PYTORCH_JOBS: "pytorchReplicaSpecs",
    TF_JOBS: "tfReplicaSpecs",
    XGBOOST_JOBS: "xgbReplicaSpecs",
    JAX_JOBS: "jaxReplicaSpecs",
    PADDLE_JOBS: "paddleReplicaSpecs",
    MPI_JOBS: "mpiReplicaSpecs",
    OLD_MPI_JOBS: "mpiReplicaSpecs",
}
#: Of those, the ones with a launcher, which decides how they end and finds its workers by a file.
LAUNCHED = (MPI_JOBS, OLD_MPI_JOBS)
#: A group's kind, namespace and name.
Group = tuple[Resource, str, str]


def group_of(pod: Manifest) -> Group | None:
    """The group that a pod of the simulation names (it never names two)."""
    meta = pod["metadata"]
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    native = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
    sigs = labels.get("scheduling.x-k8s.io/pod-group")
    volcano = annotations.get("scheduling.k8s.io/group-name")
    ack = labels.get("pod-group.scheduling.sigs.k8s.io/name")
    for resource, name in (
        (NATIVE_GROUPS, native),
        (SIGS_GROUPS, sigs),
        (VOLCANO_GROUPS, volcano or ack),
    ):
        if name:
            return resource, meta["namespace"], name
    return None


def minimum(resource: Resource, group: Manifest) -> int:
    """The least number of members that may run."""
    spec = group.get("spec") or {}
    if resource == NATIVE_GROUPS:
        policy = spec.get("schedulingPolicy") or {}
        return int((policy.get("gang") or {}).get("minCount", 1))
    return int(spec.get("minMember", 1))


def tasks_short(group: Manifest, members: Iterable[Manifest]) -> Counter[str]:
    """How many of which task (role) it has to have placed yet, beside the least number of all."""
    least = Counter((group.get("spec") or {}).get("minTaskMember") or {})
    return least - Counter(task_of(pod) for pod in members if placed(pod))


def task_of(pod: Manifest) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(TASK, ""))


def phase(pod: Manifest) -> str:
    return str((pod.get("status") or {}).get("phase", "Pending"))


def node_of(pod: Manifest) -> str:
    return pod["spec"].get("nodeName") or ""


def placed(pod: Manifest) -> bool:
    """It runs in its place, or has done what it was there for."""
    return bool(node_of(pod)) and phase(pod) != "Failed"


def ready(pod: Manifest) -> bool:
    """Its kubelet says so, and nobody has overwritten it (the stand-in scheduler's condition may)."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)


def ended(pod: Manifest) -> bool:
    """It takes no room any more."""
    return phase(pod) in ("Succeeded", "Failed")


def owner(obj: Manifest) -> dict[str, str]:
    """The reference to its controller; empty without one."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return dict(reference)
    return {}


def owner_uid(obj: Manifest) -> str:
    """The uid of its controller; "" without one."""
    return owner(obj).get("uid", "")


def replicas(kind: Resource, job: Manifest) -> dict[str, Manifest]:
    """The pods that a training job asks for: their specs by name."""
    name = job["metadata"]["name"]
    return {
        launcher_of(job) if role == "Launcher" else f"{name}-{role.lower()}-{index}": spec[
            "template"
        ]["spec"]
        for role, spec in job["spec"][JOBS[kind]].items()
        for index in range(spec["replicas"])
    }


def launcher_of(job: Manifest) -> str:
    """The name of the pod by which a job of :data:`LAUNCHED` ends."""
    return f"{job['metadata']['name']}-launcher"


def launcher_waits(job: Manifest) -> bool:
    """Whether the launcher is made when all workers run, and is none of those that it takes."""
    return bool(job["spec"].get("launcherCreationPolicy") == "WaitForWorkersReady")


def belongings(kind: Resource, name: str) -> list[tuple[Resource, str]]:
    """What a job of :data:`LAUNCHED` owns before its pods: the list of its hosts, and keys to them."""
    keys = [(SECRETS, f"{name}-ssh")] if kind == MPI_JOBS else []
    return [(CONFIG_MAPS, f"{name}-config"), *keys]


def role_of(job: Manifest, pod_name: str) -> str:
    """The role of one of its :func:`replicas`, in lower case."""
    if pod_name == launcher_of(job):
        return "launcher"
    return pod_name.removeprefix(f"{job['metadata']['name']}-").rpartition("-")[0]


def least_of(kind: Resource, job: Manifest) -> range:
    """What its group's minimum may be: all replicas but those that have succeeded, of which the
    pods may be gone, or fewer where it says so (minAvailable).
    """
    total = len(replicas(kind, job))
    if launcher_waits(job):
        total = max(total - 1, 1)
    policy = (job["spec"].get("runPolicy") or {}).get("schedulingPolicy") or {}
    enough = policy.get("minAvailable") or total
    return range(min(enough, max(1, total - succeeded(job))), min(enough, total) + 1)


def least_workers(kind: Resource, job: Manifest) -> int:
    """How many workers at least a launcher that waits for them waits for."""
    return min(least_of(kind, job)[-1], len(replicas(kind, job)) - 1)


def succeeded(job: Manifest) -> int:
    """Replicas of a training job that have done what they were there for."""
    by_role = (job.get("status") or {}).get("replicaStatuses") or {}
    return sum(int(each.get("succeeded") or 0) for each in by_role.values())


def verdict(job: Manifest) -> str:
    """The terminal condition of a training job; "" while it has none."""
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition["type"] in ("Succeeded", "Failed") and condition["status"] == "True":
            return str(condition["type"])
    return ""
