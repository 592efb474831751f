"""Learning from kube-scheduler what the model does not hold: which nodes it refuses a pod."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from extender.core.gang import Gang, Member, Slot
from extender.core.objects import Pod
from extender.core.shape import PodShape
from extender.core.snapshot import Snapshot
from extender.core.state import State
from extender.core.topology.kubelet import REFUSALS

#: Who refused, where only /filter's list shows it: the same for all nodes, to be counted together.
IN_TREE = "one of its own filters"


def note_refused(
    s: State,
    gang: Gang,
    slot: Slot,
    message: str,
    now: float,
    offered: Collection[str] | None = None,
) -> None:
    """kube-scheduler does not let this member onto its planned node: learn it, plan it again.

    ``offered``: the nodes that it does let the pod onto, where it was heard of all of them.
    """
    learn(s, slot, message, now, offered)
    s.unassign(gang, slot)
    s.reject(slot, "its node was refused; planned again")
    gang.move(slot, Member.HELD)
    gang.dirty = True


def offered_by(s: State, slot: Slot) -> Collection[str] | None:
    """What is left of the nodes for a pod that kube-scheduler itself says none is left for.

    Nothing; but it is no word about all nodes if the pod is pinned, or if there are some that
    kube-scheduler did not know.
    """
    everywhere = slot.complaint.startswith(f"0/{int(s.cluster.alive.sum())} nodes ")
    return () if everywhere and slot.pinned != slot.node else None


def surprised(s: State, pod: Pod, shape: PodShape | None, now: float) -> None:
    """A kubelet failed a pod because its devices or zones do not do: others like it stay away."""
    status = pod.status
    if shape is None or status.phase != "Failed" or status.reason not in REFUSALS:
        return
    s.count("kubelet_refusals")
    s.evidence.add_kubelet(shape, pod.spec.node_name, status.reason, now)


def learn(
    s: State, slot: Slot, message: str, now: float, offered: Collection[str] | None = None
) -> None:
    """Evidence against the planned node, and against each that should do and was not offered.

    One look at the whole list teaches it: else a gang whose volumes are in one zone would be
    planned on every node of the other zones, one after the other.
    """
    assert slot.shape is not None
    s.count("evidence")
    refused = {slot.node}
    if offered is not None:
        view = Snapshot(s.cluster)
        fits = {view.names[row] for row in np.flatnonzero(view.feasible(slot.shape)).tolist()}
        refused |= fits.difference(offered)
    for node in sorted(refused):
        s.evidence.add(slot.shape, node, message, now)
