"""A machine that does not exist: NVML's functions and a sysfs tree, both made from a recording.

The links are those of a published ``nvidia-smi topo -m``, so that what the agent finds can be held
against what NVIDIA's own tool found on the real machine.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pynvml

from extender.core.topology.model import (
    NO_ZONE,
    NODE,
    NVLINK,
    PHB,
    PIX,
    PSB,
    PXB,
    SYS,
    UNKNOWN,
    Topology,
    distances,
)

GIB = 1 << 30
_LEVELS = {PSB: 0, PIX: 10, PXB: 20, PHB: 30, NODE: 40, SYS: 50}


@dataclass
class Machine:
    """What a recording says of one machine; tests change it while an agent reads it."""

    known: Topology
    product: str = "NVIDIA H100 80GB HBM3"
    #: Links of each GPU go into a switch, so many; 0: straight to the others.
    switch: int = 0
    clique: str = ""
    memory_gib: int = 80
    used_gib: list[float] = field(default_factory=list)
    uncorrected: dict[int, int] = field(default_factory=dict)
    remap_failed: set[int] = field(default_factory=set)
    mig: dict[int, list[str]] = field(default_factory=dict)
    #: GPUs whose handle the driver refuses, and those that it answers "lost" for.
    gone: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)
    #: (GPU, Xid) that have not been fetched.
    events: list[tuple[int, int]] = field(default_factory=list)
    #: Functions that fail, with NVML's code.
    refuse: dict[str, int] = field(default_factory=dict)
    p2p: int = pynvml.NVML_P2P_STATUS_OK
    calls: Counter[str] = field(default_factory=Counter)
    driver: str = "nvidia"

    def uuid(self, gpu: int) -> str:
        return f"GPU-{gpu:08x}-0000-4000-8000-{gpu:012x}"

    def bus(self, gpu: int) -> str:
        return f"0000:{0x18 + 8 * gpu:02x}:00.0"


class Nvml:
    """The functions of ``pynvml`` that the agent calls; its constants and errors are pynvml's."""

    def __init__(self, machine: Machine) -> None:
        self.m = machine
        self.links = [self._numbered(i) for i in range(len(machine.known))]

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith(("nvml", "NVML", "c_nvml")):
            return super().__getattribute__(name)
        real = getattr(pynvml, name)
        if not callable(real) or isinstance(real, type):
            return real
        # A function that is not recorded is a fault of the test.
        answer = super().__getattribute__("_" + name.removeprefix("nvml"))
        machine = self.m

        def call(*args: Any) -> Any:
            signature(real).bind(*args)
            machine.calls[name] += 1
            if name in machine.refuse:
                raise pynvml.NVMLError(machine.refuse[name])
            return answer(*args)

        return call

    def _numbered(self, gpu: int) -> list[int | None]:
        """Link number to the GPU at its other end, None for a switch."""
        if self.m.switch:
            return [None] * self.m.switch
        codes = self.m.known.links[gpu]
        return [
            other
            for other, code in enumerate(codes)
            if code >= NVLINK
            for _ in range(code - NVLINK)
        ]

    def _there(self, gpu: int) -> None:
        if gpu in self.m.lost:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)

    def _Init(self) -> None:
        pass

    def _Shutdown(self) -> None:
        pass

    def _DeviceGetCount(self) -> int:
        return len(self.m.known)

    def _DeviceGetHandleByIndex(self, index: int) -> int:
        if index in self.m.gone:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return index

    def _DeviceGetPciInfo(self, gpu: int) -> SimpleNamespace:
        return SimpleNamespace(busId=f"0000{self.m.bus(gpu)}".upper())

    def _DeviceGetUUID(self, gpu: int | str) -> str:
        return gpu if isinstance(gpu, str) else self.m.uuid(gpu)

    def _DeviceGetName(self, gpu: int) -> str:
        return self.m.product

    def _DeviceGetMinorNumber(self, gpu: int) -> int:
        return gpu

    def _DeviceGetMemoryInfo(self, gpu: int) -> SimpleNamespace:
        self._there(gpu)
        used = self.m.used_gib[gpu] if self.m.used_gib else 0.5
        return SimpleNamespace(total=self.m.memory_gib * GIB, used=int(used * GIB))

    def _DeviceGetUtilizationRates(self, gpu: int) -> SimpleNamespace:
        self._there(gpu)
        return SimpleNamespace(gpu=7, memory=3)

    def _DeviceGetCpuAffinity(self, gpu: int, words: int) -> list[int]:
        mask = sum(1 << cpu for cpu in cpus_of(self.m.known.cpus[gpu]))
        return [mask >> (64 * i) & (1 << 64) - 1 for i in range(words)]

    def _DeviceGetRemappedRows(self, gpu: int) -> tuple[int, int, int, int]:
        return (0, 0, 0, int(gpu in self.m.remap_failed))

    def _DeviceGetTotalEccErrors(self, gpu: int, kind: int, counter: int) -> int:
        assert (kind, counter) == (1, 0)  # uncorrected, since the driver was loaded
        return self.m.uncorrected.get(gpu, 0)

    def _DeviceGetMaxMigDeviceCount(self, gpu: int) -> int:
        return 7 if self.m.mig else 0

    def _DeviceGetMigDeviceHandleByIndex(self, gpu: int, index: int) -> str:
        parts = self.m.mig.get(gpu, [])
        # Numbers have gaps: the first of two is free.
        if index % 2 == 0 or index // 2 >= len(parts):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return parts[index // 2]

    def _DeviceGetNvLinkState(self, gpu: int, link: int) -> int:
        if not any(self.links):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        if link >= 18:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return int(link < len(self.links[gpu]))

    def _DeviceGetNvLinkRemoteDeviceType(self, gpu: int, link: int) -> int:
        other = self.links[gpu][link]
        kinds = (pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH, pynvml.NVML_NVLINK_DEVICE_TYPE_GPU)
        return kinds[other is not None]

    def _DeviceGetNvLinkRemotePciInfo(self, gpu: int, link: int) -> SimpleNamespace:
        other = self.links[gpu][link]
        assert other is not None
        return self._DeviceGetPciInfo(other)

    def _DeviceGetP2PStatus(self, one: int, other: int, what: int) -> int:
        assert what == 2  # over NVLink
        return self.m.p2p

    def _DeviceGetTopologyCommonAncestor(self, one: int, other: int) -> int:
        code = int(self.m.known.links[one, other])
        if code >= NVLINK:
            code = int(distances(self.m.known)[one, other])
        if code == UNKNOWN:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return _LEVELS[code]

    def _DeviceGetGpuFabricInfoV(self, gpu: int, reference: Any) -> int:
        if not self.m.clique:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        cluster, _, clique = self.m.clique.rpartition(".")
        info = reference._obj  # what byref() points to
        info.clusterUuid[:] = bytes.fromhex(cluster.replace("-", ""))
        info.cliqueId, info.state = int(clique), pynvml.NVML_GPU_FABRIC_STATE_COMPLETED
        return 0

    def _EventSetCreate(self) -> str:
        return "events"

    def _EventSetFree(self, events: str) -> None:
        pass

    def _DeviceRegisterEvents(self, gpu: int, kinds: int, events: str) -> None:
        assert (kinds, events) == (8, "events")  # critical Xids

    def _EventSetWait_v2(self, events: str, milliseconds: int) -> SimpleNamespace:
        assert milliseconds == 0
        if not self.m.events:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        gpu, xid = self.m.events.pop(0)
        return SimpleNamespace(device=gpu, eventData=xid)


