"""Lists arrive in any order after a restart: a job's pods and services may come before it."""

from __future__ import annotations

import itertools

import pytest
from msgspec import convert

from extender.core import events as e
from extender.core.api import PYTORCH_JOBS
from extender.core.coordinator import Coordinator
from extender.core.framework import Replica
from extender.core.objects import Meta, Pod
from extender.core.state import Rules
from extender.jobs import KINDS
from extender.settings import Settings

OWNER = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "name": "ddp",
    "uid": "job-1",
    "controller": True,
}
META = {"name": "ddp-worker-0", "namespace": "ml", "uid": "pod-1", "ownerReferences": [OWNER]}
LABELS = {
    "training.kubeflow.org/replica-type": "worker",
    "training.kubeflow.org/replica-index": "0",
}
MARKS = {"scheduling.k8s.io/group-name": "ddp"}
POD = {
    "metadata": {**META, "labels": LABELS, "annotations": MARKS},
    "spec": {"schedulerName": "muster", "containers": [{"name": "pytorch"}]},
}
EVENTS = (
    e.PodSeen(convert(POD, Pod)),
    e.ServiceSeen(convert({**META, "uid": "service-1"}, Meta)),
    e.JobSeen(
        PYTORCH_JOBS,
        {"metadata": {"name": "ddp", "namespace": "ml", "uid": "job-1"}, "spec": {}},
    ),
)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_job_finds_what_it_owns(order: tuple[int, ...]) -> None:
    kinds = {kind.resource: kind for kind in KINDS}
    coordinator = Coordinator(Rules(), Settings().session(), kinds)
    for index in order:
        coordinator.apply(EVENTS[index], 0.0)
    state = coordinator.state
    (job,) = state.jobs.values()
    assert list(job.pods) == ["ddp-worker-0"]
    assert job.services == {"ddp-worker-0"}
    _, slot = state.slots["ml", "ddp-worker-0"]
    assert slot.replica == Replica("worker", 0, "ddp-worker-0")
    coordinator.apply(e.PodGone("ml", "ddp-worker-0", "pod-1"), 1.0)
    assert not job.pods
