"""Advice on a job: each piece an Event once a generation, all of it a condition while it is true."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from extender.core import advising
from extender.core import commands as c
from extender.core.api import PYTORCH_JOBS
from extender.core.job import Job
from extender.core.objects import Manifest
from extender.core.state import Rules, State
from extender.jobs.pytorch import PyTorchJob
from extender.settings import Settings
from tests.jobs.builders import job as manifest
from tests.jobs.builders import merged, role

KIND = PyTorchJob()


class Told:
    """A job, passed over by its kind until nothing is written any more."""

    def __init__(self, raw: Manifest) -> None:
        self.state = State(Rules(), Settings().session(), {PYTORCH_JOBS: KIND})
        self.state.leading = True
        raw["metadata"]["generation"] = 1
        self.job = Job(PYTORCH_JOBS, "team", "ddp", "job-1", raw)

    def settle(self, **spec: Any) -> tuple[list[str], list[str]]:
        """(codes of Events, types of conditions) after an edit of the spec, if there is one."""
        if spec:
            raw = merged(deepcopy(self.job.raw), {"spec": spec})
            raw["metadata"]["generation"] += 1
            self.job.raw = raw
        for now in range(5):
            step = KIND.reconcile(self.job.raw, [], frozenset(), now)
            step = advising.show(self.state, self.job, KIND, step, now)
            if step.status is None:
                break
            self.job.raw = merged(self.job.raw, {"status": step.status})
        else:
            raise AssertionError("never stops writing")
        events = [each for each in self.state.take() if isinstance(each, c.Notice)]
        assert all(each.type == "Warning" for each in events)
        return [each.reason for each in events], [each["type"] for each in self.conditions()]

    def conditions(self) -> list[Manifest]:
        return list(self.job.raw["status"]["conditions"])


def crowded() -> Told:
    """Four processes a replica, and a GPU for one; a label that nobody has."""
    field = {"fieldPath": "metadata.labels['pytorch-replica-index']"}
    box: dict[str, Any] = {
        "resources": {"limits": {"nvidia.com/gpu": 1}},
        "env": [{"name": "INDEX", "valueFrom": {"fieldRef": field}}],
    }
    return Told(manifest({"Master": role(**box)}, nprocPerNode="4"))


def test_each_piece_once_and_all_in_a_condition_before_the_last() -> None:
    told = crowded()
    assert told.settle() == (["ProcessesAndGPUs", "NoSuchLabel"], ["Advice", "Created"])
    said = told.conditions()[0]
    assert (said["status"], said["reason"]) == ("True", "Advised")
    assert "spec.nprocPerNode is 4: the container has 1 GPUs" in said["message"]
    assert "WORLD" not in said["message"]
    assert told.settle() == ([], ["Advice", "Created"])


def test_an_edit_is_told_what_is_new_and_takes_back_what_is_mended() -> None:
    told = crowded()
    told.settle()
    events, types = told.settle(runPolicy={"schedulingPolicy": {"queue": "red"}})
    assert (events, types) == ([], ["Advice", "Created"])
    before = told.conditions()[0]["message"]
    events, _ = told.settle(nprocPerNode="2")
    assert events == ["ProcessesAndGPUs"]
    assert told.conditions()[0]["message"] != before
    assert told.settle(nprocPerNode="1")[0] == []
    assert "ProcessesAndGPUs" not in told.conditions()[0]["message"]
    box = told.job.raw["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    del box[0]["env"]
    assert told.settle(nprocPerNode="auto") == ([], ["Created"])


def test_another_muster_says_nothing_again() -> None:
    told = crowded()
    told.settle()
    again = Told(deepcopy(told.job.raw))
    assert again.settle() == ([], ["Advice", "Created"])


def test_it_is_never_the_last_which_kubectl_shows() -> None:
    told = crowded()
    runs = [
        {"type": each, "status": "True", "reason": f"PyTorchJob{each}"}
        for each in ("Created", "Running")
    ]
    told.job.raw["status"] = {"conditions": runs}
    assert told.settle()[1] == ["Created", "Advice", "Running"]


def test_who_does_not_lead_yet_says_it_when_it_does() -> None:
    told = crowded()
    told.state.leading = False
    step = KIND.reconcile(told.job.raw, [], frozenset(), 0.0)
    advising.show(told.state, told.job, KIND, step, 0.0)
    told.state.leading = True
    assert told.settle()[0] == ["ProcessesAndGPUs", "NoSuchLabel"]


def test_a_job_that_is_invalid_ended_or_another_controller_s_is_left_alone() -> None:
    told = crowded()
    told.settle()
    assert told.settle(nprocPerNode=[]) == ([], ["Created", "Invalid"])
    other = crowded()
    other.job.raw["spec"]["runPolicy"] = {"managedBy": "kueue.x-k8s.io/multikueue"}
    other.job.raw["status"] = {"conditions": []}
    assert other.settle() == ([], [])
    # Kueue shows there what the job's copy in another cluster says, Muster's advice included.
    told = crowded()
    told.settle()
    assert told.settle(runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"})[1] == [
        "Advice",
        "Created",
    ]
    ended = crowded()
    ended.job.raw["status"] = {"conditions": [{"type": "Succeeded", "status": "True"}]}
    assert ended.settle() == ([], ["Succeeded"])
