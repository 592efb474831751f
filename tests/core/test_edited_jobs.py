"""A job whose template is edited while it waits is placed as it is now; one of another scheduler is not placed."""

from __future__ import annotations

from typing import Any

from extender.core.api import PODS, PYTORCH_JOBS
from tests.builders import GPU
from tests.core import machine_stories as do
from tests.core.machine import Machine

PLACE = (PYTORCH_JOBS, "default", "j")


def edit(m: Machine, gpus: int, **spec: Any) -> None:
    """The job's two replicas ask for so many GPUs from now on."""
    box = {"name": "pytorch", "image": "train", "resources": {"requests": {GPU: str(gpus)}}}
    role = {"replicas": 1, "template": {"spec": {"containers": [box], **spec}}}
    m.api.change(PLACE, spec={"pytorchReplicaSpecs": {"Master": role, "Worker": role}})


# All of it before its pods are made to be seen (RULES.visible_after), which are never changed.


def test_one_that_asks_for_less_than_before_lands() -> None:
    m = Machine()
    do.nodes(m, 2, gpus=4)
    do.job(m, "j", 2, gpus=8)
    m.rest(3)
    assert do.reason(m, "j") == "NeverFits"
    edit(m, 4)
    m.rest(3)
    assert m.bound() == {"j-master-0": "n0", "j-worker-0": "n1"}
    m.finish()


def test_one_that_asks_for_more_than_before_says_so() -> None:
    m = Machine()
    do.nodes(m, 1, gpus=4)
    do.job(m, "j", 2, gpus=4)
    m.rest(3)
    edit(m, 5)
    m.rest(3)
    assert m.leader is not None
    told = m.leader.view.gang("default", "j")
    assert told is not None
    assert "5 asked" in told["message"]
    assert m.bound() == {}
    m.finish()


def test_one_that_the_api_server_refused_is_asked_about_again() -> None:
    m = Machine()
    do.nodes(m, 1, gpus=2)
    m.api.admission = lambda raw: "no" if "hostNetwork" in raw["spec"] else ""
    do.job(m, "j", 2)
    edit(m, 1, hostNetwork=True)
    m.rest(5)
    assert do.reason(m, "j") == "AdmissionRefused"
    edit(m, 1, hostNetwork=None)
    m.rest(1)
    assert len(m.bound()) == 2
    m.finish()


def test_pods_that_another_scheduler_would_bind_are_not_made() -> None:
    m = Machine()
    do.nodes(m, 1, gpus=2)
    do.job(m, "j", 2)
    edit(m, 1, schedulerName="other")
    m.rest(60)
    assert do.reason(m, "j") == "MemberOfAnotherScheduler"
    assert [each for each in m.api.objects if each[0] == PODS] == []
    assert m.leader is not None
    assert ("j", "Unschedulable") in {(n.name, n.reason) for n in m.leader.notices}
    kinds = [each["type"] for each in m.api.objects[PLACE]["status"]["conditions"]]
    assert "Created" in kinds
    edit(m, 1, schedulerName=None)
    m.rest(10)
    assert len(m.bound()) == 2
    m.finish()
