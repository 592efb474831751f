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

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from extender.core import times
from extender.core.api import MUSTER_GROUP
from extender.core.errors import InvalidObject
from extender.core.framework import Failure, Replica
from extender.core.identity import GANG_RESTART
from extender.core.objects import Labels, Pod
from extender.core.quantity import COUNT_LIMIT
from extender.core.quantity import count as read_count
from extender.jobs.history import History, restarts_of

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

#: Why a kubelet, or the node's end, failed a pod: whatever its containers then exited with.
TAKEN: Final = frozenset({"Evicted", "NodeLost", "Terminated", "Shutdown"})
#: Why pods are deleted that nobody asked to delete: reason of their condition DisruptionTarget.
_DISRUPTIONS: Final[Mapping[str, str]] = {
    "PreemptionByScheduler": "Preempted",
    "DeletionByTaintManager": "NodeLost",
    "DeletionByPodGC": "NodeLost",
    # kubectl drain, a descheduler: neither the program nor its node did anything.
    "EvictionByEvictionAPI": "Drained",
    "TerminationByKubelet": "Evicted",
}
#: Why members go whose job was suspended and resumed before they were gone: it starts when asked to.
SUSPENDED: Final = "Suspended"
#: Causes for which the program, its data and its node have no blame: they use up no backoffLimit.
_UNCOUNTED: Final = frozenset({"Preempted", "Drained", "NodeLeaving", SUSPENDED})
#: Of these, those that are no reason for a pause: what asks for them cannot ask again and again,
#: as nothing is planned on a node that is about to go.
_UNPAUSED: Final = frozenset({"NodeLeaving", SUSPENDED})
#: Causes that say something about the node.
_OF_NODE: Final = frozenset({"Exit", "OOMKilled", "Evicted", "NodeLost", "DeviceFault"})

#: More restarts than a gang lives to see; a larger number is somebody's edit.
MOST_RESTARTS: Final = 1_000_000

_Count = Annotated[int, Meta(ge=0, le=COUNT_LIMIT)]
_Number = Annotated[int, Meta(ge=0, le=MOST_RESTARTS)]
_Time = Annotated[float, Meta(ge=0, le=times.LAST)]


class Cause(Struct, frozen=True):
    """Why a gang cannot go on. ``at``: when that happened, where it is known (epoch seconds)."""

    code: str
    pod: str
    node: str
    message: str
    at: float | None = None

    @property
    def counts(self) -> bool:
        """Whether it uses up backoffLimit."""
        return self.code not in _UNCOUNTED


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
        free = cause.code in _UNPAUSED
        row = (0 if ran_well else self.row) + (not free)
        paused = row > 1 and not free
        pause = min(PAUSE_FIRST * 2.0 ** min(row - 2, 20), PAUSE_MOST) if paused else 0.0
        failures = self.failures
        if cause.node and cause.code in _OF_NODE:
            failures = (*failures, Failure(cause.node, float(int(now))))[-KEPT:]
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


def started_at(pods: Iterable[Pod]) -> float | None:
    """When the last of them began to run; None where none says so."""
    found = [times.parse(pod.status.start_time) for pod in pods]
    return max((at for at in found if at is not None), default=None)


def started(pod: Pod) -> bool:
    """Whether its program has run: one that its kubelet did not admit has met nobody."""
    phase = pod.status.phase
    if phase == "Failed":
        return any(status.state.terminated for status in pod.status.container_statuses) or (
            not pod.status.reason or pod.status.reason in TAKEN
        )
    return phase in ("Running", "Succeeded")


def cause_of(
    members: Sequence[tuple[Replica, Pod]],
    before: History,
    failed: Iterable[Pod],
    lost: Mapping[str, str],
    leaving: Mapping[str, str],
) -> Cause | None:
    """The first thing that happened to any of the ``members`` and that ends the gang.

    ``before``: what the job says of its restarts. ``failed``: those of the members that are to be
    made again. ``lost`` and ``leaving`` map nodes to what is the matter with them. Of what
    happened in the same second, and where no time is known, the first replica counts.
    """
    broken = {pod.metadata.uid for pod in failed}
    whole = started_at(pod for _, pod in members)
    found = [
        cause
        for replica, pod in members
        if (cause := _cause(replica, pod, before, broken, lost, leaving, whole)) is not None
    ]
    return min(found, key=lambda cause: times.LAST if cause.at is None else cause.at, default=None)


