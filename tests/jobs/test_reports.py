"""tests/cases/job_reports.yaml: what users of other controllers report does not happen here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.core.times import rfc3339
from tests.jobs.builders import KINDS, NOW, merged, of_kind, pod, state, written

ROOT = Path(__file__).parents[2]
CASES = yaml.safe_load((ROOT / "tests/cases/job_reports.yaml").read_text())
PLAYED = [case for case in CASES if "steps" in case]


@pytest.mark.parametrize("case", PLAYED, ids=lambda case: case["report"])
def test_a_report(case):
    kind, roles = KINDS[case.get("kind", "pytorch")]
    manifest = merged(of_kind(kind, case.get("roles", roles)), case.get("job", {}))
    for step in case["steps"]:
        now = NOW + step["at"]
        manifest = merged(manifest, step.get("edit", {}))
        facts: dict[str, Any] = {
            "owner_kind": kind.facts.kind,
            "container": kind.facts.container or "pytorch",
        }
        pods = [
            pod(name, phase, **facts, **(options[0] if options else {}))
            for name, (phase, *options) in step["pods"].items()
        ]
        for _ in range(6):
            done = kind.reconcile(manifest, pods, frozenset(), now)
            after = written(manifest, done)
            if after == manifest:
                break
            manifest = after
        else:
            pytest.fail("never stops writing")
        seen = {
            "state": state(manifest),
            "wanted": [replica.pod_name for replica in done.wanted],
            "deletes": sorted(name for name, _ in done.delete_pods),
            "wake": None if done.wake_at is None else done.wake_at - now,
            "gone": done.delete_job,
            "completed": manifest["status"].get("completionTime"),
        }
        expected = {key: value for key, value in step.items() if key in seen}
        assert expected, "a step that expects nothing"
        if "completed" in expected:
            expected["completed"] = rfc3339(NOW + expected["completed"])
        assert {key: seen[key] for key in expected} == expected, f"at {step['at']}"


@pytest.mark.parametrize(
    "case", [each for each in CASES if each not in PLAYED], ids=lambda case: case["report"]
)
def test_a_report_has_its_test_elsewhere(case):
    file, _, name = case["told_by"].partition("::")
    assert name
    assert name in (ROOT / file).read_text()
