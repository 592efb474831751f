"""Parts of GPUs, as the conventions of others ask for them, and how many GPUs replicas really are.

What becomes of it is :mod:`.parts`. Sources: HAMi's and volcano-vgpu-device-plugin's configuration
(resourceCountName and the like), kubernetes-scheduler-simulator pkg/utils (gpu-milli),
k8s-device-plugin's documents on time-slicing and MIG.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from extender.core.errors import InvalidObject, QuantityError
from extender.core.objects import Container, Quantity
from extender.core.quantity import whole

#: Thousandths and percent of a whole GPU.
MILLI, PERCENT = 1000, 100
REPLICAS_LABEL = "nvidia.com/gpu.replicas"
MILLI_ANNOTATION = "alibabacloud.com/gpu-milli"
COUNT_ANNOTATION = "alibabacloud.com/gpu-count"
#: The mark of a device of which others have a part: a time-sliced one may be renamed so.
SHARED_SUFFIX = ".shared"
_MIG = re.compile(r"nvidia\.com/mig-[0-9]+g\.[0-9]+gb[\w.+-]*")


#: Conventions.
HAMI, VOLCANO, ALIBABA = "HAMi", "Volcano", "Alibaba"


class _Convention(Struct, frozen=True):
    """The names of resources: how many devices, and of each of them memory and cores."""

    name: str
    count: str
    memory: str
    memory_percent: str
    cores: str


_CONVENTIONS = (
    _Convention(
        VOLCANO,
        "volcano.sh/vgpu-number",
        "volcano.sh/vgpu-memory",
        "volcano.sh/vgpu-memory-percentage",
        "volcano.sh/vgpu-cores",
    ),
    _Convention(
        HAMI,
        "nvidia.com/gpu",
        "nvidia.com/gpumem",
        "nvidia.com/gpumem-percentage",
        "nvidia.com/gpucores",
    ),
)
#: By convention, the resource that is so many devices.
COUNTS = {each.name: each.count for each in _CONVENTIONS} | {ALIBABA: COUNT_ANNOTATION}
#: Of HAMi's nodes no device plugin offers these: its register does.
HAMI_PARTS = (_CONVENTIONS[1].memory, _CONVENTIONS[1].memory_percent, _CONVENTIONS[1].cores)


class Share(Struct, frozen=True):
    """What one container (or, by annotation, a pod) has of each of so many devices."""

    devices: int
    #: Thousandths of the cores of each; 0: no limit is asked for.
    milli: int
    #: MiB of each; 0: not asked for by size.
    memory: int = 0
    #: Percent of the memory of each; 100 where neither is asked for.
    memory_percent: int = 100
    #: Whose nodes give such shares.
    convention: str = HAMI


def shares(containers: Sequence[Container], annotations: Mapping[str, str]) -> list[Share | None]:
    """By container what part of GPUs it asks for; None: none, or whole ones. What a pod's annotation
    asks for is its first container's. Raises InvalidObject naming the field.
    """
    if MILLI_ANNOTATION in annotations:
        return [_annotated(annotations), *[None] * (len(containers) - 1)]
    return [
        _of_container(each, f"spec.containers[{index}].resources")
        for index, each in enumerate(containers)
    ]


def gpus_of(resource: str, count: int, labels: Mapping[str, str]) -> tuple[int, int] | None:
    """The least and the most physical GPUs that ``count`` of a device plugin's devices are.

    Two replicas of a time-sliced GPU may be one GPU or two (k8s-device-plugin#491); MIG devices of
    one GPU have no way to each other, so they are no GPUs that a job could use together: None.
    """
    if _MIG.fullmatch(resource) or "-MIG-" in labels.get("nvidia.com/gpu.product", ""):
        return None
    text = labels.get(REPLICAS_LABEL, "1")
    replicas = int(text) if text.isdecimal() and 0 < len(text) < 7 else 1
    if resource.endswith(SHARED_SUFFIX) and replicas < 2:
        return (min(count, 1), count)
    return -(-count // max(replicas, 1)), count


def _annotated(annotations: Mapping[str, str]) -> Share | None:
    milli = _number(annotations[MILLI_ANNOTATION], f"metadata.annotations[{MILLI_ANNOTATION}]")
    count = _number(
        annotations.get(COUNT_ANNOTATION, "1"), f"metadata.annotations[{COUNT_ANNOTATION}]"
    )
    for key, value, least in ((MILLI_ANNOTATION, milli, 1), (COUNT_ANNOTATION, count, 0)):
        if not least <= value <= MILLI:
            raise InvalidObject(f"metadata.annotations[{key}]", value, f"{least} to {MILLI}")
    return Share(count, milli, convention=ALIBABA) if count else None


def _of_container(container: Container, where: str) -> Share | None:
    asked = {**container.resources.requests, **container.resources.limits}
    for names in _CONVENTIONS:
        parts = (names.memory, names.memory_percent, names.cores)
        # Volcano: memory alone is of one device.
        least = 1 if names.name == VOLCANO and names.memory in asked else 0
        if not (names.count in asked or least) or not any(part in asked for part in parts):
            continue

        def of(name: str, default: int) -> int:
            return _number(asked[name], f"{where}[{name}]") if name in asked else default

        percent = of(names.memory_percent, PERCENT)
        cores = of(names.cores, 0)
        count = of(names.count, least)
        for name, value in ((names.memory_percent, percent), (names.cores, cores)):
            if value > PERCENT:
                raise InvalidObject(f"{where}[{name}]", value, f"0 to {PERCENT} percent")
        milli = cores * MILLI // PERCENT
        return Share(count, milli, of(names.memory, 0), percent, names.name) if count else None
    return None


def _number(text: Quantity, field: str) -> int:
    try:
        return whole(text)
    except QuantityError as error:
        raise QuantityError(field, text, error.allowed) from error
