"""The kubelet's admission once more: object by object, hint by hint, every combination of hints.

Shares no code with ``extender.core.topology.kubelet``, and no representation: zones are sets,
devices and CPUs are single objects, hints are tried in the kubelet's own order.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field


@dataclass
class Node:
    """A node and what is left of it."""

    policy: str
    scope: str
    zones: list[int]
    #: Resource to device to its zones (a set; empty: not told).
    devices: dict[str, dict[int, set[int]]]
    free: dict[str, set[int]]
    #: CPU to zone, or None where the CPU manager is not static.
    cpus: dict[int, int] | None
    free_cpus: set[int]
    #: Zone to bytes, by kind; None where the memory manager is not Static.
    memory: dict[str, dict[int, int]] | None
    free_memory: dict[str, dict[int, int]]
    groups: dict[int, list[int]] = field(default_factory=dict)
    threads: int = 1
    distance: dict[tuple[int, int], int] | None = None


@dataclass
class Ask:
    """One container."""

    kind: str
    devices: dict[str, int]
    cpus: int
    memory: dict[str, int]


@dataclass
class Hint:
    zones: frozenset[int] | None
    preferred: bool


class Refused(Exception):
    """The reason that the kubelet writes into the pod's status."""


def admit(node: Node, pod: list[Ask], plugins=None) -> tuple[list[frozenset[int] | None], dict]:
    """The zones of each container and the devices that the pod holds; ``node`` is changed.

    Raises Refused.
    """
    reuse: dict[str, set[int]] = {name: set() for name in node.devices}
    reuse_cpus: set[int] = set()
    held: dict[str, set[int]] = {name: set() for name in node.devices}
    told = []
    best: Hint | None = None
    for at, ask in enumerate(pod):
        if node.scope == "pod":
            if at == 0:
                best = decide(node, whole(pod), reuse, reuse_cpus)
        else:
            best = decide(node, ask, reuse, reuse_cpus)
        if best is None:
            raise Refused("TopologyAffinityError")
        told.append(best.zones)
        take_cpus(node, ask, best.zones, reuse_cpus)
        take_memory(node, ask, best.zones)
        for name, count in ask.devices.items():
            if name in node.devices:
                got = take_devices(node, name, count, best.zones, reuse[name], plugins or {})
                held[name] |= got
                if ask.kind == "init":
                    reuse[name] |= got
                else:
                    reuse[name] -= got
    return told, held


def whole(pod: list[Ask]) -> Ask:
    """Scope pod: the most that is asked for at any time."""

    def most(of) -> int:
        sidecars = peak = 0
        for ask in pod:
            if ask.kind == "sidecar":
                sidecars += of(ask)
            elif ask.kind == "init":
                peak = max(peak, sidecars + of(ask))
        return max(peak, sidecars + sum(of(ask) for ask in pod if ask.kind == "app"))

    names = sorted({name for ask in pod for name in ask.devices})
    kinds = sorted({name for ask in pod for name in ask.memory})
    return Ask(
        "app",
        {n: most(lambda a, n=n: a.devices.get(n, 0)) for n in names},
        most(lambda a: a.cpus),
        {n: most(lambda a, n=n: a.memory.get(n, 0)) for n in kinds},
    )


def subsets(zones: list[int]):
    for size in range(1, len(zones) + 1):
        yield from itertools.combinations(zones, size)


def decide(node: Node, ask: Ask, reuse: dict, reuse_cpus: set[int]) -> Hint | None:
    """The Topology Manager's answer; None: it refuses."""
    if node.policy == "none":
        return Hint(None, preferred=False)
    lists = provider_hints(node, ask, reuse, reuse_cpus)
    if node.policy == "single-numa-node":
        lists = [
            [h for h in hints if h.preferred and (h.zones is None or len(h.zones) == 1)]
            for hints in lists
        ]
    wanted = 0
    for hints in lists:
        sizes = [len(h.zones) for h in hints if h.zones is not None]
        wanted = max(wanted, min(sizes, default=0))
    best = None
    for combination in itertools.product(*lists):
        zones, preferred, first = frozenset(node.zones), True, None
        for hint in combination:
            preferred &= hint.preferred
            if hint.zones is not None:
                first = hint.zones if first is None else first
                preferred &= hint.zones == first
                zones &= hint.zones
        if zones:
            best = better(node, wanted, best, Hint(zones, preferred))
    if best is None:
        best = Hint(frozenset(node.zones), preferred=False)
    if node.policy == "single-numa-node" and best.zones == frozenset(node.zones):
        best = Hint(None, best.preferred)
    return best if best.preferred or node.policy == "best-effort" else None


