"""Where a gang stands that is started again as a whole (:mod:`extender.jobs.restarts`)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from extender.core import times
from extender.core.framework import NodeNews, Replica
from extender.core.objects import Manifest, Pod
from extender.jobs import conditions, fields, restarts
from extender.jobs.history import HISTORY
from extender.jobs.model import TrainingJob
from extender.jobs.restarts import Cause, Restarts, number_of, started
from extender.jobs.rollcall import RollCall


class Stand(Struct, frozen=True):
    """What the pods of a job mean to its gang. With restarts of single pods, nothing."""

    record: Restarts = Restarts()
    #: Why the gang has to be stopped now.
    cause: Cause | None = None
    #: Failures for good are but a consequence of that.
    excused: bool = False
    #: Pods that are stopped, those being deleted among them.
    stopping: tuple[Pod, ...] = ()
    #: Nobody is wanted yet: pods are still being stopped, or the pause is not over.
    hold: bool = False
    #: When the pause is over.
    wake_at: float | None = None
    #: Failed members that are made again by themselves.
    again: tuple[tuple[Replica, Pod], ...] = ()
    #: Pods that are to be made again elsewhere, by themselves.
    moving: tuple[Pod, ...] = ()
    #: What pods are given to stop in at most (seconds); None: what they ask for.
    grace: int | None = None

    @property
    def restarting(self) -> bool:
        """Whether the gang is being stopped, or waits for its pause to be over."""
        return bool(self.stopping) or (self.hold and self.record.number > 0)


def stand(
    job: Manifest,
    parsed: TrainingJob,
    record: Restarts,
    roll: RollCall,
    nodes: NodeNews,
    aside: Sequence[str],
    now: float,
) -> Stand:
    """Judge the pods. ``record``: the job's restarts. ``aside``: roles whose ends restart nobody."""
    fresh = [(r, p) for r, p in roll.present if number_of(p) >= record.number]
    members = [(r, p) for r, p in (*fresh, *roll.past) if r.role not in aside]
    ran = _ran_whole(job, parsed)
    cause = None
    if _has_started(parsed, roll, [*fresh, *roll.past]):
        failed = [
            pod
            for _, pod in members
            if pod.status.phase == "Failed"
            and not pod.metadata.deletion_timestamp
            and pod not in roll.broken
        ]
        cause = restarts.cause_of(members, roll.before, failed, nodes.lost, nodes.leaving)
    unseen = [r for r in roll.missing if r.role not in aside]
    if cause is None and ran and fresh and unseen:
        cause = restarts.gone(unseen[0])
    if cause is not None and conditions.holds(conditions.of(job), conditions.SUSPENDED):
        cause = replace(cause, code=restarts.SUSPENDED)
    stopping = tuple(pod for _, pod in roll.stopped)
    # A record from the future was written by a clock that was wrong, and says nothing.
    early = not fresh and record.at <= now < record.until
    # Nobody is there, and the job does not say so yet: what it says would be taken for a loss.
    silent = ran and not fresh
    return Stand(
        record=record,
        cause=cause,
        excused=cause is not None and _earlier(cause, roll.broken),
        stopping=stopping,
        hold=bool(stopping) or early or silent,
        wake_at=record.until if early else None,
        again=roll.again,
        grace=nodes.seconds if stopping and record.cause == "NodeLeaving" else None,
    )


def alone(record: Restarts, roll: RollCall, nodes: NodeNews) -> Stand:
    """Each replica is started again by itself, and leaves a node that is about to go."""
    moving = tuple(
        pod
        for _, pod in roll.present
        if pod.spec.node_name in nodes.leaving and pod.status.phase in ("Pending", "Running")
    )
    return Stand(record, again=roll.again, moving=moving, grace=nodes.seconds if moving else None)


def restarted(
    parsed: TrainingJob, roll: RollCall, stand: Stand, cause: Cause, now: float
) -> dict[str, str]:
    """The job's annotations with one more restart, which takes the place of its members' own."""
    since = restarts.started_at(pod for _, pod in roll.present)
    latest = max((number_of(pod) for _, pod in roll.present), default=0)
    annotations = {restarts.RECORD: stand.record.after(cause, now, since, latest).write()}
    text = replace(roll.history, restarts=roll.before.restarts).write()
    if text != parsed.annotations.get(HISTORY, ""):
        annotations[HISTORY] = text
    return annotations


def _has_started(parsed: TrainingJob, roll: RollCall, pods: Sequence[tuple[Replica, Pod]]) -> bool:
    """Whether as many programs have run since the last restart as the gang needs: from then on
    they may have met, and none can be replaced.
    """
    ran = {(r.role, r.index) for r, p in pods if started(p)} | roll.history.finished
    return len(ran) >= (parsed.policy.min_available or parsed.total)


def _ran_whole(job: Manifest, parsed: TrainingJob) -> bool:
    """Whether the job says that all its replicas run: it is known even if nobody saw one go."""
    if not conditions.holds(conditions.of(job), conditions.RUNNING):
        return False
    for role in parsed.roles:
        counts = [
            fields.dig(job, "status", "replicaStatuses", role.type, key)
            for key in ("active", "succeeded")
        ]
        if sum(count for count in counts if isinstance(count, int)) < role.replicas:
            return False
    return True


def _earlier(cause: Cause, broken: Sequence[Pod]) -> bool:
    """Whether the cause came before all of these failures (they are peers that lost a member).

    In the same second, too, which is all that a status tells: a peer's connection breaks at once.
    """
    ends = [
        times.parse(status.state.terminated.finished_at)
        for pod in broken
        for status in pod.status.container_statuses
        if status.state.terminated
    ]
    return cause.at is not None and all(end is not None and end >= cause.at for end in ends)
