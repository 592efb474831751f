"""Targets of one text: the configuration, quantities and times, topologies."""

from __future__ import annotations

from typing import Any

import msgspec

from extender.core import quantity, times
from extender.core.errors import ConfigError, InvalidObject, QuantityError
from extender.core.resources import read_units
from extender.core.topology import annotation, nrt, parts, read, registers
from extender.core.topology.kubelet import Container
from extender.core.topology.kubelet_shares import Share
from extender.settings import parse_text
from tests.fuzz.draw import Draw, spoilt, written

_NRT = nrt.NodeResourceTopology
#: An annotation of ``muster agent``: two devices, a NIC.
_TOPOLOGY: dict[str, Any] = {
    "v": 1,
    "devices": 2,
    "links": "NV12",
    "index": [0, 2],
    "product": "H100",
    "back": "NV6",
    "numa": "0 1",
    "cpus": "0-3 4-7,9",
    "nics": ["mlx5_0"],
    "nicLinks": "PIX SYS",
}
_DUMP = """\tGPU0\tGPU1\tmlx5_0\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV12\tPIX\t0-3\t0
GPU1\tNV12\t X \tSYS\t4-7\t1
mlx5_0\tPIX\tSYS\t X
"""
_REGISTERS = (
    "GPU-0,10,32768,100,V100,0,true:GPU-1,10,32768,100,V100,0,true,1,hami-core:",
    "GPU-0,10,24576,NVIDIA-A10,true,hami-core:",
    '[{"id":"GPU-0","count":10,"devmem":32768,"devcore":100,"health":true}]',
)
_TOLD = ("GPU-0,NVIDIA,3000,30:;", "GPU-0,NVIDIA,3000,30:GPU-1,NVIDIA,3000,30:;;", "0-1", ";")
_ZONES: dict[str, Any] = {
    "metadata": {"name": "n0"},
    "attributes": [{"name": "topologyManagerPolicy", "value": "single-numa-node"}],
    "zones": [
        {
            "name": "node-0",
            "type": "Node",
            "resources": [{"name": "cpu", "capacity": "8", "allocatable": "8", "available": "4"}],
            "costs": [{"name": "node-0", "value": 10}],
        }
    ],
}


def topologies(data: bytes) -> None:
    """A node's annotation, the output of a driver's tool, or NodeResourceTopology, spoilt or any."""
    draw = Draw(data)
    try:
        match draw.below(5):
            case 0:
                _agrees(written(spoilt(_TOPOLOGY, draw)).decode())
            case 1:
                _agrees(draw.rest().decode("utf-8", "replace"))
            case 2:
                read(_edited(_DUMP, draw))
            case 3:
                read(draw.rest().decode("utf-8", "replace"))
            case _:
                spoilt_zones = written(spoilt(_ZONES, draw))
                nrt.zones_of(msgspec.json.decode(spoilt_zones, type=_NRT))
    except (msgspec.DecodeError, RecursionError):
        pass  # as the reflector finds it
    except InvalidObject as error:
        readable(error, 2000)


def _agrees(text: str) -> None:
    known = annotation.decode(text)
    again = annotation.encode(annotation.decode(annotation.encode(known)))
    assert again == annotation.encode(known)


def shares(data: bytes) -> None:
    """Devices of which parts are given away, and what a pod is told to have of them."""
    draw = Draw(data)
    keys = [*registers.REGISTERS.values()]
    text = _edited(_REGISTERS[draw.below(len(_REGISTERS))], draw)
    known, wrong = registers.read({keys[draw.below(len(keys))]: text}, {})
    assert (known is None) == bool(wrong)
    for error in wrong:
        readable(error, 2000)
    keys = [*registers.GIVEN.values()]
    told_text = _edited(_TOLD[draw.below(len(_TOLD))], draw)
    told = registers.read_given({keys[draw.below(len(keys))]: told_text})
    share = Share(1 + draw.below(2), 300, 3000, convention=[*registers.GIVEN][draw.below(3)])
    pod = [Container(share=share)]
    for error in parts.contradictions(told, pod, known):
        readable(error, 2000)
    if known is not None:
        _takes_no_more_than_it_asks_for(known, told, pod)


def _takes_no_more_than_it_asks_for(
    known: registers.Devices, told: registers.Given, pod: list[Container]
) -> None:
    before = parts.empty(known)
    left = parts.taken_as_told(before, known, told, pod)
    if left is None:
        return
    (share,) = parts.asked(pod, known.convention)
    taken = [(was, now) for was, now in zip(before, left, strict=True) if was != now]
    assert len(taken) == share.devices
    for was, now in taken:
        assert was.less(was.need(share), share.milli) == now
    assert 0 <= parts.copies(left, [share], 9) <= 9


def _edited(text: str, draw: Draw) -> str:
    for _ in range(1 + draw.below(4)):
        at = draw.below(len(text) + 1)
        text = text[:at] + draw.text() + text[at + draw.below(20) :]
    return text


def config(data: bytes) -> None:
    """A muster.yaml of any bytes."""
    configuration(data)


def configs(data: bytes) -> None:
    """A spoilt muster.yaml."""
    document = {"tiers": _tiers(), "actions": "enqueue, allocate", "muster": _muster()}
    raw = spoilt(document, Draw(data))
    configuration(written(raw))


def configuration(text: bytes) -> None:
    """Settings, or an error that says where and why."""
    try:
        parse_text(text, "muster.yaml")
    except ConfigError as error:
        readable(error, 5000)


def scalars(data: bytes) -> None:
    """Quantities, counts and times of any text."""
    draw = Draw(data)
    text = draw.rest().decode("utf-8", "replace")
    try:
        limits = read_units({"cpu": text, "memory": text}, "x")
        assert 0 <= min(limits.values()) <= max(limits.values()) <= quantity.LIMIT
    except QuantityError as error:
        readable(error, 1000)
    found = quantity.count(text)
    assert found is None or 0 <= found <= quantity.COUNT_LIMIT
    assert times.rfc3339(times.seconds(text))


def readable(error: Exception, most: int) -> None:
    """What is said of a mistake can be shown to people."""
    assert 0 < len(str(error)) < most


def _tiers() -> Any:
    return [
        {
            "plugins": [
                {"name": "gang", "enableJobOrder": True},
                {"name": "binpack", "arguments": {"binpack.weight": 1}},
            ]
        }
    ]


def _muster() -> Any:
    return {
        "schedulerNames": ["muster"],
        "schedulerName": "muster",
        "managedResources": ["nvidia.com/gpu"],
        "podMaxBackoffSeconds": 2,
        "bindTimeoutSeconds": 120,
        "planDeadlineSeconds": 120,
        "visibleAfterSeconds": 30,
        "bodyLimitBytes": 67108864,
        "concurrency": 64,
        "kubeconfig": "k",
        "listen": {"host": "h", "port": 1, "prefix": "/scheduler", "adminPort": 2},
        "tls": {"certFile": "a", "keyFile": "b", "clientCAFile": "c"},
        "leaderElection": {
            "enabled": True,
            "namespace": "n",
            "name": "m",
            "leaseDurationSeconds": 15,
            "renewDeadlineSeconds": 10,
            "retryPeriodSeconds": 2,
        },
    }
