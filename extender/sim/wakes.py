"""What kube-scheduler takes for events that may make a pod schedulable. Pure.

Source: kubernetes ``pkg/scheduler/framework/events.go`` (1.37).
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

from extender.core.objects import Manifest


class Wake(Enum):
    """What happened in the cluster, as far as it can make a pod schedulable."""

    NODE_ADD = auto()
    NODE_DELETE = auto()
    NODE_ALLOCATABLE = auto()
    NODE_LABELS = auto()
    NODE_TAINTS = auto()
    NODE_OTHER = auto()
    POD_ADD = auto()
    POD_UPDATE = auto()
    POD_DELETE = auto()
    #: The waiting pod itself changed: anything of it, or its labels or spec.
    SELF = auto()
    SELF_SPEC = auto()


def node_wakes(old: Manifest | None, new: Manifest | None) -> list[Wake]:
    """Which changes of a node kube-scheduler takes for events; heartbeats are none."""
    if old is None or new is None:
        if old is new:
            return []
        return [Wake.NODE_ADD if old is None else Wake.NODE_DELETE]
    before, after = _parts(old), _parts(new)
    return [wake for wake in before if before[wake] != after[wake]]


def _parts(node: Manifest) -> dict[Wake, list[Any]]:
    meta, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    conditions = [(item["type"], item["status"]) for item in status.get("conditions") or ()]
    return {
        Wake.NODE_ALLOCATABLE: [status.get("allocatable")],
        Wake.NODE_LABELS: [meta.get("labels")],
        Wake.NODE_TAINTS: [spec.get("taints"), spec.get("unschedulable")],
        Wake.NODE_OTHER: [meta.get("annotations"), conditions],
    }
