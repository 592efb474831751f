"""What a kubelet does with a pod: published oracles, and a second, slow version that shares nothing.

``python -m tests.topology.test_kubelet --cases 100000 --seed 1`` compares as many random cases.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import pytest
import yaml

from extender.core.topology import kubelet, kubelet_hints
from extender.core.topology.kubelet import Amounts, Container, Devices, Kubelet, Stock, admit
from tests.topology import kubelet_slow as slow

CASES = yaml.safe_load((Path(__file__).parent / "kubelet.yaml").read_text())
GPU = "nvidia.com/gpu"


def amounts(case: dict, what: str) -> Amounts | None:
    total = tuple(zone.get(what, 0) for zone in case["zones"])
    free = tuple(zone.get(what, 0) for zone in case.get("free", case["zones"]))
    return Amounts(total, free) if any(total) else None


def stock_of(case: dict) -> Stock:
    zones: list[int] = []
    free = 0
    left = case.get("free", case["zones"])
    for zone, (has, keeps) in enumerate(zip(case["zones"], left, strict=True)):
        for number in range(has.get("gpus", 0)):
            free |= (number < keeps.get("gpus", 0)) << len(zones)
            zones.append(1 << zone)
    for _ in range(case.get("nowhere", {}).get("gpus", 0)):
        free |= 1 << len(zones)
        zones.append(0)
    memory = amounts(case, "memory")
    return Stock(
        ((GPU, Devices(tuple(zones), free)),) if zones else (),
        amounts(case, "cpus"),
        (("memory", memory),) if memory else (),
        (0,) * len(case["zones"]) if memory else (),
    )


def container(kind: str, asks: dict) -> Container:
    return Container(
        kind,
        ((GPU, asks["gpus"]),) if "gpus" in asks else (),
        asks.get("cpus", 0),
        (("memory", asks["memory"]),) if "memory" in asks else (),
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_published_cases(case) -> None:
    stock = stock_of(case)
    node = Kubelet(
        case["policy"],
        len(case["zones"]),
        case.get("scope", "container"),
        tuple(tuple(row) for row in case.get("distance", ())),
        static_memory=True,
        threads=case.get("threads", 1),
    )
    for pod in case["pods"]:
        asks = [container(kubelet.INIT, each) for each in pod.get("inits", ())]
        asks += [container(kubelet.APP, each) for each in pod.get("apps", (pod.get("app"),))]
        verdict = admit(node, stock, asks)
        told = [zones if zones is None else bits(zones) for zones in verdict.zones]
        assert (verdict.reason or told) == pod["expected"], pod
        stock = verdict.stock


def test_a_refusal_takes_nothing() -> None:
    stock = Stock(((GPU, Devices((1, 1, 2, 2), 0b1111)),))
    pod = [Container(devices=((GPU, 2),)), Container(devices=((GPU, 3),))]
    verdict = admit(Kubelet("single-numa-node", 2), stock, pod)
    assert (verdict.reason, verdict.stock, verdict.devices) == ("TopologyAffinityError", stock, {})


def test_a_pod_that_runs_holds_what_it_asks_for_whatever_the_policy_would_say() -> None:
    stock = Stock(((GPU, Devices((1, 1, 2, 2), 0b1010)),))
    pod = [Container(devices=((GPU, 2),))]
    node = Kubelet("single-numa-node", 2)
    assert admit(node, stock, pod).reason
    assert kubelet.taken_anyhow(node, stock, pod).devices[0][1].free == 0


def test_an_idle_node() -> None:
    stock = Stock(
        ((GPU, Devices((1, 2), 0)),),
        Amounts((4, 4), (0, 1)),
        (("memory", Amounts((8, 8), (0, 0))),),
        (3, 3),
    )
    assert kubelet.idle(stock) == Stock(
        ((GPU, Devices((1, 2), 3)),),
        Amounts((4, 4), (4, 4)),
        (("memory", Amounts((8, 8), (8, 8))),),
        (0, 0),
    )


def test_zones_that_are_narrow_and_low_go_first() -> None:
    assert kubelet_hints.masks_of(3) == (1, 2, 4, 3, 5, 6, 7)


def bits(mask: int) -> list[int]:
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


def test_random_nodes_and_pods_as_the_slow_version_has_them() -> None:
    assert compare(2_000, seed=1) > 0.2


def compare(cases: int, seed: int) -> float:
    """The part of the pods that were refused."""
    refused = pods = 0
    for number in range(cases):
        rng = random.Random(f"{seed}/{number}")
        fast_node, stock, slow_node = any_node(rng)
        prefer = any_plugin(rng)
        plugins = {GPU: lambda a, r, n, p=prefer: bits(p(to_mask(a), to_mask(r), n))}
        for _ in range(rng.randint(1, 4)):
            asks = any_pod(rng, fast_node.zones)
            before = stock
            verdict = admit(fast_node, stock, [to_fast(each) for each in asks], {GPU: prefer})
            told = slowly(slow_node, asks, plugins)
            found = verdict.reason or (verdict.zones, dict(verdict.devices))
            assert found == told, (seed, number, fast_node, before, asks)
            if verdict.reason:
                refused += 1
                break  # the slow version's node is half changed
            pods += 1
            stock = verdict.stock
            assert stock == stock_of_slow(stock, slow_node), (seed, number, fast_node, before, asks)
    return refused / (refused + pods)


def slowly(node: slow.Node, asks: list[slow.Ask], plugins) -> str | tuple:
    try:
        told, held = slow.admit(node, asks, plugins)
    except slow.Refused as reason:
        return str(reason)
    zones = tuple(None if each is None else to_mask(each) for each in told)
    return zones, {name: to_mask(each) for name, each in held.items()}


def any_node(rng: random.Random) -> tuple[Kubelet, Stock, slow.Node]:
    zones = rng.choice([1, 2, 2, 2, 3, 4])
    policy = rng.choice(["none", "best-effort", "restricted", "restricted", "single-numa-node"])
    scope = rng.choice(["container", "pod"])
    ids = list(range(zones))
    far = [[rng.choice([10, 12, 20, 32]) for _ in ids] for _ in ids] if rng.random() < 0.3 else []
    threads = rng.choice([1, 1, 1, 2])
    node = slow.Node(policy, scope, ids, {}, {}, None, set(), None, {}, threads=threads)
    node.distance = {(a, b): far[a][b] for a in ids for b in ids} if far else None
    for name in (GPU, "rdma/hca") if rng.random() < 0.3 else (GPU,):
        places = [{zone} for zone in ids] + [set(ids[:2])]
        told = rng.random()
        devices = {
            at: set() if told < 0.1 or (told < 0.2 and rng.random() < 0.3) else rng.choice(places)
            for at in range(rng.randint(1, 8))
        }
        if told > 0.5:
            devices = {at: {at * zones // 8} for at in range(8)}
        node.devices[name] = devices
        node.free[name] = {at for at in devices if rng.random() < rng.choice([0.6, 1.0])}
    cpus = None
    if rng.random() < 0.6:
        counts = [rng.choice([0, 4, 8]) for _ in ids]
        counts[0] = counts[0] or 4
        node.cpus = dict(enumerate(zone for zone in ids for _ in range(counts[zone])))
        node.free_cpus = {cpu for cpu in node.cpus if rng.random() < rng.choice([0.7, 1.0])}
        cpus = Amounts((), ())
    if rng.random() < 0.3:
        node.memory = {"memory": {zone: rng.choice([0, 8, 16]) for zone in ids}}
        node.free_memory = {"memory": dict(node.memory["memory"])}
    fast = Kubelet(
        policy,
        zones,
        scope,
        tuple(map(tuple, far)),
        static_cpu=node.cpus is not None,
        static_memory=node.memory is not None,
        threads=threads,
    )
    none_free = tuple(
        (name, Devices(tuple(to_mask(where) for where in each.values()), 0))
        for name, each in node.devices.items()
    )
    empty = Stock(none_free, cpus, groups=(0,) * zones if node.memory else ())
    return fast, stock_of_slow(empty, node), node


def stock_of_slow(like: Stock, node: slow.Node) -> Stock:
    """The slow version's node in the words of the other."""
    devices = tuple(
        (name, Devices(each.zones, to_mask(node.free[name]))) for name, each in like.devices
    )
    cpus = None
    if node.cpus is not None:
        everywhere = list(node.cpus.values())
        free = [node.cpus[cpu] for cpu in node.free_cpus]
        cpus = Amounts(*(tuple(x.count(z) for z in node.zones) for x in (everywhere, free)))
    memory = tuple(
        (kind, Amounts(tuple(each.values()), tuple(node.free_memory[kind].values())))
        for kind, each in (node.memory or {}).items()
    )
    groups = tuple(to_mask(node.groups.get(zone, ())) for zone in node.zones) if memory else ()
    return Stock(devices, cpus, memory, groups)


