"""What a job has to remember of pods that are gone: who finished, and how often each restarted.

It is kept in one annotation of the job, because upstream's CRD prunes status fields that it does
not know, and pods that are deleted take their counts with them (kubeflow/trainer #2045, #1997).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from extender.core.api import MUSTER_GROUP
from extender.core.errors import InvalidObject
from extender.core.framework import Replica
from extender.core.objects import Labels, Pod
from extender.core.quantity import COUNT_LIMIT
from extender.core.quantity import count as read_count

HISTORY: Final = f"{MUSTER_GROUP}/replica-history"
#: On a pod: how often its replica had restarted before the pod was made.
RESTARTS: Final = f"{MUSTER_GROUP}/restarts"

#: More finished replicas than any job has had; more in the annotation are somebody's edit.
_MOST: Final = 100_000

_Count = Annotated[int, Meta(ge=0, le=COUNT_LIMIT)]

Key = tuple[str, int]


class _Written(Struct, frozen=True, omit_defaults=True):
    """One role in the annotation; ``finished`` is ranges of indices, e.g. ``0-3,7``."""

    finished: str = ""
    restarts: dict[_Count, _Count] = {}


class History(Struct, frozen=True):
    """Replicas that finished, and restarts by replica (absent means 0)."""

    finished: frozenset[Key] = frozenset()
    restarts: dict[Key, int] = {}

    @classmethod
    def read(cls, annotations: Labels) -> History:
        """From the job's annotations.

        Raises InvalidObject if somebody edited it into what cannot be read.
        """
        text = annotations.get(HISTORY)
        if not text:
            return cls()
        try:
            written = msgspec.json.decode(text, type=dict[str, _Written])
            spans = [(role, span) for role, one in written.items() for span in _spans(one.finished)]
            if sum(len(span) for _, span in spans) > _MOST:
                raise ValueError(f"more than {_MOST} replicas")
        except (msgspec.DecodeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidObject(
                f"metadata.annotations[{HISTORY}]", text, "what Muster wrote there; remove it"
            ) from error
        restarts = {
            (role, index): count
            for role, one in written.items()
            for index, count in one.restarts.items()
        }
        return cls(frozenset((role, index) for role, span in spans for index in span), restarts)

    def write(self) -> str:
        """The annotation's text; equal histories give equal text."""
        roles = sorted({role for role, _ in (*self.finished, *self.restarts)})
        written = {
            role: _Written(
                finished=_ranges(index for name, index in self.finished if name == role),
                restarts={
                    index: count
                    for (name, index), count in sorted(self.restarts.items())
                    if name == role
                },
            )
            for role in roles
        }
        return msgspec.json.encode(written).decode() if written else ""

    def after(
        self, pods: Sequence[tuple[Replica, Pod]], stopped: Iterable[tuple[Replica, Pod]] = ()
    ) -> History:
        """With what these pods show. Restart counts never fall; what happens to pods that were
        ``stopped`` with their gang is no restart of their own.
        """
        finished = set(self.finished)
        restarts = dict(self.restarts)
        for replica, pod in pods:
            key = (replica.role, replica.index)
            count = max(restarts.get(key, 0), restarts_of(pod))
            if count:
                restarts[key] = count
        for replica, pod in (*pods, *stopped):
            if pod.status.phase == "Succeeded" and not pod.metadata.deletion_timestamp:
                finished.add((replica.role, replica.index))
        return History(frozenset(finished), restarts)


def restarts_of(pod: Pod) -> int:
    """Restarts of a replica up to this pod: before it, inside it, and the one that its end asks
    for. The end of a pod that is being deleted was not its own doing and asks for none.
    """
    inherited = pod.metadata.annotations.get(RESTARTS)
    count = read_count(inherited) or 0 if inherited else 0
    for status in (*pod.status.container_statuses, *pod.status.init_container_statuses):
        count += status.restart_count
    failed = pod.status.phase == "Failed" and not pod.metadata.deletion_timestamp
    return min(count + failed, COUNT_LIMIT)


def _spans(text: str) -> list[range]:
    """The ranges of ``0-3,7``. Raises ValueError."""
    found = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.append(range(int(first), int(last or first) + 1))
    return found


def _ranges(indices: Iterable[int]) -> str:
    spans: list[list[int]] = []
    for index in sorted(indices):
        if spans and index == spans[-1][1] + 1:
            spans[-1][1] = index
        else:
            spans.append([index, index])
    return ",".join(f"{a}-{b}" if a < b else f"{a}" for a, b in spans)
