"""The exact search equals trying everything."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.core.search import cover


@st.composite
def cases(draw):
    rows, roles, columns = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 2))

    def matrix(high, wide, low, top):
        values = st.lists(st.integers(low, top), min_size=wide, max_size=wide)
        return draw(st.lists(values, min_size=high, max_size=high))

    free = matrix(rows, columns, -1, 6)
    requests = matrix(roles, columns, 0, 4)
    allowed = [[bool(x) for x in row] for row in matrix(roles, rows, 0, 3)]
    need = draw(st.lists(st.integers(0, 3), min_size=roles, max_size=roles))
    # The planner's vectors always ask for something: "pods" is 1.
    requests = [row if any(row) else [1] * columns for row in requests]
    return (
        np.array(free, dtype=np.int64),
        np.array(allowed, dtype=np.bool_),
        np.array(requests, dtype=np.int64),
        need,
    )


def possible(free, allowed, requests, need) -> bool:
    """Place pods one by one on every row in turn."""
    pods = [role for role, count in enumerate(need) for _ in range(count)]
    for rows in itertools.product(range(len(free)), repeat=len(pods)):
        left = free.copy()
        for role, row in zip(pods, rows, strict=True):
            fits = all(q <= f for q, f in zip(requests[role], left[row], strict=True) if q)
            if not (allowed[role, row] and fits):
                break
            left[row] -= requests[role]
        else:
            return True
    return False


@given(cases())
@settings(deadline=None, max_examples=200)
def test_equals_brute_force(case):
    free, allowed, requests, need = case
    if sum(need) > 6:
        need = [min(n, 2) for n in need]
    found = cover(free, allowed, requests, need)
    assert found.exact
    assert (found.counts is not None) == possible(free, allowed, requests, need)
    if found.counts is not None:
        assert found.counts.sum(axis=1).tolist() == need
        assert not found.counts[~allowed].any()
        taken = found.counts.T @ requests
        assert ((taken <= free) | (taken == 0)).all()


def test_gives_up_within_its_budget_and_says_so():
    # 3 rows of 30 and 2 roles of 7 and 11: four 7s or two 11s and a 7 on a row, not 13 pods.
    free = np.full((3, 1), 30, dtype=np.int64)
    requests = np.array([[7], [11]], dtype=np.int64)
    allowed = np.ones((2, 3), dtype=np.bool_)
    tight = cover(free, allowed, requests, [5, 5], budget=2)
    assert (tight.counts, tight.exact) == (None, False)
    full = cover(free, allowed, requests, [5, 5])
    assert (full.counts, full.exact) == (None, True)


def test_huge_quantities_do_not_overflow():
    free = np.full((3, 1), 2**62, dtype=np.int64)
    requests = np.array([[2**61], [2**60]], dtype=np.int64)
    found = cover(free, np.ones((2, 3), dtype=np.bool_), requests, [5, 2])
    assert found.counts is not None


def test_more_rows_than_python_recurses():
    free = np.full((3_000, 1), 3, dtype=np.int64)
    requests = np.array([[2], [1]], dtype=np.int64)
    found = cover(free, np.ones((2, 3_000), dtype=np.bool_), requests, [2_900, 2_900])
    assert found.counts is not None
    assert found.counts.sum(axis=1).tolist() == [2_900, 2_900]
