"""The barrier at /bind, the commit, and what follows when a part of it fails.

I1: a member's Binding is sent only if, with those sent in the same commit and those bound
already, minMember (and every minTaskMember) is reached.
"""

from __future__ import annotations

import math

from extender.core import attempts, binding, releasing, telling
from extender.core import commands as c
from extender.core import events as e
from extender.core.events import Done
from extender.core.gang import PLACED, UNPLACED, Gang, Member, Slot, Stage, slot_order, stays
from extender.core.learning import learn, note_refused, offered_by
from extender.core.snapshot import Snapshot
from extender.core.state import HeldBind, State

#: Members whose pods are bound, whatever has become of them: there is nothing left to bind.
_LANDED = PLACED | {Member.FAILED}
#: A Binding that loses its precondition is tried again with the pod's new version this often.
BIND_TRIES = 8
#: One that has not come podMaxBackoffSeconds and this after its release is told again (seconds).
CALL_AFTER = 1.0
#: A released member that does not come is told again this often, with back-off (about 30 s).
RELEASE_TRIES = 4


def bind_asked(s: State, event: e.BindAsked, now: float) -> None:
    """kube-scheduler wants a pod bound: a member joins the barrier, a plain pod is bound."""
    if not s.leading:
        # It came between the loss of the Lease and its being known here.
        s.send(c.Answer(event.token, "this replica does not lead any more"))
        return
    known = s.slots.get((event.namespace, event.name))
    if known is None or known[1].uid != event.uid:
        held = HeldBind(event.token, event.namespace, event.name, event.uid, event.node, now)
        s.binds[event.token] = held
        s.send(c.WakeAt(now + s.rules.patience))
        return
    gang, slot = known
    s.reject(slot, "asked again")
    if slot.state in _LANDED and slot.node == event.node:
        s.send(c.Answer(event.token))
    elif slot.node != event.node or slot.deleting:
        where = f"it is planned on {slot.node}" if slot.node else "it is not planned"
        s.send(c.Answer(event.token, f"gang {gang.key}: not on {event.node}: {where}"))
    else:
        slot.token, slot.bind_tries = event.token, 0
        s.tokens[event.token] = (event.namespace, event.name)
        gang.progress_at = now
        gang.dirty = True
        came(s, slot, now)
        if gang.arrived_at is None:
            gang.arrived_at = now
        if slot.state != Member.BINDING:
            gang.move(slot, Member.ARRIVED)


def bind_abandoned(s: State, event: e.BindAbandoned, now: float) -> None:
    """The caller is gone: an arrival without a connection does not count."""
    s.binds.pop(event.token, None)
    where = s.tokens.pop(event.token, None)
    known = s.slots.get(where) if where is not None else None
    if known is None or known[1].token != event.token:
        return
    gang, slot = known
    slot.token = None
    if slot.state == Member.ARRIVED:
        gang.move(slot, Member.RELEASED)
        slot.released_at = now
        gang.dirty = True


def barrier(s: State, gang: Gang, now: float) -> None:
    """Commit if those that have arrived make the gang whole; nothing is sent before that.

    A step sends so many Bindings and no more, as /filter waits while it runs. Whose turn has not
    come has not been sent: it may still leave, and the rest is sent if the gang is whole without.
    """
    if not _whole(s, gang):
        return
    if not s.bindings:
        s.look(gang, now)
        return
    arrived = [m for m in gang.members.values() if m.state == Member.ARRIVED]
    arrived.sort(key=lambda m: m.name)
    chosen = arrived[: s.bindings]
    # The first look is at all of them; what happens to them later, the next steps are told.
    looked = arrived if gang.stage == Stage.RELEASED else chosen
    if not gang.stays_satisfied() and _evict_misfits(s, gang, looked, now):
        return
    if gang.stage == Stage.RELEASED:
        gang.stage = Stage.COMMITTING
        if gang.arrived_at is not None:
            s.barriers.append(now - gang.arrived_at)
            gang.arrived_at = None
    s.bindings -= len(chosen)
    for slot in chosen:
        gang.move(slot, Member.BINDING)
        if slot.token is None and slot.gated and s.unmanaged(slot.shape):
            telling.ungate(s, gang, slot)
        else:
            _bind(s, gang, slot)
    if len(chosen) < len(arrived):
        s.look(gang, now)


def _whole(s: State, gang: Gang) -> bool:
    """Whether those that have arrived, and those before them, may be bound (I1)."""
    if not gang.count(Member.ARRIVED) or gang.stage == Stage.WRITING or not gang.uid:
        return False
    if gang.stays_satisfied():
        return True
    if gang.stage == Stage.WAITING or not gang.stays_satisfied(Member.ARRIVED, Member.BINDING):
        # WAITING: let through beside a whole gang that is whole no longer; no plan is written.
        return False
    # A plugin (Volcano's JobReadyFn) may ask for more than the minimum.
    coming = gang.count(*PLACED, Member.ARRIVED, Member.BINDING)
    return s.session.ready(gang.facts(), coming)


