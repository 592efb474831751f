"""Places that a gang leaves in order to begin anew: nobody behind it is planned there meanwhile.

The pods of a gang that is started again end one by one. Whoever waits behind it would get the first
place that becomes free, so that a gang that ran for days waited for one that had just come, or two
gangs that have to move each took what the other needs. So the places that its pods have left are taken,
for gangs behind it in the session's order, until it is planned or refused; never longer than
``plan_deadline`` (I3).

Nothing is reserved: it is a matter of the order in which gangs are planned, and another leader, who
does not know of it, does no wrong.
"""

from __future__ import annotations

from msgspec.structs import replace

from extender.core import commands as c
from extender.core import finding
from extender.core.asking import Ask
from extender.core.framework import JobStep
from extender.core.gang import Gang, Member
from extender.core.reasons import Code, Refusal, refuse
from extender.core.session import OrderKey
from extender.core.shape import PodShape
from extender.core.snapshot import Snapshot
from extender.core.state import State


def note(s: State, gang: Gang, step: JobStep, now: float) -> None:
    """What the gang's job asks for now: while it stops its pods to begin anew, where they are."""
    if step.restarting:
        if gang.kept_until is None:
            gang.kept_until = now + s.rules.plan_deadline
            s.send(c.WakeAt(gang.kept_until))
        if now < gang.kept_until:
            for slot in gang.members.values():
                if slot.state in (Member.BOUND, Member.FAILED) and slot.shape is not None:
                    gang.kept.setdefault(slot.name, (slot.shape, slot.node))
    elif not step.wanted:
        end(s, gang)


def end(s: State, gang: Gang) -> None:
    """The gang does not begin anew, or has begun."""
    give_up(s, gang)
    gang.kept_until = None


def give_up(s: State, gang: Gang) -> None:
    """Nothing is kept for the gang any more: others may fit now."""
    if gang.kept:
        gang.kept.clear()
        s.cluster.capacity_generation += 1


def decided(s: State, gang: Gang, refusal: Refusal | None, now: float) -> None:
    """The gang was planned, or refused: what it does not take is free, unless others only go first."""
    if gang.kept and (refusal is None or refusal.code != Code.BEHIND):
        give_up(s, gang)
        s.send(c.WakeAt(now))


def expire(s: State, now: float) -> None:
    """Give up what was kept for long enough."""
    for gang in s.gangs.values():
        if gang.kept and (gang.kept_until is None or now >= gang.kept_until):
            give_up(s, gang)


def order(s: State, gang: Gang) -> tuple[OrderKey, float, str]:
    """By which gangs are planned. One that begins anew is where it is once its pods have ended."""
    facts = gang.facts()
    if gang.kept:
        facts = replace(facts, placed=0)
    return s.session.order_key(facts), gang.created, str(gang.key)


class Line:
    """Gangs for which places are kept, which are taken on a snapshot as the order comes past them."""

    def __init__(self, s: State) -> None:
        self._s = s
        keepers = [(order(s, gang), gang) for gang in s.gangs.values() if gang.kept]
        self._keepers = sorted(keepers, key=lambda pair: pair[0])
        self._passed = 0
        #: What is taken, and for whom.
        self._taken: list[tuple[PodShape, int, Gang]] = []

    def pass_to(self, gang: Gang, view: Snapshot) -> None:
        """Take on ``view`` what is kept for those before ``gang``."""
        for place, keeper in self._keepers[self._passed :]:
            if place >= order(self._s, gang):
                return
            self._passed += 1
            self._take(keeper, view)

    def _take(self, gang: Gang, view: Snapshot) -> None:
        """Where pods are no more, and one more of the kind still fits; else, as who goes before it may have
        moved there, anywhere.
        """
        for name, (shape, node) in gang.kept.items():
            slot, row = gang.members.get(name), self._s.cluster.row_of(node)
            if row is None or (slot is not None and slot.state == Member.BOUND):
                continue
            fits = view.feasible(shape)
            if fits.any():
                row = row if fits[row] else int(fits.argmax())
                view.place(shape, row)
                self._taken.append((shape, row, gang))

    def behind(self, view: Snapshot, gang: Gang, ask: Ask, refusal: Refusal, now: float) -> Refusal:
        """``refusal``; or, where the gang would fit but for what is kept, that others go first."""
        if not self._taken:
            return refusal
        mark = view.checkpoint()
        for shape, row, _ in self._taken:
            view.remove(shape, row)
        found = finding.find(self._s, view, gang, ask, now)
        view.rollback(mark)
        if isinstance(found, Refusal) or not found:
            return refusal
        first = self._taken[0][2].key
        own = first.namespace == gang.key.namespace
        return refuse(Code.BEHIND, other=first.name if own else "another gang")
