"""Where a gang stands that is started again as a whole (:mod:`extender.jobs.restarts`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from extender.core import times
from extender.core.framework import NodeNews, Replica
from extender.core.objects import Manifest, Pod
from extender.jobs import causes, conditions, fields, restarts
from extender.jobs.causes import Cause, started
from extender.jobs.history import HISTORY
from extender.jobs.model import TrainingJob
from extender.jobs.restarts import Restarts, number_of
from extender.jobs.rollcall import RollCall

#: Seconds in which a kubelet may yet say that a member was killed, whose peers were quicker to say
#: that they have ended for it: it looks at its containers each second, and writes what it finds. That
#: there is no kubelet any more takes longer to be known (NodeNews.noticed).
SETTLE: Final = 5.0
_ENDED: Final = ("Succeeded", "Failed")


class Stand(Struct, frozen=True):
    """What the pods of a job mean to its gang. With restarts of single pods, nothing."""

    record: Restarts = Restarts()
    #: Why the gang has to be stopped now.
    cause: Cause | None = None
    #: Failures for good are but a consequence of that, or may be.
    excused: bool = False
    #: Pods that are stopped, those being deleted among them.
    stopping: tuple[Pod, ...] = ()
    #: Nobody is wanted yet: pods are still being stopped, or the pause is not over.
    hold: bool = False
    #: When the pause is over, or when it is told what failures are.
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
    cause, told_at = None, None
    if _has_started(parsed, roll, [*fresh, *roll.past]):
        failed = [
            pod
            for _, pod in members
            if pod.status.phase == "Failed"
            and not pod.metadata.deletion_timestamp
            and pod not in roll.broken
        ]
        cause = causes.cause_of(members, roll.before, failed, nodes, silent=bool(roll.broken))
        told_at = None if cause else _told_at(parsed, roll, members, nodes.noticed, now)
    unseen = [r for r in roll.missing if r.role not in aside]
    if cause is None and ran and fresh and unseen:
        cause = causes.gone(unseen[0])
    if cause is not None and conditions.holds(conditions.of(job), conditions.SUSPENDED):
        cause = replace(cause, code=causes.SUSPENDED)
    stopping = tuple(pod for _, pod in roll.stopped)
    # A record from the future was written by a clock that was wrong, and says nothing.
    early = not fresh and record.at <= now < record.until
    # Nobody is there, and the job does not say so yet: what it says would be taken for a loss.
    silent = ran and not fresh
    return Stand(
        record=record,
        cause=cause,
        excused=_earlier(cause, roll.broken) if cause else told_at is not None,
        stopping=stopping,
        hold=bool(stopping) or early or silent,
        wake_at=record.until if early else told_at,
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
    since = causes.started_at(pod for _, pod in roll.present)
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
    at, ends = cause.at, _ends(broken)
    return at is not None and all(end is not None and end >= at for end in ends)


def _told_at(
    parsed: TrainingJob,
    roll: RollCall,
    members: Sequence[tuple[Replica, Pod]],
    noticed: float,
    now: float,
) -> float | None:
    """When it is known whether failures for good come from the end of another member, of which
    nothing is known: not before its kubelet has had the time to tell it. Where all members that seem to
    run are on one node, of which nothing was heard, it may be gone: not before it would be missed
    (``noticed`` seconds). None: it is known now.

    Under ExitCode alone: with Never, that end would be for good as well.
    """
    broken = {pod.metadata.uid for pod in roll.broken}
    policies = {
        role.restart_policy
        for replica, pod in members
        if pod.metadata.uid in broken and (role := parsed.role(replica.role))
    }
    left = {p.spec.node_name for _, p in members if p.status.phase not in _ENDED} - {""}
    heard = {p.spec.node_name for _, p in members if p.status.phase in _ENDED}
    alone = len(left) == 1 and left.isdisjoint(heard)
    settle = max(SETTLE, noticed) if alone else SETTLE
    told = [end for end in _ends(roll.broken) if end is not None]
    if policies != {"ExitCode"} or not left or not told or roll.missing:
        return None
    # What is far in the future was written by a clock that is wrong.
    return min(told) + settle if abs(now - min(told)) < settle else None


def _ends(pods: Sequence[Pod]) -> list[float | None]:
    """When their containers ended (epoch seconds); None where that cannot be read."""
    return [
        times.parse(status.state.terminated.finished_at)
        for pod in pods
        for status in pod.status.container_statuses
        if status.state.terminated
    ]