def gone(replica: Replica) -> Cause:
    """A member of a gang that ran is not there any more, and nobody saw it go."""
    name = replica.pod_name
    return Cause("Deleted", name, "", f"pod {name} is gone")


def _cause(
    replica: Replica,
    pod: Pod,
    before: History,
    failed: set[str],
    lost: Mapping[str, str],
    leaving: Mapping[str, str],
    whole: float | None,
) -> Cause | None:
    name, node, status = pod.metadata.name, pod.spec.node_name, pod.status
    if status.phase == "Succeeded" or not node:
        return None
    if pod.metadata.uid in failed:
        return _failure(pod)
    if pod.metadata.deletion_timestamp:
        code, why = _disruption(pod)
        at = _asked_to_go(pod)
        return Cause(code, name, node, f"pod {name} on node {node} is being deleted{why}", at)
    more = restarts_of(pod) > before.restarts.get((replica.role, replica.index), 0)
    if more and _ran_again(pod, whole):
        return _restarted(pod)
    if node in lost:
        return Cause("NodeLost", name, node, f"pod {name} is on node {node}, which {lost[node]}")
    if sick := _sick(pod):
        message = f"pod {name} on node {node} was given {sick}, which is unhealthy"
        return Cause("DeviceFault", name, node, message)
    if node in leaving:
        message = f"pod {name} is on node {node}, which {leaving[node]}"
        return Cause("NodeLeaving", name, node, message)
    return None


def _failure(pod: Pod) -> Cause:
    name, node, status = pod.metadata.name, pod.spec.node_name, pod.status
    ends = [s.state.terminated for s in status.container_statuses if s.state.terminated]
    bad = next((end for end in ends if end.exit_code), None)
    at = times.parse(bad.finished_at) if bad else None
    if status.reason in TAKEN:
        code = "NodeLost" if status.reason == "NodeLost" else "Evicted"
        return Cause(code, name, node, f"pod {name} on node {node} failed: {status.reason}", at)
    if bad is None:
        why = status.reason or "no container says why"
        return Cause("Exit", name, node, f"pod {name} on node {node} failed: {why}", at)
    code = "OOMKilled" if bad.reason == "OOMKilled" else "Exit"
    why = f"exit code {bad.exit_code}" + (", OOMKilled" if code == "OOMKilled" else "")
    return Cause(code, name, node, f"pod {name} on node {node} failed: {why}", at)


def _ran_again(pod: Pod, whole: float | None) -> bool:
    """Whether its kubelet has started a container of it again since the last member came. No peer
    has met an init container, nor a container that ended before.
    """
    again = [status for status in pod.status.container_statuses if status.restart_count]
    ends = [
        times.parse(s.last_state.terminated.finished_at) for s in again if s.last_state.terminated
    ]
    told = [at for at in ends if at is not None]
    return bool(again) and (whole is None or len(told) < len(again) or max(told) >= whole)


def _restarted(pod: Pod) -> Cause:
    """Its kubelet has started a container of it again, in place."""
    name, node = pod.metadata.name, pod.spec.node_name
    ends = [s.last_state.terminated for s in pod.status.container_statuses]
    last = next((end for end in ends if end), None)
    code = "OOMKilled" if last and last.reason == "OOMKilled" else "Exit"
    why = f" (exit code {last.exit_code})" if last else ""
    at = times.parse(last.finished_at) if last else None
    return Cause(code, name, node, f"a container of pod {name} on node {node} ended{why}", at)


def _asked_to_go(pod: Pod) -> float | None:
    """When its deletion was asked for: its timestamp says when the grace is over."""
    end = times.parse(pod.metadata.deletion_timestamp)
    grace = pod.metadata.deletion_grace_period_seconds or 0
    return None if end is None else end - max(0, min(grace, times.LAST))


def _disruption(pod: Pod) -> tuple[str, str]:
    for condition in pod.status.conditions:
        if condition.type == "DisruptionTarget" and condition.status == "True":
            code = _DISRUPTIONS.get(condition.reason, "Deleted")
            return code, f" ({condition.reason})"
    return "Deleted", ""


def _sick(pod: Pod) -> str:
    """A device that the pod was given and that its kubelet calls unhealthy."""
    for container in pod.status.container_statuses:
        for each in container.allocated_resources_status:
            for device in each.resources:
                if device.health == "Unhealthy":
                    return f"{each.name} {device.resource_id}"
    return ""
