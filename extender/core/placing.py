"""Deciding which gangs get which nodes: the plan pass.

Waiting gangs are taken in the session's order; each is planned whole on one snapshot, and what it
gets is reserved at once, so that capacity belongs to at most one plan. A gang that does not fit
is passed over and blocks nobody (I7).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from extender.core import attempts, parts, releasing, turns
from extender.core import commands as c
from extender.core.gang import PLACED, UNPLACED, Gang, Member, Slot, Stage, slot_order, stays
from extender.core.groups import unknown_priority
from extender.core.planner import Placement, Role, plan
from extender.core.quantity import milli, whole
from extender.core.reasons import Code, Reason, Refusal, refuse
from extender.core.shape import PodShape
from extender.core.snapshot import Snapshot
from extender.core.state import State
from extender.core.subgroups import short
from extender.core.topology.limits import Limit, limit_of

#: Refusals that count pods.
_COUNTS = frozenset({Code.TOO_FEW_PODS, Code.TOO_FEW_OF_TASK, Code.TOO_FEW_PARTS})


@dataclass(slots=True)
class Ask:
    """What one gang asks for now: its members without a node, by role."""

    loose: list[Slot]
    #: Of ``loose``, those that must be placed for the gang to reach its minimum.
    required: set[str]


def plan_pass(s: State, now: float) -> None:
    """Plan the gangs that wait and may now fit, in order; what is too much, in the next step."""
    unchanged = s.cluster.capacity_generation
    waiting = [
        gang
        for gang in s.gangs.values()
        if gang.refused_at != unchanged
        and (gang.maybe_loose or not gang.members)
        and s.turn_of(gang.key)
        and _wants_planning(s, gang, now)
    ]
    s.at = None
    if not waiting:
        return
    waiting.sort(key=lambda g: (s.session.order_key(g.facts()), g.created, str(g.key)))
    view: Snapshot | None = None
    known: dict[object, Refusal] = {}
    spent, late = 0, turns.overdue(waiting)
    for gang in waiting:
        if spent >= turns.STEP and gang.key not in late:
            gang.passed_over += 1
            continue
        gang.passed_over = 0
        s.at = gang.key
        gang.refused_at = s.cluster.capacity_generation
        spent += turns.looked(gang)
        refusal = not_plannable(s, gang)
        if refusal is None:
            ask = _ask(gang)
            if not gang.members:
                _decided(s, gang, None, now)
            if not ask.loose:
                continue
            if view is None:
                view = Snapshot(s.cluster)
                s.evidence.ban(s.cluster, view)
                _leave_out(s, view)
            signature = _signature(gang, ask)
            refusal = known.get(signature)
            if refusal is None:
                spent += turns.SEARCH
                refusal = _place(s, view, gang, ask, now)
            if refusal is not None:
                known[signature] = refusal
        _decided(s, gang, refusal, now)
    s.at = None
    if spent >= turns.STEP:
        s.send(c.WakeAt(now))


def keep_whole(s: State, gang: Gang, now: float) -> None:
    """An attempt that cannot be completed, whoever arrives, holds nothing: others may use it (I3).

    A gang that was whole, and has let more members through, may be whole no longer before they are
    bound: those that make it whole again are an attempt now, whose plan is written first.
    """
    if gang.stage != Stage.RELEASED and not _broken(gang):
        return
    usable = gang.fault is None and not gang.foreign and gang.uid
    if gang.stage == Stage.RELEASED and usable and gang.stays_satisfied(*UNPLACED - {Member.HELD}):
        return
    planned = [m for m in _standing(gang) if m.name not in gang.later]
    if not usable or not gang.enough(planned):
        attempts.give_back(s, gang, "not all of it can be placed any more")
    elif gang.stage == Stage.WAITING and not gang.record_in_flight:
        releasing.begin(s, gang, now)


def _broken(gang: Gang) -> bool:
    """A gang that was whole and is not holds places for more: no deadline ends that (committing).

    Members whose Binding is on its way do not count: its result decides.
    """
    if gang.stage == Stage.WRITING or gang.stays_satisfied():
        return False
    if gang.stage == Stage.COMMITTING and not gang.was_whole:
        return False
    states = UNPLACED - {Member.BINDING}
    return any(m.node and m.state in states and not m.deleting for m in gang.members.values())


def not_plannable(s: State, gang: Gang) -> Refusal | None:
    """Why the gang cannot be planned whatever room there is."""
    if gang.fault is not None:
        return gang.fault
    if gang.foreign:
        pod, scheduler = min(gang.foreign.items())
        allowed = ", ".join(s.rules.scheduler_names)
        return refuse(Code.FOREIGN_SCHEDULER, pod=pod, scheduler=scheduler, allowed=allowed)
    if not gang.uid:
        return refuse(Code.NO_GROUP, name=str(gang.key))
    if (refusal := unknown_priority(s, gang)) is not None:
        return refusal
    if (have := gang.count(*UNPLACED)) > turns.MOST_MEMBERS:
        return refuse(Code.TOO_MANY_MEMBERS, have=have, most=turns.MOST_MEMBERS)
    for slot in sorted(gang.members.values(), key=lambda m: m.name):
        if slot.fault is not None and slot.state not in PLACED:
            return slot.fault
    if gang.stays_satisfied() or (gang.job is not None and not gang.members):
        # Its job wants nobody now: it is suspended, or has ended.
        return None
    if _stopping(gang):
        return refuse(Code.STOPPING)
    refusal = s.session.valid(gang.facts()) or _too_few(gang)
    return _uncounted(gang, refusal) if refusal and refusal.code in _COUNTS else refusal


def _uncounted(gang: Gang, refusal: Refusal) -> Refusal:
    """Pods that exist and do not count: nobody would find out otherwise why they are too few."""
    if not gang.lives() and any(m.deleting and m.state in PLACED for m in gang.members.values()):
        # Rolled back, or of an earlier life (:meth:`Gang.stays_satisfied`).
        return refuse(Code.STOPPING)
    failed = gang.count(Member.FAILED)
    if not failed:
        return refusal
    return Refusal((*refusal.reasons, Reason.of(Code.NOT_COUNTED, failed=failed)))


def _stopping(gang: Gang) -> bool:
    """Its job takes down what is left of it (to begin anew, or for good): no pods are missing."""
    members = gang.members.values()
    return (
        gang.job is not None
        and any(m.deleting for m in members)
        and not any(m.state in UNPLACED and not m.deleting for m in members)
    )


def _wants_planning(s: State, gang: Gang, now: float) -> bool:
    if gang.stage == Stage.WRITING or now < gang.not_before or gang.record_in_flight:
        return False
    if not gang.uid and gang.claim is not None and gang.fault is None and not gang.record_unseen:
        return False  # its record is being made
    if not gang.members:
        # What is said of a gang that was emptied does not change with the cluster.
        return gang.refused_at == -1 and not gang.foreign
    unplaced = [m for m in gang.members.values() if m.state in UNPLACED and not m.deleting]
    loose = [slot for slot in unplaced if not slot.node]
    gang.maybe_loose = bool(loose)
    if not unplaced and not gang.satisfied():
        # Nobody is there to be placed: that is to be said while any member runs.
        return gang.count(Member.BOUND) > 0
    # A replica's shape is known once the API server has admitted it (dry run).
    return bool(loose) and all(slot.shape is not None or slot.fault for slot in loose)


def _too_few(gang: Gang) -> Refusal | None:
    """Fewer members exist (or are wanted), or may be placed, than the group's minimum asks for."""
    lives = gang.lives()
    live = [
        m
        for m in gang.members.values()
        if (lives and m.state in PLACED) or not (m.state == Member.FAILED or m.deleting)
    ]
    if (refusal := _fewer(gang, live)) is not None:
        return refusal
    free = [m for m in live if m.state in PLACED or not m.foreign_gates]
    if len(free) == len(live) or _fewer(gang, free) is None:
        return None
    gate = min(gate for m in live for gate in m.foreign_gates)
    return refuse(Code.GATED, gated=len(live) - len(free), have=len(live), gate=gate)


