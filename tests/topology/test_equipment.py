"""What an agent's annotations mean for a node, and what a gang gets inside of nodes."""

from __future__ import annotations

import random
from itertools import product
from statistics import mean

import numpy as np
import pytest

from extender.core.bulk import Attempt
from extender.core.cluster import Cluster
from extender.core.inside import PORT_GBS, judge_of
from extender.core.planner import Placement, plan
from extender.core.snapshot import Snapshot
from extender.core.taken import distinct
from extender.core.topology import annotation, catalogue, devices, equipment
from extender.core.topology.devices import Devices
from extender.core.topology.equipment import GPU, Equipment, read, usable
from extender.core.topology.preferred import pair_scores, preferred_allocation
from tests.builders import node, pod
from tests.core.planning import SESSION, role

PAIRS, BOARD, SLOW = "NVIDIA-H100-NVL", "NVIDIA-H100-80GB-HBM3", "NVIDIA-L40S"


def links(product_name: str, count: int) -> str:
    shape = catalogue.shape(product_name, count)
    assert shape is not None
    return annotation.encode(shape.topology)


def use(count: int, sick=None, held=None, policy: str = "") -> Devices:
    holders = [
        tuple(who for who, those in (held or {}).items() if at in those) for at in range(count)
    ]
    health = tuple((sick or {}).get(at, "ok") for at in range(count))
    return Devices(("",) * count, health, tuple(holders), (None,) * count, policy=policy)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({annotation.KEY: "{"}, "metadata.annotations[scheduling.muster.dev/topology]"),
        ({devices.KEY: "[]"}, "metadata.annotations[scheduling.muster.dev/devices]"),
        (
            {annotation.KEY: links(BOARD, 8), devices.KEY: devices.encode(use(4))},
            "devices].devices: 4 is not allowed: 8, as in scheduling.muster.dev/topology",
        ),
        (
            {devices.KEY: '{"v":1,"devices":1,"health":"ok","policy":"strict"}'},
            "devices].policy: 'strict' is not allowed: none best-effort restricted single-numa-node",
        ),
    ],
    ids=["links", "devices", "count", "policy"],
)  # fmt: skip
def test_what_cannot_be_read_is_unknown_and_said(told, words) -> None:
    found, (error,) = read(told)
    assert words in str(error)
    assert found.devices is None


def test_one_part_may_be_wrong() -> None:
    found, wrong = read({annotation.KEY: "{", devices.KEY: devices.encode(use(8, {0: "lost"}))})
    assert len(wrong) == 1
    assert (found.links, found.well) == ("", 0)
    assert read({}) == (equipment.UNKNOWN, [])


@pytest.mark.parametrize(
    ("sick", "resource", "amount", "expected"),
    [
        ({}, GPU, 8, 8),
        ({0: "ecc"}, GPU, 8, 7),
        ({0: "ecc"}, GPU, 7, 7),  # the plugin withholds it
        ({0: "ecc", 1: "remap"}, GPU, 7, 6),
        ({0: "?"}, GPU, 8, 8),
        ({0: "xid79"}, GPU, 8, 0),
        ({0: "lost"}, GPU, 7, 0),
        ({0: "lost"}, "nvidia.com/mig-1g.5gb", 7, 0),
        ({0: "ecc"}, "nvidia.com/mig-1g.5gb", 7, 7),
        ({0: "ecc"}, GPU, 32, 28),
        ({0: "ecc"}, "nvidia.com/gpu.shared", 32, 28),
        ({0: "lost"}, "cpu", 64_000, 64_000),
        ({0: "lost"}, "amd.com/gpu", 8, 8),
    ],
)
def test_how_many_can_be_used(sick, resource, amount, expected) -> None:
    assert usable(Equipment(devices=use(8, sick)), resource, amount) == expected


