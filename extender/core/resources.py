"""What a pod takes from its node.

Source: k8s.io/component-helpers/resource/helpers.go (PodRequests with UseStatusResources, as
kube-scheduler calls it) and the defaulting of requests by limits in pkg/apis/core/v1/defaults.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from extender.core import quantity
from extender.core.errors import QuantityError
from extender.core.objects import (
    Container,
    ContainerStatus,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    Resources,
)

CPU = "cpu"
MEMORY = "memory"
STORAGE = "ephemeral-storage"
PODS = "pods"

#: The condition of a pod whose resize the kubelet puts off or refuses.
RESIZE_PENDING = "PodResizePending"

#: Quantities in units of 1e-9 (see quantity.nano), so that sums round once, at the end.
Nanos = dict[str, int]


def pod_requests(spec: PodSpec, status: PodStatus | None) -> dict[str, int]:
    """Requests by resource name: cpu in milli, everything else in whole units, and ``pods`` 1.

    Resources of which nothing is asked are left out: they never keep a pod from a node.
    Raises QuantityError with the field, e.g. ``spec.containers[0].resources.requests[cpu]``.
    """
    total = _containers(spec, status)
    if spec.resources is not None:
        total |= _pod_level(spec.resources, status, total)
    _add(total, _read(spec.overhead, "spec.overhead"))
    requests = {name: units(name, value) for name, value in total.items() if value}
    requests[PODS] = 1
    return requests


def units(name: str, nanos: int) -> int:
    """The integer that columns hold: milli for cpu, whole units for the rest, rounded up."""
    per_unit = quantity.NANO // 1000 if name == CPU else quantity.NANO
    value = -(-nanos // per_unit)
    if value > quantity.LIMIT:
        raise QuantityError(f"requests[{name}]", value, f"a value of at most {quantity.LIMIT}")
    return value


def read_units(resources: Resources, where: str) -> dict[str, int]:
    """A resource list in the units of the columns. Raises QuantityError naming the field."""
    return {name: units(name, value) for name, value in _read(resources, where).items()}


def _containers(spec: PodSpec, status: PodStatus | None) -> Nanos:
    """Containers run together, beside the sidecars; init containers one by one before them."""
    seen = _statuses(status)
    infeasible = status is not None and _resize_infeasible(status)
    total: Nanos = {}
    for index, container in enumerate(spec.containers):
        where = f"spec.containers[{index}].resources"
        _add(total, _in_place(container, seen, where, infeasible=infeasible))
    sidecars: Nanos = {}
    peak: Nanos = {}
    for index, container in enumerate(spec.init_containers):
        where = f"spec.initContainers[{index}].resources"
        if container.restart_policy == "Always":
            asked = _in_place(container, seen, where, infeasible=infeasible)
            _add(total, asked)
            _add(sidecars, asked)
            _raise_to(peak, sidecars)
        else:
            asked = _asked(container.resources, where)
            _add(asked, sidecars)
            _raise_to(peak, asked)
    _raise_to(total, peak)
    return total


def _pod_level(
    resources: ResourceRequirements, status: PodStatus | None, containers: Nanos
) -> Nanos:
    """What spec.resources says instead of the containers; limits count where nobody requests."""
    requests = _read(resources.requests, "spec.resources.requests")
    limits = _read(resources.limits, "spec.resources.limits")
    asked = {name: value for name, value in limits.items() if name not in containers} | requests
    asked = {name: value for name, value in asked.items() if _at_pod_level(name)}
    if status is not None and asked:
        actual: Nanos = {}
        if status.resources is not None:
            _raise_to(actual, _read(status.resources.requests, "status.resources.requests"))
        _raise_to(actual, _read(status.allocated_resources, "status.allocatedResources"))
        known = {name: value for name, value in actual.items() if name in asked}
        if known and _resize_infeasible(status):
            asked |= known
        else:
            _raise_to(asked, known)
    return asked


def _at_pod_level(name: str) -> bool:
    return name in (CPU, MEMORY) or name.startswith("hugepages-")


def _in_place(
    container: Container, seen: Mapping[str, ContainerStatus], where: str, *, infeasible: bool
) -> Nanos:
    """The largest of wanted, allocated and actual while a resize is under way.

    A resize that the kubelet has called infeasible does not count.
    """
    asked = _asked(container.resources, where)
    status = seen.get(container.name)
    if status is None or status.resources is None:
        return asked
    where = f"status.containerStatuses[{container.name}]"
    actual = _read(status.resources.requests, f"{where}.resources.requests")
    _raise_to(actual, _read(status.allocated_resources, f"{where}.allocatedResources"))
    if infeasible:
        return actual
    _raise_to(asked, actual)
    return asked


def _statuses(status: PodStatus | None) -> dict[str, ContainerStatus]:
    if status is None:
        return {}
    both = (*status.container_statuses, *status.init_container_statuses)
    return {each.name: each for each in both}


def _resize_infeasible(status: PodStatus) -> bool:
    return status.resize == "Infeasible" or any(
        condition.type == RESIZE_PENDING and condition.reason == "Infeasible"
        for condition in status.conditions
    )


def _asked(resources: ResourceRequirements, where: str) -> Nanos:
    """Requests, and limits where there is no request (what the API server writes at creation)."""
    asked = _read(resources.limits, f"{where}.limits")
    asked.update(_read(resources.requests, f"{where}.requests"))
    return asked


def _read(resources: Resources, where: str) -> Nanos:
    values = {}
    for name, text in resources.items():
        try:
            values[name] = quantity.nano(text)
        except QuantityError as error:  # it knows the value; this is where the field is known
            raise QuantityError(f"{where}[{name}]", text, error.allowed) from error
    return values


def _add(total: Nanos, more: Mapping[str, int]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _raise_to(total: Nanos, floor: Mapping[str, int]) -> None:
    for name, value in floor.items():
        total[name] = max(total.get(name, 0), value)


def render(name: str, value: int) -> str:
    """A column's integer as people write it: cores or milli-cores, the biggest exact binary unit.

    Negative values (a node that shrank under its pods) keep their sign.
    """
    if name == CPU:
        return str(value // 1000) if value % 1000 == 0 else f"{value}m"
    if name in (MEMORY, STORAGE) or name.startswith("hugepages-"):
        return _binary(value)
    return str(value)


def _binary(value: int) -> str:
    for power, unit in _BINARY:
        if value and value % power == 0:
            return f"{value // power}{unit}"
    return str(value)


_BINARY: Iterable[tuple[int, str]] = tuple(
    (1024**power, f"{unit}i") for power, unit in reversed(tuple(enumerate("KMGTPE", 1)))
)