def better(node: Node, wanted: int, current: Hint | None, candidate: Hint) -> Hint:
    if current is None:
        return candidate
    if current.preferred != candidate.preferred:
        return current if current.preferred else candidate
    assert current.zones is not None
    assert candidate.zones is not None
    mine, other = len(current.zones), len(candidate.zones)
    if current.preferred or mine > wanted or (mine == wanted == other):
        return fitter(node, current, candidate)
    if mine == wanted or other > wanted:
        return current
    if other == wanted or other > mine:
        return candidate
    return current if other < mine else fitter(node, current, candidate)


def fitter(node: Node, current: Hint, candidate: Hint) -> Hint:
    a, b = current.zones, candidate.zones
    assert a is not None
    assert b is not None
    if len(a) != len(b):
        return current if len(a) < len(b) else candidate
    if node.distance is not None and node.policy != "single-numa-node":
        far_a, far_b = mean(node.distance, a), mean(node.distance, b)
        if far_a != far_b:
            return current if far_a < far_b else candidate
    # As numbers, bit by bit: the set with the lower highest difference is the smaller.
    return current if sum(2**z for z in a) <= sum(2**z for z in b) else candidate


def mean(distance, zones) -> float:
    pairs = list(itertools.product(zones, zones))
    return sum(distance[pair] for pair in pairs) / len(pairs)


def provider_hints(node: Node, ask: Ask, reuse: dict, reuse_cpus: set[int]) -> list[list[Hint]]:
    anything = [Hint(None, preferred=True)]
    nothing = [Hint(None, preferred=False)]
    lists = [cpu_hints(node, ask.cpus, reuse_cpus) or nothing] if exclusive(node, ask) else []
    asked = memory_of(node, ask)
    lists += [memory_hints(node, asked) or nothing for _ in asked]
    for name, count in ask.devices.items():
        devices = node.devices.get(name)
        if devices is None or not any(devices.values()):
            lists.append(anything)
        elif len(node.free[name] | reuse[name]) < count:
            lists.append(nothing)
        else:
            lists.append(device_hints(node, name, count, reuse[name]) or nothing)
    return lists


def exclusive(node: Node, ask: Ask) -> bool:
    return node.cpus is not None and ask.cpus > 0


def memory_of(node: Node, ask: Ask) -> dict[str, int]:
    return {k: v for k, v in ask.memory.items() if node.memory is not None and k in node.memory}


def device_hints(node: Node, name: str, count: int, reuse: set[int]) -> list[Hint]:
    devices, least, found = node.devices[name], len(node.zones), []
    for zones in map(frozenset, subsets(node.zones)):
        inside = {d for d, where in devices.items() if where & zones}
        if len(inside) >= count:
            least = min(least, len(zones))
        kept = {d for d in reuse if devices[d]}
        if kept <= inside and len(kept) + len(inside & node.free[name]) >= count:
            found.append(zones)
    return [Hint(zones, preferred=len(zones) == least) for zones in found]


def cpu_hints(node: Node, count: int, reuse: set[int]) -> list[Hint]:
    assert node.cpus is not None
    having = sorted(set(node.cpus.values()))
    least, found = len(having), []
    for zones in map(frozenset, subsets(having)):
        inside = {cpu for cpu, zone in node.cpus.items() if zone in zones}
        if len(inside) >= count:
            least = min(least, len(zones))
        if reuse <= inside and len(inside & (node.free_cpus | reuse)) >= count:
            found.append(zones)
    return [Hint(zones, preferred=len(zones) == least) for zones in found]


