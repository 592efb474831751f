"""Places for what a gang asks for, on a snapshot: around pins, away from nodes on which it failed, part
by part where it comes in parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from extender.core import choosing, parts
from extender.core.asking import Ask
from extender.core.gang import Gang, Slot, slot_order
from extender.core.partition import Part, parts_of
from extender.core.planner import Placement, Role, plan
from extender.core.quantity import milli, whole
from extender.core.reasons import Code, Refusal, refuse
from extender.core.shape import PodShape
from extender.core.snapshot import Snapshot
from extender.core.state import State
from extender.core.topology.limits import Limit, limit_of

Places = list[tuple[Slot, int]]


def find(s: State, view: Snapshot, gang: Gang, ask: Ask, now: float) -> Places | Refusal:
    """The rows of the members that get places, all required ones among them, or as many other parts
    instead as have to be whole; or why there are none. The view is left as it was found.
    """
    if (refusal := _min_resources(view, gang)) is not None:
        return refusal

    def fits(part: Sequence[Slot], beside: Places) -> Places | Refusal:
        mark = view.checkpoint()
        for slot, row in beside:
            assert slot.shape is not None
            view.place(slot.shape, row)
        found = search(s, view, gang, ask, part, {slot.name for slot in part}, beside)
        view.rollback(mark)
        return found

    first = _placed(s, view, gang, ask, now)
    if not isinstance(first, Refusal):
        return first
    for other in choosing.others(gang, ask, fits):
        found = _placed(s, view, gang, other, now)
        ask.searches += other.searches
        if not isinstance(found, Refusal):
            return found
    return first


def _placed(s: State, view: Snapshot, gang: Gang, ask: Ask, now: float) -> Places | Refusal:
    chosen = _away(s, view, gang, ask, now) or _with_pins(s, view, gang, ask)
    if isinstance(chosen, Refusal) and any(m.pinned or m.hint for m in ask.loose):
        return search(s, view, gang, ask, ask.loose, ask.required)
    return chosen


def _away(s: State, view: Snapshot, gang: Gang, ask: Ask, now: float) -> Places | None:
    """A place without the nodes on which this gang, or several others, have failed. They are left
    out only where the gang fits without them: a node that may be bad is better than none.
    """
    avoided = s.health.avoided(gang.failures, now)
    rows = [row for node in avoided if (row := s.cluster.row_of(node)) is not None]
    if not rows:
        return None
    others = np.ones(view.rows, np.bool_)
    others[rows] = False
    found = _with_pins(s, view.within(others), gang, ask)
    return None if isinstance(found, Refusal) else found


def _with_pins(s: State, view: Snapshot, gang: Gang, ask: Ask) -> Places | Refusal:
    """Keep pods where a pin (or an adopted plan) has them; plan the rest around them."""
    mark = view.checkpoint()
    kept: Places = []
    for slot in ask.loose:
        where = slot.pinned or slot.hint
        row = s.cluster.row_of(where) if where else None
        if row is None or slot.shape is None or not view.feasible(slot.shape)[row]:
            continue
        view.place(slot.shape, row)
        kept.append((slot, row))
    held = {slot.name for slot, _ in kept}
    rest = [m for m in ask.loose if m.name not in held]
    found = search(s, view, gang, ask, rest, ask.required - held, kept)
    view.rollback(mark)
    return found if isinstance(found, Refusal) else kept + found


def search(
    s: State,
    view: Snapshot,
    gang: Gang,
    ask: Ask,
    slots: Sequence[Slot],
    required: set[str],
    kept: Sequence[tuple[Slot, int]] = (),
) -> Places | Refusal:
    """Ask the planner for nodes: for parts of the gang, where it comes in any, else for all of it. The
    searches count as those of ``ask``.
    """
    if not slots:
        return []
    wishes = dict.fromkeys([*gang.near, *(x for m in slots if m.shape for x in m.shape.near)])
    limit = limit_of(list(wishes), view.view.domains, s.cluster.nodes.domains.levels)
    if isinstance(limit, Refusal):
        return limit
    placed = {m.name: s.cluster.row_of(m.node) for m in gang.members.values() if m.node}
    rows = {name: row for name, row in placed.items() if row is not None}
    rows |= {slot.name: row for slot, row in kept}
    if not any(wish.size for wish in wishes):
        ask.searches += 1
        return _planned(s, view, slots, required, sorted(set(rows.values())), limit)

    return _by_parts(s, view, gang, ask, slots, required, rows, limit)


def _by_parts(
    s: State,
    view: Snapshot,
    gang: Gang,
    ask: Ask,
    slots: Sequence[Slot],
    required: set[str],
    rows: Mapping[str, int],
    limit: Limit | None,
) -> Places | Refusal:
    """Places for all ``slots``; else for the required ones, and for as many further parts, and members
    that are in none, as find them. ``rows`` of members that have theirs, by name.
    """

    def plan_all(
        view: Snapshot, some: Sequence[Slot], peers: Sequence[int], limit: Limit | None
    ) -> Places | Refusal:
        ask.searches += 1
        return _planned(s, view, some, {m.name for m in some}, list(peers), limit)

    def divided(some: Sequence[Slot], rows: Mapping[str, int]) -> list[Part] | Refusal:
        names = {m.name for m in some}
        members = (m for m in gang.members.values() if m.name in rows or m.name in names)
        told = s.cluster.nodes.domains.levels
        return parts_of(sorted(members, key=slot_order), gang.near, view.view.domains, told, rows)

    def placed(some: Sequence[Slot]) -> Places | Refusal:
        own = divided(some, rows)
        if isinstance(own, Refusal):
            return own
        inside = {m.name for part in own for m in part.slots}
        rest = [m for m in some if m.name not in inside]
        return parts.search(s.session, view, own, rest, peers, limit, plan_all)

    peers = sorted(set(rows.values()))
    musts = [m for m in slots if m.name in required]
    found = placed(slots)
    if not isinstance(found, Refusal) or len(musts) == len(slots):
        return found
    found = placed(musts)
    if isinstance(found, Refusal):
        return found
    there = {**rows, **{slot.name: row for slot, row in found}}
    others = [m for m in slots if m.name not in required]
    more = divided(others, there)
    if not isinstance(more, Refusal):
        mark = view.checkpoint()
        parts.put(view, found)
        peers = sorted(set(there.values()))
        whole = parts.further(s.session, view, more, peers, limit, plan_all)
        parts.put(view, whole)
        found += whole
        inside = {m.name for part in more for m in part.slots}
        if single := [m for m in others if m.name not in inside]:
            ask.searches += 1
            fitting = _planned(s, view, single, set(), peers, limit)
            found += [] if isinstance(fitting, Refusal) else fitting
        view.rollback(mark)
    return found


def _planned(
    s: State,
    view: Snapshot,
    slots: Sequence[Slot],
    required: set[str],
    peers: list[int],
    limit: Limit | None,
) -> Places | Refusal:
    """Ask the planner; roles are members of one task and one shape."""
    by_role: dict[tuple[str, PodShape], list[Slot]] = {}
    for slot in slots:
        assert slot.shape is not None
        by_role.setdefault((slot.task, slot.shape), []).append(slot)
    groups = [sorted(g, key=lambda m: m.name not in required) for g in by_role.values()]
    roles = []
    for (task, shape), members in zip(by_role, groups, strict=True):
        must = sum(m.name in required for m in members)
        roles.append(Role(task, shape, must, len(members) - must))
    found = plan(s.session, view, roles, peers=peers, limit=limit)
    if isinstance(found, Refusal):
        return found
    chosen = _dealt(groups, found)
    if view.zones_take([(slot.shape, row) for slot, row in chosen if slot.shape is not None]):
        return chosen
    # Members of several kinds are in each other's way in the NUMA zones of a node.
    view.zones_shared = True
    found = plan(s.session, view, roles, peers=peers, limit=limit)
    view.zones_shared = False
    return found if isinstance(found, Refusal) else _dealt(groups, found)


def _dealt(groups: list[list[Slot]], found: Placement) -> Places:
    return [
        (slot, int(row))
        for members, chosen in zip(groups, found.rows, strict=True)
        for slot, row in zip(members, chosen, strict=False)
    ]


def _min_resources(view: Snapshot, gang: Gang) -> Refusal | None:
    """MinResources beyond what its pods ask for: a sum over the cluster (Volcano's enqueue)."""
    if not gang.min_resources or gang.placed():
        return None
    columns = view.cluster.resources
    for name, quantity in sorted(gang.min_resources.items()):
        asked = milli(quantity) if name == "cpu" else whole(quantity)
        column = columns.get(name)
        free = total = 0
        if column is not None:
            free = int(np.maximum(view.free[view.alive, column], 0).sum())
            total = int(view.allocatable[view.alive, column].sum())
        if asked > free:
            return refuse(
                Code.MIN_RESOURCES,
                asked=view.cluster.show(name, asked),
                resource=name,
                free=view.cluster.show(name, free),
                total=view.cluster.show(name, total),
            )
    return None
