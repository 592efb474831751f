"""How an attempt ends before its gang is whole: what is held is given back, and why is kept."""

from __future__ import annotations

from extender.core import commands as c
from extender.core import telling
from extender.core.gang import UNPLACED, Gang, Member, Slot, Stage
from extender.core.reasons import Code, Reason, Refusal, refuse
from extender.core.state import State


def abort(s: State, gang: Gang, why: str, now: float) -> None:
    """Give the attempt up, because something failed: tried again after a pause.

    Pods stay; those with a pin keep it and are planned around it, or replaced, next time.
    """
    s.count("rollbacks")
    give_back(s, gang, why)
    pause = min(s.rules.retry_seconds * 2 ** min(gang.attempt, 10), s.rules.retry_seconds_max)
    gang.not_before = now + pause
    gang.refusal = refuse(Code.BACK_OFF, attempt=gang.attempt, why=why)
    s.send(c.WakeAt(gang.not_before))


def give_back(s: State, gang: Gang, why: str) -> None:
    """Free what is reserved for unbound members, tell those that wait; planned anew at once.

    Members whose Binding is on its way keep their place: its result decides.
    """
    for slot in gang.unplaced():
        if slot.state == Member.BINDING:
            continue
        s.unassign(gang, slot)
        s.reject(slot, why)
        if slot.gated and slot.nominated:
            # kube-scheduler counts it on that node, and does not clear it, as it never tries it.
            telling.patch_nomination(s, gang, slot)
        slot.tries = 0
        if slot.state not in (Member.WANTED, Member.CREATING):
            gang.move(slot, Member.HELD)
    gang.stage = Stage.WAITING
    gang.strays_at = 0.0
    # A refusal of some members counts what the others held; the next look at all does not.
    gang.refusal = None
    gang.refused_at = -1
    gang.dirty = True


def withdraw(s: State, gang: Gang, slot: Slot, why: str, now: float) -> None:
    """Free what a member does not come for; it is planned again after a pause."""
    s.count("withdrawals")
    s.unassign(gang, slot)
    s.reject(slot, why)
    gang.move(slot, Member.HELD)
    gang.strays_at = 0.0
    gang.not_before = now + s.rules.retry_seconds_max
    gang.refused_at = -1
    s.send(c.WakeAt(gang.not_before))


def partly(gang: Gang, why: Refusal | None, late: int = 0) -> Refusal:
    """What a gang says that keeps its bound pods and cannot be completed: how many, and why.

    ``late``: members that had a planned node, and for which kube-scheduler did not come.
    """
    rest = [each for each in (why.reasons if why else ()) if each.code != Code.PARTIAL]
    if late:
        rest.append(Reason.of(Code.NOT_COME, count=late))
    return refuse(Code.PARTIAL, rest, bound=gang.placed(), want=gang.min_member)


def fail(s: State, gang: Gang, refusal: Refusal, now: float) -> None:
    """The attempt cannot go on: roll it back, deleting the pods that this attempt made (S11b)."""
    if gang.satisfied():
        return
    for slot in list(gang.members.values()):
        if slot.replica is not None and slot.uid and slot.state in UNPLACED:
            s.delete_pod(gang, slot)
        elif slot.state == Member.CREATING:
            slot.doomed = True
    job = s.jobs.get(gang.job) if gang.job else None
    if job is not None:
        s.forget_admitted(job)
    # Pods made only to be seen are no attempt, but their refusals wait longer and longer, too.
    gang.attempt += gang.stage == Stage.WAITING
    abort(s, gang, refusal.render(), now)
    gang.refusal = refusal
