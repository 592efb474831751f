"""The domain of the network that a gang gets: the fastest one that takes it whole.

In this order: predicted bandwidth (:func:`extender.core.topology.spread.ports`), the nearest level,
least damage (the fullest domain that still takes the gang), fewest nodes, first name. Domains are
tried from the best that they could be down, until none that is left could be better; within one,
every manner of dividing the gang over what is inside.

A limit is what the gang's owner asks for: nothing is placed outside one domain of its bound; and
domains of the level that is preferred go first, whatever they are worth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from extender.core.bulk import Attempt, Role, Way
from extender.core.framework import BoolArray
from extender.core.topology.domains import HOST, UNKNOWN, Domains, Level, divided
from extender.core.topology.fairest import MOST_ROWS, fairest
from extender.core.topology.limits import Limit
from extender.core.topology.spread import (
    FAIREST,
    MANNERS,
    NODE_PORTS,
    Area,
    Manner,
    areas,
    inside,
    ports,
)
from extender.kernels import place as kernels

if TYPE_CHECKING:
    from extender.core.shape import PodShape
    from extender.core.snapshot import Snapshot

Int64s = NDArray[np.int64]

#: How members that are alike are divided in one domain: in all manners, again with the rows that the
#: best so far leaves, and then exactly.
EVERY = (*MANNERS * 2, FAIREST)
#: Domains that took no gang although they seemed large enough, after which no other one is tried.
MISSES = 6
#: Domains of a hard limit in which a long search is made, where no quick one works out.
LONG_TRIES = 4
#: More copies than any node takes; sums over rows stay far below 2**63.
MOST = 1 << 31


class Ask(Struct):
    """A gang, and a way of planning it."""

    roles: Sequence[Role]
    #: Plans the gang in one way.
    solve: Callable[[Way], Attempt]
    #: Devices of one member by role; 1 for all where none has any, 0 for who has none beside them.
    devices: list[int]
    #: What domains are judged by: (rows,) copies that fit, how many are wanted and the devices of
    #: each. One role's members; of several roles their devices (else members), as if each were free
    #: to go alone.
    room: Int64s
    weight: int
    #: (rows,) amounts that fit at most, and for how many of each role (by role) one is asked.
    needs: list[tuple[Int64s, list[int]]]
    #: (rows,) the place of the node's name.
    names: Int64s
    #: Ways of dividing that are tried; one where ``solve`` is slow and goes its own way.
    manners: tuple[Manner, ...] = EVERY
    #: Of several kinds of members, the resource that all devices are of; -1: there are several.
    column: int = -1


def ask_of(
    view: Snapshot,
    roles: Sequence[Role],
    allowed: Sequence[BoolArray],
    names: Int64s,
    solve: Callable[[Way], Attempt],
) -> Ask:
    """``allowed`` (rows,) by role: where its members may go; ``names`` (rows,) ranks of names."""
    requests = [view.request_vector(role.shape) for role in roles]
    columns = [column for name, column in view.resources.items() if "/" in name]
    devices = [int(request[columns].max(initial=0)) for request in requests]
    if not any(each for each, role in zip(devices, roles, strict=True) if role.required):
        devices = [1] * len(roles)
    copies: dict[PodShape, Int64s] = {}
    for role, request, rows in zip(roles, requests, allowed, strict=True):
        if role.shape not in copies:
            copies[role.shape] = np.zeros(view.rows, np.int64)
            most = 1 if _once(view, role.shape, rows) else MOST
            kernels.copies(view.free, request, rows, most, copies[role.shape])
    speaking = dict.fromkeys(r.shape for r, each in zip(roles, devices, strict=True) if each)
    needs = [(copies[s], [int(role.shape == s) for role in roles]) for s in speaking]
    if len(speaking) == 1:
        return Ask(roles, solve, devices, needs[0][0], max(devices), [], names)
    fits = np.logical_or.reduce([amounts > 0 for amounts, _ in needs])
    free = np.maximum(view.free, 0) * fits[:, None]
    for column in np.flatnonzero(np.any(requests, axis=0)).tolist():
        asked = [int(r[column]) if each else 0 for r, each in zip(requests, devices, strict=True)]
        needs.append((free[:, column], asked))
    main = {
        columns[int(request[columns].argmax())] for request in requests if any(request[columns])
    }
    room = np.sum([free[:, column] for column in main] or [n for n, _ in needs], axis=0)
    column = next(iter(main)) if len(main) == 1 else -1
    return Ask(roles, solve, devices, room, 1, needs, names, MANNERS, column)


def _once(view: Snapshot, shape: PodShape, rows: BoolArray) -> bool:
    """Whether a copy keeps others off its node (host ports, anti-affinity), whatever else is free.
    Spread does not count: it may let another one in later.
    """
    if not view.interacts(shape) or shape.spread or not rows.any():
        return False
    row, mark = int(np.flatnonzero(rows)[0]), view.checkpoint()
    view.place(shape, row)
    alone = any(
        refused[row] for tracker in view.trackers(shape) for _, refused in tracker.refusals()
    )
    view.rollback(mark)
    return alone


class Found(Struct):
    """The best attempt, and within what (rows,) a hard limit kept it."""

    attempt: Attempt
    reach: BoolArray | None = None


def plan(ask: Ask, domains: Domains, peers: Sequence[int], limit: Limit | None) -> Found:
    """Place the gang as the module says, near ``peers``: rows of members that have their places."""
    hosts = with_hosts(domains, ask.names)
    widest, prefer = (-1, -1) if limit is None else (limit.bound, limit.prefer)
    for level in sorted({widest, prefer} - {-1}):
        hosts = divided(hosts, level)
    known = np.ones(len(ask.room), np.bool_) if widest < 0 else hosts.ids[widest] != UNKNOWN
    # Members that a limit came too late for pin nobody down.
    peers = [row for row in peers if known[row]]
    whole = [role.required + role.optional for role in ask.roles]
    musts = [role.required for role in ask.roles]
    for wants in [whole] if whole == musts else [whole, musts]:
        for way in _beside(hosts, domains, peers, widest) if peers else ():
            if (attempt := _complete(ask, way, wants)) is not None:
                return Found(attempt)
        for level in dict.fromkeys((max(prefer, widest), widest)) if not peers else ():
            best = _best(ask, hosts, domains, wants, level, known, widest)
            if best is not None:
                return Found(best)
    return _refused(ask, hosts, domains, musts, peers, widest, known)


def in_order(domains: Domains, rows: Sequence[int]) -> list[int]:
    """The rows with those of one node side by side, then those of one domain, level by level; where
    a node or a domain comes first, it stays.
    """
    at = np.array(rows, np.int64)
    keys = [at, *domains.ids[::-1, at]]
    firsts = [np.unique(key, return_index=True, return_inverse=True) for key in keys]
    order = np.lexsort([first[inverse] for _, first, inverse in firsts])
    ordered: list[int] = at[order].tolist()
    return ordered


def _best(
    ask: Ask,
    hosts: Domains,
    domains: Domains,
    wants: list[int],
    widest: int,
    known: BoolArray,
    bound: int,
) -> Attempt | None:
    """The attempt with the most ports, in domains of level ``widest`` and nearer."""
    if (ask.room * known).max(initial=0) >= _wanted(ask.devices, wants) // ask.weight:
        # One node may do: rows have an order of their own.
        attempt = _complete(ask, Way(None, None if bound < 0 else known, domains), wants)
        alone = attempt is not None and ports(domains, _devices(ask, attempt)) == NODE_PORTS
        if alone and attempt is not None and _together(hosts, attempt, bound):
            return attempt
    best: Attempt | None = None
    most, misses = 0.0, 0
    for area in _areas(ask, hosts, wants, widest, known):
        if area.ports <= most or misses == MISSES:
            break
        rows = inside(hosts, area, len(known))
        reach = None if bound < 0 else _around(hosts, rows, bound)
        seen: dict[Manner, int] = {}
        for manner in ask.manners:
            rows = _better(ask, domains, area, rows, most)
            if seen.get(manner) == (left := int(np.count_nonzero(rows))):
                continue  # none was dropped since it was tried
            seen[manner] = left
            attempt = _complete(ask, Way(rows, reach, domains, manner, quick=True), wants)
            if attempt is None:
                misses += len(seen) == 1
                break
            value = ports(domains, _devices(ask, attempt))
            if value > most:
                best, most = attempt, value
            if value >= area.ports:
                break
        rows = inside(hosts, area, len(known))
        for quota in _quotas(ask, domains, rows, wants) if most < area.ports else ():
            way = Way(quota[1] > 0, reach, domains, quota=quota, quick=True)
            attempt = _complete(ask, way, wants)
            if attempt is not None and (value := ports(domains, _devices(ask, attempt))) > most:
                best, most = attempt, value
    return best


def _quotas(
    ask: Ask, domains: Domains, rows: BoolArray, wants: list[int]
) -> Iterator[tuple[int, Int64s]]:
    """For members of several kinds: how many devices of each row let the slowest part send the most,
    in portions of one kind's, the largest first. Whether members can be dealt so is to be seen.
    """
    at = np.flatnonzero(rows & (ask.room > 0))
    if ask.column < 0 or len(at) > MOST_ROWS:
        return
    total = _wanted(ask.devices, wants)
    for unit in sorted(set(ask.devices) - {0}, reverse=True):
        found = fairest(domains, at, ask.room // unit, -(-total // unit))
        if found is not None:
            quota = np.zeros(len(rows), np.int64)
            quota[found[0]] = found[1] * unit
            yield ask.column, quota


def _better(ask: Ask, domains: Domains, area: Area, rows: BoolArray, most: float) -> BoolArray:
    """The ``rows`` that a placement may use which has more than ``most`` ports: none with fewer, and
    none of a domain that could send less (one that takes all is an area of its own).
    """
    size = ask.room * ask.weight
    rows = rows & (size > most)
    for level in range(area.level + 1, len(domains.levels)):
        at = domains.ids[level] - UNKNOWN
        share = np.bincount(at, size * rows) / domains.levels[level].oversubscription
        rows &= share[at] > most
    return rows


def _complete(ask: Ask, way: Way, wants: list[int]) -> Attempt | None:
    attempt = ask.solve(way)
    enough = all(len(rows) >= want for rows, want in zip(attempt.rows, wants, strict=True))
    return attempt if enough else None


def _areas(ask: Ask, hosts: Domains, wants: list[int], widest: int, known: BoolArray) -> list[Area]:
    needs = [(amounts * known, _wanted(by_role, wants)) for amounts, by_role in ask.needs]
    want = _wanted(ask.devices, wants) // ask.weight
    if not want:
        return []
    return areas(hosts, ask.room * known, want, ask.weight, needs, widest)


def _wanted(by_role: Sequence[int], wants: Sequence[int]) -> int:
    return sum(each * want for each, want in zip(by_role, wants, strict=True))


def _together(hosts: Domains, attempt: Attempt, level: int) -> bool:
    """Whether all members, with devices or without, are in one domain of ``level``."""
    rows = [row for of_role in attempt.rows for row in of_role]
    return level < 0 or len(set(hosts.ids[level][rows].tolist())) <= 1


def _around(hosts: Domains, rows: BoolArray, level: int) -> BoolArray:
    """The rows of the domains of ``level`` that ``rows`` are in. Shape: (rows,)."""
    ids = hosts.ids[level]
    return np.asarray(np.isin(ids, np.setdiff1d(ids[rows], [UNKNOWN])))


def _beside(hosts: Domains, domains: Domains, peers: Sequence[int], widest: int) -> Iterator[Way]:
    """The peers' own rows, then their domains level by level, then wherever it is allowed."""
    at = np.zeros(hosts.ids.shape[1], np.bool_)
    at[list(peers)] = True
    reach = None if widest < 0 else _around(hosts, at, widest)
    for level in range(len(hosts.levels) - 1, max(widest, 0) - 1, -1):
        yield Way(_around(hosts, at, level), reach, domains, quick=True)
    yield Way(None, reach, domains, quick=True)