def _fewer(gang: Gang, members: list[Slot]) -> Refusal | None:
    """Which minimum they are too few for."""
    tasks = Counter(m.task for m in members)
    for task, least in sorted(gang.min_task_member.items()):
        if tasks[task] < least:
            return refuse(Code.TOO_FEW_OF_TASK, have=tasks[task], want=least, task=task)
    if len(members) < gang.min_member:
        return refuse(Code.TOO_FEW_PODS, have=len(members), want=gang.min_member)
    if (few := short(gang.min_parts, members)) is not None:
        (part, have), code = few, Code.TOO_FEW_PARTS
        return refuse(code, have=have, want=part.least, name=part.name, size=part.size)
    return None


def _standing(gang: Gang) -> list[Slot]:
    """Members that have a place, or a plan for one; one that failed has neither."""
    lives = gang.lives()
    return [
        m
        for m in gang.members.values()
        if stays(m) or (lives and m.state in PLACED) or (m.node and m.state in UNPLACED)
    ]


def _ask(gang: Gang) -> Ask:
    """Split the members without a node into those that must be placed and those that may."""
    loose = [
        m for m in gang.unplaced() if not m.node and not m.foreign_gates and m.shape is not None
    ]
    # Those that come later make nobody whole, and the gang does not begin without their places.
    standing = [m for m in _standing(gang) if m.name not in gang.later]
    tasks = Counter(m.task for m in standing)
    missing = gang.min_member - len(standing)
    required: set[str] = set()
    for task, least in sorted(gang.min_task_member.items()):
        for slot in [m for m in loose if m.task == task][: max(0, least - tasks[task])]:
            required.add(slot.name)
    for minimum in gang.min_parts:
        required |= {slot.name for slot in minimum.wanted(standing, loose)}
    for slot in loose:
        if len(required) >= missing:
            break
        if slot.name not in gang.later:
            required.add(slot.name)
    if missing > 0:
        required |= gang.later & {slot.name for slot in loose}
    return Ask(loose, required)


