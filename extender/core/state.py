"""The one mutable state of the core, and the few primitive operations on it.

Only the coordinator's loop writes here. The modules beside it (ingest, placing, releasing,
committing, jobsync, reporting) are the steps of that loop: functions of (state, …, now).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct

from extender.core import commands as c
from extender.core.api import PODS, Resource
from extender.core.capacity import SPOT_LABELS
from extender.core.cluster import Cluster
from extender.core.errors import InvalidObject
from extender.core.events import Done
from extender.core.evidence import Evidence
from extender.core.framework import JobKind
from extender.core.gang import Gang, Slot
from extender.core.health import Avoid, Health, Loss, Notices
from extender.core.identity import GroupKey
from extender.core.job import Admission, Job, admission_keys
from extender.core.line import Line
from extender.core.objects import OwnerRef, Pod
from extender.core.reasons import Code, Refusal
from extender.core.record import PlanRecord
from extender.core.session import Session
from extender.core.shape import PodShape
from extender.core.topology.domains import Level

#: What follows a command's result: called with the result and the time it is applied at.
Then = Callable[[Done, float], None]
#: An object in the API: kind, namespace and name.
Place = tuple[Resource, str, str]


#: Shapes of which one object is kept.
KEPT_SHAPES = 4096


class Rules(Struct, frozen=True):
    """Settings that decisions depend on. Times are in seconds."""

    #: Schedulers that carry Muster's extender; others' pods are foreign.
    scheduler_names: tuple[str, ...] = ("muster",)
    #: Given to pods that Muster makes where their template names none.
    scheduler_name: str = "muster"
    #: Extended resources that make kube-scheduler send a pod to the extender; empty means all.
    managed_resources: frozenset[str] = frozenset()
    #: KubeSchedulerConfiguration.podMaxBackoffSeconds, and how much longer to wait for an arrival.
    pod_max_backoff: float = 2.0
    arrival_slack: float = 5.0
    #: httpTimeout of the bind entry; a barrier never lasts longer.
    bind_timeout: float = 120.0
    #: How long a gang may stay partly bound before it is rolled back.
    plan_deadline: float = 30.0
    #: How long a job's gang waits before its pods are made visible (to cluster autoscalers).
    visible_after: float = 30.0
    #: How long a refusal by kube-scheduler is believed: the first one, and at most.
    evidence_seconds_first: float = 2.0
    evidence_seconds: float = 300.0
    retry_seconds: float = 1.0
    retry_seconds_max: float = 30.0
    #: Levels of the network, widest first.
    levels: tuple[Level, ...] = ()
    avoid: Avoid = Avoid()
    notices: Notices = Notices()
    loss: Loss = Loss()
    #: Labels of spot nodes, and roles (in lower case) that keep off them unless their job says else.
    spot_labels: tuple[tuple[str, str], ...] = SPOT_LABELS
    on_demand_roles: frozenset[str] = frozenset()
    #: How long pods that Muster makes stay on a node that is not ready or not heard of.
    node_loss: int = 30
    #: After what they were given to stop in, pods on a node that is not heard of are removed; None:
    #: they are not.
    force_delete_after: float | None = 60.0

    @property
    def patience(self) -> float:
        """How long an arrival is waited for; and at /bind, that the watch shows a pod that it has not shown."""
        return self.pod_max_backoff + self.arrival_slack


@dataclass(slots=True)
class HeldBind:
    """An open /bind request of a pod that is not (yet) a known member."""

    token: int
    namespace: str
    name: str
    uid: str
    node: str
    since: float


class State:
    """Everything the core knows, and the commands that it has to give."""

    def __init__(self, rules: Rules, session: Session, kinds: Mapping[Resource, JobKind]) -> None:
        """Start empty: not synced, not leading."""
        self.rules = rules
        self.session = session
        self.kinds = dict(kinds)
        self.cluster = Cluster(rules.levels)
        self.evidence = Evidence(rules.evidence_seconds_first, rules.evidence_seconds)
        self.health = Health(rules.avoid, rules.notices, rules.loss)
        self.gangs: dict[GroupKey, Gang] = {}
        #: (namespace, pod name) → its gang and slot.
        self.slots: dict[tuple[str, str], tuple[Gang, Slot]] = {}
        #: uid → (namespace, pod name), of members only.
        self.uids: dict[str, tuple[str, str]] = {}
        #: Pods (by uid) that cannot be placed whatever the cluster looks like, and why.
        self.faults: dict[str, Refusal] = {}
        self.jobs: dict[tuple[Resource, str, str], Job] = {}
        self.jobs_by_uid: dict[str, Job] = {}
        #: Pod uid → the job that owns it; pod uid → the gang it names from another scheduler.
        self.pod_jobs: dict[str, Job] = {}
        self.foreign: dict[str, tuple[GroupKey, str]] = {}
        #: Pods and services of jobs that the watch has not shown, by the job's uid.
        self.orphans: dict[str, dict[str, Pod]] = {}
        self.orphan_owner: dict[str, str] = {}
        self.orphan_services: dict[str, set[tuple[str, str]]] = {}
        #: (namespace, service) → uids of the jobs that own it, shown or not.
        self.service_owners: dict[tuple[str, str], set[str]] = {}
        self.records: dict[tuple[str, str], PlanRecord] = {}
        #: resourceVersion of every GangPlan, be it a plan of Muster's or not.
        self.plan_versions: dict[tuple[str, str], str] = {}
        #: (namespace, form of a pod) → the last dry run of such a pod.
        self.admissions: dict[tuple[str, str], Admission] = {}
        self.priority_classes: dict[str, int] = {}
        self.served: dict[Resource, bool] = {}
        #: Group kinds whose CRD has no status subresource.
        self.without_status: set[Resource] = set()
        #: How many members may still be let through in this step, and how many Bindings sent.
        self.releases = self.bindings = 0
        #: When it is looked at again whether Services that may wait (Job.spare) need to.
        self.spare_at = -math.inf
        #: token → open /bind of a plain pod, or of one that the watch has not shown.
        self.binds: dict[int, HeldBind] = {}
        #: token → the pod of an open /bind that was taken on; gone once answered or abandoned.
        self.tokens: dict[int, tuple[str, str]] = {}
        #: Pods of no group that wait for a node, by uid.
        self.plain: dict[str, Pod] = {}
        #: Bindings that may take effect, or have, and are not shown, by the pod's uid: of plain pods,
        #: and of members from when this replica led before. Their places are kept as plain pods' are.
        self.sent: dict[str, c.Bind] = {}
        #: What was reserved on nodes that are away, by node.
        self.unhoused: dict[str, set[str]] = {}
        #: Those of them that /filter refused because their nodes are held for others (-1), or for want of
        #: parts of GPUs, by the capacity of this generation; in order.
        self.refused: dict[str, int] = {}
        #: Cluster.given_back when they were last woken.
        self.woken_at = 0
        #: Names of nodes whose rows changed otherwise than by Muster's own binds since last step.
        self.touched: set[str] = set()
        #: Nodes of which jobs are to be told.
        self.node_news: set[str] = set()
        #: Whose turn it is in this step, and who has none for a while (until when): an object
        #: whose handling fails by a fault of Muster's own must not stop the others.
        self.at: GroupKey | str | None = None
        self.aside: dict[GroupKey | str, float] = {}
        self.line = Line()
        #: Members (by uid) that /preempt has given away, and until when they count as lost unless
        #: the watch shows their eviction.
        self.given_away: dict[str, float] = {}
        self.synced = False
        #: resourceVersion as of which all pods were told last.
        self.pods_listed = 0
        #: The latest resourceVersion of a pod that was told.
        self.pods_shown = 0
        self.leading = False
        self.epoch = 0
        self.counters: dict[str, int] = {}
        #: Seconds that barriers took, from first arrival to commit; taken by the loop.
        self.barriers: list[float] = []
        #: Seconds that gangs waited for the plan that they now have; taken by the loop.
        self.holds: list[float] = []
        #: How often a gang came to be refused for a reason.
        self.refusals: Counter[Code] = Counter()
        self._out: list[c.Command] = []
        self._next_id = 0
        self._awaiting: dict[int, Then] = {}
        #: Object → its uid, and (reason, type) → the words that were last said.
        self._noticed: dict[Place, tuple[str, dict[tuple[str, str], str]]] = {}
        self._shapes: dict[PodShape, PodShape] = {}

    # -- commands

    def next_id(self, then: Then) -> int:
        """The id of a command whose result goes to ``then``."""
        self._next_id += 1
        self._awaiting[self._next_id] = then
        return self._next_id

    def send(self, command: c.Command) -> None:
        """Give a command. Nothing is written by a replica that does not lead."""
        if isinstance(command, c.Answer):
            self.tokens.pop(command.token, None)
        if self.leading or isinstance(command, (c.Answer, c.WakeAt)):
            self._out.append(command)

    def look(self, gang: Gang, at: float) -> None:
        """Look at a gang at this time, if nothing happens to it before."""
        gang.look_at = min(gang.look_at, at)
        self.send(c.WakeAt(at))

    def look_at_job(self, job: Job, at: float) -> None:
        """Look at a job at this time, or before if that was wished already."""
        job.wake_at = at if job.wake_at is None else min(job.wake_at, at)
        self.send(c.WakeAt(at))

    def done(self, result: Done, now: float) -> None:
        """Hand a result to whoever waits for it (nobody, if leadership changed meanwhile)."""
        then = self._awaiting.pop(result.id, None)
        if then is not None:
            then(result, now)

    @property
    def unanswered(self) -> int:
        """Commands whose results somebody waits for."""
        return len(self._awaiting)

    def forget_commands(self) -> None:
        """Drop every expectation: their results belong to an earlier leadership."""
        self._awaiting.clear()
        self.admissions.clear()
        self._out = [x for x in self._out if isinstance(x, (c.Answer, c.WakeAt))]

    def take(self) -> list[c.Command]:
        """The commands given since the last call, in order."""
        out, self._out = self._out, []
        return out

    def notice(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        uid: str,
        type_: str,
        reason: str,
        message: str,
    ) -> None:
        """Report on an object, once for as long as the words stay the same."""
        if not self.leading:
            return
        place = (resource, namespace, name)
        whose, said = self._noticed.get(place, (uid, {}))
        if whose != uid:  # a namesake is told anew
            said = {}
        self._noticed[place] = uid, said
        if said.get((reason, type_)) == message:
            return
        said[reason, type_] = message
        self.send(c.Notice(resource, namespace, name, uid, type_, reason, message))

    def forget_notices(self, place: Place) -> None:
        """An object is gone, or what cannot be read was all that was ever seen of it."""
        self._noticed.pop(place, None)

    def count(self, what: str, by: int = 1) -> None:
        """Count something that metrics show."""
        self.counters[what] = self.counters.get(what, 0) + by

    # -- jobs

    def forget_admitted(self, job: Job) -> None:
        """Ask again what the API server makes of its pods; of other forms the answers stand."""
        for _, form in job.admitted:
            for key in admission_keys(job, form):
                self.admissions.pop(key, None)
        job.admitted.clear()

    def runs(self, owner: OwnerRef) -> bool:
        """Whether an owner is a job of a kind that Muster runs."""
        return owner.controller and any(
            owner.kind == resource.kind and owner.api_version == resource.api_version
            for resource in self.kinds
        )

    def turn_of(self, key: GroupKey | str) -> bool:
        """Whether the step may handle this group (or the job of this uid) now; remembers it."""
        self.at = key
        return not self.aside or key not in self.aside

    # -- gangs, members, reservations

    def unmanaged(self, shape: PodShape | None) -> bool:
        """With managedResources, a pod that asks for none never reaches the extender: only its
        gate holds it, and kube-scheduler binds it by itself.
        """
        managed = self.rules.managed_resources
        if not managed or shape is None:
            return False
        return managed.isdisjoint(name for name, amount in shape.requests if amount)

    def gang(self, key: GroupKey) -> Gang:
        """The gang of this key, made if it is new."""
        gang = self.gangs.get(key)
        if gang is None:
            gang = self.gangs[key] = Gang(key)
        return gang

    def enroll(self, gang: Gang, slot: Slot) -> None:
        """Make a slot a member."""
        gang.add(slot)
        self.slots[gang.key.namespace, slot.name] = (gang, slot)
        if slot.uid:
            self.uids[slot.uid] = (gang.key.namespace, slot.name)

    def discharge(self, gang: Gang, slot: Slot, why: str) -> None:
        """Remove a member: free what is reserved for it, answer its open /bind."""
        self.unassign(gang, slot)
        self.reject(slot, why)
        gang.drop(slot)
        self.slots.pop((gang.key.namespace, slot.name), None)
        self.uids.pop(slot.uid, None)

    def assign(self, gang: Gang, slot: Slot, node: str) -> None:
        """Plan a member onto a node and reserve its place there (I2)."""
        row = self.cluster.row_of(node)
        assert row is not None
        assert slot.shape is not None
        slot.node = node
        self.cluster.reserve(reservation_key(gang, slot), slot.shape, row)

    def assign_all(self, gang: Gang, shape: PodShape, chosen: Sequence[tuple[Slot, int]]) -> None:
        """:meth:`assign` for members of one shape, onto rows."""
        names = self.cluster.names
        for slot, row in chosen:
            slot.node = names[row]
        self.cluster.reserve_all(
            shape, [(reservation_key(gang, slot), row) for slot, row in chosen]
        )

    def same(self, shape: PodShape) -> PodShape:
        """One object for equal shapes: as keys they are then told equal without a comparison."""
        if len(self._shapes) >= KEPT_SHAPES:
            self._shapes.clear()
        return self._shapes.setdefault(shape, shape)

    def housed(self, key: str, node: str) -> PodShape | None:
        """What still takes the place that was reserved under this key on the node, and is not counted
        there; None: nothing.
        """
        sent = self.sent.get(key.removeprefix("plain "))
        if sent is not None and key.startswith("plain "):
            return self._sent_shape(sent) if sent.node == node else None
        namespace, _, name = key.partition("/")
        known = self.slots.get((namespace, name))
        if known is None or known[1].node != node or known[1].uid in self.cluster.pods.slots:
            return None
        return known[1].shape

    def _sent_shape(self, sent: c.Bind) -> PodShape | None:
        known, pod = self.slots.get((sent.namespace, sent.name)), self.plain.get(sent.uid)
        if known is not None and known[1].uid == sent.uid:
            return known[1].shape
        try:
            return self.cluster.shapes.of(pod) if pod is not None else None
        except InvalidObject:
            return None  # it was edited since

    def unassign(self, gang: Gang, slot: Slot) -> None:
        """Give up a member's planned node and what is reserved there."""
        self.cluster.release(reservation_key(gang, slot))
        slot.node = ""
        slot.passed = False
        gang.maybe_loose = True

    def reject(self, slot: Slot, why: str) -> None:
        """Answer a member's open /bind with an error, if there is one."""
        if slot.token is not None:
            self.send(c.Answer(slot.token, why))
            slot.token = None

    def delete_pod(self, gang: Gang, slot: Slot) -> None:
        """Delete a member's pod; the watch tells when it is gone."""
        if slot.deleting or not slot.uid:
            return
        slot.deleting = True

        def then(done: Done, now: float) -> None:
            if not done.ok and done.code not in (404, 409):  # 409: another pod has its name
                slot.deleting = False
            gang.dirty = True

        self.send(
            c.Delete(
                self.next_id(then), c.Lane.RELEASE, PODS, gang.key.namespace, slot.name, slot.uid
            )
        )


def reservation_key(gang: Gang, slot: Slot) -> str:
    """Reservations are kept by pod name: a planned pod may not have a uid yet."""
    return f"{gang.key.namespace}/{slot.name}"
