"""tests/cases/jobs_times.yaml: deadlines, time to live and their pauses, of every kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.jobs.builders import KINDS, NOW, merged, of_kind, pod, state, written

CASES = yaml.safe_load((Path(__file__).parent.parent / "cases/jobs_times.yaml").read_text())


def policy_of(name, case):
    """Of all replicas in the case's failures; None: the kind's own."""
    said = {moment["restart"] for moment in case["story"] if "restart" in moment}
    if not said:
        return None
    (policy,) = said
    # An MPIJob's launcher is its Job's to make again, six times unless it says otherwise.
    return policy if name != "mpi" or policy == "OnFailure" else None


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
@pytest.mark.parametrize("name", KINDS)
def test_story(name, case):
    kind, roles = KINDS[name]
    facts = kind.facts
    manifest = of_kind(kind, roles, policy_of(name, case))
    policy = dict(case.get("policy", {}))
    if name == "mpi" and any(moment.get("restart") == "Never" for moment in case["story"]):
        policy["backoffLimit"] = 0
    names = [replica.pod_name for replica in kind.replicas(manifest)]
    for moment in case["story"]:
        now = NOW + float(moment["at"])
        policy |= moment.get("edit", {})
        manifest = merged(manifest, {"spec": {"runPolicy": policy}})
        pods = []
        if phase := moment.get("pods"):
            look: dict[str, Any] = {
                "owner_kind": facts.kind,
                "container": facts.container or "main",
            }
            if phase in ("Succeeded", "Failed"):
                look["exit_code"] = int(phase == "Failed")
            pods = [pod(each, phase, **look) for each in names]
        for _ in range(6):
            step = kind.reconcile(manifest, pods, frozenset(), now)
            after = written(manifest, step)
            if after == manifest:
                break
            manifest = after
        else:
            pytest.fail("never stops writing")
        told = {kind: status for kind, status in state(manifest).items() if kind != "Created"}
        assert told == moment["state"], moment
        deletes = moment.get("deletes", False)
        assert step.delete_job == deletes, moment
        if deletes:
            continue
        wakes = moment.get("wakes")
        assert step.wake_at == (None if wakes is None else NOW + wakes), moment
        if pods:
            assert (step.delete_pods == ()) == moment["keeps"], moment
