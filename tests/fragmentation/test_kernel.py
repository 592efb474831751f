"""The kernel equals its own Python, and the measure as the paper defines it."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.kernels import fragmentation as kernel
from extender.kernels import warm
from tests.fragmentation.oracle import (
    Room,
    Want,
    able,
    after,
    choices,
    copies,
    fits,
    fragmentation,
    points,
)

KINDS = 2
SHARES = (160, 190, 250, 470, 500, 810)


def python_of(function):
    """The function that was compiled; itself where the compiler is switched off (coverage)."""
    return getattr(function, "py_func", function)


@st.composite
def wants(draw, devices=True):
    count = draw(st.sampled_from((1, 1, 1, 2, 4) if devices else (0, 1, 1, 2)))
    share = draw(st.sampled_from((*SHARES, 1000))) if count == 1 else 1000
    host = draw(st.tuples(st.integers(0, 9), st.integers(0, 9)))
    kinds = draw(st.sampled_from((frozenset({0, 1}), frozenset({0}), frozenset({1}))))
    return Want(host, share if count else 0, count, kinds)


@st.composite
def clusters(draw):
    width = draw(st.integers(1, 5))
    left = st.sampled_from((0, 0, 60, 190, 340, 530, 810, 1000, 1000, 1000))
    rooms = st.builds(
        Room,
        st.tuples(st.integers(-2, 20), st.integers(-2, 20)),
        st.lists(left, min_size=width, max_size=width).map(tuple),
        st.integers(0, KINDS - 1),
    )
    return draw(st.lists(rooms, min_size=1, max_size=4))


mixes = st.lists(st.tuples(wants(), st.sampled_from((0.0625, 0.125, 0.25))), min_size=1, max_size=5)


def columns(rooms, mix):
    """Rooms and mix as the kernel's columns; a kind that a shape may not use weighs nothing."""
    weights = [[part * (k in want.kinds) for want, part in mix] for k in range(KINDS)]
    return (
        np.array([room.free for room in rooms], dtype=np.int64),
        np.array([room.devices for room in rooms], dtype=np.int64),
        np.array([room.kind for room in rooms], dtype=np.int64),
        np.array([want.host for want, _ in mix], dtype=np.int64),
        np.array([want.share for want, _ in mix], dtype=np.int64),
        np.array([want.count for want, _ in mix], dtype=np.int64),
        np.array(weights, dtype=np.float64),
    )


def losses(rooms, pod, mix, depth, graded, function=kernel.losses):
    rows = np.array([n for n, room in enumerate(rooms) if fits(room, pod)], dtype=np.int64)
    loss, device = np.full(len(rooms), np.nan), np.full(len(rooms), -9, dtype=np.int64)
    host = np.array(pod.host, dtype=np.int64)
    function(rows, host, pod.share, pod.count, *columns(rooms, mix), depth, graded, loss, device)
    return rows.tolist(), loss, device


@given(clusters(), wants(devices=False), mixes)
@settings(deadline=None)
def test_loss_is_what_fgd_calls_the_growth_of_fragmentation(rooms, pod, mix):
    rows, loss, device = losses(rooms, pod, mix, 0.0, False)
    # the classes of tasks without a device add as much before as after, less what the pod takes
    rest = 1 - sum(part for _, part in mix)
    whole = [*mix, (Want((0, 0), 0, 0), rest)]
    for row in rows:
        room, asked = rooms[row], pod.share * pod.count
        before = fragmentation(room, whole)
        tried = {
            tuple(each): asked - (before - fragmentation(after(room, pod, each), whole))
            for each in choices(room, pod)
        }
        assert loss[row] == pytest.approx(min(tried.values()), abs=1e-6)
        if pod.count == 1:
            assert tried[device[row],] == pytest.approx(loss[row], abs=1e-6)
        else:
            assert device[row] == -1


