"""What a gang's members can send within their nodes, by the devices that they would really get.

The network is chosen by ports (:mod:`extender.core.nearest`); a gang is as fast as its slowest hop,
which may be inside a node whose device plugin has only distant GPUs left. So the gang is planned once
more on the nodes alone that are faster inside than what was found, the fastest first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from extender.core.alignment import Alignment
from extender.core.bulk import Attempt, Role
from extender.core.framework import FloatArray
from extender.core.nearest import Found
from extender.core.taken import FREE, gbs, gpus
from extender.core.topology.bandwidth import MOST_DEVICES, NET_GBS_PER_100G
from extender.core.topology.catalogue import PRODUCT_LABEL
from extender.core.topology.spread import CLIQUE_PORTS, ports

if TYPE_CHECKING:
    from extender.core.shape import PodShape
    from extender.core.snapshot import Snapshot

Int64s = NDArray[np.int64]

#: GB/s of a port where nothing else is known: 400 Gbit/s.
PORT_GBS = 4 * NET_GBS_PER_100G
#: How often a gang is planned again at most.
MOST_TRIES = 4
#: What is not known is neither good nor bad: this part of the best that is.
UNKNOWN = 0.5


class Judge(Struct, frozen=True, eq=False):
    """What attempts to place a gang are worth, in GB/s."""

    view: Snapshot
    #: Members that hold most of the gang's devices, by a shape of theirs; others are not looked at.
    shape: PodShape
    of_role: list[bool]
    want: int
    #: (rows,) how many of them fit on each row.
    room: Int64s
    #: (n, rows) GB/s inside of each row with 1, 2 .. n of them there; inf: one device, which has
    #: nothing to send. More of them than there may be devices are parts of devices: as n.
    speeds: FloatArray

    def worth(self, attempt: Attempt) -> tuple[float, float]:
        """What the gang can send: within its nodes, and between them (inf: no port limits it)."""
        rows, counts = np.unique(self._rows(attempt), return_counts=True)
        if not len(rows):
            return FREE, FREE
        least = float(self.speeds[np.minimum(counts, len(self.speeds)) - 1, rows].min())
        used = np.zeros(self.view.rows, np.int64)
        used[rows] = counts * gpus(self.shape.aligned)
        sends = ports(self.view.view.domains, used)
        return least, FREE if sends >= CLIQUE_PORTS else sends * PORT_GBS

    def alone(self, attempt: Attempt) -> bool:
        """Whether all of them are on one node."""
        return len(set(self._rows(attempt).tolist())) < 2

    def floors(self, above: float) -> list[float]:
        """Speeds that a gang may have inside of all of its nodes, the best first."""
        found: list[float] = np.unique(self.speeds).tolist()
        return [each for each in reversed(found) if above < each < FREE]

    def caps(self, floor: float) -> Int64s:
        """How many members a row takes at most so that it has ``floor`` inside. (rows,)."""
        counts = np.arange(1, len(self.speeds) + 1)[:, None]
        good = (self.speeds >= floor) & (counts <= self.room)
        return np.asarray((counts * good).max(axis=0), np.int64)

    def _rows(self, attempt: Attempt) -> Int64s:
        of_role = zip(attempt.rows, self.of_role, strict=True)
        return np.array([row for rows, own in of_role if own for row in rows], np.int64)


def faster(
    view: Snapshot, roles: Sequence[Role], found: Found, again: Callable[[Snapshot], Found]
) -> Found:
    """The fastest of ``found`` and what ``again`` finds on views that let fewer members onto a row.
    Of equals the first, so that nothing is broken for nothing.
    """
    judge = judge_of(view, roles)
    if judge is None:
        return found
    within, between = judge.worth(found.attempt)
    if within >= between:
        return found  # No other nodes have more between them.
    best, most = found, within
    size = sum(map(len, found.attempt.rows))
    alone, tries = judge.alone(found.attempt), 0
    for floor in judge.floors(most):
        if floor <= most or tries == MOST_TRIES:
            break
        caps = judge.caps(floor)
        if alone:  # How fast the network really is nobody tells: nothing is taken there for it.
            caps[caps < judge.want] = 0
        if caps.sum() < judge.want:
            continue
        tries += 1
        other = again(view.at_most(judge.shape.aligned, caps))
        if sum(map(len, other.attempt.rows)) < size or other.attempt.missing(roles):
            continue
        value = min(judge.worth(other.attempt))
        if value > most:
            best, most = other, value
    return best


def judge_of(view: Snapshot, roles: Sequence[Role]) -> Judge | None:
    """None where nothing is known of what is in the nodes, or nobody has devices."""
    if not _told(view):
        return None
    total: dict[Alignment, int] = {}
    for role in roles:
        aligned, members = role.shape.aligned, role.required + role.optional
        if gpus(aligned) and members:
            total[aligned] = total.get(aligned, 0) + members
    if not total:
        return None
    main = max(total, key=lambda each: total[each] * gpus(each))
    own = [role.shape.aligned == main for role in roles]
    shape = next(role.shape for role, mine in zip(roles, own, strict=True) if mine)
    want = total[main]
    room = np.minimum(view.capacity(shape), want)
    most = min(int(room.max(initial=0)), MOST_DEVICES)
    speeds = np.full((most, view.rows), FREE)
    for count in range(1, most + 1):
        rows = np.flatnonzero(room >= count)
        copies, alone = np.full(len(rows), count), np.full(len(rows), count == want)
        speeds[count - 1, rows] = gbs(view, shape, rows, copies, alone)
    known = speeds[np.isfinite(speeds)]
    if not len(known):
        return None
    unknown = float(known.max()) * UNKNOWN
    speeds = np.where(np.isnan(speeds), unknown, speeds)
    return Judge(view, shape, own, want, room, speeds)


def _told(view: Snapshot) -> bool:
    return view.zones is not None or bool(view.view.column(PRODUCT_LABEL).values)
