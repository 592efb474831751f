"""What kube-apiserver refuses of pods. That it does is in tests/sim/behaviour.py, asked of the real one; here:
a valid pod is none of it, and whatever stands in one, the rules answer.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from extender.jobs import podspec
from extender.jobs.wrong import Wrong
from tests.jobs.test_junk import junk, paths, spoilt

#: One that has every field that some rule reads.
POD: dict[str, Any] = {
    "metadata": {"labels": {"a.b/c": "d", "e": ""}, "annotations": {"A.b/c": "x y"}},
    "spec": {
        "hostNetwork": True,
        "nodeSelector": {"zone": "a"},
        "resources": {"limits": {"cpu": 8, "hugepages-2Mi": "4Mi"}},
        "volumes": [{"name": "v", "emptyDir": {}}],
        "tolerations": [
            {"operator": "Exists"},
            {"key": "k", "value": "v", "effect": "NoExecute", "tolerationSeconds": 5},
        ],
        "initContainers": [
            {"name": "i", "image": "i", "restartPolicy": "Always", "startupProbe": {"exec": {}}}
        ],
        "containers": [
            {
                "name": "main",
                "image": "i",
                "ports": [
                    {"name": "p", "containerPort": 1, "hostPort": 1},
                    {"containerPort": 1, "hostPort": 1, "protocol": "UDP", "hostIP": "127.0.0.1"},
                ],
                "env": [
                    {"name": "A", "value": "x"},
                    {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                ],
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                "resources": {
                    "limits": {"nvidia.com/gpu": 2, "hugepages-2Mi": "4Mi", "cpu": "0.5"},
                    "requests": {"nvidia.com/gpu": "2", "cpu": "100m"},
                },
            }
        ],
    },
}
PATHS = sorted(paths(POD), key=repr)


def wrong(pod: Any) -> list[Wrong]:
    meta, spec = (pod.get(key) if isinstance(pod, dict) else pod for key in ("metadata", "spec"))
    return [*podspec.wrong_metadata(meta), *podspec.wrong(spec)]


def test_a_valid_pod_is_not_refused() -> None:
    assert wrong(POD) == []


@given(st.sampled_from(PATHS), junk)
def test_whatever_stands_in_a_pod_the_rules_answer(path: tuple[Any, ...], value: Any) -> None:
    for each in wrong(spoilt(POD, path, value)):
        assert each.field
        assert each.render()