@given(clusters(), wants(devices=False), mixes)
@settings(deadline=None)
def test_of_devices_with_equal_losses_the_fullest_is_taken(rooms, pod, mix):
    rows, loss, device = losses(rooms, pod, mix, 0.5, False)
    for row in rows if pod.count == 1 else ():
        room = rooms[row]
        # parts are powers of 2: every sum is exact
        by_device = {
            d: worth(room, mix, 0.5) - worth(after(room, pod, [d]), mix, 0.5)
            for d in able(room, pod)
        }
        assert loss[row] == min(by_device.values())
        equal = [d for d, each in by_device.items() if each == loss[row]]
        assert device[row] == min(equal, key=lambda d: (room.devices[d], d))


def worth(room, mix, depth):
    """What the mix can use, by the oracle's own counting."""
    total = 0.0
    for want, part in mix:
        if room.kind in want.kinds and fits(room, want):
            first = sum(left for left in room.devices if left >= want.share)
            full = copies(room, want) * want.count * want.share
            total += part * ((1 - depth) * first + depth * full)
    return total


@given(clusters(), wants(devices=False), mixes)
@settings(deadline=None)
def test_graded_losses_are_the_points_of_the_simulator(rooms, pod, mix):
    rest = 1 - sum(part for _, part in mix)
    whole = [*mix, (Want((0, 0), 0, 0), rest)]
    rows, loss, _ = losses(rooms, pod, mix, 0.0, True)
    for row in rows:
        best = max(points(rooms[row], pod, each, whole) for each in choices(rooms[row], pod))
        # at a whole point the two ways of adding up may differ by the last bit
        assert -loss[row] == pytest.approx(best, abs=1)


@given(clusters(), st.lists(wants(), min_size=1, max_size=5))
@settings(deadline=None)
def test_filled_is_what_copies_take_one_after_the_other(rooms, shapes):
    free, devices, _, hosts, shares, counts, _ = columns(rooms, [(want, 0.5) for want in shapes])
    rows = np.arange(len(rooms))
    out, python = np.full((2, len(rooms), len(shapes)), -1, dtype=np.int64)
    kernel.filled(rows, free, devices, hosts, shares, counts, out)
    python_of(kernel.filled)(rows, free, devices, hosts, shares, counts, python)
    anywhere = [Room(room.free, room.devices, min(want.kinds)) for want in shapes for room in rooms]
    expected = [
        copies(room, want) * want.count * want.share
        for want, room in zip(np.repeat(np.arange(len(shapes)), len(rooms)), anywhere, strict=True)
        for want in [shapes[want]]
    ]
    assert out.T.ravel().tolist() == python.T.ravel().tolist() == expected


@given(clusters(), st.lists(st.integers(0, 3), min_size=1, max_size=8), wants(False), mixes)
@settings(deadline=None)
def test_rows_that_are_alike_have_the_same_loss(rooms, drawn, pod, mix):
    """Each row as if it were alone, whichever come before it."""
    several = [rooms[i % len(rooms)] for i in drawn]
    rows, loss, device = losses(several, pod, mix, 0.2, False)
    for row in rows:
        _, alone, device_alone = losses([several[row]], pod, mix, 0.2, False)
        assert (loss[row], device[row]) == (alone[0], device_alone[0])


@given(clusters(), wants(devices=False), mixes, st.sampled_from((0.0, 0.2, 1.0)), st.booleans())
@settings(deadline=None, max_examples=50)
def test_compiled_or_not_is_the_same(rooms, pod, mix, depth, graded):
    compiled = losses(rooms, pod, mix, depth, graded)
    python = losses(rooms, pod, mix, depth, graded, python_of(kernel.losses))
    assert compiled[0] == python[0]
    for one, other in zip(compiled[1:], python[1:], strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
def test_everything_is_compiled_for_the_types_in_use():
    warm.compile_all()
    known = {each: len(each.signatures) for each in (kernel.losses, kernel.filled)}
    rooms = [Room((9, 9), (1000, 470)), Room((9, 9), (0, 1000))]
    mix = [(Want((1, 1), 470, 1), 0.5)]
    losses(rooms, mix[0][0], mix, 0.2, False)
    free, devices, _, hosts, shares, counts, _ = columns(rooms, mix)
    kernel.filled(
        np.arange(2), free, devices, hosts, shares, counts, np.zeros((2, 1), dtype=np.int64)
    )
    assert {each: len(each.signatures) for each in known} == known
