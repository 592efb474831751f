"""manifests/examples: each forms the gang that its comment promises."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import yaml

from extender.core import api
from extender.core.identity import Membership, membership
from extender.core.objects import Pod
from extender.jobs import KINDS

EXAMPLES = Path(__file__).resolve().parents[2] / "manifests/examples"

#: File to (kind of record, members, how many are needed at once).
GANGS = {
    "pods-volcano.yaml": (api.VOLCANO_GROUPS, 4),
    "pods-coscheduling.yaml": (api.SIGS_GROUPS, 3),
    "pods-ack.yaml": (api.VOLCANO_GROUPS, 2),
    "pods-koordinator.yaml": (api.VOLCANO_GROUPS, 2),
    "pods-native.yaml": (api.NATIVE_GROUPS, 2),
}
#: File to (kind of job, replicas).
JOBS = {
    "pytorchjob.yaml": (api.PYTORCH_JOBS, 4),
    "pytorchjob-elastic.yaml": (api.PYTORCH_JOBS, 4),
    "tfjob.yaml": (api.TF_JOBS, 4),
    "xgboostjob.yaml": (api.XGBOOST_JOBS, 3),
    "jaxjob.yaml": (api.JAX_JOBS, 4),
    "paddlejob.yaml": (api.PADDLE_JOBS, 2),
    "mpijob.yaml": (api.MPI_JOBS, 3),
    "mpijob-v1.yaml": (api.OLD_MPI_JOBS, 3),
}


def load(name: str) -> list[dict]:
    return list(yaml.safe_load_all((EXAMPLES / name).read_text()))


def test_each_example_is_tested():
    assert {path.name for path in EXAMPLES.glob("*.yaml")} == {*GANGS, *JOBS}
    assert {resource for resource, _ in JOBS.values()} == set(api.JOBS)


@pytest.mark.parametrize("name", GANGS)
def test_pods_name_one_group_that_needs_them_all(name):
    resource, size = GANGS[name]
    pods = [msgspec.convert(d, Pod) for d in load(name) if d["kind"] == "Pod"]
    groups = [d for d in load(name) if d["kind"] != "Pod"]
    found = [membership(pod) for pod in pods]
    members = [m for m in found if isinstance(m, Membership)]
    assert len(members) == len(pods) == size
    assert len({m.key for m in members}) == 1
    assert members[0].key.resource == resource
    if groups:
        (group,) = groups
        assert group["apiVersion"] == resource.api_version
        assert group["metadata"]["name"] == members[0].key.name
        policy = group["spec"].get("schedulingPolicy", {}).get("gang", {})
        assert (policy.get("minCount") or group["spec"]["minMember"]) == size
    else:
        assert {m.min_available for m in members} == {str(size)}


@pytest.mark.parametrize("name", JOBS)
def test_all_replicas_of_a_job_are_wanted_at_once(name):
    resource, size = JOBS[name]
    (job,) = load(name)
    assert (job["apiVersion"], job["kind"]) == (resource.api_version, resource.kind)
    (kind,) = (kind for kind in KINDS if kind.resource == resource)
    step = kind.reconcile(job, [], frozenset(), 0.0)
    assert len(step.wanted) == size
    assert step.notices == ()
    assert step.group is not None
    assert step.group["spec"]["minMember"] == size
