"""Which devices of one node a job should get.

In this order: the greatest predicted bandwidth; the least damage to what remains; the nearest
devices; the list of devices that comes first.

Damage is counted in groups of 8, 4 and 2 devices that a later job could still have: how many
disjoint octets the remaining devices hold, how many quads, how many pairs; a choice that leaves
more is better. What is a group is tried from strict to fine: those with the best bandwidth of
their size that cross no socket (where there are such: quads 0-3 and 4-7, NVLink pairs), then those
with the best bandwidth, then of these the nearest (below one PCIe switch).

The answer for every set of free devices and every number is computed once for a shape of node
(3**n steps), so a choice is one look-up.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from extender.core.errors import InvalidObject
from extender.core.topology.bandwidth import NodeModel
from extender.core.topology.model import PSB, SYS
from extender.kernels import subset

#: The sizes of groups that are kept whole, the dearest first, and what they are called.
GROUPS = {8: "octets", 4: "quads", 2: "pairs"}
#: A count of groups takes so many bits: 16 devices have 8 pairs.
_BITS = 4

Masks = NDArray[np.uint32]
Codes = NDArray[np.uint8]
Int64s = NDArray[np.int64]


class Choices(Struct, frozen=True):
    """The best devices of one shape of node; arrays over masks, bit i is device i."""

    model: NodeModel
    #: (2**n, n + 1) the mask to take of free devices and number; 0 where it cannot be.
    best: NDArray[np.uint16]
    #: (2**n,) what a mask is worth when it is chosen, and when it remains: the greatest sum is best.
    taken: Int64s
    left: Int64s
    #: By name in GROUPS, (2**n,) how many disjoint groups of the strict kind a mask holds.
    unbroken: dict[str, Int64s]
    #: (2**n,) how near the farthest pair of a mask is, a PCIe code; PSB below two devices.
    nearness: Codes


class Chosen(Struct, frozen=True):
    """One choice and what it means."""

    #: Positions of the devices, ascending.
    devices: tuple[int, ...]
    #: GB/s; 0 for one device.
    bandwidth: float
    #: By name (``quads``): groups that were unbroken and are neither left nor in the choice.
    broken: dict[str, int]


def choices_of(model: NodeModel) -> Choices:
    """The table of one shape: about two milliseconds at 8 devices, half a second at 16.

    Memory is about 2**n * (2 n + 50) bytes: 17 KiB at 8 devices, 5.4 MB at 16.
    """
    count = len(model.topology)
    nearness = _nearness(model)
    kinds = [
        {size: _packed(count, masks) for size, masks in kind.items()}
        for kind in _groups(model, nearness)
    ]
    unbroken = {GROUPS[size]: held for size, held in kinds[0].items()}
    left = np.zeros(1 << count, np.int64)
    for kind in kinds:
        for size in GROUPS:
            left = (left << _BITS) | kind.get(size, 0)
    # From high to low: 16 bits of bandwidth's rank, 36 of what is left, 8 of nearness.
    rank = np.unique(model.bandwidth, return_inverse=True)[1].astype(np.int64)
    taken, left = (rank << 44) | nearness, left << 8
    best = np.empty((1 << count, count + 1), np.uint16)
    subset.choose(taken, left, best)
    for array in (taken, left, best):
        array.setflags(write=False)
    return Choices(model, best, taken, left, unbroken, nearness)


def take(choices: Choices, free: int, count: int) -> int:
    """The mask of the best ``count`` devices out of the mask ``free``; 0 where there are too few."""
    return int(choices.best[free, count]) if count < choices.best.shape[1] else 0


def choose(choices: Choices, free: Iterable[int], count: int) -> Chosen | None:
    """The best ``count`` of the free positions, with its price; None where there are too few.

    Raises InvalidObject (field ``gpus``) for a number below 1.
    """
    if count < 1:
        raise InvalidObject("gpus", count, "at least 1")
    mask = mask_of(free)
    chosen = take(choices, mask, count)
    return explain(choices, mask, chosen) if chosen else None


def explain(choices: Choices, free: int, chosen: int) -> Chosen:
    """What taking ``chosen`` out of ``free`` gives and breaks, masks both."""
    broken = {
        name: int(held[free] - held[free ^ chosen] - held[chosen])
        for name, held in choices.unbroken.items()
    }
    return Chosen(positions_of(chosen), float(choices.model.bandwidth[chosen]), broken)


def alternative(choices: Choices, free: int, chosen: int) -> int:
    """The best other mask of as many devices, by the order of this module; 0 where none is left.

    Looks at all of them: for explanations, not for placing.
    """
    count = len(choices.model.topology)
    masks = np.arange(1 << count, dtype=np.uint32)
    size = np.bitwise_count(masks) == chosen.bit_count()
    masks = masks[size & (masks & ~np.uint32(free) == 0) & (masks != chosen)]
    score = choices.taken[masks] + choices.left[free ^ masks]
    equals = [positions_of(int(mask)) for mask in masks[score == score.max(initial=0)]]
    return mask_of(min(equals, default=()))


def mask_of(positions: Iterable[int]) -> int:
    """The mask with these bits."""
    mask = 0
    for position in positions:
        mask |= 1 << position
    return mask


def positions_of(mask: int) -> tuple[int, ...]:
    """The bits of a mask, ascending."""
    return tuple(bit for bit in range(mask.bit_length()) if mask >> bit & 1)


def _nearness(model: NodeModel) -> Codes:
    count = len(model.topology)
    distance = np.maximum(model.distance, SYS)  # a way that is not known is taken for the long one
    out = np.full(1 << count, PSB, np.uint8)
    for device in range(count):
        has = 1 << device
        out[has : 2 * has] = out[:has]
        for other in range(device):
            among = np.arange(has) >> other & 1 == 1
            with_it = out[has : 2 * has]
            with_it[among] = np.minimum(with_it[among], distance[device, other])
    return out


def _groups(
    model: NodeModel, nearness: Codes
) -> tuple[dict[int, Masks], dict[int, Masks], dict[int, Masks]]:
    """The three kinds of groups by size: strict, fast, near (see above)."""
    count = len(model.topology)
    strict: dict[int, Masks] = {}
    fast: dict[int, Masks] = {}
    near: dict[int, Masks] = {}
    for size in (size for size in GROUPS if size <= count):
        masks = np.array([mask_of(some) for some in combinations(range(count), size)], np.uint32)
        speed = model.bandwidth[masks]
        fast[size] = masks[speed == speed.max()]
        close = nearness[fast[size]]
        near[size] = fast[size][close == close.max()]
        strict[size] = fast[size][close > SYS] if (close > SYS).any() else fast[size]
    return strict, fast, near


def _packed(count: int, group: Masks) -> Int64s:
    """(2**n,) how many disjoint ones of ``group`` each mask holds."""
    wide = group.astype(np.int64)
    lowest = np.bitwise_count((wide & -wide) - 1)
    order = np.argsort(lowest, kind="stable")
    begin = np.searchsorted(lowest[order], np.arange(count + 1)).astype(np.int64)
    out = np.empty(1 << count, np.int64)
    subset.pack(group[order], begin, out)
    return out
