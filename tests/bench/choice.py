"""Choosing devices within a node: a look-up, beside making the tables and beside brute force.

``take`` is one choice in a shape whose tables are there; ``brute_force`` is the same by comparing
every set of the free devices under the same order. CPU time: nothing here waits.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from itertools import combinations
from typing import Any

from extender.core.topology import bandwidth, catalogue, choice
from extender.kernels import warm

HELP = "microseconds to choose devices of a node, and to make the tables"
#: The shape of nodes: product and GPUs.
SHAPES = (
    ("NVIDIA-H100-80GB-HBM3", 8),
    ("Tesla-V100-SXM2-32GB", 8),
    ("NVIDIA-L40S", 10),
    ("Tesla-V100-SXM3-32GB", 16),
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--choices", type=int, default=20_000, help="in each shape")


def run(args: argparse.Namespace) -> dict[str, Any]:
    warm.compile_all()
    return {"shapes": [_measure(product, count, args.choices) for product, count in SHAPES]}


def _measure(product: str, count: int, choices: int) -> dict[str, Any]:
    shape = catalogue.shape(product, count)
    assert shape is not None
    began = time.process_time()
    tables = choice.choices_of(bandwidth.model_of(shape.topology))
    made = time.process_time() - began
    rng = random.Random(1)
    asked = [
        (free, rng.randint(1, free.bit_count()))
        for free in (rng.randrange(1, 1 << count) for _ in range(choices))
    ]
    few = asked[:200]
    take = _each(lambda free, k: choice.take(tables, free, k), asked)
    slow = _each(lambda free, k: _brute_force(tables, free, k), few)
    assert all(choice.take(tables, *each) == _brute_force(tables, *each) for each in few)
    size = sum(a.nbytes for a in (tables.best, tables.taken, tables.left, tables.nearness))
    return {
        "product": product,
        "gpus": count,
        "take_us": round(take * 1e6, 3),
        "tables_ms": round(made * 1e3, 2),
        "table_kib": size // 1024,
        "brute_force_to_take": round(slow / take),
    }


def _each(call: Callable[[int, int], int], asked: list[tuple[int, int]]) -> float:
    """Seconds of one call."""
    began = time.process_time()
    for free, k in asked:
        call(free, k)
    return (time.process_time() - began) / len(asked)


def _brute_force(tables: choice.Choices, free: int, k: int) -> int:
    sets = (choice.mask_of(some) for some in combinations(choice.positions_of(free), k))
    return max(sets, key=lambda mask: int(tables.taken[mask]) + int(tables.left[free ^ mask]))
