"""Parts of GPUs by the conventions of others, and what replicas are in GPUs."""

from __future__ import annotations

import pytest

from extender.core.errors import InvalidObject
from extender.core.topology.kubelet_shares import ALIBABA, VOLCANO, Share, gpus_of, shares
from tests.builders import GPU, pod


def asked(**more) -> list[Share | None]:
    found = pod("p", **more)
    return shares(found.spec.containers, found.metadata.annotations)


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ({GPU: 2}, [None]),
        ({"cpu": 1}, [None]),
        ({GPU: 0, "nvidia.com/gpumem": 3000}, [None]),
        ({GPU: 2, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}, [Share(2, 300, 3000)]),
        ({GPU: 1, "nvidia.com/gpumem-percentage": 50}, [Share(1, 0, 0, 50)]),
        ({GPU: 1, "nvidia.com/gpucores": 100}, [Share(1, 1000)]),
        (
            {
                "volcano.sh/vgpu-number": 2,
                "volcano.sh/vgpu-memory": "8k",
                "volcano.sh/vgpu-cores": 50,
            },
            [Share(2, 500, 8000, convention=VOLCANO)],
        ),
        ({"volcano.sh/vgpu-number": 1}, [None]),
        # Volcano takes memory alone for one device.
        ({"volcano.sh/vgpu-memory": 8000}, [Share(1, 0, 8000, convention=VOLCANO)]),
        ({"nvidia.com/gpumem": 8000}, [None]),
    ],
)
def test_shares_by_resource(requests, expected) -> None:
    assert asked(requests=requests) == expected


def test_shares_by_annotation() -> None:
    marks = {"alibabacloud.com/gpu-milli": "460", "alibabacloud.com/gpu-count": "2"}
    assert asked(annotations=marks) == [Share(2, 460, convention=ALIBABA)]
    assert asked(annotations=marks | {"alibabacloud.com/gpu-count": "0"}) == [None]


@pytest.mark.parametrize(
    ("requests", "marks", "words"),
    [
        (
            {},
            {"alibabacloud.com/gpu-milli": "0"},
            "metadata.annotations[alibabacloud.com/gpu-milli]",
        ),
        ({}, {"alibabacloud.com/gpu-milli": "half"}, "alibabacloud.com/gpu-milli]: 'half'"),
        (
            {},
            {"alibabacloud.com/gpu-milli": "5", "alibabacloud.com/gpu-count": "1001"},
            "metadata.annotations[alibabacloud.com/gpu-count]: 1001 is not allowed: 0 to 1000",
        ),
        (
            {GPU: 1, "nvidia.com/gpumem": "-1"},
            {},
            "spec.containers[0].resources[nvidia.com/gpumem]: '-1' is not allowed: a value of at least 0",
        ),
        (
            {GPU: 1, "nvidia.com/gpucores": 120},
            {},
            "spec.containers[0].resources[nvidia.com/gpucores]: 120 is not allowed: 0 to 100 percent",
        ),
    ],
)
def test_shares_that_cannot_be(requests, marks, words) -> None:
    with pytest.raises(InvalidObject) as told:
        asked(requests=requests, annotations=marks)
    assert words in str(told.value)


@pytest.mark.parametrize(
    ("resource", "count", "labels", "expected"),
    [
        (GPU, 4, {}, (4, 4)),
        (GPU, 4, {"nvidia.com/gpu.replicas": "1"}, (4, 4)),
        (GPU, 2, {"nvidia.com/gpu.replicas": "4"}, (1, 2)),
        (GPU, 5, {"nvidia.com/gpu.replicas": "4"}, (2, 5)),
        (GPU, 2, {"nvidia.com/gpu.replicas": "0"}, (2, 2)),
        (GPU, 2, {"nvidia.com/gpu.replicas": "many"}, (2, 2)),
        (f"{GPU}.shared", 3, {}, (1, 3)),
        ("nvidia.com/mig-1g.5gb", 2, {}, None),
        ("nvidia.com/mig-1g.10gb.me", 2, {}, None),
        (GPU, 2, {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"}, None),
    ],
)
def test_replicas_and_slices_are_no_gpus(resource, count, labels, expected) -> None:
    assert gpus_of(resource, count, labels) == expected
