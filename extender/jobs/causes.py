"""Why a gang cannot go on: what happened to its members, first of all, and what that says of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from extender.core import times
from extender.core.framework import Failure, NodeNews, Replica
from extender.core.objects import Pod
from extender.jobs.history import History, restarts_of

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

    @property
    def pauses(self) -> bool:
        """Whether there is a pause before a restart for it, where there were others before."""
        return self.code not in _UNPAUSED

    def failure(self, now: float) -> Failure | None:
        """What it says against its node; None: nothing."""
        return Failure(self.node, float(int(now))) if self.node and self.code in _OF_NODE else None


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
    nodes: NodeNews,
    *,
    silent: bool = False,
) -> Cause | None:
    """The first thing that happened to any of the ``members`` and that ends the gang.

    ``before``: what the job says of its restarts. ``failed``: those of the members that are to be
    made again. ``silent``: whether a node that is not heard of counts as lost. Of what happened in
    the same second, and where no time is known, the first replica counts.
    """
    broken = {pod.metadata.uid for pod in failed}
    whole = started_at(pod for _, pod in members)
    found = [
        cause
        for replica, pod in members
        if (cause := _cause(replica, pod, before, broken, nodes, whole, silent)) is not None
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
    nodes: NodeNews,
    whole: float | None,
    silent: bool,
) -> Cause | None:
    name, node, status = pod.metadata.name, pod.spec.node_name, pod.status
    if status.phase == "Succeeded" or not node:
        return None
    if pod.metadata.uid in failed:
        return _failure(pod)
    if pod.metadata.deletion_timestamp:
        code, why = _disruption(pod)
        asked, lost = _asked_to_go(pod), _lost_at(node, nodes) if code == "NodeLost" else None
        at = min((at for at in (asked, lost) if at is not None), default=None)
        return Cause(code, name, node, f"pod {name} on node {node} is being deleted{why}", at)
    if status.phase == "Failed":
        return None  # for good: what then becomes of its node is no cause
    more = restarts_of(pod) > before.restarts.get((replica.role, replica.index), 0)
    if more and _ran_again(pod, whole):
        return _restarted(pod)
    if words := nodes.lost.get(node) or (nodes.silent.get(node) if silent else None):
        message = f"pod {name} is on node {node}, which {words}"
        return Cause("NodeLost", name, node, message, _lost_at(node, nodes))
    if sick := _sick(pod):
        message = f"pod {name} on node {node} was given {sick}, which is unhealthy"
        return Cause("DeviceFault", name, node, message)
    if node in nodes.leaving:
        message = f"pod {name} is on node {node}, which {nodes.leaving[node]}"
        return Cause("NodeLeaving", name, node, message)
    return None


def _lost_at(node: str, nodes: NodeNews) -> float | None:
    """When a node may have been lost at the earliest: that is known late."""
    since = nodes.since.get(node)
    return None if since is None else since - nodes.noticed


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
