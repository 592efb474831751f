"""A recorded log, told to a core once more: does it give the same commands?

A log that begins with a start holds everything, and every command is judged. One that begins with
objects (an older part is gone) does not hold what the core had learnt or had under way: then its
leadership is withheld until the log says that the recorded core was at rest. From there on what it
does is judged (Bind, Create, Delete, plans, releases, answers); not what it says (statuses, Notices),
which depends on what it said last and when, nor when it wished to be woken.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import TypeGuard

from msgspec import Struct
from msgspec.structs import replace

from extender.core import codec
from extender.core import commands as c
from extender.core import events as e
from extender.core.coordinator import Coordinator
from extender.core.gang import Gang, Member, Stage
from extender.core.record import record_name
from extender.core.state import State

#: Rounds of commands that a core may give while it takes over in peace.
_ROUNDS = 50


class Turn(Struct, frozen=True):
    """One turn of the loop: what was applied at ``now`` (seconds), and what the step gave.

    ``failed``: the step was broken off by a fault and gave nothing. ``rest``: after it the core
    was at rest, see :func:`at_rest`; it may have been so without its being noted.
    """

    now: float
    events: tuple[e.Event, ...]
    commands: tuple[c.Command, ...] = ()
    failed: bool = False
    rest: bool = False


class Difference(Struct, frozen=True):
    """Where a replay first differs: after ``event`` events (those told at the beginning count not).

    ``expected`` was recorded, ``got`` is today's; None: no (further) command.
    """

    event: int
    now: float
    expected: c.Command | None
    got: c.Command | None
    #: Which step alone a fault broke off: "recorded", "replayed"; "" where that is not it.
    broken: str = ""


class Replay:
    """Turns are told to a fresh coordinator, one by one."""

    def __init__(
        self,
        coordinator: Coordinator,
        beginning: Iterable[e.Event] | None = None,
        *,
        rest: bool = False,
    ) -> None:
        """``beginning``: the objects that the log begins with; None for one from a start. ``rest``:
        the recorded core was at rest when it began.
        """
        self.events = self.commands = self.judged = 0
        #: Events and steps that were broken off by a fault of the core's own.
        self.faults = 0
        self.difference: Difference | None = None
        self._coordinator = coordinator
        self._beginning = list(beginning or ())
        self._exact = beginning is None
        self._begins_at_rest = rest
        self._leads: e.LeaderGained | None = None
        self._judges = self._exact
        #: Recorded ids of commands and those of this replay, where they may differ.
        self._ids: dict[int, int] = {}

    @property
    def judges(self) -> bool:
        """Whether it has come to where commands are judged."""
        return self._judges

    def turn(self, turn: Turn) -> None:
        """Tell one turn, and compare."""
        if self._beginning:
            self._begin(turn.now)
        self.events += len(turn.events)
        self.commands += len(turn.commands)
        if self.difference is not None:
            return
        for event in turn.events:
            self._apply(event, turn.now)
        given = self._step(turn.now)
        if given is not None and not self._exact:
            given = self._admit(turn, given)
        if self._judges:
            self._compare(turn, given)
        elif turn.rest:
            self._take_over(turn.now)

    def _begin(self, now: float) -> None:
        for event in self._beginning:
            self._apply(event, now)
        self._beginning.clear()
        self._step(now)
        if self._begins_at_rest:
            self._take_over(now)

    def _apply(self, event: e.Event, now: float) -> None:
        if not self._judges and isinstance(event, e.LeaderGained | e.LeaderLost):
            self._leads = event if isinstance(event, e.LeaderGained) else None
            return
        if not self._exact and isinstance(event, e.Done):
            event = replace(event, id=self._ids.pop(event.id, 0))
        try:
            self._coordinator.apply(event, now)
        except Exception:  # noqa: BLE001 - as in the loop, a fault costs one event
            self.faults += 1

    def _step(self, now: float) -> list[c.Command] | None:
        """None: broken off by a fault."""
        try:
            return self._coordinator.step(now)
        except Exception:  # noqa: BLE001 - compared with what became of the recorded step
            self.faults += 1
            self._coordinator.set_aside(now)
            return None

    def _admit(self, turn: Turn, given: list[c.Command]) -> list[c.Command]:
        """What the API server makes of a role's pods was asked before the log begins, perhaps: what
        is not asked now in the log is answered here, as if nothing were changed by admission.
        """
        asked = [each.body for each in turn.commands if _asks(each)]
        for _ in range(_ROUNDS):
            more = [each for each in given if _asks(each) and each.body not in asked]
            if not more:
                break
            for each in more:
                self._coordinator.apply(e.Done(each.id, 200, object=each.body), turn.now)
            given = [each for each in given if each not in more] + (self._step(turn.now) or [])
        return given

    def _compare(self, turn: Turn, given: list[c.Command] | None) -> None:
        # As they are written: a tuple is a list there.
        got = [codec.decode_command(codec.encode(each)) for each in given or ()]
        if self._exact:
            self.judged += len(turn.commands)
            pairs = zip_longest(turn.commands, got)
            found = next((pair for pair in pairs if pair[0] != pair[1]), None)
        else:
            found = self._unmatched(turn.commands, got)
        broken = ""
        if turn.failed != (given is None):
            broken = "recorded" if turn.failed else "replayed"
        if found is not None or broken:
            one, other = found or (None, None)
            self.difference = Difference(self.events, turn.now, one, other, broken)

    def _unmatched(
        self, recorded: Sequence[c.Command], given: Sequence[c.Command]
    ) -> tuple[c.Command | None, c.Command | None] | None:
        """The first of either side that the other lacks, whatever their order: that of gangs
        follows from when they were told of first.
        """
        left = [each for each in given if _does(each)]
        for each in recorded:
            if not _does(each):
                continue
            self.judged += 1
            number = _id(each)
            twin = next((other for other in left if _with_id(other, number) == each), None)
            if twin is None:
                return each, left[0] if left else None
            left.remove(twin)
            if number is not None:
                self._ids[number] = _id(twin) or 0
        return (None, left[0]) if left else None

    def _take_over(self, now: float) -> None:
        """The recorded core has nothing under way: lead, and let all go well until this one, too."""
        self._judges = True
        if self._leads is None:
            return
        self._apply(self._leads, now)
        for _ in range(_ROUNDS):
            writes = [each for each in self._step(now) or () if _id(each) is not None]
            if not writes:
                return
            for write in writes:
                made = write.body if isinstance(write, c.Create) else None
                self._coordinator.apply(e.Done(_id(write) or 0, 200, object=made), now)


def _does(command: c.Command) -> bool:
    return not (isinstance(command, c.Notice | c.WakeAt) or _reports(command))


def _reports(command: c.Command) -> bool:
    return isinstance(command, c.Patch) and command.lane == c.Lane.STATUS


def _asks(command: c.Command) -> TypeGuard[c.Create]:
    return isinstance(command, c.Create) and command.dry_run


def _id(command: c.Command) -> int | None:
    number: int | None = getattr(command, "id", None)
    return number


def _with_id(command: c.Command, number: int | None) -> c.Command:
    if number is None or _id(command) is None:
        return command
    changed: c.Command = replace(command, id=number)
    return changed


def at_rest(s: State) -> bool:
    """Whether all that the core knows follows from the objects that it was told of: nothing is
    under way, waits, or was learnt. So it is of a replica that has never led.
    """
    if not s.leading:
        return s.epoch == 0
    if s.unanswered or s.binds or s.tokens or s.refused or s.aside or len(s.evidence):
        return False
    if any(job.dirty or job.in_flight or job.recheck or job.ends for job in s.jobs.values()):
        return False
    return all(_settled(s, gang) for gang in s.gangs.values())


def _settled(s: State, gang: Gang) -> bool:
    record = s.records.get((gang.key.namespace, record_name(gang.key)))
    if gang.attempt != (record.attempt if record is not None else 0):
        return False
    if gang.dirty or gang.stage != Stage.WAITING or gang.foreign:
        return False
    if gang.waiting_since is not None or gang.partial_since is not None:
        return False
    ended = gang.count(Member.BOUND, Member.FINISHED, Member.FAILED)
    return gang.report_again_at is None and ended == len(gang.members)