def _signature(gang: Gang, ask: Ask) -> object:
    """Gangs that ask for the same get the same refusal, as long as nothing was freed meanwhile."""
    if any(m.pinned or m.hint for m in ask.loose) or any(
        m.state in PLACED for m in gang.members.values()
    ):
        return gang.key
    asks = Counter((m.task, m.shape, m.name in ask.required) for m in ask.loose)
    minimum = tuple(sorted((k, str(v)) for k, v in gang.min_resources.items()))
    return (frozenset(asks.items()), minimum, gang.near)


def _place(s: State, view: Snapshot, gang: Gang, ask: Ask, now: float) -> Refusal | None:
    """Plan the gang on the view; on success reserve, and start writing or releasing."""
    if (refusal := _min_resources(view, gang)) is not None:
        return refusal
    away = _away(s, view, gang, ask, now)
    chosen = away or _with_pins(s, view, gang, ask)
    if isinstance(chosen, Refusal) and any(m.pinned or m.hint for m in ask.loose):
        chosen = _search(s, view, gang, ask.loose, ask.required)
    if isinstance(chosen, Refusal):
        return chosen
    if not chosen:
        # Members beyond the minimum for which there is no room: nothing changes, nothing is written.
        return _no_room_for_more(s, view, gang, ask)
    for shape, members in _by_shape(chosen).items():
        s.assign_all(gang, shape, members)
        for row, count in Counter(row for _, row in members).items():
            view.place(shape, row, count)
    s.count("plans")
    releasing.begin(s, gang, now)
    return None


def _leave_out(s: State, view: Snapshot) -> None:
    """Nothing is planned on nodes that are about to go, be they tainted for it or not."""
    rows = [row for node in s.health.news.leaving if (row := s.cluster.row_of(node)) is not None]
    if rows:
        others = np.ones(view.rows, np.bool_)
        others[rows] = False
        view.keep(others)


def _away(
    s: State, view: Snapshot, gang: Gang, ask: Ask, now: float
) -> list[tuple[Slot, int]] | None:
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


def _by_shape(chosen: list[tuple[Slot, int]]) -> dict[PodShape, list[tuple[Slot, int]]]:
    grouped: dict[PodShape, list[tuple[Slot, int]]] = {}
    for slot, row in chosen:
        assert slot.shape is not None
        grouped.setdefault(slot.shape, []).append((slot, row))
    return grouped


def _no_room_for_more(s: State, view: Snapshot, gang: Gang, ask: Ask) -> Refusal | None:
    """Why the first member beyond the minimum waits, once the gang itself does not."""
    if not gang.satisfied():
        return None
    found = _search(s, view, gang, ask.loose, {ask.loose[0].name})
    return found if isinstance(found, Refusal) else None