def check_rows(s: State, gang: Gang, now: float) -> None:
    """Rows changed under a plan: members that no longer fit there are planned again (S5)."""
    hit = [
        m
        for m in gang.members.values()
        if m.node in s.touched
        and m.state in UNPLACED
        and m.state != Member.BINDING
        and not m.deleting
    ]
    if hit:
        _evict_misfits(s, gang, sorted(hit, key=slot_order), now)


def _evict_misfits(s: State, gang: Gang, slots: list[Slot], now: float) -> bool:
    """Unplan members whose place does not hold any more; True if there were any."""
    view = Snapshot(s.cluster)
    misfits = []
    for slot in slots:
        row = s.cluster.row_of(slot.node)
        if row is None or slot.shape is None:
            misfits.append(slot)
            continue
        mark = view.checkpoint()
        view.remove(slot.shape, row)
        if not view.fits(slot.shape, row):
            misfits.append(slot)
        else:
            view.rollback(mark)
    for slot in misfits:
        s.count("replanned_members")
        node = slot.node
        s.unassign(gang, slot)
        s.reject(slot, f"node {node} changed; the member is planned again")
        if slot.state not in (Member.WANTED, Member.CREATING):
            gang.move(slot, Member.HELD)
    if misfits:
        gang.dirty = True
        gang.refused_at = -1
    return bool(misfits)


def _bind(s: State, gang: Gang, slot: Slot) -> None:
    uid = slot.uid

    def then(done: Done, now: float) -> None:
        known = s.slots.get((gang.key.namespace, slot.name))
        if slot.uid == uid and known is not None and known[1] is slot:
            _bound(s, *known, done, now)

    binding.bind(s, gang.key.namespace, slot.name, uid, slot.resource_version, slot.node, then)


def _bound(s: State, gang: Gang, slot: Slot, done: Done, now: float) -> None:
    gang.dirty = True
    gang.progress_at = now
    if done.ok:
        if slot.state == Member.BINDING:
            gang.move(slot, Member.BOUND)
        if slot.token is not None:
            s.send(c.Answer(slot.token))
            slot.token = None
        return
    if slot.state != Member.BINDING:
        return
    slot.bind_tries += 1
    stale = _stale(slot, done)
    stands = bool(gang.uid) and (gang.stage != Stage.WAITING or gang.satisfied())
    if slot.bind_tries <= BIND_TRIES and stale and slot.token is not None and stands:
        # The barrier decides anew, on all that has happened meanwhile; also to its node, at which
        # nobody has looked while the Binding was on its way.
        s.count("bind_retries")
        slot.resource_version = stale
        gang.move(slot, Member.ARRIVED)
        _evict_misfits(s, gang, [slot], now)
        return
    s.count("bind_failures")
    why = f"{done.code} {done.reason}: {done.message}"
    s.reject(slot, why)
    gang.move(slot, Member.RELEASED)
    slot.released_at = now
    if done.code in (403, 422):
        note_refused(s, gang, slot, why, now)
    elif gang.stage == Stage.WAITING and not (gang.uid and gang.satisfied()):
        # The attempt was given up meanwhile, or its record is gone.
        s.unassign(gang, slot)
        gang.move(slot, Member.HELD)
    else:
        _evict_misfits(s, gang, [slot], now)


def _stale(slot: Slot, done: Done) -> str | None:
    """The pod's version now, where that alone kept the Binding from taking effect."""
    current = done.object or {}
    meta, spec = current.get("metadata", {}), current.get("spec", {})
    same = meta.get("uid") == slot.uid and not meta.get("deletionTimestamp")
    if done.code != 409 or not same or spec.get("nodeName"):
        return None
    version: str = meta["resourceVersion"]
    return version


def settle(s: State, gang: Gang, now: float) -> None:
    """Let time do its part: tell released members again, give up, roll back."""
    if gang.stage == Stage.WRITING:
        releasing.write_again(s, gang, now)
        return
    telling.end_strays(s, gang, now)
    if gang.stage != Stage.WAITING and gang.stays_satisfied():
        releasing.finish(s, gang, now)
    elif gang.stage == Stage.WAITING and gang.uid and not gang.was_whole and gang.satisfied():
        # One that a former leader completed, and did not live to write down. Without a record nobody
        # knows yet how many are whole.
        releasing.finish(s, gang, now)
    _step_back(gang)
    lost = gang.count(Member.WANTED) and not gang.to_release
    if lost and any(m.node for m in gang.members.values()):
        # Its pod was lost, or pinned to another node and deleted for that: made again.
        releasing.let_through(s, gang, now)
    releasing.release(s, gang, now)
    quiet = now - gang.progress_at
    if gang.stage == Stage.RELEASED and _missed(s, gang, quiet, now):
        return
    if quiet >= s.rules.pod_max_backoff + CALL_AFTER:
        _call_again(s, gang, now)
    if gang.count(Member.RELEASED) or gang.stage == Stage.RELEASED:
        s.look(gang, max(gang.progress_at + s.rules.pod_max_backoff, now) + CALL_AFTER)
    _partial(s, gang, now)


