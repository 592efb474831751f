"""What the agent reads of the kubelet's own configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from extender.agent import kubelet
from extender.agent.lacks import Lacks
from extender.obs.metrics import Metrics

KIND = "kind: KubeletConfiguration\n"


@pytest.mark.parametrize(
    ("text", "expected", "lacking"),
    [
        (KIND, ("none", "container"), None),
        (
            KIND + "topologyManagerPolicy: single-numa-node\ntopologyManagerScope: pod\n",
            ("single-numa-node", "pod"),
            None,
        ),
        ('{"kind": "KubeletConfiguration", "topologyManagerPolicy": "restricted"}',
         ("restricted", "container"), None),
        (KIND + "topologyManagerPolicy: strict\n", ("", ""),
         "'strict' is not allowed: none best-effort restricted single-numa-node"),
        (KIND + "topologyManagerScope: [pod]\n", ("", ""), "['pod'] is not allowed: container pod"),
        ("kind: Pod\n", ("", ""), "is no KubeletConfiguration"),
        ("{", ("", ""), "expected the node content"),
        (None, ("", ""), "No such file or directory"),
    ],
    ids=["defaults", "both", "json", "policy", "scope", "kind", "yaml", "missing"],
)  # fmt: skip
def test_alignment(text, expected, lacking, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    if text is not None:
        path.write_text(text)
    lacks = Lacks(Metrics())
    assert kubelet.alignment(str(path), lacks) == expected
    said = [each["why"] for each in lacks.listed() if each["source"] == "kubelet"]
    assert len(said) == (lacking is not None)
    assert lacking is None or lacking in said[0]
