"""Which replicas of a job exist, run, finished or failed, counted from its pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from extender.core.framework import Replica
from extender.core.objects import Pod
from extender.core.quantity import count
from extender.jobs.causes import TAKEN
from extender.jobs.history import History
from extender.jobs.model import Role, TrainingJob
from extender.jobs.restarts import number_of

#: First exit code that ExitCode retries: a signal ended the process (128 + its number).
RETRYABLE: Final = 128


class Tally(Struct, frozen=True):
    """One role. A pod that is being deleted counts nowhere: its end is not its own doing."""

    active: int = 0
    #: With those whose pods are gone.
    succeeded: int = 0
    #: Whether replica 0 is among the succeeded.
    first_succeeded: bool = False
    failed: int = 0
    #: Of the failed: those that their restart policy does not start again.
    broken: int = 0


class RollCall(Struct, frozen=True):
    """All replicas of a job, by what has to be done about them."""

    #: By role, in lower case.
    tallies: dict[str, Tally]
    history: History
    #: As the job says it now.
    before: History
    #: Replicas with a pod of this job, in order.
    present: tuple[tuple[Replica, Pod], ...]
    #: Of these, failed ones that are to be made again.
    again: tuple[tuple[Replica, Pod], ...]
    #: Of these, pods from before the gang's last restart that have not finished: to be stopped.
    stopped: tuple[tuple[Replica, Pod], ...]
    #: Pods since then as they ended, that are gone.
    past: tuple[tuple[Replica, Pod], ...]
    #: Of all pods since then: those that failed for good.
    broken: tuple[Pod, ...]
    #: Neither pod nor success.
    missing: tuple[Replica, ...]
    #: Succeeded, and the pod is gone.
    gone: tuple[Replica, ...]
    #: A pod of another owner has the name of a replica that is missing.
    blocked: tuple[Pod, ...]
    #: Pods of the job that are no replica of it (any more).
    surplus: tuple[Pod, ...]


def owned(pods: Sequence[Pod], uid: str) -> list[Pod]:
    """The pods that this very job controls (not one of the same name before it), by name."""
    mine = {
        pod.metadata.name: pod
        for pod in pods
        for ref in pod.metadata.owner_references
        if ref.uid == uid and ref.controller
    }
    return [mine[name] for name in sorted(mine)]


def call(
    job: TrainingJob,
    pods: Sequence[Pod],
    container: str,
    ends: Sequence[Pod] = (),
    restart: int = 0,
) -> RollCall:
    """Call the roll. ``pods`` may hold others of the same names; ``container`` is the kind's;
    ``ends`` are pods as they ended: one that is gone and was not to be made again counts still.
    ``restart``: the number of the gang's last one. Of pods made before it, success alone counts.

    Raises InvalidObject if the job's history annotation cannot be read.
    """
    mine = {pod.metadata.name: pod for pod in owned(pods, job.uid)}
    others = {pod.metadata.name: pod for pod in pods if pod.metadata.name not in mine}
    replicas = job.replicas()
    present = [(r, mine[r.pod_name]) for r in replicas if r.pod_name in mine]
    ended = {pod.metadata.name: pod for pod in owned(ends, job.uid)}
    past = [(r, ended[r.pod_name]) for r in replicas if r.pod_name in ended]
    fresh = [(r, p) for r, p in present if number_of(p) >= restart]
    stale = [(r, p) for r, p in (*past, *present) if number_of(p) < restart]
    past = [(r, p) for r, p in past if number_of(p) >= restart]
    before = History.read(job.annotations)
    names = {replica.pod_name for replica in replicas}
    outside = [pod for each in (ended, mine) for name, pod in each.items() if name not in names]
    former = [(replica, pod) for pod in outside if (replica := _former(job, pod)) is not None]
    history = before.after((*past, *fresh), (*stale, *former))
    absent = [replica for replica in replicas if replica.pod_name not in mine]
    unfinished = [r for r in absent if (r.role, r.index) not in history.finished]
    by_name = {role.name: role for role in job.roles}
    past = [(r, p) for r, p in past if r.pod_name not in mine]
    here, gone = _by_role(job, fresh), _by_role(job, past)
    return RollCall(
        tallies={
            role.name: _tally(
                role,
                here[role.name],
                gone[role.name],
                history,
                container,
            )
            for role in job.roles
        },
        history=history,
        before=before,
        present=tuple(present),
        again=tuple(
            (r, p) for r, p in fresh if _failed(p) and _retried(by_name[r.role], p, container)
        ),
        stopped=tuple(
            (r, p)
            for r, p in present
            if number_of(p) < restart and (r.role, r.index) not in history.finished
        ),
        past=tuple(past),
        broken=tuple(
            p
            for r, p in (*past, *fresh)
            if p.status.phase == "Failed"
            and not p.metadata.deletion_timestamp
            and not _retried(by_name[r.role], p, container)
        ),
        missing=tuple(r for r in unfinished if r.pod_name not in others),
        gone=tuple(r for r in absent if (r.role, r.index) in history.finished),
        blocked=tuple(others[r.pod_name] for r in unfinished if r.pod_name in others),
        surplus=tuple(pod for name, pod in mine.items() if name not in names),
    )


def _former(job: TrainingJob, pod: Pod) -> Replica | None:
    """Which replica a pod was that the job asks for no more: it may ask for that one again."""
    head, _, index = pod.metadata.name.rpartition("-")
    role, number = head.removeprefix(f"{job.name}-"), count(index)
    return None if role == head or number is None else Replica(role, number, pod.metadata.name)


def _by_role(job: TrainingJob, pods: Sequence[tuple[Replica, Pod]]) -> dict[str, list[Pod]]:
    found: dict[str, list[Pod]] = {role.name: [] for role in job.roles}
    for replica, pod in pods:
        found[replica.role].append(pod)
    return found


def _tally(
    role: Role, pods: Sequence[Pod], gone: Sequence[Pod], history: History, container: str
) -> Tally:
    judged = [pod for pod in pods if not pod.metadata.deletion_timestamp]
    failed = [pod for pod in judged if _failed(pod)]
    broken = [
        pod
        for pod in (*failed, *(each for each in gone if each.status.phase == "Failed"))
        if not _retried(role, pod, container)
    ]
    return Tally(
        active=sum(pod.status.phase == "Running" for pod in judged),
        succeeded=sum((role.name, index) in history.finished for index in range(role.replicas)),
        first_succeeded=(role.name, 0) in history.finished,
        failed=len(failed),
        broken=len(broken),
    )


def _failed(pod: Pod) -> bool:
    return pod.status.phase == "Failed" and not pod.metadata.deletion_timestamp


def _retried(role: Role, pod: Pod, container: str) -> bool:
    """Whether a failed pod is made again. One that was evicted or lost is, also where its program
    chose an exit code as it was told to stop.
    """
    if role.restart_policy != "ExitCode":
        return role.restart_policy != "Never"
    if pod.status.reason in TAKEN:
        return True
    main = container or role.template["spec"]["containers"][0].get("name")
    codes = [
        status.state.terminated.exit_code
        for status in pod.status.container_statuses
        if status.name == main and status.state.terminated
    ]
    return not codes or codes[0] >= RETRYABLE
