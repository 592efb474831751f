"""Deciding which gangs get which nodes: the plan pass.

Waiting gangs are taken in the session's order; each is planned whole on one snapshot, and what it
gets is reserved at once, so that capacity belongs to at most one plan. A gang that does not fit
is passed over and blocks nobody (I7).
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from extender.core import attempts, finding, keeping, releasing, turns
from extender.core import commands as c
from extender.core.asking import Ask, asked, not_plannable, signature, standing
from extender.core.gang import UNPLACED, Gang, Member, Slot, Stage
from extender.core.reasons import Refusal
from extender.core.shape import PodShape
from extender.core.snapshot import Snapshot
from extender.core.state import State


def plan_pass(s: State, now: float) -> None:
    """Plan the gangs that wait and may now fit, in order; what is too much, in the next step."""
    keeping.expire(s, now)
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
    waiting.sort(key=lambda gang: keeping.order(s, gang))
    line = keeping.Line(s)
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
            ask = asked(gang)
            if not gang.members:
                _decided(s, gang, None, now)
            if not ask.loose:
                continue
            if view is None:
                view = Snapshot(s.cluster)
                s.evidence.ban(s.cluster, view)
                _leave_out(s, view)
            line.pass_to(gang, view)
            key = signature(gang, ask)
            refusal = known.get(key)
            if refusal is None:
                refusal = _place(s, view, gang, ask, now)
                if refusal is not None:
                    refusal = line.behind(view, gang, ask, refusal, now)
                spent += turns.SEARCH * max(ask.searches, 1)
            if refusal is not None:
                known[key] = refusal
            keeping.decided(s, gang, refusal, now)
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
    planned = [m for m in standing(gang) if m.name not in gang.later]
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


def _place(s: State, view: Snapshot, gang: Gang, ask: Ask, now: float) -> Refusal | None:
    """Plan the gang on the view; on success reserve, and start writing or releasing."""
    chosen = finding.find(s, view, gang, ask, now)
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
    # One alone may fit where the part that it belongs to does not.
    for some in {ask.loose[0].name}, {slot.name for slot in ask.loose}:
        found = finding.search(s, view, gang, ask, ask.loose, some)
        if isinstance(found, Refusal):
            return found
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