def _with_pins(s: State, view: Snapshot, gang: Gang, ask: Ask) -> list[tuple[Slot, int]] | Refusal:
    """Keep pods where a pin (or an adopted plan) has them; plan the rest around them."""
    mark = view.checkpoint()
    kept: list[tuple[Slot, int]] = []
    for slot in ask.loose:
        where = slot.pinned or slot.hint
        row = s.cluster.row_of(where) if where else None
        if row is None or slot.shape is None or not view.feasible(slot.shape)[row]:
            continue
        view.place(slot.shape, row)
        kept.append((slot, row))
    held = {slot.name for slot, _ in kept}
    rest = [m for m in ask.loose if m.name not in held]
    found = _search(s, view, gang, rest, ask.required - held, kept)
    view.rollback(mark)
    return found if isinstance(found, Refusal) else kept + found


def _search(
    s: State,
    view: Snapshot,
    gang: Gang,
    slots: list[Slot],
    required: set[str],
    kept: Sequence[tuple[Slot, int]] = (),
) -> list[tuple[Slot, int]] | Refusal:
    """Ask the planner for nodes: for parts of the gang, where it comes in any, else for all of it."""
    if not slots:
        return []
    wishes = dict.fromkeys([*gang.near, *(x for m in slots if m.shape for x in m.shape.near)])
    told = s.cluster.nodes.domains.levels
    limit = limit_of(list(wishes), view.view.domains, told)
    if isinstance(limit, Refusal):
        return limit
    placed = {m.name: s.cluster.row_of(m.node) for m in gang.members.values() if m.node}
    rows = {name: row for name, row in placed.items() if row is not None}
    rows |= {slot.name: row for slot, row in kept}
    peers = sorted(set(rows.values()))
    if not any(wish.size for wish in wishes):
        return _planned(s, view, slots, required, peers, limit)

    def plan_all(
        view: Snapshot, some: Sequence[Slot], peers: Sequence[int], limit: Limit | None
    ) -> list[tuple[Slot, int]] | Refusal:
        return _planned(s, view, list(some), {m.name for m in some}, list(peers), limit)

    found: list[tuple[Slot, int]] | Refusal = []
    musts = [m for m in slots if m.name in required]
    for some in [slots] if len(musts) == len(slots) else [slots, musts]:
        names = {m.name for m in some}
        members = sorted(
            (m for m in gang.members.values() if m.name in rows or m.name in names), key=slot_order
        )
        split = parts.parts_of(members, gang.near, view.view.domains, told, rows)
        if isinstance(split, Refusal):
            return split
        inside = {m.name for part in split for m in part.slots}
        rest = [m for m in some if m.name not in inside]
        found = parts.search(s.session, view, split, rest, peers, limit, plan_all)
        if not isinstance(found, Refusal):
            break
    return found


def _planned(
    s: State,
    view: Snapshot,
    slots: list[Slot],
    required: set[str],
    peers: list[int],
    limit: Limit | None,
) -> list[tuple[Slot, int]] | Refusal:
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


def _dealt(groups: list[list[Slot]], found: Placement) -> list[tuple[Slot, int]]:
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
        free = 0 if column is None else int(np.maximum(view.free[view.alive, column], 0).sum())
        if asked > free:
            return refuse(
                Code.MIN_RESOURCES,
                asked=view.cluster.show(name, asked),
                resource=name,
                free=view.cluster.show(name, free),
            )
    return None


def _decided(s: State, gang: Gang, refusal: Refusal | None, now: float) -> None:
    gang.due = True
    before = gang.refusal
    gang.refusal = attempts.partly(gang, refusal) if refusal and gang.partial else refusal
    if gang.refusal is not None and (before is None or before.code != gang.refusal.code):
        s.refusals[gang.refusal.code] += 1
    if gang.stage == Stage.WRITING:
        s.holds.append(0.0 if gang.waiting_since is None else now - gang.waiting_since)
    if refusal is None or gang.satisfied() or not gang.members:
        gang.waiting_since = None
        gang.timed_out = False
        return
    if gang.waiting_since is None:
        gang.waiting_since = now
    if 0 < gang.placed() < gang.min_member and gang.partial_since is None:
        gang.partial_since = now
        s.look(gang, now + s.rules.plan_deadline)
