"""FGD's measure and step written down from the paper and its simulator, slowly and with plain lists.

Nothing here knows the kernel: fragmentation is counted as what is left that a task could not use,
by the seven classes of the simulator, where the kernel counts what can be used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Want:
    """One task: host resources, thousandths of each of ``count`` devices, kinds it may use."""

    host: tuple[int, ...]
    share: int
    count: int
    kinds: frozenset[int] = frozenset(range(8))


@dataclass(frozen=True)
class Room:
    """One node."""

    free: tuple[int, ...]
    devices: tuple[int, ...]
    kind: int = 0


def host_fits(room: Room, want: Want) -> bool:
    return all(free >= need for free, need in zip(room.free, want.host, strict=True) if need)


def able(room: Room, want: Want) -> list[int]:
    return [d for d, left in enumerate(room.devices) if left >= want.share]


def fits(room: Room, want: Want) -> bool:
    if not host_fits(room, want):
        return False
    return not want.count or (room.kind in want.kinds and len(able(room, want)) >= want.count)


def kind_of_fragment(room: Room, want: Want) -> str:
    """frag.go: Q1 to Q4 by what lacks, XL and XR for tasks without device, NA for other models."""
    cpu = host_fits(room, want)
    if not want.count:
        return "XL" if cpu else "XR"
    if room.kind not in want.kinds:
        return "NA"
    if len(able(room, want)) >= want.count:
        return "Q3" if cpu else "Q4"
    return "Q2" if cpu else "Q1"


def fragment(room: Room, want: Want) -> int:
    """Thousandths of the node that are of no use to the task."""
    if kind_of_fragment(room, want) == "Q3":
        return sum(left for left in room.devices if left < want.share)
    return sum(room.devices)


def fragmentation(room: Room, mix: list[tuple[Want, float]]) -> float:
    return sum(part * fragment(room, want) for want, part in mix)


def after(room: Room, want: Want, devices: list[int]) -> Room:
    free = tuple(free - need for free, need in zip(room.free, want.host, strict=True))
    left = [x - want.share * (d in devices) for d, x in enumerate(room.devices)]
    return Room(free, tuple(left), room.kind)


def choices(room: Room, want: Want) -> list[list[int]]:
    """The devices that the simulator tries: each one for a task of one, else the fullest."""
    if want.count == 1:
        return [[d] for d in able(room, want)]
    return [sorted(able(room, want), key=lambda d: (room.devices[d], d))[: want.count]]


def points(room: Room, want: Want, devices: list[int], mix: list[tuple[Want, float]]) -> int:
    shrinks = fragmentation(room, mix) - fragmentation(after(room, want, devices), mix)
    return int(100 / (1 + math.exp(-shrinks / 1000)))


def step(
    rooms: list[Room], want: Want, mix: list[tuple[Want, float]]
) -> tuple[int, list[int]] | None:
    """Node and devices that FGD's simulator takes; None if nothing fits."""
    best: tuple[int, int, list[int]] | None = None
    for n, room in enumerate(rooms):
        if not fits(room, want):
            continue
        for devices in choices(room, want):
            found = points(room, want, devices, mix)
            if best is None or found > best[0]:
                best = found, n, devices
    return None if best is None else best[1:]


def copies(room: Room, want: Want) -> int:
    """How many tasks fit one after the other, each on the fullest devices that have room."""
    number = 0
    while want.count and fits(room, want):
        fullest = sorted(able(room, want), key=lambda d: (room.devices[d], d))
        room = after(room, want, fullest[: want.count])
        number += 1
    return number
