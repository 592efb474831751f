"""Shapes of the pods that the watch shows, each made once.

A cluster's pods are made from few templates, and :func:`extender.core.shape.shape_of` costs more
than all else that is done with one. What a shape is made of is copied out of the pod first, and
the shape is made of the copy alone: copies that are equal byte by byte cannot have two shapes.
"""

from __future__ import annotations

import msgspec

from extender.core.indexes import INDEX_LABELS
from extender.core.objects import (
    Affinity,
    ContainerStatus,
    Meta,
    NodeAffinity,
    Pod,
    PodSpec,
    PodStatus,
    Volume,
)
from extender.core.resources import RESIZE_PENDING
from extender.core.shape import ANNOTATIONS, PodShape, required_nodes, shape_of

#: Shapes that are kept at most; then all are forgotten, as it is cheaper to make them anew than to
#: know which is used.
KEPT = 4096


class Shapes:
    """Knows the shapes of pods without their pin and their node."""

    def __init__(self) -> None:
        self._known: dict[bytes, PodShape] = {}
        # Integers may be of any length, which MessagePack has no place for.
        self._encode = msgspec.json.Encoder().encode

    def of(self, pod: Pod) -> PodShape:
        """As shape_of does, with ``ignore_pin`` and ``ignore_node``. Raises InvalidObject."""
        copy = essence(pod)
        key = self._encode(copy)
        shape = self._known.get(key)
        if shape is None:
            shape = shape_of(copy)
            if len(self._known) >= KEPT:
                self._known.clear()
            self._known[key] = shape
        return shape


def essence(pod: Pod) -> Pod:
    """What of a pod its shape is made of, without its pin and its node. Raises InvalidObject."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    affinity, labels = _affinity(spec), meta.labels
    related = affinity is not None or spec.topology_spread_constraints
    if not related and not INDEX_LABELS.isdisjoint(labels):
        # Only where its own terms name them are they of its shape.
        labels = {key: value for key, value in labels.items() if key not in INDEX_LABELS}
    annotations = meta.annotations
    return Pod(
        metadata=Meta(
            namespace=meta.namespace,
            labels=labels,
            annotations={key: annotations[key] for key in ANNOTATIONS if key in annotations},
        ),
        spec=PodSpec(
            containers=spec.containers,
            init_containers=spec.init_containers,
            overhead=spec.overhead,
            resources=spec.resources,
            node_selector=spec.node_selector,
            affinity=affinity,
            tolerations=spec.tolerations,
            topology_spread_constraints=spec.topology_spread_constraints,
            priority=spec.priority,
            volumes=_claims(spec.volumes),
            host_network=spec.host_network,
        ),
        status=_status(status),
    )


def _affinity(spec: PodSpec) -> Affinity | None:
    affinity = spec.affinity
    if affinity is None or affinity.node_affinity is None:
        return affinity
    required, preferred = required_nodes(spec, ignore_pin=True), affinity.node_affinity.preferred
    together, apart = affinity.pod_affinity, affinity.pod_anti_affinity
    if required is None and not preferred and together is None and apart is None:
        return None
    nodes = NodeAffinity(required=required, preferred=preferred)
    return Affinity(node_affinity=nodes, pod_affinity=together, pod_anti_affinity=apart)


def _claims(volumes: tuple[Volume, ...]) -> tuple[Volume, ...]:
    """Names of volumes may be drawn anew for each pod."""
    claims = [each.persistent_volume_claim for each in volumes]
    return tuple([Volume(persistent_volume_claim=each) for each in claims if each is not None])


def _status(status: PodStatus) -> PodStatus:
    """Resources as they are, and whether a change of them is refused."""
    return PodStatus(
        conditions=tuple([c for c in status.conditions if c.type == RESIZE_PENDING]),
        container_statuses=_resized(status.container_statuses),
        init_container_statuses=_resized(status.init_container_statuses),
        resources=status.resources,
        allocated_resources=status.allocated_resources,
        resize=status.resize,
    )


def _resized(statuses: tuple[ContainerStatus, ...]) -> tuple[ContainerStatus, ...]:
    return tuple(
        [
            ContainerStatus(
                name=each.name,
                resources=each.resources,
                allocated_resources=each.allocated_resources,
            )
            for each in statuses
            if each.resources is not None
        ]
    )