def _missed(s: State, gang: Gang, quiet: float, now: float) -> bool:
    """Give the attempt up if kube-scheduler does not come for all of it; whether it was."""
    patience = s.rules.patience
    if quiet < patience:
        return False
    on_way = _on_way(gang)
    # Calls of /bind end one by one from here on: who is in line, is so for too long.
    spent = gang.arrived_at is not None and now - gang.arrived_at >= s.rules.bind_timeout
    late = [
        slot
        for slot in on_way
        if spent or not _in_line(s, slot, now, patience, s.rules.bind_timeout)
    ]
    coming = on_way or gang.to_release or gang.count(Member.CREATING)
    if not late and (coming or not gang.count(Member.ARRIVED)):
        return False
    for slot in late:
        _unheard(s, slot, now)
    attempts.abort(s, gang, f"{len(late)} of its pods did not reach the barrier", now)
    return True


def _on_way(gang: Gang) -> list[Slot]:
    return [m for m in gang.members.values() if m.state == Member.RELEASED]


def came(s: State, slot: Slot, now: float) -> None:
    """kube-scheduler came for a released member.

    Only of one whose pod was made for this release it is known when it entered the line.
    """
    known = slot.told == 0 and not slot.tries
    s.line.came(slot.scheduler, _priority(slot), slot.released_at if known else -math.inf, now)


def _in_line(s: State, slot: Slot, now: float, patience: float, longest: float) -> bool:
    return s.line.holds(
        slot.scheduler,
        _priority(slot),
        slot.released_at,
        now,
        patience=patience,
        longest=longest,
    )


def _priority(slot: Slot) -> int:
    return slot.shape.priority if slot.shape is not None else 0


def _call_again(s: State, gang: Gang, now: float) -> None:
    """Tell members again that were released and do not come, or give up what they hold."""
    for slot in _on_way(gang) if gang.count(Member.RELEASED) else ():
        wait = min(s.rules.pod_max_backoff * 2.0**slot.tries, 60.0) + CALL_AFTER
        if now - slot.released_at < wait or _in_line(s, slot, now, wait, s.rules.plan_deadline):
            continue
        if slot.tries < RELEASE_TRIES:
            telling.again(s, gang, slot, now)
        else:
            _unheard(s, slot, now)
            attempts.withdraw(s, gang, slot, "kube-scheduler did not come for it", now)


def _unheard(s: State, slot: Slot, now: float) -> None:
    """A member that does not come and was refused before: the same refusal is not written again."""
    if slot.complaint and not slot.passed and slot.shape is not None:
        learn(s, slot, slot.complaint, now, offered_by(s, slot))


def _step_back(gang: Gang) -> None:
    """An attempt of which nothing is bound does not commit; one that plans nobody is over."""
    if gang.stage == Stage.COMMITTING and not releasing.started(gang):
        gang.stage = Stage.RELEASED
    if gang.stage != Stage.WAITING and not gang.plans():
        gang.stage = Stage.WAITING


def _partial(s: State, gang: Gang, now: float) -> None:
    """A commit that is not completed: after one deadline roll back, or be Partial and say so.

    A Partial gang may be planned again; what is then reserved for it has the same deadline.
    """
    # Asked of a landing gang in every step: what is counted is asked first.
    stands = not gang.was_whole and gang.placed() and not gang.stays_satisfied()
    if not stands or not any(map(stays, gang.members.values())):
        gang.partial_since = None
        gang.partial = False
        return
    if gang.count(Member.BINDING):
        return
    if gang.partial and not gang.plans():
        gang.partial_since = None
        return
    if gang.partial_since is None:
        gang.partial_since = now
    if now - gang.partial_since < s.rules.plan_deadline:
        s.look(gang, gang.partial_since + s.rules.plan_deadline)
        return
    bound = [m for m in gang.members.values() if m.state == Member.BOUND]
    removable = bool(bound) and all(m.remade or gang.may_delete for m in bound)
    s.count("gangs_rolled_back")
    why, late = gang.refusal, _on_way(gang)
    for slot in late:
        _unheard(s, slot, now)
    attempts.abort(s, gang, "the rest of it could not be placed", now)
    if removable:
        for slot in bound:
            s.delete_pod(gang, slot)
    else:
        gang.partial = True
        gang.refusal = attempts.partly(gang, why, len(late))
    gang.partial_since = None
