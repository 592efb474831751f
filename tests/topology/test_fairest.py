"""The exact division, beside trying everything; trees of up to three levels, ratios, slices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from extender.core.topology.domains import Domains, Level
from extender.core.topology.fairest import Slices, fairest


def tree(ids: list[list[int]], ratios: list[float], rows: int = 4) -> Domains:
    """By level, widest first, the domain of each row; nested, as each is named by all before it."""
    paths = [list(zip(*ids[: at + 1], strict=True)) for at in range(len(ids))]
    numbers = [[sorted(set(level)).index(each) for each in level] for level in paths]
    return Domains(
        tuple(Level(f"l{at}", oversubscription=ratio) for at, ratio in enumerate(ratios)),
        np.array(numbers, np.int32).reshape(len(ids), rows),
        tuple(() for _ in ids),
        tuple(np.arange(max(level) + 1) for level in numbers),
    )


def every(room: list[int], want: int) -> Iterator[tuple[int, ...]]:
    for counts in product(*(range(size + 1) for size in room)):
        if sum(counts) == want:
            yield counts


def sends(domains: Domains, counts: tuple[int, ...]) -> float:
    """What the slowest used part sends, where each level that the rows differ in counts."""
    least = float(min(count for count in counts if count))
    for level, ids in zip(domains.levels, domains.ids.tolist(), strict=True):
        if len(set(ids)) > 1:
            share: Counter[int] = Counter()
            for each, count in zip(ids, counts, strict=True):
                share[each] += count
            least = min(least, min(n for n in share.values() if n) / level.oversubscription)
    return least


def in_slices(domains: Domains, counts: tuple[int, ...], slices: Slices | None) -> bool:
    if slices is None:
        return True
    share: Counter[int] = Counter()
    for each, count in zip(domains.ids[slices.level].tolist(), counts, strict=True):
        share[each] += count
    return all(n % slices.size == 0 for n in share.values())


@st.composite
def cases(draw: st.DrawFn):
    rows = draw(st.integers(1, 5))
    levels = draw(st.integers(0, 3))
    ids = [draw(st.lists(st.integers(0, 1), min_size=rows, max_size=rows)) for _ in range(levels)]
    ratios = [draw(st.sampled_from([1.0, 1.5, 2.0, 3.0])) for _ in range(levels)]
    room = draw(st.lists(st.integers(0, 4), min_size=rows, max_size=rows))
    want = draw(st.integers(1, max(1, sum(room))))
    slices = None
    if levels and draw(st.booleans()):
        slices = Slices(draw(st.integers(0, levels - 1)), draw(st.integers(1, 3)))
    return tree(ids, ratios, rows), room, want, slices


@given(cases())
def test_it_is_the_best_of_all(case) -> None:
    domains, room, want, slices = case
    capacity = np.array(room, np.int64)
    rows = np.flatnonzero(capacity)
    if not len(rows):
        return
    held = Domains(domains.levels, domains.ids[:, rows], domains.names, domains.ranks)
    allowed = [
        sends(held, counts)
        for counts in every(capacity[rows].tolist(), want)
        if in_slices(held, counts, slices)
    ]
    found = fairest(domains, rows, capacity, want, slices)
    if not allowed:
        assert found is None
        return
    assert found is not None
    counts = np.zeros(len(room), np.int64)
    counts[found[0]] = found[1]
    assert (counts <= capacity).all()
    assert int(counts.sum()) == want
    chosen = tuple(counts[rows].tolist())
    assert in_slices(held, chosen, slices)
    assert sends(held, chosen) == max(allowed)


def test_neighbours_are_beside_each_other() -> None:
    domains = tree([[0, 1, 0, 1]], [1.0])
    found = fairest(domains, np.arange(4), np.array([2, 2, 2, 2]), 8)
    assert found is not None
    assert domains.ids[0, found[0]].tolist() in ([0, 0, 1, 1], [1, 1, 0, 0])
