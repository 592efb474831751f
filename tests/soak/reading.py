"""What pods, groups and jobs say, in a reading of the soak's own: nothing of Muster is imported."""

from __future__ import annotations

from typing import Any

Obj = dict[str, Any]
#: Kind of record, namespace, name.
GroupKey = tuple[str, str, str]

GPU = "nvidia.com/gpu"
RECORDS = ("VolcanoGroup", "SigsGroup", "NativeGroup")
_KOORDINATOR = "gang.scheduling.koordinator.sh"


def uid_of(obj: Obj) -> str:
    return str(obj["metadata"]["uid"])


def place_of(obj: Obj) -> str:
    meta = obj["metadata"]
    return f"{meta.get('namespace', '')}/{meta['name']}"


def group_of(pod: Obj) -> GroupKey | None:
    """The group that a pod of the load names (it never names two)."""
    meta = pod["metadata"]
    labels, notes = meta.get("labels") or {}, meta.get("annotations") or {}
    namespace = meta["namespace"]
    if name := (pod["spec"].get("schedulingGroup") or {}).get("podGroupName"):
        return "NativeGroup", namespace, name
    if name := labels.get("scheduling.x-k8s.io/pod-group"):
        return "SigsGroup", namespace, name
    name = notes.get("scheduling.k8s.io/group-name") or notes.get(f"{_KOORDINATOR}/name")
    return ("VolcanoGroup", namespace, name) if name else None


def minimum(kind: str, record: Obj) -> int:
    """The least number of members that may run."""
    spec = record.get("spec") or {}
    if kind == "NativeGroup":
        gang = (spec.get("schedulingPolicy") or {}).get("gang") or {}
        return int(gang.get("minCount", 1))
    return int(spec.get("minMember", 1))


def node_of(pod: Obj) -> str:
    return str(pod["spec"].get("nodeName") or "")


def phase_of(pod: Obj) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def ended(pod: Obj) -> bool:
    """It takes no room any more."""
    return phase_of(pod) in ("Succeeded", "Failed")


def gpus_of(spec: Obj) -> int:
    """GPUs that a pod spec asks for."""
    return sum(
        int(((each.get("resources") or {}).get("limits") or {}).get(GPU, 0))
        for each in spec["containers"]
    )


def owner_of(pod: Obj) -> str:
    """The uid of its controller; "" without one."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((str(each["uid"]) for each in owners if each.get("controller")), "")


def verdict(job: Obj) -> str:
    """The terminal condition of a training job; "" while it has none."""
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition["type"] in ("Succeeded", "Failed") and condition["status"] == "True":
            return str(condition["type"])
    return ""


def replicas(job: Obj) -> list[int]:
    """GPUs of each replica that a training job asks for."""
    found: list[int] = []
    for role in job["spec"]["pytorchReplicaSpecs"].values():
        found += [gpus_of(role["template"]["spec"])] * int(role.get("replicas", 1))
    return found
