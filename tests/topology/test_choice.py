"""The choice within a node equals brute force, for every set of free devices."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.core.errors import InvalidObject
from extender.core.topology import catalogue, choice, read
from extender.core.topology.bandwidth import Rates, model_of, rates_of
from extender.core.topology.model import NVLINK, SELF, SYS, Topology, topology
from tests.topology import test_dump
from tests.topology.oracle import Oracle, node

SHAPES = catalogue.every_shape()
#: Where not every set of free devices can be tried, so many random ones are.
OCCUPANCIES = 10_000


def both(known, rates=None):
    """The tables, and the oracle."""
    model = model_of(known, rates)
    return choice.choices_of(model), Oracle(known, model.rates)


def occupancies(count: int):
    """(free, how many to take): all of them up to 8 devices."""
    if count <= 8:
        for mask in range(1, 1 << count):
            for take in range(1, mask.bit_count() + 1):
                yield mask, take
        return
    rng = random.Random(count)
    for _ in range(OCCUPANCIES):
        mask = rng.randrange(1, 1 << count)
        yield mask, rng.randint(1, mask.bit_count())


def compare(known, rates=None) -> int:
    """Compare every choice; how many there were."""
    choices, oracle = both(known, rates)
    wrong = []
    tried = 0
    for mask, take in occupancies(len(known)):
        free = choice.positions_of(mask)
        chosen = choice.positions_of(choice.take(choices, mask, take))
        tried += 1
        if chosen != oracle.best(free, take):
            wrong.append((free, take, chosen, oracle.best(free, take)))
    assert wrong == []
    for mask in range(1 << len(known)) if len(known) <= 8 else []:
        assert choices.model.bandwidth[mask] == pytest.approx(
            oracle.gbs(choice.positions_of(mask)), abs=1e-4
        )
    return tried


SMALL = [shape for shape in SHAPES if len(shape.topology) <= 10]


@pytest.mark.parametrize("shape", SMALL, ids=lambda s: f"{s.topology.product}-{len(s.topology)}")
def test_catalogue_equals_brute_force(shape) -> None:
    assert compare(shape.topology) > 2


def test_sixteen_devices_equal_brute_force() -> None:
    """10,000 random sets of free devices of an HGX A100 with two boards."""
    choices, oracle = both(node("NVIDIA-A100-SXM4-80GB", 16))
    every = [choice.positions_of(mask) for mask in range(1 << 16)]
    left = [[oracle.packing(kind, mask) for mask in range(1 << 16)] for kind in range(3)]
    gbs = np.array([oracle.gbs(group) for group in every])
    near = np.array([oracle.nearness(group) for group in every])
    worth = np.array(
        [[sum(c << 4 * (2 - i) for i, c in enumerate(v)) for v in kind] for kind in left]
    )
    # Of two masks of one size the list of devices comes first that has the lowest where they differ.
    first = np.array([sum(1 << (15 - each) for each in group) for group in every])
    size = np.array([len(group) for group in every])
    rng = random.Random(16)
    for _ in range(OCCUPANCIES):
        free = rng.randrange(1, 1 << 16)
        take = rng.randint(1, free.bit_count())
        masks = np.flatnonzero(size == take)
        masks = masks[masks & ~free == 0]
        orders = (
            lambda some: gbs[some],
            *(lambda some, kind=kind, free=free: kind[free ^ some] for kind in worth),
            lambda some: near[some],
            lambda some: first[some],
        )
        for order in orders:
            value = order(masks)
            masks = masks[value == value.max()]
        assert choice.take(choices, free, take) == masks[0]


def dumps() -> list[Any]:
    """The dumps of up to 8 devices, own and given, one of each matrix."""
    texts = {case["name"]: case["text"] for case in test_dump.CASES}
    texts |= {file.stem: file.read_text() for file in test_dump.SHARED}
    found: dict[tuple[bytes, ...], tuple[str, Topology]] = {}
    for name, text in texts.items():
        known = read(text).topology
        if 2 <= len(known) <= 8:
            key = (known.links.tobytes(), known.numa.tobytes(), known.nic_links.tobytes())
            found.setdefault(key, (name, known))
    return [pytest.param(known, id=name) for name, known in found.values()]


@pytest.mark.parametrize("known", dumps())
def test_dumps_equal_brute_force(known) -> None:
    assert compare(known) > 2


CODES = st.sampled_from([0, 2, 3, 4, 5, 6, 65, 66, 68, 76, 129])


@st.composite
def nodes(draw):
    """Any links, not even the same both ways, any zones, rates that differ from link to link."""
    count = draw(st.integers(2, 6))
    cells = draw(st.lists(CODES, min_size=count * count, max_size=count * count))
    links = np.array(cells, dtype=np.uint8).reshape(count, count)
    if draw(st.booleans()):
        links = np.maximum(links, links.T)
    np.fill_diagonal(links, SELF)
    zone = st.lists(st.integers(-1, 1), min_size=count, max_size=count)
    ports = draw(st.integers(0, 2))
    near = st.lists(st.sampled_from([2, 3, 5, 6]), min_size=count * ports, max_size=count * ports)
    known = topology(
        links,
        numa=np.array(draw(zone), dtype=np.int16),
        nics=tuple(f"mlx5_{at}" for at in range(ports)),
        nic_links=np.array(draw(near), dtype=np.uint8).reshape(count, ports),
    )
    rates = Rates(
        link=20.0,
        most_links=draw(st.sampled_from([2, 6, 12, 40])),
        pcie=draw(st.sampled_from([12.0, 24.0])),
        socket=10.0,
        p2p=draw(st.booleans()),
        nvls=draw(st.sampled_from([0.0, 0.85])),
    )
    return known, rates


@given(nodes())
@settings(deadline=None, max_examples=150)
def test_any_node_equals_brute_force(node) -> None:
    compare(*node)


def test_the_second_choice_is_the_best_of_the_others() -> None:
    choices, oracle = both(node("Tesla-V100-SXM2-32GB", 8))
    rng = random.Random(1)
    for _ in range(300):
        mask = rng.randrange(1, 256)
        take = rng.randint(1, mask.bit_count())
        free = choice.positions_of(mask)
        first = choice.take(choices, mask, take)
        others = [g for g in combinations(free, take) if choice.mask_of(g) != first]
        wanted = max(others, key=lambda group: oracle.order(free, group), default=())
        assert choice.positions_of(choice.alternative(choices, mask, first)) == wanted


def table(product: str, count: int):
    return choice.choices_of(model_of(node(product, count)))


def placed_one_after_another(choices, *sizes):
    free = set(range(len(choices.model.topology)))
    out = []
    for size in sizes:
        chosen = choice.choose(choices, free, size)
        assert chosen is not None
        free -= set(chosen.devices)
        out.append(chosen.devices)
    return out


def test_small_jobs_go_where_something_is_broken_already() -> None:
    """k8s-device-plugin#1193: single GPUs 0, 2, 4, 6 broke every pair. pytorch/ci-infra#696: both
    sockets were started, and four GPUs of one socket were free nowhere."""
    board = table("NVIDIA-H100-80GB-HBM3", 8)
    assert placed_one_after_another(board, 1, 2, 1, 4) == [(0,), (1, 2), (3,), (4, 5, 6, 7)]
    cube = table("Tesla-V100-SXM2-32GB", 8)
    assert placed_one_after_another(cube, 1, 1, 2, 4) == [(0,), (1,), (2, 3), (4, 5, 6, 7)]
    assert placed_one_after_another(cube, 2, 2, 2, 2) == [(0, 3), (1, 2), (4, 7), (5, 6)]


def test_a_single_gpu_goes_where_a_bridge_is_broken() -> None:
    """Bridged pairs across one another, and between pairs nothing but the way across sockets."""
    links = np.full((8, 8), SYS, dtype=np.uint8)
    for a, b in ((0, 2), (1, 3), (4, 5), (6, 7)):
        links[a, b] = links[b, a] = NVLINK + 12
    np.fill_diagonal(links, SELF)
    choices = choice.choices_of(model_of(topology(links)))
    assert choice.positions_of(choice.take(choices, choice.mask_of(range(1, 8)), 1)) == (2,)


def test_a_single_gpu_leaves_two_of_one_socket_together() -> None:
    """Two of a socket are worth keeping also where their neighbours below the switches are gone."""
    base = node("NVIDIA-A100-SXM4-80GB", 8)
    port = np.array([[6 if at // 2 == nic else 3 for nic in range(4)] for at in range(8)], np.uint8)
    nics = tuple(f"mlx5_{at}" for at in range(4))
    known = topology(base.links.copy(), numa=base.numa.copy(), nics=nics, nic_links=port)
    choices = choice.choices_of(model_of(known))
    assert choice.positions_of(choice.take(choices, choice.mask_of([0, 2, 4]), 1)) == (4,)


def test_what_a_choice_gives_and_breaks() -> None:
    board = table("NVIDIA-A100-SXM4-80GB", 8)
    assert choice.choose(board, range(8), 4) == choice.Chosen(
        (0, 1, 2, 3), 240.0, {"octets": 1, "quads": 0, "pairs": 0}
    )
    assert choice.choose(board, range(8), 1) == choice.Chosen(
        (0,), 0.0, {"octets": 1, "quads": 1, "pairs": 1}
    )
    assert choice.choose(board, [1, 2, 5], 4) is None
    assert choice.choose(board, [1, 2, 5], 9) is None
    with pytest.raises(InvalidObject, match="gpus: 0 is not allowed"):
        choice.choose(board, range(8), 0)


def test_rates_of_a_dump_without_a_name_are_guessed_from_its_links() -> None:
    known = node("NVIDIA-H100-80GB-HBM3", 8)
    nameless = topology(known.links.copy(), numa=known.numa.copy())
    assert rates_of(nameless).link == rates_of(known).link
    assert rates_of(nameless, p2p=False).p2p is False
