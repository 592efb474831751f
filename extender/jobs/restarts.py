"""Starting a gang again, all of it together: when, why, how often, and how much later.

The processes of a static gang cannot go on without one of them, and one that is started alone
finds no way back in: its peers hang until a timeout (kubeflow/trainer #2269, #1478, #2000). So the
end of one member ends them all, and they are placed again as a gang.

A restart is decided by writing it on the job (:data:`RECORD`); what follows needs no memory: pods
carry the number of the restart that they were made in, those of an earlier one are deleted, and
when none of them is left the gang is wanted again. Before a gang has started whole, members are
made again one by one: nobody has met them yet.

Source of the pauses: the kubelet's CrashLoopBackOff (10 s, doubled up to 300 s, forgotten after
600 s), but for the first restart, which is at once.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from extender.core import times
from extender.core.api import MUSTER_GROUP
from extender.core.errors import InvalidObject
from extender.core.framework import Failure
from extender.core.identity import GANG_RESTART
from extender.core.objects import Labels, Pod
from extender.core.quantity import COUNT_LIMIT
from extender.core.quantity import count as read_count
from extender.jobs.causes import Cause

#: Annotation of a job in which its restarts are kept.
RECORD: Final = GANG_RESTART
#: Annotation of a job with which its user chooses: one of :data:`UNITS`.
UNIT: Final = f"{MUSTER_GROUP}/restart"
GANG, POD = UNITS = ("gang", "pod")

#: Seconds before the second restart in a row, and at most before any.
PAUSE_FIRST: Final = 10.0
PAUSE_MOST: Final = 300.0
#: A gang that ran for so many seconds before it failed begins a new row.
RAN_WELL: Final = 600.0
#: Failures that the record keeps, the newest.
KEPT: Final = 8

#: More restarts than a gang lives to see; a larger number is somebody's edit.
MOST_RESTARTS: Final = 1_000_000

_Count = Annotated[int, Meta(ge=0, le=COUNT_LIMIT)]
_Number = Annotated[int, Meta(ge=0, le=MOST_RESTARTS)]
_Time = Annotated[float, Meta(ge=0, le=times.LAST)]


class Restarts(Struct, frozen=True, omit_defaults=True):
    """What a job's annotation keeps of its restarts; times are epoch seconds."""

    #: Of the last restart; 0: there was none.
    number: _Number = 0
    #: Those that count against backoffLimit.
    counted: _Count = 0
    #: Restarts in a row, none of which ran well.
    row: _Count = 0
    #: When the last one was decided, and from when on it may start.
    at: _Time = 0.0
    not_before: _Time = 0.0
    cause: str = ""
    message: str = ""
    #: Where and when members failed, the newest last.
    failures: Annotated[tuple[Failure, ...], Meta(max_length=KEPT)] = ()

    @classmethod
    def read(cls, annotations: Labels) -> Restarts:
        """From the job's annotations.

        Raises InvalidObject if somebody edited it into what cannot be read.
        """
        text = annotations.get(RECORD)
        if not text:
            return cls()
        try:
            return msgspec.json.decode(text, type=cls)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidObject(
                f"metadata.annotations[{RECORD}]", text, "what Muster wrote there; remove it"
            ) from error

    @property
    def until(self) -> float:
        """When its pause is over. None is longer than the longest, whoever wrote it."""
        return min(self.not_before, self.at + PAUSE_MOST)

    def write(self) -> str:
        """The annotation's text; equal records give equal text."""
        return msgspec.json.encode(self).decode()

    def after(self, cause: Cause, now: float, started: float | None, latest: int = 0) -> Restarts:
        """With one more. ``started``: when the gang began to run. ``latest``: the largest number that
        its pods tell, which is larger than that of a record that somebody replaced.
        """
        ran_well = started is not None and now - started >= RAN_WELL
        row = (0 if ran_well else self.row) + cause.pauses
        paused = row > 1 and cause.pauses
        pause = min(PAUSE_FIRST * 2.0 ** min(row - 2, 20), PAUSE_MOST) if paused else 0.0
        failed = cause.failure(now)
        failures = self.failures if failed is None else (*self.failures, failed)[-KEPT:]
        return Restarts(
            number=max(self.number, latest) + 1,
            counted=min(self.counted + cause.counts, COUNT_LIMIT),
            row=min(row, COUNT_LIMIT),
            at=float(int(now)),
            not_before=float(int(now)) + pause,
            cause=cause.code,
            message=cause.message,
            failures=failures,
        )


def unit(annotations: Labels) -> str:
    """What is started again when a member dies, as the user says; "" where nothing is said.

    Raises InvalidObject for what is neither.
    """
    said = annotations.get(UNIT, "")
    if said and said not in UNITS:
        raise InvalidObject(f"metadata.annotations[{UNIT}]", said, f"one of {', '.join(UNITS)}")
    return said


def number_of(pod: Pod) -> int:
    """The restart that a pod was made in."""
    told = read_count(pod.metadata.annotations.get(RECORD, "")) or 0
    return told if told < MOST_RESTARTS else 0
