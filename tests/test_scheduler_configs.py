"""The KubeSchedulerConfiguration samples: what kube-scheduler would refuse, and what Muster relies on.

Source of the first: validateExtenders in k8s.io/kubernetes pkg/scheduler/apis/config/validation.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
import yaml

CONFIG = Path(__file__).resolve().parent.parent / "config"
SAMPLES = sorted(CONFIG.glob("scheduler-*.yaml"))
VERBS = {
    "filterVerb": "filter",
    "prioritizeVerb": "prioritize",
    "preemptVerb": "preempt",
    "bindVerb": "bind",
}
EXTENDER_FIELDS = {
    *VERBS, "urlPrefix", "weight", "httpTimeout", "nodeCacheCapable", "ignorable",
    "managedResources", "enableHTTPS", "tlsConfig",
}  # fmt: skip
FIELDS = {
    "apiVersion", "kind", "clientConnection", "leaderElection", "percentageOfNodesToScore",
    "podInitialBackoffSeconds", "podMaxBackoffSeconds", "profiles", "extenders",
}  # fmt: skip


def as_given(path: Path) -> dict:
    return yaml.safe_load(path.read_text())


def commented_tls(path: Path) -> dict:
    lines = path.read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("    # urlPrefix: https:"))
    block = itertools.takewhile(lambda line: line.startswith("    # "), lines[start:])
    return yaml.safe_load("\n".join(line.removeprefix("    # ") for line in block))


def seconds(duration: str) -> float:
    match = re.fullmatch(r"(\d+)(ms|s|m)", duration)
    assert match, duration
    return int(match[1]) * {"ms": 0.001, "s": 1, "m": 60}[match[2]]


@pytest.fixture(params=SAMPLES, ids=lambda path: path.stem)
def sample(request) -> dict:
    return as_given(request.param)


def test_there_are_three():
    assert [path.name for path in SAMPLES] == [
        "scheduler-default.yaml", "scheduler-managed.yaml", "scheduler-own.yaml"
    ]  # fmt: skip


def test_kube_scheduler_would_accept_it(sample):
    assert (sample["apiVersion"], sample["kind"]) == (
        "kubescheduler.config.k8s.io/v1",
        "KubeSchedulerConfiguration",
    )
    assert set(sample) <= FIELDS
    assert 0 < sample["podInitialBackoffSeconds"] <= sample["podMaxBackoffSeconds"]
    extenders = sample["extenders"]
    for extender in extenders:
        assert set(extender) <= EXTENDER_FIELDS
        assert "prioritizeVerb" not in extender or extender["weight"] > 0
        seconds(extender["httpTimeout"])
    assert sum("bindVerb" in extender for extender in extenders) == 1
    managed = [
        one["name"] for extender in extenders for one in extender.get("managedResources", [])
    ]
    assert len(managed) == len(set(managed)), "duplicate extender managed resource name"
    for name in managed:
        assert "/" in name
        assert "kubernetes.io/" not in name


def test_every_verb_goes_to_muster_once(sample):
    asked = {}
    for extender in sample["extenders"]:
        for field in VERBS.keys() & extender.keys():
            assert field not in asked
            asked[field] = extender[field]
    assert asked == VERBS
    assert len({extender["urlPrefix"] for extender in sample["extenders"]}) == 1


def test_a_gang_is_never_scheduled_behind_muster(sample):
    for extender in sample["extenders"]:
        assert extender["ignorable"] is False
        assert extender["nodeCacheCapable"] is True
    assert sample["percentageOfNodesToScore"] == 100


def test_all_verbs_see_the_same_pods(sample):
    # A bind entry that manages less, or more, than the filter entry would bind what was never planned.
    managed = [
        sorted(one["name"] for one in extender.get("managedResources", []))
        for extender in sample["extenders"]
    ]
    assert all(names == managed[0] for names in managed)


def test_filter_does_not_stop_the_loop_for_long_and_bind_can_wait(sample):
    by_verb = {
        verb: seconds(extender["httpTimeout"])
        for extender in sample["extenders"]
        for verb in VERBS.keys() & extender.keys()
    }
    if len(sample["extenders"]) == 2:
        assert by_verb["filterVerb"] == 2
    assert by_verb["bindVerb"] > 5 * sample["podMaxBackoffSeconds"]


def test_schedulers_do_not_share_a_lease_with_another_one():
    own = as_given(CONFIG / "scheduler-own.yaml")
    assert own["profiles"] == [{"schedulerName": "muster"}]
    assert own["leaderElection"]["resourceName"] != "kube-scheduler"
    for name in ("scheduler-default.yaml", "scheduler-managed.yaml"):
        other = as_given(CONFIG / name)
        assert other["profiles"] == [{"schedulerName": "default-scheduler"}]
        assert other["leaderElection"]["resourceName"] == "kube-scheduler"


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_the_commented_tls_lines_verify_both_sides(path):
    tls = commented_tls(path)
    assert tls.keys() == {"urlPrefix", "enableHTTPS", "tlsConfig"}
    # enableHTTPS does not change the scheme, and without a CA it verifies nothing.
    assert tls["urlPrefix"].startswith("https://")
    assert tls["enableHTTPS"] is True
    assert tls["tlsConfig"].keys() == {"caFile", "certFile", "keyFile", "serverName"}
