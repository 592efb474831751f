"""What is still wrong once a cluster is at rest, and what is not."""

from __future__ import annotations

from functools import partial

import pytest

from extender.chaos.settled import Settled
from extender.core import api
from extender.sim.patches import merge
from extender.sim.store import Store

NAMESPACE = "default"
#: A pod as (task, phase); it has a node unless it waits.
DONE, ENDED, WAITS = ("master", "Succeeded"), ("master", "Failed"), ("worker", "Pending")
RUNS, MASTER_WAITS = ("worker", "Running"), ("master", "Pending")


def put(store, resource, namespace, body):
    """With its status, which an object is not created with."""
    store.create(resource, namespace, body)
    status = {"status": body["status"]}
    change = partial(merge, patch=status)
    store.replace(resource, namespace, body["metadata"]["name"], change, subresource="status")


def problems(pods, least, room=8):
    """Of a job's group that must have its master among its ``least`` members, and says why it waits."""
    ids = iter(range(1000))
    store = Store(lambda: 0.0, lambda: f"uid-{next(ids)}")
    size = {"allocatable": {"pods": str(room)}}
    put(store, api.NODES, "", {"metadata": {"name": "n0"}, "spec": {}, "status": size})
    untainted = partial(merge, patch={"spec": {"taints": None}})  # admission taints it as not ready
    store.replace(api.NODES, "", "n0", untainted)
    condition = {"type": "Unschedulable", "status": "True", "message": "no master"}
    group = {
        "metadata": {"name": "g", "namespace": NAMESPACE},
        "spec": {"minMember": least, "minTaskMember": {"master": 1}},
        "status": {"conditions": [condition]},
    }
    put(store, api.VOLCANO_GROUPS, NAMESPACE, group)
    for index, (task, phase) in enumerate(pods):
        notes = {"scheduling.k8s.io/group-name": "g", "volcano.sh/task-spec": task}
        meta = {"name": f"g-{index}", "namespace": NAMESPACE, "annotations": notes}
        spec = {"containers": [{"name": "main", "image": "none"}]}
        where = {} if phase == "Pending" else {"nodeName": "n0"}
        pod = {"metadata": meta, "spec": spec | where, "status": {"phase": phase}}
        put(store, api.PODS, NAMESPACE, pod)
    settled = Settled(store, NAMESPACE, set(), set(), lambda job: False)
    return [message for _, message in settled.problems()]


@pytest.mark.parametrize(
    ("pods", "least", "room", "said"),
    [
        # Seed 32242: the master of a job that has succeeded was deleted, a worker still waits.
        ([WAITS], 1, 8, []),
        # Seed 34150: it failed for good, and with it the job.
        ([ENDED, WAITS, WAITS], 2, 8, []),
        ([MASTER_WAITS, WAITS], 1, 8, ["gang g: 0 of 1 are placed, and the rest fits"]),
        ([WAITS, WAITS, MASTER_WAITS], 2, 8, ["gang g: 0 of 2 are placed, and the rest fits"]),
        ([WAITS, MASTER_WAITS], 2, 1, []),
        ([DONE, WAITS], 2, 8, ["gang g: 1 of 2 are placed, and the rest fits"]),
        ([DONE, RUNS, WAITS], 2, 8, ["g-2 of the whole gang g fits and waits"]),
        ([RUNS, WAITS], 1, 8, []),
    ],
)
def test_a_gang_that_lacks_a_task_may_wait(pods, least, room, said):
    assert problems(pods, least, room) == said
