"""Spot and on-demand nodes, told apart by labels that clouds and autoscalers put on them."""

from __future__ import annotations

from typing import Any, Final

from extender.core.api import MUSTER_GROUP

#: On a job: where its replica types run (extender/jobs/capacity.py). On a pod: where it does.
CAPACITY: Final = f"{MUSTER_GROUP}/capacity"
ON_DEMAND, SPOT = CAPACITY_TYPES = ("on-demand", "spot")

#: Labels of spot nodes, of which one is enough: Karpenter, EKS, GKE (both kinds), AKS.
SPOT_LABELS: Final = (
    ("karpenter.sh/capacity-type", "spot"),
    ("eks.amazonaws.com/capacityType", "SPOT"),
    ("cloud.google.com/gke-spot", "true"),
    ("cloud.google.com/gke-preemptible", "true"),
    ("kubernetes.azure.com/scalesetpriority", "spot"),
)

_KEY: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def confine(spec: dict[str, Any], wish: str, labels: tuple[tuple[str, str], ...]) -> None:
    """Let a pod go to nodes of one sort alone, beside what its spec asks for: on-demand nodes have
    none of the labels, spot nodes have one.
    """
    if wish not in CAPACITY_TYPES or not labels:
        return
    without = [{"key": key, "operator": "NotIn", "values": [value]} for key, value in labels]
    either = [[{"key": key, "operator": "In", "values": [value]}] for key, value in labels]
    ways = [without] if wish == ON_DEMAND else either
    affinity = spec["affinity"] = dict(spec.get("affinity") or {})
    node_affinity = affinity["nodeAffinity"] = dict(affinity.get("nodeAffinity") or {})
    terms = (node_affinity.get(_KEY) or {}).get("nodeSelectorTerms") or [{}]
    node_affinity[_KEY] = {
        "nodeSelectorTerms": [
            {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), *way]}
            for term in terms
            for way in ways
        ]
    }