def test_the_plugin_is_predicted_as_it_is_elsewhere() -> None:
    text = links(PAIRS, 8)
    model = equipment.model(text)
    assert model is not None
    prefer, scores = equipment.prefer(text), pair_scores(model.topology, switched=False)
    for available in range(1, 256, 7):
        for size in range(1, available.bit_count() + 1):
            chosen = [at for at in range(8) if prefer(available, 0, size) >> at & 1]
            free = [at for at in range(8) if available >> at & 1]
            expected = preferred_allocation(scores, free, (), size)
            assert tuple(chosen) == expected
    assert equipment.prefer("")(0b1111, 0, 2) == 0


def cluster_of(machines) -> Cluster:
    made = Cluster()
    for name, (kind, count, taken) in machines.items():
        held = {f"default/{name}-{at}": [at] for at in taken}
        told = Equipment(links(kind, count), use(count, held=held))
        made.upsert_node(node(name, gpus=count), told)
        for at in taken:
            made.upsert_pod(pod(f"{name}-{at}", node=name, gpus=1))
    made.verify()
    return made


def every(room, want):
    """Ways to divide ``want`` over rows with so much room."""
    return (x for x in product(*(range(min(r, want) + 1) for r in room)) if sum(x) == want)


def test_gangs_reach_what_any_placement_could() -> None:
    """Random nodes of four kinds with random GPUs taken; all divisions are tried."""
    reached = []
    for seed in range(100):
        rng = random.Random(seed)
        machines = {}
        for at in range(rng.randint(2, 4)):
            kind, count = rng.choice(
                [(PAIRS, 8), (BOARD, 8), (SLOW, 4), ("Tesla-V100-SXM2-32GB", 8)]
            )
            taken = sorted(rng.sample(range(count), rng.randint(0, count - 1)))
            machines[f"n{at}"] = (kind, count, taken)
        made = cluster_of(machines)
        each, want = rng.choice([1, 2, 2, 4]), rng.randint(1, 4)
        view = Snapshot(made)
        wanted = role(want, gpus=each)
        found = plan(SESSION, view, [wanted])
        room = view.capacity(wanted.shape).tolist()
        assert isinstance(found, Placement) == (sum(room) >= want), seed
        judge = judge_of(view, [wanted])
        if not isinstance(found, Placement) or judge is None:
            continue
        # Who fits on one node goes to one: how fast the network really is nobody tells.
        alone = max(room) >= want
        ways = (x for x in every(room, want) if not alone or want in x)
        best = max(value(judge, counts) for counts in ways)
        got = value(judge, np.bincount(found.rows[0], minlength=view.rows).tolist())
        if np.isfinite(best):
            reached.append(got / best)
    assert len(reached) > 60
    assert mean(reached) > 0.99
    # Two copies may have more than one of them alone, and more is taken on one row than is good.
    assert min(reached) >= 0.5


def value(judge, counts) -> float:
    """GB/s of so many members on each row."""
    rows = [row for row, count in enumerate(counts) for _ in range(count)]
    return min(judge.worth(Attempt([rows], exact=True)))


def test_a_port_is_what_the_models_say() -> None:
    model = equipment.model(links(BOARD, 8))
    assert model is not None
    assert model.rates.port == PORT_GBS


def test_combinations_are_numbered_as_numpy_does() -> None:
    """Also where one number for each of them would need more than 64 bits."""
    rng = np.random.default_rng(1)
    for high in (2, 50, 2**31):
        for count in (1, 3, 6):
            keys = [rng.integers(-1, high, 40) for _ in range(count)]
            keys[0] = rng.integers(-1, 2, 40)
            found, at = distinct(keys)
            table = np.array(found)
            assert np.array_equal(table[at].T, np.stack(keys))
            assert len(found) == np.unique(np.stack(keys), axis=1).shape[1]
    # 2**32 twice: the first would be shifted out.
    wide = np.array([0, 0, 2**32 - 1])
    assert len(distinct([np.array([0, 1, 0]), wide, wide])[0]) == 3
    assert distinct([np.zeros(0, np.int64)])[0] == []
