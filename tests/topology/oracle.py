"""A second, slow way to everything that the tables say, written from the documents alone.

Rings are looked for hop by hop, packings of rings are solved over every ring in exact fractions,
groups are packed by trying, choices are compared one with another. Nothing is shared with
`extender.core.topology` but the input: links, NUMA nodes, and rates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cache
from itertools import combinations, permutations
from math import comb

from extender.core.topology import catalogue
from extender.core.topology.bandwidth import Rates
from extender.core.topology.model import Topology, word_of

Group = tuple[int, ...]
RANK = {"?": 0, "SYS": 2, "NODE": 3, "PHB": 4, "PXB": 5, "PIX": 6, "PSB": 7}


class Oracle:
    """One node."""

    def __init__(self, known: Topology, rates: Rates) -> None:
        self.rates = rates
        self.count = len(known)
        self.every = range(self.count)
        self.word = [[word_of(int(code)) for code in row] for row in known.links]
        self.nic = [[RANK[word_of(int(code))] for code in row] for row in known.nic_links]
        self.numa = [int(zone) for zone in known.numa]
        self.cpus = known.cpus
        self.bonds = [
            [min(bonds(self.word[a][b]), bonds(self.word[b][a])) for b in self.every]
            for a in self.every
        ]
        self.switched = any(sum(row) > rates.most_links for row in self.bonds)
        self.near = cache(self._near)
        self.hop = cache(self._hop)
        self.gbs = cache(self._gbs)
        self.nearness = cache(
            lambda group: min(
                (max(2, self.near(a, b)) for a, b in combinations(group, 2)), default=9
            )
        )
        self.packing = cache(self._packing)
        self.most = cache(self._most)
        self.groups = [self._groups(kind) for kind in ("strict", "fast", "near")]

    def zone(self, device: int) -> object:
        if any(zone != -1 for zone in self.numa):
            return None if self.numa[device] == -1 else self.numa[device]
        return self.cpus[device] or None

    def _near(self, a: int, b: int) -> int:
        known = [way for way in (self._near_one_way(a, b), self._near_one_way(b, a)) if way]
        return min(known, default=0)

    def _near_one_way(self, a: int, b: int) -> int:
        word = self.word[a][b]
        if RANK.get(word, 0):
            return RANK[word]
        shared = max((min(x, y) for x, y in zip(self.nic[a], self.nic[b], strict=True)), default=0)
        if shared in (5, 6):
            return shared
        if self.zone(a) is None or self.zone(b) is None:
            return 0
        return 3 if self.zone(a) == self.zone(b) else 2

    def _hop(self, a: int, b: int) -> float:
        if self.bonds[a][b]:
            return self.bonds[a][b] * self.rates.link
        near = self.near(a, b)
        slot = self.rates.pcie
        through = slot * 5 / 6 if self.rates.p2p else slot
        if near in (0, 2):
            return min(through, self.rates.socket)
        return through if near in (3, 4) else slot

    def _gbs(self, group: Group) -> float:
        """Bus bandwidth of a group, GB/s."""
        if len(group) < 2:
            return 0.0
        by_any = widest(group, self.hop)
        if not self.rates.p2p:
            switch = max(sum(a == b or self.near(a, b) in (5, 6) for b in group) for a in group)
            socket = max(sum(a == b or self._one_socket(a, b) for b in group) for a in group)
            by_any = min(by_any, self.rates.pcie / switch, 2 * self.rates.pcie / socket)
        direct = widest(group, lambda a, b: self.bonds[a][b] * self.rates.link)
        best = max(by_any, direct)
        if self.switched and self.rates.nvls:
            slowest = min(self.bonds[a][b] for a, b in combinations(group, 2)) * self.rates.link
            k = len(group)
            best = max(best, slowest * self.rates.nvls * 2 * (k - 1) / (k + 1))
        if not self.switched and direct:
            links = packing(group, lambda a, b: self.bonds[a][b])
            best = max(best, links * self.rates.link, direct * (2 if len(group) > 2 else 1))
        return round(best, 3)

    def _one_socket(self, a: int, b: int) -> bool:
        if any(self.zone(each) is None for each in self.every):
            return self.near(a, b) > 2
        return self.zone(a) == self.zone(b)

    def _groups(self, kind: str) -> list[list[int]]:
        """Groups of 8, of 4 and of 2, as masks."""
        out = []
        for size in (8, 4, 2):
            groups = list(combinations(self.every, size))
            top = max((self.gbs(group) for group in groups), default=0)
            groups = [group for group in groups if self.gbs(group) == top]
            close = max((self.nearness(group) for group in groups), default=0)
            if kind == "near":
                groups = [group for group in groups if self.nearness(group) == close]
            if kind == "strict" and close > 2:
                groups = [group for group in groups if self.nearness(group) > 2]
            out.append([sum(1 << each for each in group) for group in groups])
        return out

    def _packing(self, kind: int, left: int) -> tuple[int, ...]:
        """The most disjoint octets, quads, pairs in ``left``, each for itself."""
        return tuple(self.most(kind, place, left) for place in range(3))

    def _most(self, kind: int, place: int, left: int) -> int:
        if not left:
            return 0
        groups, size = self.groups[kind][place], (8, 4, 2)[place]
        if len(groups) == comb(self.count, size):
            return left.bit_count() // size  # any devices are a group
        first = left & -left
        best = self.most(kind, place, left ^ first)
        for group in groups:
            if group & first and group & ~left == 0:
                best = max(best, 1 + self.most(kind, place, left ^ group))
        return best

    def order(self, free: Group, group: Group) -> tuple[object, ...]:
        """Greater is better."""
        left = sum(1 << each for each in free if each not in group)
        value = [self.packing(kind, left) for kind in range(3)]
        return (self.gbs(group), *value, self.nearness(group), [-each for each in group])

    def best(self, free: Group, count: int) -> Group:
        return max(combinations(free, count), key=lambda group: self.order(free, group))


def node(product: str, count: int) -> Topology:
    """A node of the catalogue."""
    found = catalogue.shape(product, count)
    assert found is not None
    return found.topology


def bonds(word: str) -> int:
    digits = word.removeprefix("NV").removeprefix("XGMI")
    return int(digits) if digits.isdigit() else 0


def widest(group: Group, hop) -> float:
    """The slowest hop of the best ring: the greatest value at which a ring is left."""
    values = sorted({hop(a, b) for a, b in combinations(group, 2)} | {0.0}, reverse=True)
    for value in values:
        if value == 0 or ring(group, lambda a, b, least=value: hop(a, b) >= least):
            return value
    raise AssertionError


def ring(group: Group, joined) -> bool:
    """Whether a ring passes all devices of a group over pairs that are joined."""

    def goes_on(path: list[int], rest: frozenset[int]) -> bool:
        if not rest:
            return joined(path[-1], path[0])
        return any(
            joined(path[-1], each) and goes_on([*path, each], rest - {each})
            for each in sorted(rest)
        )

    return goes_on([group[0]], frozenset(group[1:]))


def rings(group: Group, count) -> list[frozenset[frozenset[int]]]:
    """Every ring over pairs that have links, as the set of its pairs."""
    found = set()
    for order in permutations(group[1:]):
        path = [group[0], *order]
        pairs = [(path[at - 1], path[at]) for at in range(len(path))]
        if all(count(a, b) for a, b in pairs):
            found.add(frozenset(frozenset(pair) for pair in pairs))
    return sorted(found, key=lambda each: sorted(map(sorted, each)))


def packing(group: Group, count) -> float:
    """Links in one direction that the best packing of rings uses, both ways round."""
    if len(group) == 2:
        return count(*group)
    pairs = [frozenset(pair) for pair in combinations(group, 2)]
    counts = [count(*sorted(pair)) for pair in pairs]
    if len(set(counts)) == 1:
        # A full mesh: turning the rings over all orders loads every pair the same.
        return counts[0] * (len(group) - 1)
    columns = [[int(pair in each) for pair in pairs] for each in rings(group, count)]
    return float(2 * simplex(columns, counts))


def simplex(columns: Sequence[Sequence[int]], limits: Iterable[int]) -> Fraction:
    """Maximise sum(x) with sum(x * column) <= limits, exactly (Bland's rule)."""
    limits = list(limits)
    rows = [
        [Fraction(column[r]) for column in columns]
        + [Fraction(int(r == s)) for s in range(len(limits))]
        + [Fraction(limit)]
        for r, limit in enumerate(limits)
    ]
    goal = [Fraction(-1)] * len(columns) + [Fraction(0)] * (len(limits) + 1)
    basis = [len(columns) + r for r in range(len(limits))]
    while (enter := next((c for c, cost in enumerate(goal[:-1]) if cost < 0), None)) is not None:
        ratios = [
            (row[-1] / row[enter], basis[r], r) for r, row in enumerate(rows) if row[enter] > 0
        ]
        leave = min(ratios)[2]
        pivot = rows[leave][enter]
        rows[leave] = [value / pivot for value in rows[leave]]
        for target in [*(row for r, row in enumerate(rows) if r != leave), goal]:
            factor = target[enter]
            if factor:
                target[:] = [a - factor * b for a, b in zip(target, rows[leave], strict=True)]
        basis[leave] = enter
    return goal[-1]
