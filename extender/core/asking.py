"""What a gang asks for now, or why it cannot be planned whatever room there is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from extender.core import turns
from extender.core.gang import PLACED, UNPLACED, Gang, Member, Slot, stays
from extender.core.groups import foreign, unknown_priority
from extender.core.reasons import Code, Reason, Refusal, refuse
from extender.core.state import State
from extender.core.subgroups import short

#: Refusals that count pods.
_COUNTS = frozenset({Code.TOO_FEW_PODS, Code.TOO_FEW_OF_TASK, Code.TOO_FEW_PARTS})


@dataclass(slots=True)
class Ask:
    """What one gang asks for now: its members without a node, by role."""

    loose: list[Slot]
    #: Of ``loose``, those that must be placed for the gang to reach its minimum.
    required: set[str]
    #: How often places were searched for.
    searches: int = 0


def not_plannable(s: State, gang: Gang) -> Refusal | None:
    """Why the gang cannot be planned whatever room there is."""
    if gang.fault is not None:
        return gang.fault
    if gang.foreign:
        return foreign(s, *min(gang.foreign.items()))
    if not gang.uid:
        return refuse(Code.NO_GROUP, name=str(gang.key), api=gang.key.resource.api_version)
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


def standing(gang: Gang) -> list[Slot]:
    """Members that have a place, or a plan for one; one that failed has neither."""
    lives = gang.lives()
    return [
        m
        for m in gang.members.values()
        if stays(m) or (lives and m.state in PLACED) or (m.node and m.state in UNPLACED)
    ]


def asked(gang: Gang, parts: Sequence[Slot] | None = None) -> Ask:
    """Split the members without a node into those that must be placed and those that may. ``parts``:
    the members that make as many parts whole as have to be; by default the fewest.
    """
    loose, stand = unplaced(gang)
    if parts is None:
        lacking = [(each.least, each.missing(stand, loose)) for each in gang.min_parts]
        parts = [slot for least, missing in lacking for part in missing[:least] for slot in part]
    required = {slot.name for slot in parts}
    tasks = Counter(m.task for m in (*stand, *(m for m in loose if m.name in required)))
    for task, least in sorted(gang.min_task_member.items()):
        others = [m.name for m in loose if m.task == task and m.name not in required]
        required.update(others[: max(0, least - tasks[task])])
    missing = gang.min_member - len(stand)
    for slot in loose:
        if len(required) >= missing:
            break
        if slot.name not in gang.later:
            required.add(slot.name)
    if missing > 0:
        required |= gang.later & {slot.name for slot in loose}
    return Ask(loose, required)


def unplaced(gang: Gang) -> tuple[list[Slot], list[Slot]]:
    """The members that need a node and may have one; and those that have one and count. Those that
    come later make nobody whole, and the gang does not begin without their places.
    """
    loose = [
        m for m in gang.unplaced() if not m.node and not m.foreign_gates and m.shape is not None
    ]
    return loose, [m for m in standing(gang) if m.name not in gang.later]


def signature(gang: Gang, ask: Ask) -> object:
    """Gangs that ask for the same get the same refusal, as long as nothing was freed meanwhile."""
    if any(m.pinned or m.hint for m in ask.loose) or any(
        m.state in PLACED for m in gang.members.values()
    ):
        return gang.key
    asks = Counter((m.task, m.shape, m.name in ask.required) for m in ask.loose)
    minimum = tuple(sorted((k, str(v)) for k, v in gang.min_resources.items()))
    # Where it has a choice of parts, what it must have is asked for in other ways too.
    least = (gang.min_parts, gang.min_member, tuple(sorted(gang.min_task_member.items())))
    return (frozenset(asks.items()), minimum, gang.near, least if gang.min_parts else ())
