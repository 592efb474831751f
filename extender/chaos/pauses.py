"""How long jobs may rest before their gangs start again.

A gang that failed may wait before all of it is started again, as long as its job says so: by the
difference of two times in the record of its restarts, counted from when the record was written (the
clocks of those who write may be wrong), and never longer than the kubelet waits for one container.
"""

from __future__ import annotations

from collections.abc import Callable

import orjson

from extender.core.objects import Manifest
from extender.sim.history import Change

RECORD = "scheduling.muster.dev/gang-restart"
#: Seconds.
LONGEST = 300.0


class Pauses:
    """Which jobs rest."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        #: By job's uid: until when.
        self._until: dict[str, float] = {}

    def job(self, change: Change) -> None:
        """A job has changed."""
        said = _record(change.object)
        if not said or (change.previous is not None and said == _record(change.previous)):
            return
        record = orjson.loads(said)
        seconds = record.get("not_before", 0.0) - record.get("at", 0.0)
        self._until[change.object["metadata"]["uid"]] = self._clock() + min(seconds, LONGEST)

    def rests(self, job: Manifest) -> bool:
        """Whether its gang need not be there yet."""
        return self._clock() < self._until.get(job["metadata"]["uid"], 0.0)


def _record(job: Manifest) -> str:
    return str((job["metadata"].get("annotations") or {}).get(RECORD, ""))
