"""tests/cases/jobs_*.yaml: what one pass asks for, where passes settle, what replicas are told."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from extender.core.framework import Replica
from tests.jobs.builders import KINDS, NOW, merged, of_kind, pod, state, written

FOLDER = Path(__file__).parent.parent / "cases"
CASES = [
    pytest.param(name, case, id=f"{name}: {case['name']}")
    for name in KINDS
    for case in yaml.safe_load((FOLDER / f"jobs_{name}.yaml").read_text())
]


def seen(step, key):
    if key == "wanted":
        return [replica.pod_name for replica in step.wanted]
    if key == "services":
        return [replica.pod_name for replica in step.services + step.spare_services]
    if key == "delete_pods":
        return [name for name, _ in step.delete_pods]
    if key == "delete_services":
        return list(step.delete_services)
    if key == "notices":
        return [reason for _, reason, _ in step.notices]
    if key == "reason":
        return step.status["conditions"][-1]["reason"]
    if key == "min_member":
        return step.group and step.group["spec"]["minMember"]
    if key == "autoscaler":
        return step.autoscaler and step.autoscaler["spec"]
    if key == "later":
        return sorted(step.later)
    if key == "children":
        return [f"{child.resource.kind} {child.name}" for child in step.children]
    if key == "data":
        (config,) = (c for c in step.children if c.resource.kind == "ConfigMap")
        return config.body["data"]
    return shown(step) if key == "shown" else {"group_spec": step.group["spec"]}[key]


def shown(step):
    """Status of a launcher's Job, its conditions by type, and by reason where they do not hold."""
    (face,) = (c for c in step.children if c.shows)
    status = face.body["status"]
    words = [
        c["type"] if c["status"] == "True" else f"{c['type']}={c['status']} ({c['reason']})"
        for c in status["conditions"]
    ]
    return {**status, "conditions": words}


def replica_of(name):
    _, role, *index = name.split("-")
    return Replica(role, int(index[0]) if index else 0, name)


def added(kind, manifest, name):
    """Variables that a replica's main container has beside its template's."""
    made = kind.pod(manifest, replica_of(name))
    (main,) = made["spec"]["containers"]
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in main["env"]}


def part_of(value, wanted):
    """Of a JSON value what ``wanted`` speaks of; lists whole."""
    if not isinstance(wanted, dict) or not isinstance(value, dict):
        return value
    return {key: part_of(value.get(key), inner) for key, inner in wanted.items()}


@pytest.mark.parametrize(("name", "case"), CASES)
def test_case(name, case):
    kind, roles = KINDS[name]
    manifest = merged(of_kind(kind, case.get("roles", roles)), case.get("job", {}))
    pods = []
    for pod_name, value in case.get("pods", {}).items():
        phase, *options = value
        look = options[0] if options else {}
        facts = kind.facts
        pods.append(
            pod(pod_name, phase, owner_kind=facts.kind, container=facts.container or "main", **look)
        )
    services = frozenset(case.get("services", ()))
    steps = []
    for _ in range(6):
        steps.append(kind.reconcile(manifest, pods, services, NOW))
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
    if "says" in case:
        ((_, _, message),) = steps[0].notices
        assert case["says"] in message
    for replica, env in case.get("env", {}).items():
        assert added(kind, manifest, replica) == env
    for replica, wanted in case.get("made", {}).items():
        made = kind.pod(manifest, replica_of(replica))
        assert part_of(made, wanted) == wanted
    for replica, leads in case.get("leads", {}).items():
        labels = kind.pod(manifest, replica_of(replica))["metadata"]["labels"]
        assert labels.get("training.kubeflow.org/job-role") == ("master" if leads else None)
