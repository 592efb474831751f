"""What nodes register of GPUs that are given away in parts, and which of them pods are told to have.

Source: HAMi pkg/device/devices.go (its text and, since 2.6, JSON), Volcano
pkg/scheduler/api/devices/nvidia/vgpu/utils.go, kubernetes-scheduler-simulator
pkg/type/open-gpu-share/utils.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from extender.core.errors import InvalidObject, QuantityError
from extender.core.objects import Resources
from extender.core.quantity import whole
from extender.core.topology.kubelet import Container
from extender.core.topology.kubelet_shares import (
    ALIBABA,
    COUNTS,
    HAMI,
    HAMI_PARTS,
    MILLI,
    MILLI_ANNOTATION,
    PERCENT,
    VOLCANO,
)
from extender.core.topology.model import MOST_DEVICES

#: Where nodes register their devices, and where it is written on a pod which it has.
REGISTERS = {HAMI: "hami.io/node-nvidia-register", VOLCANO: "volcano.sh/node-vgpu-register"}
GIVEN = {HAMI: "hami.io/vgpu-devices-allocated", VOLCANO: "volcano.sh/vgpu-ids-new"}
INDEX_ANNOTATION = "alibabacloud.com/gpu-index"

#: Of one device: id, MiB, thousandths of its cores.
Given = tuple[tuple[str, int, int], ...]

#: Bytes of an annotation that is read.
_LIMIT = 65_536
#: More MiB, slots or percent of cores than this no device has.
_MOST = 999_999_999
_NUMBER = re.compile(r"[0-9]{1,9}")


class Devices(Struct, frozen=True):
    """What a node registers, as columns in its order; a device that does not work has no slots."""

    convention: str
    ids: tuple[str, ...]
    slots: tuple[int, ...]
    #: MiB; 0 where memory is not told, and binds nothing.
    memory: tuple[int, ...]
    milli: tuple[int, ...]


def offered(devices: Devices) -> dict[str, int]:
    """Resources of a node that pods ask for by convention and no device plugin offers, in all."""
    if devices.convention == ALIBABA:
        return {MILLI_ANNOTATION: sum(devices.milli)}
    if devices.convention == HAMI:
        whole_ones = PERCENT * len(devices.ids)
        cores = sum(devices.milli) * PERCENT // MILLI
        return dict(zip(HAMI_PARTS, (sum(devices.memory), whole_ones, cores), strict=True))
    return {}


def given(devices: Devices, told: Given) -> dict[int, tuple[int, int]]:
    """By device what a pod is told to have; of devices that there are."""
    at = {name: number for number, name in enumerate(devices.ids)}
    found: dict[int, tuple[int, int]] = {}
    for name, memory, milli in told:
        if name in at:
            more = found.get(at[name], (0, 0))
            found[at[name]] = more[0] + memory, more[1] + milli
    return found


def read(
    annotations: Mapping[str, str], allocatable: Resources
) -> tuple[Devices | None, list[InvalidObject]]:
    """What a Node registers, and what of it cannot be read. The first convention that it has counts."""
    for convention, key in REGISTERS.items():
        if key in annotations:
            try:
                return _register(convention, annotations[key], f"metadata.annotations[{key}]"), []
            except InvalidObject as error:
                return None, [error]
    count = allocatable.get(COUNTS[ALIBABA])
    if count is None:
        return None, []
    field = f"status.allocatable[{COUNTS[ALIBABA]}]"
    try:
        number = whole(count)
    except QuantityError as error:
        return None, [QuantityError(field, count, error.allowed)]
    if not 0 <= number <= MOST_DEVICES:
        return None, [InvalidObject(field, number, f"0 to {MOST_DEVICES}")]
    ids = tuple(map(str, range(number)))
    return Devices(ALIBABA, ids, (MILLI,) * number, (0,) * number, (MILLI,) * number), []


def read_given(annotations: Mapping[str, str], pod: Sequence[Container]) -> Given | None:
    """Which devices a Pod is told to have; None where that is not told, or cannot be read: then it is
    assumed, as for a pod of which nothing is told yet.
    """
    if INDEX_ANNOTATION in annotations:
        milli = next((each.share.milli for each in pod if each.share is not None), MILLI)
        ids = annotations[INDEX_ANNOTATION].split("-")
        return tuple((each, 0, milli) for each in ids if each.isdecimal()) or None
    text = next((annotations[key] for key in GIVEN.values() if key in annotations), "")
    if not text or len(text) > _LIMIT:
        return None
    found = []
    for device in text.replace(";", ":").split(":"):
        fields = device.split(",")
        if len(fields) >= 4 and all(map(_NUMBER.fullmatch, fields[2:4])):
            found.append((fields[0], int(fields[2]), int(fields[3]) * MILLI // PERCENT))
    return tuple(found) or None


class _Json(Struct):
    id: str
    count: int = 0
    devmem: int = 0
    devcore: int = 0
    health: bool = False


def _register(convention: str, text: str, field: str) -> Devices:
    if len(text) > _LIMIT:
        raise InvalidObject(field, text, f"at most {_LIMIT} bytes")
    if text.lstrip().startswith("["):
        try:
            rows = msgspec.json.decode(text, type=list[_Json])
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise InvalidObject(field, text, f"a list of devices ({error})") from error
        found = [(d.id, d.count, d.devmem, d.devcore, d.health) for d in rows]
    else:
        found = [_fields(each, convention, field) for each in text.split(":") if each]
    if not 1 <= len(found) <= MOST_DEVICES:
        raise InvalidObject(field, len(found), f"1 to {MOST_DEVICES} devices")
    if any(not 0 <= number <= _MOST for device in found for number in device[1:4]):
        raise InvalidObject(field, text, f"numbers of 0 to {_MOST}")
    ids, slots, memory, cores, well = zip(*found, strict=True)
    if len(set(ids)) < len(ids):
        raise InvalidObject(field, text, "devices of different ids")
    works = tuple(count if healthy else 0 for count, healthy in zip(slots, well, strict=True))
    milli = tuple((each or PERCENT) * MILLI // PERCENT for each in cores)
    return Devices(convention, ids, works, memory, milli)


def _fields(device: str, convention: str, field: str) -> tuple[str, int, int, int, bool]:
    """One device: ``id,count,memory,cores,type,numa,health…`` of HAMi, without cores and NUMA node of
    Volcano.
    """
    fields = [each.strip() for each in device.split(",")]
    try:
        if convention == HAMI and len(fields) in (7, 9):
            name, count, memory, cores, health = *fields[:4], fields[6]
        elif convention == VOLCANO and len(fields) >= 5:
            name, count, memory, cores, health = *fields[:3], str(PERCENT), fields[4]
        else:
            raise ValueError(f"{len(fields)} fields")
        return name, int(count), int(memory), int(cores), health.lower() == "true"
    except ValueError as error:
        raise InvalidObject(field, device, f"a device of {convention} ({error})") from error
