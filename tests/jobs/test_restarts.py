"""tests/cases/jobs_restarts.yaml: gangs that are started again as a whole, scene by scene."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from extender.core.framework import NodeNews
from extender.jobs.restarts import RECORD, Restarts
from tests.jobs.builders import KINDS, NOW, merged, of_kind, pod, state, written

CASES = yaml.safe_load((Path(__file__).parent.parent / "cases/jobs_restarts.yaml").read_text())


def news(since=(), **given):
    """``since``: seconds after NOW, by node."""
    return NodeNews(since={node: NOW + at for node, at in dict(since).items()}, **given)


def pods_of(kind, scene):
    facts = kind.facts
    return [
        pod(name, phase, owner_kind=facts.kind, container=facts.container, **dict(*options))
        for name, (phase, *options) in scene["pods"].items()
    ]


def settle(kind, manifest, pods, now, nodes):
    """Passes until nothing is written any more; their steps, and the job then."""
    steps = []
    for _ in range(6):
        steps.append(kind.reconcile(manifest, pods, frozenset(), now, (), nodes))
        after = written(manifest, steps[-1])
        if after == manifest:
            return steps, manifest
        manifest = after
    return pytest.fail("never stops writing")


def said(step, key, now):
    if key == "delete":
        return [name for name, _ in step.delete_pods]
    if key == "wanted":
        return [replica.pod_name for replica in step.wanted]
    if key == "wake":
        return None if step.wake_at is None else step.wake_at - NOW
    assert key == "failures"
    return [failure.node for failure in step.failures]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_story(case):
    name = case.get("kind", "pytorch")
    kind, roles = KINDS[name]
    manifest = merged(of_kind(kind, case.get("roles", roles)), case.get("job", {}))
    for scene in case["scenes"]:
        nodes = news(**(case | scene).get("nodes", {}))
        manifest = merged(manifest, scene.get("job", {}))
        now = NOW + scene.get("at", 0)
        steps, manifest = settle(kind, manifest, pods_of(kind, scene), now, nodes)
        if "restart" in scene:
            record = Restarts.read(manifest["metadata"].get("annotations", {}))
            assert [record.number, record.counted] == scene["restart"]
        for key in ("delete", "wanted", "wake", "failures"):
            if key in scene:
                assert said(steps[-1], key, now) == scene[key], key
        for key, value in scene.get("first", {}).items():
            assert said(steps[0], key, now) == value, key
        if "state" in scene:
            assert state(manifest) == scene["state"]
        if "says" in scene:
            messages = [message for step in steps for _, _, message in step.notices]
            assert any(scene["says"] in message for message in messages), messages


def test_what_a_restart_decides_is_written_before_anything_is_stopped():
    kind, roles = KINDS["pytorch"]
    names = ("ddp-master-0", "ddp-worker-0")
    pods = [*map(pod, names), pod("ddp-worker-1", "Failed", exit_code=137)]
    step = kind.reconcile(of_kind(kind, roles), pods, frozenset(), NOW)
    assert step.delete_pods == ()
    assert step.status is None
    assert step.annotations is not None
    assert step.annotations.keys() == {RECORD}


def test_pods_are_made_in_the_restart_that_the_job_tells():
    kind, roles = KINDS["jax"]
    manifest = merged(of_kind(kind, roles), {"metadata": {"annotations": {RECORD: '{"number":2}'}}})
    body = kind.pod(manifest, kind.replicas(manifest)[1])
    assert body["metadata"]["annotations"][RECORD] == "2"
