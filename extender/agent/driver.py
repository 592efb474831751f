"""What NVIDIA's driver says, through NVML. All calls block.

The module of NVML is handed in: ``pynvml``, or in tests a recording with the same functions.
A function that a device or an old driver does not have is no lack; any other refusal is.
Source: NVIDIA's NVML API reference; links as ``nvidia-smi topo -m`` counts them.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref
from typing import Any

import numpy as np

from extender.agent.facts import Driven, Gpu
from extender.agent.lacks import Lacks
from extender.core.topology import devices
from extender.core.topology.model import (
    MOST_LINKS,
    NODE,
    NVLINK,
    PHB,
    PIX,
    PSB,
    PXB,
    SELF,
    SYS,
    UNKNOWN,
    Codes,
)
from extender.core.topology.pci import address, cpu_list

#: Xids that an application causes and that leave the device as it was.
#: Source: NVIDIA's list of Xid errors; k8s-device-plugin ignores the same by default.
APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})
#: What ends a device's life in a session: after it was mended only a new one sees it.
_NEW_SESSION = (devices.LOST, devices.RESET)
#: Words of 64 CPUs that are asked for.
_CPU_WORDS = 32
#: NVML_TOPOLOGY_* to codes.
_ANCESTORS = {0: PSB, 10: PIX, 20: PXB, 30: PHB, 40: NODE, 50: SYS}
#: Most events that are taken in one reading: a device that floods must not hold it up.
_MOST_EVENTS = 256


class Driver:
    """A session with NVML, opened when first read and again after it failed."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        #: Raised by what a device, or an old driver, does not have.
        self._without = (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound)
        self._open = False
        self._events: Any = None
        #: The last Xid of each device by its address, until the agent ends.
        self._xids: dict[str, int] = {}

    def read(self, lacks: Lacks) -> Driven | None:
        """What the driver says now; None if it does not answer."""
        if not self._open and not self._begin(lacks):
            return None
        count = self._ask(lacks, "device count", self._nvml.nvmlDeviceGetCount)
        if count is None:
            self.close()
            return None
        self._take_events(lacks)
        found = [one for i in range(count) if (one := self._gpu(i, lacks))]
        gpus = tuple(gpu for gpu, _ in found)
        handles = [handle for _, handle in found]
        said = Driven(gpus, self._links(gpus, handles, lacks), self._clique(handles, lacks))
        if len(found) < count or any(gpu.health in _NEW_SESSION for gpu in gpus):
            self.close()
        return said

    def close(self) -> None:
        """End the session; the next reading begins another."""
        if not self._open:
            return
        self._open = False
        for end, *args in ((self._nvml.nvmlEventSetFree, self._events), (self._nvml.nvmlShutdown,)):
            try:
                end(*args)
            except self._nvml.NVMLError:
                # Nothing more can be done about a session that is being left.
                continue
        self._events = None

    def _begin(self, lacks: Lacks) -> bool:
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            lacks.add("nvml", "driver", error)
            return False
        self._open = True
        self._events = self._ask(lacks, "events", self._nvml.nvmlEventSetCreate)
        if self._events is None:
            return True
        for i in range(self._ask(lacks, "device count", self._nvml.nvmlDeviceGetCount) or 0):
            handle = self._ask(lacks, "handle", self._nvml.nvmlDeviceGetHandleByIndex, i)
            if handle is not None:
                xids = self._nvml.nvmlEventTypeXidCriticalError
                register = self._nvml.nvmlDeviceRegisterEvents
                self._ask(lacks, "events", register, handle, xids, self._events)
        return True

    def _ask(self, lacks: Lacks, field: str, function: Callable[..., Any], *args: Any) -> Any:
        """The answer, or None where there is none."""
        try:
            return function(*args)
        except self._without:
            return None
        except self._nvml.NVMLError as error:
            lacks.add("nvml", field, error)
            return None

    def _take_events(self, lacks: Lacks) -> None:
        for _ in range(_MOST_EVENTS if self._events is not None else 0):
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._events, 0)
            except (*self._without, self._nvml.NVMLError_Timeout):
                return
            except self._nvml.NVMLError as error:
                lacks.add("nvml", "events", error)
                return
            xid = int(event.eventData)
            if xid in APPLICATION_XIDS:
                continue
            pci = self._ask(lacks, "address", self._nvml.nvmlDeviceGetPciInfo, event.device)
            # An event that no longer says whose it is may be anybody's.
            self._xids["" if pci is None else address(pci.busId)] = xid

    def _gpu(self, index: int, lacks: Lacks) -> tuple[Gpu, Any] | None:
        nvml = self._nvml
        handle = self._ask(lacks, "handle", nvml.nvmlDeviceGetHandleByIndex, index)
        if handle is None:
            return None
        pci = self._ask(lacks, "address", nvml.nvmlDeviceGetPciInfo, handle)
        if pci is None:
            return None
        bus = address(pci.busId)
        memory = self._ask(lacks, "memory", nvml.nvmlDeviceGetMemoryInfo, handle)
        rates = self._ask(lacks, "utilisation", nvml.nvmlDeviceGetUtilizationRates, handle)
        cpus = self._ask(lacks, "cpus", nvml.nvmlDeviceGetCpuAffinity, handle, _CPU_WORDS)
        gpu = Gpu(
            index,
            bus,
            uuid=self._ask(lacks, "uuid", nvml.nvmlDeviceGetUUID, handle) or "",
            minor=self._ask(lacks, "minor", nvml.nvmlDeviceGetMinorNumber, handle),
            product=self._ask(lacks, "product", nvml.nvmlDeviceGetName, handle) or "",
            parts=self._parts(handle, lacks),
            health=self._health(handle, bus, lacks),
            memory_total=None if memory is None else int(memory.total),
            memory_used=None if memory is None else int(memory.used),
            utilisation=None if rates is None else int(rates.gpu),
            cpus="" if cpus is None else cpu_list(cpus),
        )
        return gpu, handle

    def _parts(self, handle: Any, lacks: Lacks) -> tuple[str, ...]:
        nvml = self._nvml
        count = self._ask(lacks, "MIG", nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0
        found = []
        for i in range(count):
            try:
                part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, i)
            except nvml.NVMLError_NotFound:
                # Numbers of instances have gaps.
                continue
            except self._without:
                break
            except nvml.NVMLError as error:
                lacks.add("nvml", "MIG", error)
                break
            uuid = self._ask(lacks, "MIG", nvml.nvmlDeviceGetUUID, part)
            found += [uuid] if uuid else []
        return tuple(found)

    def _health(self, handle: Any, bus: str, lacks: Lacks) -> str:
        """The gravest of what is wrong with a device, else ok; ``?`` if nothing answers."""
        nvml = self._nvml
        kinds = (nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
        answers = []
        for function, *more in (
            (nvml.nvmlDeviceGetMemoryInfo,),
            (nvml.nvmlDeviceGetRemappedRows,),
            (nvml.nvmlDeviceGetTotalEccErrors, *kinds),
        ):
            try:
                answers.append(function(handle, *more))
            except nvml.NVMLError_GpuIsLost:
                return devices.LOST
            except nvml.NVMLError_ResetRequired:
                return devices.RESET
            except self._without:
                # Memory without ECC, or before Ampere: it has no such faults to tell.
                answers.append(None)
            except nvml.NVMLError as error:
                lacks.add("nvml", "health", error)
                return devices.UNKNOWN
        _, rows, errors = answers
        xid = self._xids.get(bus, self._xids.get(""))
        if xid is not None:
            return f"{devices.XID}{xid}"
        if rows is not None and rows[3]:
            return devices.REMAP
        return devices.ECC if errors else devices.OK

    def _links(self, gpus: tuple[Gpu, ...], handles: list[Any], lacks: Lacks) -> Codes:
        """(g, g) codes: NVLinks where a pair has them and may use them, else PCIe."""
        direct, switched = self._nvlinks(gpus, handles, lacks)
        links = np.full((len(gpus), len(gpus)), SELF, dtype=np.uint8)
        for i, one in enumerate(handles):
            for j, other in enumerate(handles):
                if i == j:
                    continue
                bonded = int(direct[i, j]) or int(min(switched[i], switched[j]))
                if bonded and self._usable(one, other, lacks):
                    links[i, j] = NVLINK + min(bonded, MOST_LINKS)
                else:
                    links[i, j] = self._pcie(one, other, lacks)
        return links

    def _nvlinks(
        self, gpus: tuple[Gpu, ...], handles: list[Any], lacks: Lacks
    ) -> tuple[Codes, Codes]:
        """(g, g) active NVLinks from each to each, and (g,) from each into a switch."""
        nvml = self._nvml
        at = {gpu.bus: i for i, gpu in enumerate(gpus)}
        direct = np.zeros((len(gpus), len(gpus)), dtype=np.uint8)
        switched = np.zeros(len(gpus), dtype=np.uint8)
        for i, handle in enumerate(handles):
            for link in range(nvml.NVML_NVLINK_MAX_LINKS):
                try:
                    active = nvml.nvmlDeviceGetNvLinkState(handle, link)
                except (*self._without, nvml.NVMLError_InvalidArgument):
                    # This and all further numbers: the device has no more.
                    break
                except nvml.NVMLError as error:
                    lacks.add("nvml", "NVLink", error)
                    break
                if not active:
                    continue
                kind = self._ask(
                    lacks, "NVLink", nvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link
                )
                if kind == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
                    switched[i] += 1
                    continue
                pci = self._ask(
                    lacks, "NVLink", nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link
                )
                there = None if pci is None else at.get(address(pci.busId))
                if there is not None:
                    direct[i, there] += 1
        return direct, switched

    def _usable(self, one: Any, other: Any, lacks: Lacks) -> bool:
        """Whether the driver lets two devices use the NVLinks between them.

        Not, for one, while the fabric manager is down. One that cannot say is believed the links.
        """
        nvml = self._nvml
        status = self._ask(
            lacks, "P2P", nvml.nvmlDeviceGetP2PStatus, one, other, nvml.NVML_P2P_CAPS_INDEX_NVLINK
        )
        return status in (None, nvml.NVML_P2P_STATUS_OK, nvml.NVML_P2P_STATUS_UNKNOWN)

    def _pcie(self, one: Any, other: Any, lacks: Lacks) -> int:
        nearest = self._ask(
            lacks, "PCIe", self._nvml.nvmlDeviceGetTopologyCommonAncestor, one, other
        )
        return _ANCESTORS.get(nearest, UNKNOWN)

    def _clique(self, handles: list[Any], lacks: Lacks) -> str:
        """The fabric that all devices are of, as GFD writes it; "" if none, or not the same."""
        nvml = self._nvml
        found = set()
        for handle in handles:
            info = nvml.c_nvmlGpuFabricInfo_v2_t()
            ask = nvml.nvmlDeviceGetGpuFabricInfoV
            if self._ask(lacks, "fabric", ask, handle, byref(info)) is None:
                return ""
            cluster = bytes(info.clusterUuid)
            if info.state != nvml.NVML_GPU_FABRIC_STATE_COMPLETED or not any(cluster):
                return ""
            found.add(f"{_uuid(cluster)}.{info.cliqueId}")
        return found.pop() if len(found) == 1 else ""


def _uuid(raw: bytes) -> str:
    text = raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
