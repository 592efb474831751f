"""Where a gang goes among domains: candidates, division over several, and what it is worth.

Bandwidth is predicted as in :func:`extender.core.topology.between.over_nodes`, with one network
port for each device that the gang uses (rail-optimised nodes). Everything is in ports here: what
the gang's slowest node or domain can send, however fast a port is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from extender.core.topology.domains import CLIQUES, UNKNOWN, Domains
from extender.core.topology.fairest import MOST_ROWS, fairest
from extender.kernels import place as kernels

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]

#: A gang in one NVLink clique, and on one node, is better than any port can make it.
CLIQUE_PORTS = 1 << 40
NODE_PORTS = 1 << 41
#: Domains that are looked at for one gang: their bounds put the right one among the first.
MOST_AREAS = 16


class Manner(Struct, frozen=True):
    """How members are divided where one domain, or one row, does not take them all.

    In both cases as few as possible are used. The first are filled, so that the least is broken;
    or all get the same (``even_domains``, in whole nodes' worth if ``whole_nodes``; ``even_rows``),
    so that none of them has less to send with than the others.
    """

    even_domains: bool = False
    whole_nodes: bool = False
    even_rows: bool = False
    #: As if all rows were equally near.
    flat: bool = False
    #: So that the slowest part can send the most, whatever else it breaks.
    fairest: bool = False


#: Least damage first: of equal bandwidth the first one is taken.
MANNERS = (
    Manner(),
    Manner(even_rows=True),
    Manner(even_domains=True, whole_nodes=True),
    Manner(even_domains=True),
    Manner(even_domains=True, whole_nodes=True, even_rows=True),
    Manner(even_domains=True, even_rows=True),
    Manner(flat=True),
    Manner(flat=True, even_rows=True),
)


#: The last resort: exact for members that are alike.
FAIREST = Manner(fairest=True)


class Area(Struct, frozen=True):
    """One domain that may hold a gang; level -1 is the whole cluster."""

    level: int
    domain: int
    #: No placement inside has more ports.
    ports: float


class Order(Struct, frozen=True, eq=False):
    """What :func:`extender.kernels.place.fill` needs of rows, best first."""

    #: (n,) the rows that take anything: near ones first, then by falling capacity.
    rows: Int64s
    #: (all rows,) whether members are there already.
    near: Bools
    #: (all rows,) copies that fit, and the rank in which a row takes the rest.
    capacity: Int64s
    last: Int64s


def ports(domains: Domains, devices: Int64s) -> float:
    """What a gang with ``devices`` (rows,) on each row can send: its slowest part's ports."""
    used = np.flatnonzero(devices)
    if len(used) < 2:
        return NODE_PORTS
    count = devices[used]
    least = float(count.min())
    for level, ids in zip(domains.levels, domains.ids[:, used], strict=True):
        together = bool((ids == ids[0]).all())
        if together and level.label in CLIQUES and ids[0] != UNKNOWN:
            return CLIQUE_PORTS
        if not together:
            shares = np.bincount(ids - UNKNOWN, weights=count)
            least = min(least, float(shares[shares > 0].min()) / level.oversubscription)
    return least


def areas(
    domains: Domains,
    capacity: Int64s,
    want: int,
    weight: int,
    needs: Sequence[tuple[Int64s, int]],
    widest: int,
) -> list[Area]:
    """Domains of level ``widest`` (-1: the cluster) and nearer that may take ``want`` copies, each
    with ``weight`` devices; the best first, and of equal ones the nearest, then the one with the
    least room, the fewest nodes, and the first name; at most MOST_AREAS.

    ``capacity`` (rows,) is what each row takes. ``needs``: further (amounts by row, amount).
    """
    keys: list[Int64s] = []
    for level in range(len(domains.levels) - 1, widest - 1, -1):
        ids = domains.ids[level] if level >= 0 else np.zeros(len(capacity), np.int32)
        rows = np.flatnonzero((capacity > 0) & (ids != UNKNOWN))
        if not len(rows):
            continue
        rows = rows[np.lexsort((-capacity[rows], ids[rows]))]
        group, size = ids[rows], capacity[rows]
        first = np.flatnonzero(np.diff(group, prepend=UNKNOWN))
        before = np.cumsum(size) - size
        before -= np.repeat(before[first], np.diff(first, append=len(rows)))
        nodes = np.add.reduceat(before < want, first, dtype=np.int64)
        total = np.add.reduceat(size, first)
        # All nodes get the same, unless the smallest that is needed has no room for that.
        bound = np.minimum(want // nodes, size[first + nodes - 1]) * weight
        if any(each.label in CLIQUES for each in domains.levels[: level + 1]):
            bound[:] = CLIQUE_PORTS
        bound[nodes == 1] = NODE_PORTS
        fits = total >= want
        for amounts, amount in needs:
            fits &= (
                np.bincount(ids[ids != UNKNOWN], amounts[ids != UNKNOWN])[group[first]] >= amount
            )
        name = domains.ranks[level][group[first]] if level >= 0 else np.zeros(len(first), np.int64)
        each = np.full(len(first), level)
        keys.append(np.stack([group[first], name, nodes, total, -each, -bound])[:, fits])
    if not keys:
        return []
    table = np.concatenate(keys, axis=1)
    best = table[:, np.lexsort(table)[:MOST_AREAS]].T.tolist()
    return [Area(-level, domain, -bound) for domain, _, _, _, level, bound in best]


def inside(domains: Domains, area: Area, rows: int) -> Bools:
    """The rows of an area. Shape: (rows,)."""
    if area.level < 0:
        return np.ones(rows, np.bool_)
    return np.asarray(domains.ids[area.level] == area.domain)


def crowding(domains: Domains, capacity: Int64s, rows: NDArray[np.intp]) -> list[Int64s]:
    """By level, widest first: the copies that fit into each row's domain, by row of ``rows``. The
    less, the less is broken there; a row of no known domain breaks the most.
    """
    out = []
    for ids in domains.ids:
        room = np.bincount(ids - UNKNOWN, capacity).astype(np.int64)
        room[0] = np.iinfo(np.int64).max
        out.append(room[ids[rows] - UNKNOWN])
    return out


def divide(domains: Domains, order: Order, want: int, manner: Manner) -> tuple[Int64s, Int64s]:
    """Rows and counts for up to ``want`` copies; neighbours in the array are near each other.

    A part goes whole to the nearest domain that takes it, the one with the least room; else it is
    divided over the domains of the next level, and each part of it is placed likewise.
    """
    if manner.fairest:
        found = None
        if len(order.rows) <= MOST_ROWS and not order.near.any():
            found = fairest(domains, order.rows, order.capacity, want)
        return found or (order.rows[:0], order.rows[:0])
    rows: list[Int64s] = [order.rows[:0]]
    counts: list[Int64s] = [order.rows[:0]]
    todo = [(order.rows, want, len(domains.levels) if manner.flat else 0)]
    while todo:
        among, left, level = todo.pop()
        one = bool((order.capacity[among] >= left).any())
        if not one:
            level, among = _nearest(domains, order, among, left, level)
        if one or level == len(domains.levels):
            share = _over_rows(order, among, left, even=manner.even_rows)
            rows.append(among)
            counts.append(share)
            continue
        ids = domains.ids[level][among]
        parts = _over_domains(domains, order, among, left, level, manner)
        # Taken from the end: the first part first.
        todo += [(among[ids == part], count, level + 1) for part, count in reversed(parts)]
    return np.concatenate(rows), np.concatenate(counts)


def _nearest(
    domains: Domains, order: Order, among: Int64s, want: int, level: int
) -> tuple[int, Int64s]:
    """The nearest domain that takes all, and the level below it; else what was given."""
    size = order.capacity[among]
    for deep in range(len(domains.levels) - 1, level - 1, -1):
        ids = domains.ids[deep][among]
        known = ids != UNKNOWN
        room = np.bincount(ids[known], weights=size[known])
        fits = np.flatnonzero(room >= want)
        if len(fits):
            near = np.bincount(ids[known], weights=order.near[among][known])
            best = fits[np.lexsort((domains.ranks[deep][fits], room[fits], -near[fits]))[0]]
            return deep + 1, among[ids == best]
    return level, among


def _over_rows(order: Order, among: Int64s, want: int, *, even: bool) -> Int64s:
    share = np.zeros(len(among), np.int64)
    near = int(order.near[among].sum())
    kernels.fill(among, near, order.capacity, order.last, want, share)
    if even:
        keys = (order.last[among], ~order.near[among])
        share = _even(order.capacity[among], share, np.lexsort(keys), 1)
    return share


def _over_domains(
    domains: Domains, order: Order, among: Int64s, want: int, level: int, manner: Manner
) -> list[tuple[int, int]]:
    """(domain, copies) of the fewest domains of ``level``. Rows that are in none come last."""
    ids = domains.ids[level][among]
    size = order.capacity[among]
    found, at = np.unique(ids, return_inverse=True)
    room = np.bincount(at, weights=size).astype(np.int64)
    near = np.bincount(at, weights=order.near[among]) > 0
    names = np.append(domains.ranks[level], len(domains.ranks[level]))[found]  # UNKNOWN: the last
    lost = found == UNKNOWN
    parts = np.lexsort((names, -room, lost, ~near)).astype(np.int64)
    last = np.empty(len(found), np.int64)
    last[np.lexsort((names, room, lost))] = np.arange(len(found))
    share = np.zeros(len(found), np.int64)
    kernels.fill(parts, int(near.sum()), room, last, want, share)
    if manner.even_domains:
        unit = int(size.max(initial=1)) if manner.whole_nodes else 1
        keys = (last[parts], ~near[parts])
        share = _even(room[parts], share, np.lexsort(keys), unit)
    return [(int(found[parts[i]]), int(share[i])) for i in np.flatnonzero(share).tolist()]


def _even(room: Int64s, filled: Int64s, order: NDArray[np.intp], unit: int) -> Int64s:
    """What ``filled`` places, over as many bins, as equally as their ``room`` allows; in units where
    that works out. Bins that have room for an equal part are taken in ``order``, else the largest.
    """
    want, bins = int(filled.sum()), int(np.count_nonzero(filled))
    if bins < 2:
        return filled
    roomy = order[room[order] >= -(-want // bins)]
    used = roomy[:bins] if len(roomy) >= bins else np.argsort(-room, kind="stable")[:bins]
    used = used[np.argsort(room[used], kind="stable")]
    share = np.zeros_like(filled)
    rest = int(room[used].sum())
    for at, (bin_, size) in enumerate(zip(used.tolist(), room[used].tolist(), strict=True)):
        rest -= size
        equal = want // (bins - at)
        equal -= equal % unit if equal >= unit else 0
        share[bin_] = min(size, max(equal, want - rest))
        want -= int(share[bin_])
    return share
