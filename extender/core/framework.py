"""What a plugin and a job kind may be: small protocols, batch-shaped, all of them pure.

Names and combination rules are Volcano's (pkg/scheduler/framework/session_plugins.go): order
functions are lexicographic over tiers, feasibility and validity are conjunctions, scores add up.
A plugin implements any subset of the protocols below beside :class:`Plugin`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, runtime_checkable

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from extender.core.advice import Advice
from extender.core.api import Resource
from extender.core.objects import Manifest, Pod
from extender.core.reasons import Reason, Refusal

if TYPE_CHECKING:
    from extender.core.shape import PodShape
    from extender.core.snapshot import Snapshot

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]

#: Plugin arguments as written in muster.yaml, e.g. ``{"binpack.weight": 10}``.
Arguments = Mapping[str, str | int | float | bool]


class GroupFacts(Struct, frozen=True):
    """What a plugin may know of one gang."""

    namespace: str
    name: str
    queue: str
    priority: int
    #: Seconds since the epoch, from metadata.creationTimestamp.
    created: float
    min_member: int
    min_task_member: dict[str, int]
    #: Members by task name, whatever their state (terminal failures excluded).
    members: dict[str, int]
    #: Members bound, running or succeeded.
    placed: int


class Victim(Struct, frozen=True):
    """A pod that kube-scheduler would evict."""

    uid: str
    namespace: str
    name: str
    priority: int
    priority_class: str
    #: ``namespace/name`` of its gang; empty when it belongs to none.
    group: str
    #: Members of that gang that would remain bound, and how many it needs.
    remaining: int
    min_member: int


@runtime_checkable
class Plugin(Protocol):
    """Every plugin. ``arguments`` maps each argument it takes to its default."""

    name: ClassVar[str]
    arguments: ClassVar[Mapping[str, str | int | float | bool]]

    def __init__(self, arguments: Arguments) -> None:
        """Take arguments that were checked against :attr:`arguments` (all keys present)."""


@runtime_checkable
class Predicate(Protocol):
    """Volcano's PredicateFn over all nodes at once."""

    def feasible(self, view: Snapshot, task: PodShape) -> BoolArray:
        """True per node row where one more pod of this shape may go. Shape: (rows,)."""

    def explain(self, view: Snapshot, task: PodShape) -> Sequence[Reason]:
        """Why rows are refused, counted by node class, nearest miss first."""


@runtime_checkable
class NodeOrder(Protocol):
    """Volcano's NodeOrderFn over all nodes at once."""

    def score(self, view: Snapshot, task: PodShape) -> FloatArray:
        """Higher is better, 0..100 times the plugin's weight. Shape: (rows,)."""


@runtime_checkable
class GroupOrder(Protocol):
    """Volcano's JobOrderFn as a sort key."""

    def order_key(self, group: GroupFacts) -> float | int | str:
        """Smaller goes first. Compared after the keys of plugins in earlier tiers."""


@runtime_checkable
class GroupValid(Protocol):
    """Volcano's JobValidFn."""

    def valid(self, group: GroupFacts) -> Refusal | None:
        """Why the gang cannot be planned yet, or None."""


@runtime_checkable
class GroupReady(Protocol):
    """Volcano's JobReadyFn."""

    def ready(self, group: GroupFacts, placed: int) -> bool:
        """Whether the gang may start with ``placed`` members placed."""


@runtime_checkable
class Victims(Protocol):
    """Volcano's PreemptableFn."""

    def evictable(self, preemptor: PodShape, victims: Sequence[Victim]) -> BoolArray:
        """True per victim that may be evicted. Shape: (len(victims),)."""


class Failure(Struct, frozen=True):
    """A member of a gang failed on this node, at this time (epoch seconds)."""

    node: str
    at: float


class NodeNews(Struct, frozen=True):
    """What is the matter with nodes, in words that go on "node n, which …"; most have nothing."""

    #: Nodes whose pods do not run any more, whatever the API says of them.
    lost: Mapping[str, str] = {}
    #: Nodes of whose pods nobody can say whether they run.
    silent: Mapping[str, str] = {}
    #: Of both, since when that is known (epoch seconds), and how much earlier they may have failed.
    since: Mapping[str, float] = {}
    noticed: float = 0.0
    #: Nodes that will be gone soon, and say so; their pods have so many seconds to stop in.
    leaving: Mapping[str, str] = {}
    seconds: int = 0


