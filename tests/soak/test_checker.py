"""The checker can fail: doctored histories, each with what must be said of it; and it is its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.soak.checker import Checker

ROOT = Path(__file__).parents[2]
CASES = yaml.safe_load((ROOT / "tests/cases/soak_histories.yaml").read_text())


class Doctor:
    """Entries as the API server would send them, of the short steps of a case."""

    def __init__(self) -> None:
        self._pods: dict[str, dict[str, Any]] = {}
        self._lives = 0

    def entry(self, step: dict[str, Any]) -> dict[str, Any]:
        """The entry of one step."""
        at = {"at": 1000.0 + step["at"]}
        for mark in ("down", "up", "quiet"):
            if mark in step:
                return {**at, "mark": mark.upper(), "what": str(step[mark])}
        change, kind, obj = self._object(step)
        return {**at, "type": change, "kind": kind, "object": obj}

    def _object(self, step: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
        if "node" in step:
            status = {"allocatable": {"nvidia.com/gpu": str(step["gpus"])}}
            return "ADDED", "Node", {"metadata": {"name": step["node"]}, "status": status}
        if "group" in step and "min" in step:
            meta = _meta(step["group"], f"group-{step['group']}", step.get("owner"))
            return "ADDED", "VolcanoGroup", {"metadata": meta, "spec": {"minMember": step["min"]}}
        for word in ("job", "verdict"):
            if word in step:
                return "MODIFIED", "PyTorchJob", _job(step[word], step)
        return self._pod(step)

    def _pod(self, step: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
        if "pod" in step:
            self._lives += 1
            meta = _meta(step["pod"], f"pod-{self._lives}", step.get("owner"))
            if "group" in step:
                meta["annotations"] = {"scheduling.k8s.io/group-name": step["group"]}
            limits = {"nvidia.com/gpu": str(step.get("gpus", 1))}
            spec = {"containers": [{"resources": {"limits": limits}}]}
            self._pods[step["pod"]] = {"metadata": meta, "spec": spec, "status": {}}
            return "ADDED", "Pod", self._pods[step["pod"]]
        word = next(word for word in ("bind", "phase", "gone") if word in step)
        pod = self._pods[step[word]]
        if word == "bind":
            pod = {**pod, "spec": {**pod["spec"], "nodeName": step["to"]}}
        elif word == "phase":
            pod = {**pod, "status": {"phase": step["is"], "reason": step.get("reason", "")}}
        self._pods[step[word]] = pod
        return "DELETED" if word == "gone" else "MODIFIED", "Pod", pod


def _meta(name: str, uid: str, owner: str | None) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": name, "namespace": "soak", "uid": uid}
    if owner:
        meta["ownerReferences"] = [{"controller": True, "uid": f"job-{owner}"}]
    return meta


def _job(name: str, step: dict[str, Any]) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": 1}
    template = {"spec": {"containers": [{"resources": {"limits": limits}}]}}
    roles = {"Worker": {"replicas": step.get("replicas", 1), "template": template}}
    conditions = [{"type": step["is"], "status": "True"}] if "is" in step else []
    return {
        "metadata": _meta(name, f"job-{name}", None),
        "spec": {"pytorchReplicaSpecs": roles},
        "status": {"conditions": conditions},
    }


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in CASES])
def test_a_history_is_judged(case: dict[str, Any]) -> None:
    checker, doctor = Checker(), Doctor()
    for step in case["history"]:
        checker.feed(doctor.entry(step))
    said = [(each["invariant"], each["message"]) for each in checker.violations]
    assert len(said) == len(case["expect"]), said
    for (invariant, message), (expected, words) in zip(said, case["expect"], strict=True):
        assert invariant == expected
        assert words in message


def test_each_invariant_has_a_history_that_breaks_it() -> None:
    broken = {invariant for case in CASES for invariant, _ in case["expect"]}
    assert broken == {"I1", "I2", "I3", "I4", "I6"}


def test_the_checker_and_its_recorder_share_no_code_with_muster() -> None:
    code = (
        "import sys, tests.soak.checker, tests.soak.history\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('extender', 'plugins')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.stdout, done.stderr) == ("[]\n", "")