def _refused(
    ask: Ask,
    hosts: Domains,
    domains: Domains,
    wants: list[int],
    peers: Sequence[int],
    bound: int,
    known: BoolArray,
) -> Found:
    """What a longer search finds; else the attempt that comes nearest."""
    if bound < 0:
        return Found(ask.solve(Way(None, None, domains)))
    if peers:
        at = np.zeros(len(known), np.bool_)
        at[list(peers)] = True
        reaches = [_around(hosts, at, bound)]
    else:
        likely = [a for a in _areas(ask, hosts, wants, bound, known) if a.level == bound]
        reaches = [inside(hosts, area, len(known)) for area in likely[:LONG_TRIES]]
    best: Found | None = None
    for reach in reaches or _roomiest(ask, hosts, bound):
        attempt = ask.solve(Way(None, reach, domains))
        missing = attempt.missing(ask.roles)
        if best is None or missing < best.attempt.missing(ask.roles):
            best = Found(attempt, reach)
        if not missing:
            break
    return best or Found(Attempt([[] for _ in ask.roles], exact=True), np.zeros_like(known))


def _roomiest(ask: Ask, hosts: Domains, level: int) -> list[BoolArray]:
    """The domain of ``level`` with the most room, the first name of equal ones."""
    ids = hosts.ids[level]
    held = ids != UNKNOWN
    if not held.any():
        return []
    total = np.bincount(ids[held], ask.room[held], minlength=len(hosts.ranks[level]))
    return [np.asarray(ids == np.lexsort((hosts.ranks[level], -total))[0])]


def _devices(ask: Ask, attempt: Attempt) -> Int64s:
    """(rows,) devices of the gang on each row."""
    out = np.zeros(len(ask.room), np.int64)
    for rows, each in zip(attempt.rows, ask.devices, strict=True):
        out += each * np.bincount(np.array(rows, np.int64), minlength=len(out))
    return out


def with_hosts(domains: Domains, names: Int64s) -> Domains:
    """The same with a nearest level where each node is a domain of its own."""
    rows = np.arange(len(names), dtype=np.int32)
    ids = np.vstack([domains.ids, rows]) if len(domains.levels) else rows[None]
    return Domains(
        (*domains.levels, Level(HOST)), ids, (*domains.names, ()), (*domains.ranks, names)
    )
