"""What the HTTP verbs ask of the core, and the values it answers with.

The view is a pure reader of the last state the loop published: no call here waits or writes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct

from extender.core.events import Event
from extender.core.objects import Manifest, Pod


class FilterAnswer(Struct, frozen=True):
    """The answer to /filter for one pod and a list of node names.

    Every name that is not in ``passed`` is refused with ``message``. All refusals are
    "unresolvable", so that kube-scheduler does not preempt for a pod that is merely held (facts:
    extender.go, preemption.go).
    """

    passed: Sequence[str]
    message: str = ""
    #: To be put into the loop's inbox (None for pods of no group).
    event: Event | None = None


class User(Struct, frozen=True):
    """Who asks for a page, in the API server's words (authentication.k8s.io/v1 UserInfo)."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class View(Protocol):
    """The published state, as the verbs and the debug pages read it."""

    def leads(self) -> bool:
        """Whether this replica holds the lease; one that does not answers 503."""

    def ready(self) -> bool:
        """Whether caches are synced and kernels are warm (true on a standby too)."""

    def filter(self, pod: Pod, names: Sequence[str]) -> FilterAnswer:
        """Where the pod may go. ``names`` keep their order in the answer."""

    def prioritize(self, pod: Pod, names: Sequence[str]) -> Sequence[int]:
        """A score of 0..10 per name, in the order of ``names``."""

    def preempt(
        self, pod: Pod, victims: Mapping[str, Sequence[str]]
    ) -> Mapping[str, Sequence[str]]:
        """Nodes (of those given, node name to victim uids) where preemption may go on."""

    def state(self) -> Manifest:
        """JSON of ``/debug/state``: leader, epoch, counts, generation, queue lengths."""

    def gangs(self) -> list[Manifest]:
        """JSON of ``/debug/gangs``."""

    def gang(self, namespace: str, name: str) -> Manifest | None:
        """JSON of ``/debug/gangs/{ns}/{name}``: group, phase, reasons, plan."""

    def gangless(self, namespace: str, name: str) -> str:
        """Why the job of this name has no gang; empty where there is no such job."""

    def nodes(self) -> list[Manifest]:
        """JSON of ``/debug/nodes``."""

    def phases(self) -> Mapping[str, int]:
        """How many gangs are in each phase, for the metrics."""

    def waiting(self) -> tuple[Mapping[str, int], float]:
        """How many gangs wait by reason code; seconds since 1970 at which the first began (0: none)."""

    def avoided(self) -> int:
        """How many nodes are avoided because several gangs failed there."""

    def plans(self) -> list[Manifest]:
        """JSON of ``/debug/plan``."""


@runtime_checkable
class Copied(Protocol):
    """A view of a cluster that can be copied."""

    #: Lines of a snapshot's file, some at a time; None where nobody gives them.
    objects: Callable[[], AsyncIterator[bytes]] | None


class Inbox(Protocol):
    """The loop's door for events."""

    def put(self, event: Event) -> None:
        """Queue an event; never blocks."""
