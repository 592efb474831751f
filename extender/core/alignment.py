"""What a kubelet would align of a pod: devices of every pod, CPUs and memory of Guaranteed ones.

Source: the hint providers of pkg/kubelet/cm, and GetPodQOS (pkg/apis/core/v1/helper/qos).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from extender.core.objects import Container as Spec
from extender.core.objects import PodSpec, Quantity, ResourceRequirements
from extender.core.quantity import nano
from extender.core.resources import CPU, MEMORY, read_units
from extender.core.topology.kubelet import APP, INIT, SIDECAR, Container
from extender.core.topology.kubelet_shares import shares

Alignment = tuple[Container, ...]
Amounts = dict[str, int]

_NATIVE = "kubernetes.io/"
_HUGE = "hugepages-"
#: Thousandths of a CPU.
_MILLI = 1000


def alignment_of(spec: PodSpec, annotations: Mapping[str, str] | None = None) -> Alignment:
    """The containers in the order in which a kubelet admits them, with the parts of GPUs that they ask
    for; () if it would align nothing. ``annotations``: the pod's, which may ask for parts.

    Raises InvalidObject naming the field.
    """
    parts = shares(spec.containers, annotations or {})
    every = (*spec.init_containers, *spec.containers)
    guaranteed = spec.resources is None and all(_limited(each.resources) for each in every)
    if not guaranteed and not any(parts) and not any(map(_is_device, _names(every))):
        return ()
    found = [
        _aligned(kind, each.resources, where, guaranteed=guaranteed)
        for kind, each, where in _containers(spec)
    ]
    for at, share in enumerate(parts, len(spec.init_containers)):
        if share is not None:
            found[at] = replace(found[at], share=share)
    told = any(each.devices or each.cpus or each.memory or each.share for each in found)
    return tuple(found) if told else ()


def _containers(spec: PodSpec) -> Iterator[tuple[str, Spec, str]]:
    for index, each in enumerate(spec.init_containers):
        kind = SIDECAR if each.restart_policy == "Always" else INIT
        yield kind, each, f"spec.initContainers[{index}].resources"
    for index, each in enumerate(spec.containers):
        yield APP, each, f"spec.containers[{index}].resources"


def _names(containers: Sequence[Spec]) -> Iterator[str]:
    for each in containers:
        yield from each.resources.limits
        yield from each.resources.requests


def _is_device(name: str) -> bool:
    return "/" in name and _NATIVE not in name


def _aligned(
    kind: str, resources: ResourceRequirements, where: str, *, guaranteed: bool
) -> Container:
    devices: Amounts = {}
    memory: Amounts = {}
    cpus = 0
    for name, text in (resources.limits | resources.requests).items():
        if _is_device(name):
            devices[name] = read_units({name: text}, where)[name]
        elif guaranteed and (name == MEMORY or name.startswith(_HUGE)):
            memory[name] = read_units({name: text}, where)[name]
        elif guaranteed and name == CPU:
            milli = read_units({name: text}, where)[name]
            cpus = 0 if milli % _MILLI else milli // _MILLI
    return Container(kind, _asked(devices), cpus, _asked(memory))


def _asked(amounts: Amounts) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(each for each in amounts.items() if each[1]))


def _limited(resources: ResourceRequirements) -> bool:
    """Whether a container's CPU and memory are limited to what it requests.

    If all are so the pod is Guaranteed. Of one with resources of its own (spec.resources) the
    managers align devices alone.
    """
    limits, requests = resources.limits, resources.requests
    return (
        CPU in limits
        and MEMORY in limits
        and _same(requests.get(CPU), limits[CPU])
        and _same(requests.get(MEMORY), limits[MEMORY])
    )


def _same(request: Quantity | None, limit: Quantity) -> bool:
    """A request that is left out is the limit."""
    return request is None or request == limit or nano(request) == nano(limit)