NO_NEWS: Final = NodeNews()


class Replica(Struct, frozen=True, order=True):
    """One pod that a job wants: its replica type in lower case, and index."""

    role: str
    index: int
    #: metadata.name that the pod will have.
    pod_name: str


class Child(Struct, frozen=True):
    """An object that a job needs beside its pods and their Services, and owns (metadata says so)."""

    resource: Resource
    body: Manifest
    #: Fields of ``body`` that follow the job; the others are as they were made.
    follows: tuple[str, ...] = ()
    #: What grants Muster the right to make it, where its usual role does not.
    rights: str = ""
    #: It speaks of those before it by their names: made once they are there and the job's own.
    last: bool = False
    #: It only shows what becomes of the job, by its status (all that follows): nothing waits for it.
    shows: bool = False

    @property
    def name(self) -> str:
        """metadata.name."""
        return str(self.body["metadata"]["name"])


class JobStep(Struct, frozen=True):
    """What a job kind asks for after looking at its job and what exists."""

    #: Replicas that should exist and do not. They are created once planned.
    wanted: tuple[Replica, ...] = ()
    #: The PodGroup (Volcano) that the job's gang should have; None when it should have none.
    group: Manifest | None = None
    #: Replicas whose Services are to be created: those that other replicas are told to dial.
    services: tuple[Replica, ...] = ()
    #: What the job's pods mount, or need to be known by: made before any of them.
    children: tuple[Child, ...] = ()
    #: Names of replicas of ``wanted`` that get their places with the others, and are made later.
    later: frozenset[str] = frozenset()
    #: Replicas whose Services are there for people alone: they may wait for what is more urgent.
    spare_services: tuple[Replica, ...] = ()
    #: Pods to delete, by (name, uid).
    delete_pods: tuple[tuple[str, str], ...] = ()
    #: What they are given to stop in at most (seconds); None: what each asks for itself.
    grace: int | None = None
    #: Services to delete, by name.
    delete_services: tuple[str, ...] = ()
    #: The status that the job should have; None when it is right already.
    status: Manifest | None = None
    #: (type, reason, message) to report on the job.
    notices: tuple[tuple[str, str, str], ...] = ()
    #: Look again at this time at the latest.
    wake_at: float | None = None
    #: Annotations to merge into the job before anything is deleted; None when right already.
    annotations: dict[str, str] | None = None
    #: The job does not say yet how its pods have ended: show those that are gone once more.
    keep_ends: bool = False
    #: The HorizontalPodAutoscaler that the job should have: empty for none; None leaves it as it is.
    autoscaler: Manifest | None = None
    #: Where and when members of the job's gang have failed: it is placed elsewhere, if it can be.
    failures: tuple[Failure, ...] = ()
    #: The one of them that was found in this pass.
    failed: Failure | None = None
    #: All its pods are, or will be, stopped, and are made again together when the last is gone.
    restarting: bool = False
    #: Delete the job itself (ttlSecondsAfterFinished has passed).
    delete_job: bool = False


class JobKind(Protocol):
    """A kind of training job; pure. One small file a kind, over one shared lifecycle."""

    resource: Resource

    def takes(self, job: Manifest) -> bool:
        """Whether an object of this resource is this kind's. A cluster may serve one object in two
        versions, which two kinds run.
        """

    def reconcile(
        self,
        job: Manifest,
        pods: Sequence[Pod],
        services: frozenset[str],
        now: float,
        ends: Sequence[Pod] = (),
        nodes: NodeNews = NO_NEWS,
    ) -> JobStep:
        """Compare the job with its pods and services (those it owns). Never raises for bad input:
        an invalid job gets its condition and a notice instead. ``ends`` are pods, gone or not, as
        they ended or restarted, which the job may not say yet.
        """

    def advice(self, job: Manifest) -> tuple[Advice, ...] | None:
        """What to tell the job's user of its spec; nothing where it is invalid, None where it is not
        this controller's. Costs more than a pass: asked once for each generation.
        """

    def pod(self, job: Manifest, replica: Replica) -> Manifest:
        """The pod of one replica, complete but for scheduler name, pin and Muster's own marks."""

    def service(self, job: Manifest, replica: Replica) -> Manifest:
        """The Service of one replica."""
