"""What a tenant writes gains it nothing: forged marks of Muster's own, and other namespaces' groups."""

from __future__ import annotations

import pytest

from extender.core.api import PODS, PYTORCH_JOBS, VOLCANO_GROUPS
from extender.core.ingest import PLAN_ANNOTATION
from tests.core import machine_stories as do
from tests.core.machine import Machine


def test_marks_that_muster_writes_let_nobody_through() -> None:
    m = Machine()
    do.nodes(m, 2)
    do.group(m, "train", 2)
    do.pod(m, "train-0", "train", annotations={PLAN_ANNOTATION: "1"})
    m.api.change((PODS, "default", "train-0"), status={"nominatedNodeName": "n0"})
    done = {"phase": "Running", "running": 2, "conditions": []}
    m.api.change((VOLCANO_GROUPS, "default", "train"), status=done)
    m.rest(60)
    assert m.bound("train") == {}
    assert do.reason(m, "train") == "NotEnoughPods"
    do.pod(m, "train-1", "train")
    m.rest(60)
    assert len(m.bound("train")) == 2
    m.finish()


@pytest.mark.parametrize("name", ["train", "default/train"])
def test_a_pod_of_another_namespace_is_no_member(name: str) -> None:
    m = Machine()
    do.nodes(m, 2)
    do.group(m, "train", 2)
    do.pod(m, "train-0", "train")
    mine = m.api.get(PODS, "train-0")
    assert mine is not None
    marks = dict.fromkeys(mine["metadata"]["annotations"], name)
    meta = {"name": "train-1", "namespace": "other", "annotations": marks}
    m.api.put(PODS, {"metadata": meta, "spec": mine["spec"]})
    m.rest(60)
    assert m.bound("train") == {}
    assert list(do.of(m, "train").members) == ["train-0"]
    m.finish()


@pytest.mark.parametrize("owner", ["ghost", "train", "other"])
def test_a_group_that_says_it_is_another_job_s_is_its_own_job_s(owner: str) -> None:
    """Its places were held for ever, for pods that nobody made (I3), and each step asked for the next."""
    m = Machine()
    do.nodes(m, 2)
    do.job(m, "other", 9)
    do.job(m, "train", 3)
    m.rest(5)
    other = m.api.get(PYTORCH_JOBS, "other")
    assert other is not None
    uid = other["metadata"]["uid"] if owner == "other" else "nobody"
    kind = "JAXJob" if owner == "train" else "PyTorchJob"
    whose = {"apiVersion": "kubeflow.org/v1", "kind": kind, "name": owner, "uid": uid}
    m.api.change((VOLCANO_GROUPS, "default", "train"), metadata={"ownerReferences": [whose]})
    m.rest(1)
    do.node(m, "n2", 1)
    m.rest(60)
    assert len(m.bound("train")) == 3
    m.finish()
