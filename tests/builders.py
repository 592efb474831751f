"""Small builders of API objects; every part of Muster is tested with the same ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from extender.core import objects as o

GPU = "nvidia.com/gpu"
HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def node(
    name: str,
    *,
    cpu: o.Quantity = "64",
    memory: o.Quantity = "256Gi",
    gpus: int = 0,
    pods: int = 110,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[str] = (),
    unschedulable: bool = False,
    resources: Mapping[str, o.Quantity] | None = None,
) -> o.Node:
    """A ready node. ``taints`` are written ``key=value:Effect`` or ``key:Effect``."""
    allocatable: o.Resources = {"cpu": cpu, "memory": memory, "pods": str(pods)}
    if gpus:
        allocatable[GPU] = str(gpus)
    allocatable.update(resources or {})
    return o.Node(
        metadata=o.Meta(name=name, uid=f"node-{name}", labels={HOST: name, **(labels or {})}),
        spec=o.NodeSpec(unschedulable=unschedulable, taints=tuple(map(taint, taints))),
        status=o.NodeStatus(
            allocatable=allocatable,
            capacity=allocatable,
            conditions=(o.Condition(type="Ready", status="True"),),
        ),
    )


def taint(text: str) -> o.Taint:
    head, _, effect = text.rpartition(":")
    key, _, value = head.partition("=")
    return o.Taint(key=key, value=value, effect=effect)


def pod(
    name: str,
    *,
    namespace: str = "default",
    node: str = "",
    cpu: o.Quantity | None = "1",
    memory: o.Quantity | None = None,
    gpus: int = 0,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    phase: str = "",
    scheduler: str = "muster",
    priority: int | None = None,
    deleting: bool = False,
    requests: Mapping[str, o.Quantity] | None = None,
    spec: Mapping[str, Any] | None = None,
    uid: str = "",
) -> o.Pod:
    """A pod of one container. ``spec`` holds further PodSpec fields as in the API's JSON."""
    asked: o.Resources = {}
    if cpu is not None:
        asked["cpu"] = cpu
    if memory is not None:
        asked["memory"] = memory
    if gpus:
        asked[GPU] = str(gpus)
    asked.update(requests or {})
    raw: dict[str, Any] = {
        "containers": [{"name": "main", "resources": {"requests": asked}}],
        "schedulerName": scheduler,
        **(spec or {}),
    }
    if node:
        raw["nodeName"] = node
    if priority is not None:
        raw["priority"] = priority
    return o.Pod(
        metadata=o.Meta(
            name=name,
            namespace=namespace,
            uid=uid or f"{namespace}/{name}",
            resource_version="1",
            labels=dict(labels or {}),
            annotations=dict(annotations or {}),
            creation_timestamp="2026-01-01T00:00:00Z",
            deletion_timestamp="2026-01-01T01:00:00Z" if deleting else None,
        ),
        spec=msgspec.convert(raw, o.PodSpec),
        status=o.PodStatus(phase=phase or ("Running" if node else "Pending")),
    )


def claim(name: str, volume: str = "", *, namespace: str = "default") -> o.Claim:
    return o.Claim(
        metadata=o.Meta(name=name, namespace=namespace),
        spec=o.ClaimSpec(volume_name=volume),
        status=o.ClaimStatus(phase="Bound" if volume else "Pending"),
    )


def volume(name: str, *, zone: str = "", node: str = "") -> o.PersistentVolume:
    """A persistent volume that is reachable from one zone or one node only, or from everywhere."""
    key, value = (ZONE, zone) if zone else (HOST, node)
    if not value:
        return o.PersistentVolume(metadata=o.Meta(name=name))
    term = o.NodeSelectorTerm(match_expressions=(o.Requirement(key, "In", (value,)),))
    affinity = o.VolumeNodeAffinity(required=o.NodeSelector(node_selector_terms=(term,)))
    return o.PersistentVolume(
        metadata=o.Meta(name=name), spec=o.PersistentVolumeSpec(node_affinity=affinity)
    )


def namespace(name: str, **labels: str) -> o.Namespace:
    return o.Namespace(metadata=o.Meta(name=name, labels=labels))