def cpus_of(text: str) -> list[int]:
    """The CPUs of a list as the kernel writes it."""
    found: list[int] = []
    for part in text.split(",") if text else []:
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def write_sysfs(root: Path, machine: Machine) -> Path:
    """A sysfs in which every GPU and port is as near to every other as the recording says.

    What is nearer than a level shares the bridge of that level; the rest hangs apart.
    """
    known = machine.known
    count, ports = len(known), len(known.nics)
    near = np.zeros((count + ports, count + ports), dtype=np.uint8)
    near[:count, :count] = distances(known)
    near[:count, count:] = known.nic_links
    near[count:, :count] = known.nic_links.T
    numa = [*map(int, known.numa), *(_zone_of(known, p) for p in range(ports))]
    buses = [machine.bus(i) for i in range(count)]
    buses += [f"0000:{0x19 + p % count * 8:02x}:{p // count:02x}.1" for p in range(ports)]
    complexes, switches, leaves = (_groups(near, level) for level in (PHB, PXB, PIX))
    (root / "bus/pci/devices").mkdir(parents=True)
    (root / "class/infiniband").mkdir(parents=True)
    for i, bus in enumerate(buses):
        folder = root.joinpath(
            "devices",
            f"pci0000:{complexes[i]:02x}",
            f"0000:{complexes[i]:02x}:{switches[i] % 32:02x}.0",
            f"0000:{switches[i]:02x}:1e.0",
            f"0000:{switches[i]:02x}:1d.{leaves[i] % 8}" + f"-{leaves[i]}",
            f"0001:{leaves[i]:02x}:1e.0",
            f"0001:{leaves[i]:02x}:1d.{i % 8}" + f"-{i}",
            bus,
        )
        folder.mkdir(parents=True)
        gpu = i < count
        facts = {
            "vendor": "0x10de" if gpu else "0x15b3",
            "class": "0x030200" if gpu else "0x020700",
            "numa_node": str(numa[i]),
            "local_cpulist": known.cpus[i] if gpu else "",
        }
        for name, text in facts.items():
            (folder / name).write_text(text + "\n")
        (root / "bus/pci/devices" / bus).symlink_to(folder)
        drivers = root / "bus/pci/drivers" / (machine.driver if gpu else "mlx5_core")
        drivers.mkdir(parents=True, exist_ok=True)
        (folder / "driver").symlink_to(drivers)
        if not gpu:
            port = root / "class/infiniband" / known.nics[i - count]
            port.mkdir()
            (port / "device").symlink_to(folder)
    for zone in {0, 1, *numa} - {NO_ZONE}:
        (root / f"devices/system/node/node{zone}").mkdir(parents=True)
    return root


def _zone_of(known: Topology, port: int) -> int:
    """The node of the GPUs that a port shares one with; another if it is across from all."""
    codes = known.nic_links[:, port]
    same = {int(zone) for zone, code in zip(known.numa, codes, strict=True) if code > SYS}
    if len(same) == 1:
        return same.pop()
    far = {int(zone) for zone, code in zip(known.numa, codes, strict=True) if code == SYS}
    return 63 if far and not same and NO_ZONE not in far else NO_ZONE


def _groups(near: Any, level: int) -> list[int]:
    """A number for each device, the same for those that a chain of such neighbours joins."""
    group = list(range(len(near)))
    for i in range(len(near)):
        for j in range(i):
            if near[i, j] >= level:
                old, new = group[i], group[j]
                group = [new if each == old else each for each in group]
    return group