def memory_hints(node: Node, asked: dict[str, int]) -> list[Hint]:
    assert node.memory is not None
    least, found = len(node.zones), []
    for zones in subsets(node.zones):
        if any(sum(node.memory[k][z] for z in zones) < size for k, size in asked.items()):
            continue
        least = min(least, len(zones))
        if len(zones) == 1 and len(node.groups.get(zones[0], ())) > 1:
            continue
        if len(zones) > 1 and any(
            node.groups.get(zone) and node.groups[zone] != list(zones) for zone in zones
        ):
            continue
        if all(sum(node.free_memory[k][z] for z in zones) >= size for k, size in asked.items()):
            found.append(frozenset(zones))
    return [Hint(zones, preferred=len(zones) == least) for zones in found]


def take_devices(
    node: Node, name: str, count: int, zones: frozenset[int] | None, reuse: set[int], plugins
) -> set[int]:
    got: set[int] = set()

    def add(devices) -> bool:
        for device in sorted(set(devices) - got):
            if len(got) == count:
                break
            got.add(device)
        return len(got) == count

    def done() -> set[int]:
        node.free[name] -= got
        return got

    if add(reuse):
        return done()
    available = set(node.free[name])
    if len(available) + len(got) < count:
        raise Refused("UnexpectedAdmissionError")
    where = node.devices[name]
    aligned = {d for d in available if zones is not None and where[d] & zones}
    ask = plugins.get(name, lambda *_: ())
    if count - len(got) < len(aligned):
        add(set(ask(sorted(aligned | got), sorted(got), count)) & aligned)
        add(aligned)
        return done()
    if not add(aligned):
        add(set(ask(sorted(available | got), sorted(got), count)) & available)
        add(d for d in available if where[d])
        add(available)
    return done()


def take_cpus(node: Node, ask: Ask, zones: frozenset[int] | None, reuse: set[int]) -> None:
    if not exclusive(node, ask):
        return
    assert node.cpus is not None
    if ask.cpus % node.threads:
        raise Refused("SMTAlignmentError")
    pool = node.free_cpus | reuse
    if len(pool) < ask.cpus:
        raise Refused("UnexpectedAdmissionError")
    near = {cpu for cpu in pool if zones is None or node.cpus[cpu] in zones}
    got = pick_cpus(node, near, min(ask.cpus, len(near)), reuse)
    got |= pick_cpus(node, pool - near, ask.cpus - len(got), reuse)
    node.free_cpus -= got
    if ask.kind == "init":
        reuse |= got
    else:
        reuse -= got


def pick_cpus(node: Node, pool: set[int], count: int, reuse: set[int]) -> set[int]:
    """Idle zones as a whole, then the zones with the fewest; in a zone first what can be reused."""
    assert node.cpus is not None
    by_zone: dict[int, list[int]] = {}
    for cpu in sorted(pool, key=lambda cpu: (cpu not in reuse, cpu)):
        by_zone.setdefault(node.cpus[cpu], []).append(cpu)
    order = sorted(by_zone, key=lambda zone: (len(by_zone[zone]), zone))
    got: set[int] = set()
    for zone in order:
        everything = [cpu for cpu, at in node.cpus.items() if at == zone]
        if len(everything) == len(by_zone[zone]) <= count - len(got):
            got |= set(everything)
    for zone in order:
        left = [cpu for cpu in by_zone[zone] if cpu not in got]
        got |= set(left[: count - len(got)])
    return got


def take_memory(node: Node, ask: Ask, zones: frozenset[int] | None) -> None:
    asked = memory_of(node, ask)
    if not asked:
        return
    short = zones is None or any(
        sum(node.free_memory[kind][zone] for zone in zones) < size for kind, size in asked.items()
    )
    if short:
        best = None
        for hint in memory_hints(node, asked):
            assert hint.zones is not None
            if zones is not None and not zones <= hint.zones:
                continue
            key = (not hint.preferred, len(hint.zones), sum(2**z for z in hint.zones))
            if best is None or key < best[0]:
                best = key, hint.zones
        if best is None:
            raise Refused("UnexpectedAdmissionError")
        zones = best[1]
    assert zones is not None
    for kind, size in asked.items():
        for zone in sorted(zones):
            part = min(size, node.free_memory[kind][zone])
            node.free_memory[kind][zone] -= part
            size -= part
    for zone in zones:
        node.groups[zone] = sorted(zones)
