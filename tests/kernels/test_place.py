"""Kernels equal their own Python and a naive oracle."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.kernels import place, warm


def python_of(kernel):
    """The function that was compiled; itself where the compiler is switched off (coverage)."""
    return getattr(kernel, "py_func", kernel)


small = st.integers(-3, 9)


@st.composite
def copies_cases(draw):
    rows, columns = draw(st.integers(0, 6)), draw(st.integers(1, 4))
    free = draw(st.lists(small, min_size=rows * columns, max_size=rows * columns))
    request = draw(st.lists(st.integers(0, 4), min_size=columns, max_size=columns))
    allowed = draw(st.lists(st.booleans(), min_size=rows, max_size=rows))
    return (
        np.array(free, dtype=np.int64).reshape(rows, columns),
        np.array(request, dtype=np.int64),
        np.array(allowed, dtype=np.bool_),
        draw(st.integers(0, 12)),
    )


def naive_copies(free, request, allowed, most):
    def fits(row, n):
        return all(n * q <= f for f, q in zip(row, request, strict=True) if q)

    return [
        max((n for n in range(1, most + 1) if fits(row, n)), default=0) if ok else 0
        for row, ok in zip(free.tolist(), allowed.tolist(), strict=True)
    ]


@given(copies_cases())
@settings(deadline=None)
def test_copies(case):
    free, request, allowed, most = case
    out, python = np.zeros((2, len(free)), dtype=np.int64)
    place.copies(free, request, allowed, most, out)
    python_of(place.copies)(free, request, allowed, most, python)
    assert out.tolist() == python.tolist() == naive_copies(free, request.tolist(), allowed, most)


def ordered(capacity, near_rows):
    """As the planner orders candidates: near ones first, then by falling capacity."""
    rows = [row for row in range(len(capacity)) if capacity[row] > 0]
    return sorted(rows, key=lambda row: (row not in near_rows, -capacity[row], row))


@st.composite
def fill_cases(draw):
    capacity = draw(st.lists(st.integers(0, 5), max_size=7))
    near_rows = draw(st.sets(st.integers(0, 6), max_size=3))
    last = draw(st.permutations(range(len(capacity))))
    order = ordered(capacity, near_rows)
    near = sum(row in near_rows for row in order)
    return order, near, capacity, list(last), draw(st.integers(0, 20))


def naive_fill(order, near, capacity, last, want):
    counts = dict.fromkeys(order, 0)
    for part in (order[:near], order[near:]):
        part = list(part)
        while part and want:
            whole = [row for row in part if capacity[row] >= want]
            row = min(whole, key=lambda r: last[r]) if whole else part[0]
            counts[row] = min(want, capacity[row])
            want -= counts[row]
            part.remove(row)
    return [counts[row] for row in order]


@given(fill_cases())
@settings(deadline=None)
def test_fill(case):
    order, near, capacity, last, want = case
    arrays = [np.array(a, dtype=np.int64) for a in (order, capacity, last)]
    out, python = np.zeros((2, len(order)), dtype=np.int64)
    placed = place.fill(arrays[0], near, arrays[1], arrays[2], want, out)
    again = python_of(place.fill)(arrays[0], near, arrays[1], arrays[2], want, python)
    assert out.tolist() == python.tolist() == naive_fill(order, near, capacity, last, want)
    assert placed == again == sum(out) == min(want, sum(capacity[row] for row in order))


@given(fill_cases())
@settings(deadline=None)
def test_fill_uses_the_fewest_rows_beside_the_near_ones(case):
    order, near, capacity, last, want = case
    arrays = [np.array(a, dtype=np.int64) for a in (order, capacity, last)]
    out = np.zeros(len(order), dtype=np.int64)
    place.fill(arrays[0], near, arrays[1], arrays[2], want, out)
    fresh = int((out[near:] > 0).sum())
    rest = max(0, want - sum(capacity[row] for row in order[:near]))
    fewest = 0
    for row in order[near:]:
        if rest <= 0:
            break
        rest -= capacity[row]
        fewest += 1
    assert fresh == fewest


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
def test_everything_is_compiled_for_the_types_in_use():
    warm.compile_all()
    before = {kernel: len(kernel.signatures) for kernel in (place.copies, place.fill)}
    rows = np.arange(3, dtype=np.int64)
    out = np.zeros(3, dtype=np.int64)
    free = np.ones((3, 2), dtype=np.int64)
    place.copies(free, free[0].copy(), np.ones(3, dtype=np.bool_), 2, out)
    place.fill(rows, 1, out, rows, 2, np.zeros(3, dtype=np.int64))
    assert {kernel: len(kernel.signatures) for kernel in before} == before
