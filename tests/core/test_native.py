"""Kubernetes' own PodGroup, whose one condition is final once the group was whole."""

from __future__ import annotations

from extender.core.api import NATIVE_GROUPS, PODS
from tests.core import machine_stories as do
from tests.core.machine import Machine


def test_a_group_that_was_whole_and_lacks_a_member_says_so_in_an_event() -> None:
    """I7, chaos seed 3: nothing of its status changes, and nothing was said at all."""
    m = Machine()
    do.nodes(m, 1, gpus=2)
    meta = {"name": "g", "namespace": "default"}
    m.api.put(
        NATIVE_GROUPS, {"metadata": meta, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    )
    for name in ("g-0", "g-1"):
        do.pod(m, name, schedulingGroup={"podGroupName": "g"})
    m.rest()
    assert m.bound("g-0")
    assert m.bound("g-1")
    m.api.remove((PODS, "default", "g-1"))
    do.foreign(m, "x", "n0")
    m.rest()
    do.pod(m, "g-1", schedulingGroup={"podGroupName": "g"})
    m.rest()
    said = [
        notice.message
        for notice in m.replicas[0].notices
        if (notice.resource, notice.name, notice.reason) == (NATIVE_GROUPS, "g", "Unschedulable")
    ]
    assert "0 of 1 pods fit" in said[-1]
    assert len(said) == len(set(said))
    m.finish()
