"""What the stand-in scheduler and kubelet know of room: an independent, plain reading of the rules.

On purpose it shares no code with Muster's own model, so that the two can disagree. Modelled:
resources (containers, init containers, sidecars, overhead, pod count), nodeName, node selector and
affinity, taints, cordon and host ports. Not modelled: pod affinity, topology spread, volumes.

Source: kubernetes ``pkg/scheduler/framework/plugins`` and ``component-helpers`` (1.37).
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from msgspec import Struct

from extender.core.objects import Manifest

_SUFFIX = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("0.001"), "": Decimal(1),
    "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12),
    "P": Decimal(10**15), "E": Decimal(10**18), "Ki": Decimal(2**10), "Mi": Decimal(2**20),
    "Gi": Decimal(2**30), "Ti": Decimal(2**40), "Pi": Decimal(2**50), "Ei": Decimal(2**60),
}  # fmt: skip

Amounts = dict[str, Decimal]


def quantity(text: str | float) -> Decimal:
    """A Kubernetes quantity as an exact number."""
    written = str(text)
    number = written.rstrip("numkMGTPEi")
    suffix = written[len(number) :]
    return Decimal(number) * _SUFFIX[suffix]


def amounts(resources: Mapping[str, Any] | None) -> Amounts:
    return {name: quantity(value) for name, value in (resources or {}).items()}


def requests(pod: Manifest) -> Amounts:
    """What the pod takes on its node; ``pods`` is 1."""
    spec = pod["spec"]
    total: Amounts = {}
    for container in spec.get("containers") or ():
        _add(total, amounts(container.get("resources", {}).get("requests")))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        wanted = amounts(container.get("resources", {}).get("requests"))
        if container.get("restartPolicy") == "Always":
            _add(sidecars, wanted)
            _add(total, wanted)
            wanted = {}
        _max(peak, _sum(wanted, sidecars))
    _max(total, peak)
    # Pod-level resources, where given, stand in place of the sum of the containers'.
    total |= amounts((spec.get("resources") or {}).get("requests"))
    _add(total, amounts(spec.get("overhead")))
    return {**total, "pods": Decimal(1)}


def _add(total: Amounts, more: Amounts) -> None:
    for name, value in more.items():
        total[name] = total.get(name, Decimal(0)) + value


def _max(total: Amounts, other: Amounts) -> None:
    for name, value in other.items():
        total[name] = max(total.get(name, Decimal(0)), value)


def _sum(one: Amounts, two: Amounts) -> Amounts:
    result = dict(one)
    _add(result, two)
    return result


class Row:
    """A node and what is charged to it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.node: Manifest | None = None
        self.allocatable: Amounts = {}
        self.used: Amounts = {}
        self.ports: dict[tuple[str, int, str], int] = {}

    def free(self, resource: str) -> Decimal:
        zero = Decimal(0)
        return self.allocatable.get(resource, zero) - self.used.get(resource, zero)


class Charge(Struct, frozen=True):
    """A pod that is counted on a node."""

    node: str
    amounts: Amounts
    ports: frozenset[tuple[str, int, str]]


class Usage:
    """Nodes, and what the pods on them use. A pod may be charged before its node is known."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self._charges: dict[str, Charge] = {}
        self._listed: list[Row] | None = None

    def set_node(self, name: str, node: Manifest | None) -> None:
        """Add, change or (None) remove a node."""
        row = self.rows.setdefault(name, Row(name))
        if (row.node is None) != (node is None):
            self._listed = None
        row.node = node
        allocatable = ((node or {}).get("status") or {}).get("allocatable")
        row.allocatable = amounts(allocatable)
        self._tidy(row)

    def add(self, pod: Manifest, node: str = "") -> None:
        """Charge a pod to ``node`` or the one it is bound to; at another node before, it moves."""
        uid, where = pod["metadata"]["uid"], node or pod["spec"]["nodeName"]
        if (old := self._charges.get(uid)) is not None and old.node == where:
            return
        self.remove(uid)
        charge = Charge(where, requests(pod), host_ports(pod))
        self._charges[uid] = charge
        row = self.rows.setdefault(where, Row(where))
        _add(row.used, charge.amounts)
        for port in charge.ports:
            row.ports[port] = row.ports.get(port, 0) + 1

    def remove(self, uid: str) -> bool:
        """Whether the pod was charged anywhere."""
        charge = self._charges.pop(uid, None)
        if charge is None:
            return False
        row = self.rows[charge.node]
        _add(row.used, {name: -value for name, value in charge.amounts.items()})
        for port in charge.ports:
            row.ports[port] -= 1
        self._tidy(row)
        return True

    def nodes(self) -> list[Row]:
        """The nodes that exist, by name."""
        if self._listed is None:
            self._listed = [row for _, row in sorted(self.rows.items()) if row.node is not None]
        return self._listed

    def _tidy(self, row: Row) -> None:
        if row.node is None and not any(row.used.values()):
            self.rows.pop(row.name, None)


def host_ports(pod: Manifest) -> frozenset[tuple[str, int, str]]:
    """(protocol, port, address) of every host port."""
    return frozenset(
        (port.get("protocol", "TCP"), port["hostPort"], port.get("hostIP") or "0.0.0.0")  # noqa: S104 - the API's word for any
        for container in pod["spec"].get("containers") or ()
        for port in container.get("ports") or ()
        if port.get("hostPort")
    )


def over_committed(usage: Usage, pod: Manifest) -> str:
    """The first resource, by name, that the pod's node has too little of; "" if none."""
    row = usage.rows.get(pod["spec"]["nodeName"])
    if row is None or row.node is None:
        return ""
    for name, value in sorted(requests(pod).items()):
        if value > 0 and value > row.free(name):
            return name
    return ""


def least_allocated(wanted: Amounts, row: Row) -> int:
    """Mean free percentage after placement over what the pod asks for (pod count apart).

    A node that went, or lost a resource, while the extenders were asked counts as full in it.
    """
    names = [name for name, value in wanted.items() if value > 0 and name != "pods"]
    if not names:
        return 0
    shares = [
        (row.free(name) - wanted[name]) * 100 // row.allocatable[name]
        for name in names
        if row.allocatable.get(name)
    ]
    return int(sum(shares) // len(names))
