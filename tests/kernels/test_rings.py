"""The kernels of topology equal their own Python; what they mean is tested in `tests/topology`."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.core.topology import bandwidth as models
from extender.core.topology import catalogue, choice
from extender.kernels import bandwidth, subset, warm


def python_of(kernel):
    """The function that was compiled; itself where the compiler is switched off (coverage)."""
    return getattr(kernel, "py_func", kernel)


@st.composite
def counts(draw):
    """Links between 2 to 5 devices, the same both ways."""
    n = draw(st.integers(2, 5))
    cells = draw(st.lists(st.integers(0, 3), min_size=n * n, max_size=n * n))
    links = np.triu(np.array(cells, dtype=np.int64).reshape(n, n), 1)
    return links + links.T


@given(counts())
@settings(deadline=None)
def test_widest(links) -> None:
    n = len(links)
    path = np.empty((1 << n, n))
    out, python = np.empty((2, 1 << n))
    bandwidth.widest(links * 1.5, path, out)
    python_of(bandwidth.widest)(links * 1.5, path, python)
    assert out.tolist() == python.tolist()
    for a in range(n):
        for b in range(a):
            assert out[1 << a | 1 << b] == links[a, b] * 1.5


@given(counts())
@settings(deadline=None, max_examples=50)
def test_rings_side_by_side(links) -> None:
    n = len(links)
    parts = np.full(n, (1 << n) - 1, dtype=np.int64)
    out, python = np.empty((2, 1 << n))
    bandwidth.pack(links, parts, 8, out)
    python_of(bandwidth.pack)(links, parts, 8, python)
    assert out.tolist() == python.tolist()
    # No device sends more than its links to the others carry; a full mesh lets it send just that.
    for mask in range(1, 1 << n):
        among = [i for i in range(n) if mask >> i & 1]
        inner = links[np.ix_(among, among)]
        assert out[mask] <= inner.sum(axis=1).min() + 1e-3
        if len(among) > 1 and len(set(inner[~np.eye(len(among), dtype=bool)])) == 1:
            assert out[mask] == inner[0].sum()


def test_two_rings_of_a_mesh_that_is_not_full() -> None:
    """0-1-3-2 is the only ring; its weakest pair has one link."""
    links = np.array([[0, 2, 1, 0], [2, 0, 1, 3], [1, 1, 0, 1], [0, 3, 1, 0]])
    out = np.empty(16)
    bandwidth.pack(links, np.full(4, 15), 8, out)
    assert out[15] == 2.0
    bandwidth.pack(links, np.full(4, 15), 3, out)
    assert out[15] == 0.0  # more devices than are packed
    bandwidth.pack(links, np.array([3, 3, 12, 12]), 8, out)
    assert (out[3], out[5]) == (2.0, 0.0)  # 0 and 2 are of different parts


def test_rings_by_thirds_are_not_rounded_away() -> None:
    """4/3 of a ring, which is 53.333 GB/s of links of 20 and not 53.32."""
    pairs = ((0, 2), (0, 3), (0, 5), (1, 2), (1, 2), (1, 3), (1, 4), (2, 3), (3, 4), (3, 5), (4, 5))
    links = np.zeros((6, 6), dtype=np.int64)
    for a, b in pairs:
        links[a, b] += 1
        links[b, a] += 1
    out = np.empty(64)
    bandwidth.pack(links, np.full(6, 63), 8, out)
    assert out[63] == pytest.approx(8 / 3, abs=2e-6)


scores = st.lists(st.integers(0, 5), min_size=32, max_size=32)


@given(scores, scores)
@settings(deadline=None, max_examples=50)
def test_choose(taken, left) -> None:
    taken, left = np.array([taken, left], dtype=np.int64)
    out, python = np.empty((2, 32, 6), dtype=np.uint16)
    subset.choose(taken, left, out)
    python_of(subset.choose)(taken, left, python)
    assert np.array_equal(out, python)
    for free in range(32):
        for k in range(1, 6):
            sets = [m for m in range(1, 32) if m & ~free == 0 and m.bit_count() == k]
            best = max(
                sets,
                key=lambda m: (taken[m] + left[free ^ m], [m >> i & 1 for i in range(5)]),
                default=0,
            )
            assert out[free, k] == best


@given(st.lists(st.integers(1, 31), max_size=8))
@settings(deadline=None)
def test_pack(groups) -> None:
    groups.sort(key=lambda mask: mask & -mask)
    masks = np.array(groups, dtype=np.uint32)
    lowest = [(mask & -mask).bit_length() - 1 for mask in groups]
    begin = np.searchsorted(lowest, np.arange(6)).astype(np.int64)
    out, python = np.empty((2, 32), dtype=np.int64)
    subset.pack(masks, begin, out)
    python_of(subset.pack)(masks, begin, python)
    assert np.array_equal(out, python)

    def most(free: int) -> int:
        return max((1 + most(free ^ mask) for mask in groups if mask & ~free == 0), default=0)

    assert out.tolist() == [most(free) for free in range(32)]


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
def test_nothing_is_compiled_when_the_service_runs() -> None:
    warm.compile_all()
    kernels = (bandwidth.widest, bandwidth.pack, subset.pack, subset.choose)
    before = [len(kernel.signatures) for kernel in kernels]
    for shape in catalogue.every_shape():
        if len(shape.topology) <= 10:
            choice.choices_of(models.model_of(shape.topology))
    assert [len(kernel.signatures) for kernel in kernels] == before == [1, 1, 1, 1]
