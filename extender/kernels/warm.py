"""Compiles every kernel before the service says that it is ready."""

from __future__ import annotations

import numpy as np

from extender.kernels import bandwidth, fragmentation, place, subset


def compile_all() -> None:
    """Call each kernel once with the types that it gets in production (about 5 s, 0.1 s cached)."""
    free = np.ones((1, 1), dtype=np.int64)
    one = np.ones(1, dtype=np.int64)
    zero = np.zeros(1, dtype=np.int64)
    out = np.zeros(1, dtype=np.int64)
    place.copies(free, one, np.ones(1, dtype=np.bool_), 1, out)
    place.fill(zero, 0, one, zero, 1, out)
    shape = (free, one, one)
    fragmentation.filled(zero, free, free, *shape, np.zeros((1, 1), dtype=np.int64))
    weights, loss = np.ones((1, 1)), np.zeros(1)
    columns = (free, free, zero, *shape, weights)
    fragmentation.losses(zero, zero, 1, 1, *columns, 0.5, False, loss, out)
    two, both = np.ones((2, 2)), np.ones((2, 2), dtype=np.int64)
    bandwidth.widest(two, np.empty((4, 2)), np.empty(4))
    bandwidth.pack(both, np.full(2, 3, dtype=np.int64), 8, np.empty(4))
    four, masks = np.zeros(4, dtype=np.int64), np.full(1, 3, dtype=np.uint32)
    subset.pack(masks, np.array([0, 1, 1]), four)
    subset.choose(four, four, np.empty((4, 3), dtype=np.uint16))
