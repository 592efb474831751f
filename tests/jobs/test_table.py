"""tests/cases/jobs_pytorch.yaml: what one pass asks for, and where passes settle."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.jobs.builders import KIND, NOW, job, merged, pod, state, written

CASES = yaml.safe_load((Path(__file__).parent.parent / "cases/jobs_pytorch.yaml").read_text())


def seen(step, key):
    if key == "wanted":
        return [replica.pod_name for replica in step.wanted]
    if key == "services":
        return [replica.pod_name for replica in step.services]
    if key == "delete_pods":
        return [name for name, _ in step.delete_pods]
    if key == "delete_services":
        return list(step.delete_services)
    if key == "notices":
        return [reason for _, reason, _ in step.notices]
    if key == "min_member":
        return step.group and step.group["spec"]["minMember"]
    assert key == "group_spec"
    return step.group["spec"]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_case(case):
    manifest = merged(job(), case.get("job", {}))
    pods = []
    for name, value in case["pods"].items():
        phase, *options = value
        pods.append(pod(name, phase, **(options[0] if options else {})))
    services = frozenset(case.get("services", ()))
    steps = []
    for _ in range(6):
        steps.append(KIND.reconcile(manifest, pods, services, NOW))
        after = written(manifest, steps[-1])
        if after == manifest:
            break
        manifest = after
    else:
        pytest.fail("never stops writing")
    first, last = case.get("first", {}), case.get("last", {})
    assert {key: seen(steps[0], key) for key in first} == first
    assert {key: seen(steps[-1], key) for key in last} == last
    if "state" in case:
        assert state(manifest) == case["state"]
    if "replicas" in case:
        counts = {
            role: [status["active"], status["succeeded"], status["failed"]]
            for role, status in manifest["status"]["replicaStatuses"].items()
        }
        assert counts == case["replicas"]
