"""A KubeSchedulerConfiguration made usable on loopback: text and mapping give the same."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from extender.sim.schedulerconfig import complete

SAMPLES = Path(__file__).resolve().parents[2] / "config"
HEAD = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
}
HERE = Path("scheduler.kubeconfig")
DEFAULTS: dict[str, dict[str, object]] = {
    "clientConnection": {"qps": 5000, "burst": 10000, "kubeconfig": str(HERE)},
    "leaderElection": {"leaderElect": False},
}


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        ({}, {}),
        (
            {"clientConnection": {"kubeconfig": "elsewhere", "qps": 7}},
            {"clientConnection": {"qps": 7, "burst": 10000, "kubeconfig": str(HERE)}},
        ),
        (
            {"leaderElection": {"leaderElect": True, "resourceName": "other"}},
            {"leaderElection": {"leaderElect": True, "resourceName": "other"}},
        ),
        (
            {"leaderElection": {"leaseDuration": "1s"}},
            {"leaderElection": {"leaderElect": False, "leaseDuration": "1s"}},
        ),
    ],
)
def test_what_is_given_stays_and_what_is_missing_is_added(given, changed):
    config = {**HEAD, "profiles": [{"schedulerName": "a"}], **given}
    expected = {**config, **DEFAULTS, **changed}
    assert yaml.safe_load(complete(config, HERE)) == expected
    assert yaml.safe_load(complete(yaml.safe_dump(config), HERE)) == expected
    assert yaml.safe_load(complete(yaml.safe_dump(config, indent=6), HERE)) == expected


@pytest.mark.parametrize(
    "sample", sorted(SAMPLES.glob("scheduler-*.yaml")), ids=lambda path: path.stem
)
def test_the_samples_keep_what_they_say(sample):
    config = yaml.safe_load(sample.read_text())
    expected = dict(config)
    for section, defaults in DEFAULTS.items():
        expected[section] = {**defaults, **config.get(section, {})}
    expected["clientConnection"]["kubeconfig"] = str(HERE)
    assert yaml.safe_load(complete(sample.read_text(), HERE)) == expected


def test_comments_and_a_commented_heading_are_kept():
    text = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: # where the API server is
  # in a cluster
  kubeconfig: /etc/kubernetes/scheduler.conf  # of kubeadm

  burst: 3
profiles:
- schedulerName: a
"""
    result = complete(text, HERE)
    assert "# in a cluster" in result
    assert yaml.safe_load(result)["clientConnection"] == {
        "qps": 5000,
        "burst": 3,
        "kubeconfig": str(HERE),
    }
    assert yaml.safe_load(result)["profiles"] == [{"schedulerName": "a"}]


def test_flow_style_is_refused_with_the_way_out():
    with pytest.raises(ValueError, match="block style"):
        complete("leaderElection: {leaderElect: true}\n", HERE)


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("config/muster.yaml", "has no kind, not a KubeSchedulerConfiguration"),
        ("manifests/examples/pytorchjob.yaml", "is a PyTorchJob, not a KubeSchedulerConfiguration"),
        ("nowhere.yaml", "nowhere.yaml: No such file or directory"),
    ],
)
def test_a_file_that_kube_scheduler_could_not_use_is_refused_before_anything_starts(
    file: str, words: str, tmp_path: Path
) -> None:
    root = SAMPLES.parent
    done = subprocess.run(
        [
            root / "scripts/controlplane",
            "start",
            "--dir",
            tmp_path / "run",
            "--scheduler-config",
            file,
        ],
        capture_output=True,
        text=True,
        cwd=root,
    )
    assert done.returncode == 2
    assert words in done.stderr
    assert not (tmp_path / "run").exists()
