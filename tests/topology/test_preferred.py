"""What the device plugin will choose: its own tables, and an enumeration as its documents say."""

from __future__ import annotations

import json
import random
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import yaml

from extender.core.topology import read
from extender.core.topology.model import NODE, NVLINK, PHB, PIX, SELF, SYS, topology
from extender.core.topology.preferred import (
    distributed,
    packed,
    pair_scores,
    preferred_allocation,
)
from tests.topology.oracle import node

HERE = Path(__file__).resolve().parent
TABLE = yaml.safe_load((HERE / "preferred.yaml").read_text())
#: The workplace's copy of the upstream table, where there is one.
COPIES = sorted((HERE.parents[2] / "shared/data").glob("oracle_besteffort_dgx1v.json"))


def dgx1v() -> np.ndarray:
    """Pairs of devices below one switch, quads below one CPU, two sockets; NVLinks on top."""
    at = np.arange(8)
    codes = np.where(at[:, None] // 4 == at // 4, PHB, SYS)
    codes = np.where(at[:, None] // 2 == at // 2, PIX, codes)
    points = pair_scores(topology(with_self(codes)), switched=False)
    for a, b, links in TABLE["nvlinks"]:
        points[[a, b], [b, a]] += 100 * links
    return points


def with_self(codes: np.ndarray) -> np.ndarray:
    codes = codes.astype(np.uint8)
    np.fill_diagonal(codes, SELF)
    return codes


@pytest.mark.parametrize("case", TABLE["cases"], ids=str)
def test_best_effort(case) -> None:
    required = case.get("required", [])
    found = preferred_allocation(dgx1v(), case["available"], required, case["size"])
    assert list(found) == case["expected"]


@pytest.mark.parametrize("sequence", TABLE["sequences"], ids=str)
def test_one_pod_after_another(sequence) -> None:
    free = set(range(8))
    found = []
    while chosen := preferred_allocation(dgx1v(), free, [], sequence["size"]):
        found.append(list(chosen))
        free -= set(chosen)
    assert found == sequence["expected"]


def test_copies_of_the_upstream_table() -> None:
    for copy in COPIES:
        table = json.loads(copy.read_text())
        assert dgx1v().tolist() == table["pair_score_matrix"]
        for case in table["policy_cases"]:
            found = preferred_allocation(dgx1v(), case["available"], case["required"], case["size"])
            assert list(found) == case["expected"], case
        assert table["sequences"] == TABLE["sequences"]


def divisions(left: tuple[int, ...], size: int):
    """Every division into sets of ``size``, in the plugin's order; -1 fills the last ones up."""
    if not left:
        yield []
        return
    for others in combinations(range(1, len(left)), size - 1):
        rest = tuple(each for at, each in enumerate(left) if at and at not in others)
        for more in divisions(rest, size):
            yield [(left[0], *(left[at] for at in others)), *more]


def slowly(scores, available, required, size) -> tuple[int, ...]:
    free = sorted(available)
    best, most = None, -1
    for division in divisions((*free, *[-1] * (-len(free) % size)), size):
        if not any(set(required) <= set(group) for group in division):
            continue
        worth = sum(value(scores, group) for group in division)
        if worth > most:
            best, most = division, worth
    groups = [group for group in best or [] if set(required) <= set(group)]
    first = max(groups, key=lambda group: value(scores, group), default=())
    return tuple(each for each in first if each != -1)


def value(scores, group) -> int:
    return sum(scores[a][b] for a, b in combinations([g for g in group if g != -1], 2))


def test_random_scores_as_the_enumeration_has_it() -> None:
    rng = random.Random(7)
    for _ in range(300):
        count = rng.randint(2, 7)
        scores = np.zeros((count, count), dtype=np.int64)
        for a, b in combinations(range(count), 2):
            scores[a, b] = scores[b, a] = rng.choice([10, 20, 50, 150])
        free = sorted(rng.sample(range(count), rng.randint(2, count)))
        size = rng.randint(2, len(free))
        required = rng.sample(free, rng.randint(0, min(size, 2)))
        found = preferred_allocation(scores, free, required, size)
        assert found == slowly(scores, free, required, size), (
            scores.tolist(),
            free,
            required,
            size,
        )


def test_links_through_a_switch_do_not_count() -> None:
    board = node("NVIDIA-H100-80GB-HBM3", 8)
    points = pair_scores(board, switched=True)
    assert points[0, 1] == 20
    assert points[0, 7] == 10
    mesh = topology(with_self(np.full((2, 2), NVLINK + 4)), numa=np.zeros(2, np.int16))
    assert pair_scores(mesh, switched=False)[0, 1] == 420


def test_a_link_that_only_one_side_reports_does_not_count() -> None:
    codes = with_self(np.array([[0, NVLINK + 6], [NODE, 0]]))
    assert pair_scores(topology(codes), switched=False)[0, 1] == 20


def test_unknown_pairs_score_nothing() -> None:
    reading = read("        GPU0    GPU1\nGPU0     X      NV?\nGPU1    NV?      X\n")
    assert pair_scores(reading.topology, switched=False).tolist() == [[0, 0], [0, 0]]


REPLICAS = ["a::0", "a::1", "a::2", "b::0", "b::1", "b::2"]


@pytest.mark.parametrize(
    ("policy", "available", "required", "size", "expected"),
    [
        (distributed, REPLICAS, [], 2, ("a::0", "b::0")),
        # The plugin sorts what is left of the last round again, so b goes first in this one.
        (distributed, REPLICAS, [], 4, ("a::0", "b::0", "b::1", "a::1")),
        (distributed, ["a::2", "b::0", "b::1"], [], 1, ("b::0",)),
        (distributed, REPLICAS, ["a::1"], 2, ("a::1", "b::0")),
        (distributed, REPLICAS, [], 7, ()),
        (distributed, REPLICAS, ["a::0", "a::1"], 1, ()),
        (packed, REPLICAS, [], 3, ("a::0", "a::1", "a::2")),
        (packed, REPLICAS, [], 4, ("a::0", "a::1", "a::2", "b::0")),
        (packed, ["a::0", "a::1", "b::2"], [], 1, ("b::2",)),
    ],
)
def test_replicas(policy, available, required, size, expected) -> None:
    assert policy(available, required, size, {"a": 3, "b": 3}) == expected
