"""What a plain kubelet gives a pod: which devices and zones, or TopologyAffinityError.

The kubelet admits a pod container by container, init containers first: its managers say which NUMA
nodes could serve the container, the Topology Manager picks (:mod:`.kubelet_hints`), and each
manager takes from there; of devices the plugin says which. Source: pkg/kubelet/cm of Kubernetes
(topologymanager, devicemanager, cpumanager policy static, memorymanager policy Static).

Not modelled: cpumanager's align-by-socket and distribute-cpus-across-numa, memory that an app
container takes over from an init container.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from extender.core.topology import kubelet_hints as hints
from extender.core.topology.kubelet_hints import Affinity, Hints, within
from extender.core.topology.kubelet_shares import Share
from extender.core.topology.kubelet_take import Prefer, cpus_for, devices_for, no_preference

#: Why a kubelet refuses a pod: status.reason of the pod that it fails.
AFFINITY_ERROR = "TopologyAffinityError"
SMT_ERROR = "SMTAlignmentError"
ADMISSION_ERROR = "UnexpectedAdmissionError"
REFUSALS = frozenset({AFFINITY_ERROR, SMT_ERROR, ADMISSION_ERROR})

APP, INIT, SIDECAR = "app", "init", "sidecar"


class Kubelet(Struct, frozen=True):
    """How one kubelet is configured."""

    policy: str
    zones: int
    scope: str = "container"
    #: (zones, zones), where the option prefer-closest-numa-nodes is on; else empty.
    distance: tuple[tuple[int, ...], ...] = ()
    #: Whether the policies of the CPU and the memory manager are static.
    static_cpu: bool = True
    static_memory: bool = False
    #: full-pcpus-only: exclusive CPUs come in multiples of a core's threads. 1: they need not.
    threads: int = 1


class Devices(Struct, frozen=True):
    """The devices of one resource; a set of them is a mask, bit i is device i."""

    #: (n,) the zones of each as a mask, 0 where the plugin tells none. Unhealthy ones are there.
    zones: tuple[int, ...]
    #: Healthy and not given out.
    free: int


class Amounts(Struct, frozen=True):
    """CPUs or bytes of each zone. (zones,) each."""

    #: Of CPUs all that there are; of memory what may be given out.
    total: tuple[int, ...]
    free: tuple[int, ...]


class Stock(Struct, frozen=True):
    """What a node has, resources by name in order."""

    devices: tuple[tuple[str, Devices], ...] = ()
    #: Exclusive CPUs; None: it is not known where they are, so they bind nothing.
    cpus: Amounts | None = None
    memory: tuple[tuple[str, Amounts], ...] = ()
    #: (zones,) see :func:`.kubelet_hints.of_memory`; empty: no memory is known.
    groups: tuple[int, ...] = ()


class Container(Struct, frozen=True):
    """What one container asks for of what is aligned."""

    #: APP, INIT or SIDECAR.
    kind: str = APP
    #: By resource name, in order.
    devices: tuple[tuple[str, int], ...] = ()
    #: Exclusive CPUs: those of a Guaranteed pod's container that asks for whole ones.
    cpus: int = 0
    #: Bytes by kind, of Guaranteed pods only.
    memory: tuple[tuple[str, int], ...] = ()
    #: Parts of GPUs, which are no matter of the kubelet's (:mod:`.parts`).
    share: Share | None = None


class Verdict(Struct, frozen=True):
    """What becomes of a pod."""

    #: "" where it is admitted, else one of REFUSALS.
    reason: str
    #: What is left; where the pod is refused, what there was.
    stock: Stock
    #: (containers,) the zones of each as a mask, None where any do.
    zones: tuple[int | None, ...] = ()
    #: The set of devices that the pod holds, by resource.
    devices: Mapping[str, int] = {}


def admit(
    kubelet: Kubelet,
    stock: Stock,
    pod: Sequence[Container],
    prefer: Mapping[str, Prefer] | None = None,
) -> Verdict:
    """Let the kubelet admit a pod: ``pod`` has its init containers first, in their order.

    ``prefer`` has the device plugins that say which devices to take, by resource.
    """
    admission = _Admission(kubelet, stock, prefer or {})
    zones, reason = admission.run(pod)
    if reason:
        return Verdict(reason, stock)
    return Verdict("", admission.left(), zones, admission.held)


def taken_anyhow(
    kubelet: Kubelet,
    stock: Stock,
    pod: Sequence[Container],
    prefer: Mapping[str, Prefer] | None = None,
) -> Stock:
    """What is left once the pod runs, be the policy against it: it was admitted when less was taken.

    Devices and CPUs that are not there are not taken.
    """
    least = replace(kubelet, policy=hints.BEST_EFFORT, threads=1)
    for container in pod:
        found = admit(least, stock, (container,), prefer)
        stock = found.stock
    return stock


def idle(stock: Stock) -> Stock:
    """The same node as if nothing were given out; unhealthy devices are not known, so they count."""
    return Stock(
        tuple((name, replace(d, free=(1 << len(d.zones)) - 1)) for name, d in stock.devices),
        None if stock.cpus is None else replace(stock.cpus, free=stock.cpus.total),
        tuple((name, replace(each, free=each.total)) for name, each in stock.memory),
        (0,) * len(stock.groups),
    )


class _Admission:
    """One pod on its way: what is free, and what its init containers leave to those after them."""

    def __init__(self, kubelet: Kubelet, stock: Stock, prefer: Mapping[str, Prefer]) -> None:
        self.kubelet = kubelet
        self.stock = stock
        self.prefer = prefer
        self.free = {name: each.free for name, each in stock.devices}
        self.kept = dict.fromkeys(self.free, 0)
        self.held = dict.fromkeys(self.free, 0)
        self.where = {name: each.zones for name, each in stock.devices}
        cpus = stock.cpus if kubelet.static_cpu else None
        self.cpus = cpus.total if cpus is not None else ()
        self.cpus_free = list(cpus.free) if cpus is not None else []
        self.cpus_kept = [0] * len(self.cpus)
        known = stock.memory if kubelet.static_memory and stock.groups else ()
        self.memory = {name: each.total for name, each in known}
        self.memory_free = {name: list(each.free) for name, each in known}
        self.groups = list(stock.groups)

    def run(self, pod: Sequence[Container]) -> tuple[tuple[int | None, ...], str]:
        """The zones of each container, and why the pod is refused."""
        whole = self._affinity(together(pod)) if self.kubelet.scope == "pod" else None
        zones = []
        for container in pod:
            affinity = whole or self._affinity(container)
            reason = "" if affinity.admitted else AFFINITY_ERROR
            for take in (self._take_cpus, self._take_memory, self._take_devices):
                reason = reason or take(container, affinity.mask)
            if reason:
                return (), reason
            zones.append(affinity.mask)
        return tuple(zones), ""

    def left(self) -> Stock:
        stock = self.stock
        return Stock(
            tuple((name, replace(d, free=self.free[name])) for name, d in stock.devices),
            replace(stock.cpus, free=tuple(self.cpus_free))
            if self.cpus and stock.cpus
            else stock.cpus,
            tuple(
                (name, replace(each, free=tuple(self.memory_free.get(name, each.free))))
                for name, each in stock.memory
            ),
            tuple(self.groups),
        )

    def _affinity(self, container: Container) -> Affinity:
        kubelet = self.kubelet
        return hints.merge(
            kubelet.policy, kubelet.zones, list(self._hints(container)), kubelet.distance
        )

    def _hints(self, container: Container) -> Iterator[Hints]:
        if container.cpus and self.cpus:
            yield hints.of_cpus(self.cpus, self.cpus_free, self.cpus_kept, container.cpus)
        if asked := self._memory_of(container):
            yield self._memory_hints(asked)
        for name, count in container.devices:
            if name in self.free:
                found = hints.of_devices(
                    self.kubelet.zones, self.where[name], self.free[name], self.kept[name], count
                )
                if found is not None:
                    yield found

    def _memory_of(self, container: Container) -> tuple[tuple[str, int], ...]:
        return tuple((name, size) for name, size in container.memory if name in self.memory)

    def _memory_hints(self, asked: Sequence[tuple[str, int]]) -> Hints:
        return hints.of_memory(
            [self.memory[name] for name, _ in asked],
            [self.memory_free[name] for name, _ in asked],
            self.groups,
            [size for _, size in asked],
        )

    def _take_devices(self, container: Container, mask: int | None) -> str:
        for name, count in container.devices:
            if name not in self.free:
                continue
            prefer = self.prefer.get(name, no_preference)
            taken = devices_for(
                self.where[name], self.free[name], self.kept[name], count, mask, prefer
            )
            if taken is None:
                return ADMISSION_ERROR
            self.free[name] &= ~taken
            self.held[name] |= taken
            if container.kind == INIT:
                self.kept[name] |= taken
            else:
                self.kept[name] &= ~taken
        return ""

    def _take_cpus(self, container: Container, mask: int | None) -> str:
        if not container.cpus or not self.cpus:
            return ""
        if container.cpus % self.kubelet.threads:
            return SMT_ERROR
        pool = [free + kept for free, kept in zip(self.cpus_free, self.cpus_kept, strict=True)]
        taken = cpus_for(self.cpus, pool, mask, container.cpus)
        if taken is None:
            return ADMISSION_ERROR
        for zone, got in enumerate(taken):
            again = min(got, self.cpus_kept[zone])
            self.cpus_free[zone] -= got - again
            self.cpus_kept[zone] += got - again if container.kind == INIT else -again
        return ""

    def _take_memory(self, container: Container, mask: int | None) -> str:
        asked = self._memory_of(container)
        if not asked:
            return ""
        if mask is None or any(within(self.memory_free[name], mask) < size for name, size in asked):
            found = self._memory_hints(asked)
            wider = [each for each in found.masks if not (mask or 0) & ~each]
            if not wider:
                return ADMISSION_ERROR
            mask = min(wider, key=lambda each: (each.bit_count() != found.width, each.bit_count()))
        zones = [zone for zone in range(len(self.groups)) if mask >> zone & 1]
        for name, size in asked:
            left = size
            for zone in zones:
                got = min(left, self.memory_free[name][zone])
                self.memory_free[name][zone] -= got
                left -= got
        for zone in zones:
            self.groups[zone] = mask
        return ""


def together(pod: Sequence[Container]) -> Container:
    """What a pod asks for at most at any time, as one container (scope pod)."""
    total: dict[tuple[str, str], int] = {}
    peak: dict[tuple[str, str], int] = {}
    for container in pod:
        asked = {("cpu", ""): container.cpus}
        asked |= {("device", name): count for name, count in container.devices}
        asked |= {("memory", name): size for name, size in container.memory}
        for key, value in asked.items():
            if container.kind == INIT:
                peak[key] = max(peak.get(key, 0), total.get(key, 0) + value)
            else:
                total[key] = total.get(key, 0) + value
    need = {key: max(total.get(key, 0), peak.get(key, 0)) for key in total | peak}

    def of(kind: str) -> tuple[tuple[str, int], ...]:
        found = [(name, value) for (what, name), value in need.items() if what == kind and value]
        return tuple(sorted(found))

    return Container(devices=of("device"), cpus=need.get(("cpu", ""), 0), memory=of("memory"))
