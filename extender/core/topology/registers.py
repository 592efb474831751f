"""What nodes register of GPUs that are given away in parts, and which of them pods are told to have.

Source: HAMi pkg/device/devices.go (its text and, since 2.6, JSON), Volcano
pkg/scheduler/api/devices/nvidia/vgpu/utils.go, kubernetes-scheduler-simulator
pkg/type/open-gpu-share/utils.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from extender.core.errors import InvalidObject, QuantityError
from extender.core.objects import Resources
from extender.core.quantity import whole
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
INDEX_ANNOTATION = "alibabacloud.com/gpu-index"
GIVEN = {
    HAMI: "hami.io/vgpu-devices-allocated",
    VOLCANO: "volcano.sh/vgpu-ids-new",
    ALIBABA: INDEX_ANNOTATION,
}

#: Bytes of an annotation that is read.
_LIMIT = 65_536
#: Characters of one that are kept, to be shown.
_SHOWN = 100
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


class Told(Struct, frozen=True):
    """Which devices a pod's annotation says it has; whoever may write the pod may have written it."""

    convention: str
    #: The annotation, for those who are told that it is wrong.
    text: str
    #: By container that has any, in order: the id of each device and MiB of it (0: not said); () where the
    #: text cannot be read.
    devices: tuple[tuple[tuple[str, int], ...], ...]


#: What a pod is told in each convention that it is told anything in.
Given = tuple[Told, ...]


def offered(devices: Devices) -> dict[str, int]:
    """Resources of a node that pods ask for by convention and no device plugin offers, in all."""
    if devices.convention == ALIBABA:
        return {MILLI_ANNOTATION: sum(devices.milli)}
    if devices.convention == HAMI:
        whole_ones = PERCENT * len(devices.ids)
        cores = sum(devices.milli) * PERCENT // MILLI
        return dict(zip(HAMI_PARTS, (sum(devices.memory), whole_ones, cores), strict=True))
    return {}


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


def read_given(annotations: Mapping[str, str]) -> Given:
    """Which devices a Pod is told to have, by convention; () where nothing is told."""
    found = []
    for convention, key in GIVEN.items():
        text = annotations.get(key, "")
        if text.strip(";:"):
            parse = _indexes if convention == ALIBABA else _allocated
            devices = parse(text) if len(text) <= _LIMIT else ()
            found.append(Told(convention, text[:_SHOWN], devices))
    return tuple(found)


def _indexes(text: str) -> tuple[tuple[tuple[str, int], ...], ...]:
    """``0-3``."""
    ids = text.split("-")
    return (tuple((each, 0) for each in ids),) if all(map(_NUMBER.fullmatch, ids)) else ()


def _allocated(text: str) -> tuple[tuple[tuple[str, int], ...], ...]:
    """``id,type,MiB,cores`` of each device, between ``:``, of each container, between ``;``."""
    found = []
    for container in text.split(";"):
        rows = [each.split(",") for each in container.split(":") if each]
        if any(len(row) < 4 or not all(map(_NUMBER.fullmatch, row[2:4])) for row in rows):
            return ()
        if rows:
            found.append(tuple((row[0], int(row[2])) for row in rows))
    return tuple(found)


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