def any_pod(rng: random.Random, zones: int) -> list[slow.Ask]:
    kinds = ["app"]
    if rng.random() < 0.4:
        kinds = [rng.choice(["init", "sidecar"]) for _ in range(rng.randint(0, 2))]
        kinds += ["app"] * rng.randint(1, 2)
    guaranteed = rng.random() < 0.6
    asks = []
    for kind in kinds:
        devices = {GPU: rng.randint(1, 6)} if rng.random() < 0.8 else {}
        if rng.random() < 0.2:
            devices["rdma/hca"] = rng.randint(1, 2)
        cpus = rng.choice([0, 1, 2, 4, 6, 10]) if guaranteed else 0
        memory = {"memory": rng.choice([1, 6, 12, 20])} if guaranteed and rng.random() < 0.5 else {}
        asks.append(slow.Ask(kind, devices, cpus, memory))
    return asks


def to_fast(ask: slow.Ask) -> Container:
    return Container(
        ask.kind, tuple(sorted(ask.devices.items())), ask.cpus, tuple(ask.memory.items())
    )


def any_plugin(rng: random.Random):
    """A plugin with an opinion of its own: the highest numbers, now and then too few, or none."""
    mood = rng.random()

    def prefer(available: int, required: int, size: int) -> int:
        if mood < 0.3:
            return 0
        chosen = bits(required) + [d for d in reversed(bits(available)) if not required >> d & 1]
        return to_mask(chosen[: size if mood < 0.8 else size - 1])

    return prefer


def to_mask(positions) -> int:
    return sum(1 << position for position in positions)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    part = compare(args.cases, args.seed)
    print(f"{args.cases} cases agree; {part:.0%} of the pods were refused")
