"""GPUs, the memory and the network that NCCL uses.

Source: NVIDIA, NCCL user guide (environment variables, troubleshooting: shared memory) and device
plugin (NVIDIA_VISIBLE_DEVICES); Kubernetes, pkg/apis/core/validation (extended resources).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from extender.core.advice import Advice
from extender.core.objects import Manifest
from extender.jobs.advice.subject import (
    GPUS,
    Part,
    Subject,
    gpus,
    limit,
    listed,
    mapping,
    mounts,
    variables,
)
from extender.jobs.fields import dig

_SHM: Final = "/dev/shm"  # noqa: S108 - what pods are told, not a file of ours
_RDMA: Final = re.compile(r"rdma/.+|.+/(rdma|hca|roce|ib)[a-z0-9_-]*|nvidia\.com/hostdev")
_CUDA_IMAGE: Final = re.compile(r"nvcr\.io/|nvidia/cuda|[-_:.]gpu\b|[-_:]cuda\d*", re.ASCII)
#: Variables that turn off what a gang is placed for: (value, why).
_TURNED_OFF: Final = {
    "NCCL_P2P_DISABLE": "NCCL sends nothing over NVLink or PCIe between GPUs: all goes through memory",
    "NCCL_SHM_DISABLE": "NCCL sends between the GPUs of a node over the network",
}
_LOOPBACK: Final = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")


def shared_memory(subject: Subject) -> Iterator[Advice]:
    """Room in /dev/shm, of which a container has 64 MiB."""
    for part in subject.parts:
        field, main = part.main
        mount = next((each for each in mounts(part) if each[0].get("mountPath") == _SHM), None)
        if mount is None:
            if gpus(main) > 1 and part.pod.get("hostIPC") is not True:
                why = (
                    f"{_SHM} has 64 MiB where nothing is mounted: NCCL between {gpus(main)} GPUs and"
                    " loaders of data run out of it"
                )
                instead = f"a volume emptyDir: {{medium: Memory}}, mounted at {_SHM}"
                yield Advice("SharedMemory", f"{field}.volumeMounts", None, why, instead)
            continue
        _, volume, at = mount
        yield from _shared_volume(main, mapping(volume.get("emptyDir")), f"{at}.emptyDir", volume)


def _shared_volume(
    main: Manifest, given: Manifest, field: str, volume: Manifest
) -> Iterator[Advice]:
    if "emptyDir" not in volume:
        return
    medium = given.get("medium")
    if medium != "Memory":
        why = f"what is written to {_SHM} goes to the node's disk"
        yield Advice("SharedMemoryOnDisk", f"{field}.medium", medium or None, why, "Memory")
        return
    size = {"resources": {"limits": {"memory": given.get("sizeLimit")}}}
    most, memory = limit(size, "memory"), limit(main, "memory")
    if memory and most > memory:
        why = (
            f"what is in {_SHM} counts as the container's memory, of which it may have"
            f" {dig(main, 'resources', 'limits', 'memory')}: it is killed before {_SHM} is full"
        )
        value = given.get("sizeLimit")
        yield Advice(
            "SharedMemoryLimit", f"{field}.sizeLimit", value, why, "less, or a higher limit"
        )


def requests(subject: Subject) -> Iterator[Advice]:
    """Devices are asked for by their limits."""
    for part in subject.parts:
        for index, container in listed(part.pod.get("containers")):
            for resource in GPUS:
                asked = dig(container, "resources", "requests", resource)
                if asked is not None and dig(container, "resources", "limits", resource) is None:
                    field = f"{part.spec_path}.containers[{index}].resources.limits"
                    why = f"the API server refuses a request for {resource} without the same limit"
                    yield Advice("DeviceLimit", field, None, why, f"{resource}: {asked}")


def rdma(subject: Subject) -> Iterator[Advice]:
    """What RDMA needs of a container."""
    for part in subject.parts:
        field, main = part.main
        limits = mapping(dig(main, "resources", "limits"))
        asked = next((name for name in limits if _RDMA.fullmatch(str(name))), None)
        security = mapping(main.get("securityContext"))
        added = dig(security, "capabilities", "add") or []
        if asked and security.get("privileged") is not True and "IPC_LOCK" not in added:
            why = f"{asked} registers memory, which needs the right to lock it"
            at = f"{field}.securityContext.capabilities.add"
            yield Advice("LockedMemory", at, added or None, why, "[IPC_LOCK]")
        for index, name, value in variables(main):
            if asked and name == "NCCL_IB_DISABLE" and value == "1":
                why = f"NCCL does not use the {asked} that the container asks for"
                yield Advice(
                    "RDMAUnused", f"{field}.env[{index}].value", value, why, "leave it out"
                )


def nccl(subject: Subject) -> Iterator[Advice]:
    """Variables of NCCL that slow it down, or keep it from its peers."""
    for part in subject.parts:
        field, main = part.main
        for index, name, value in variables(main):
            at = f"{field}.env[{index}].value"
            if name in _TURNED_OFF and value == "1" and gpus(main) > 1:
                yield Advice("SlowNCCL", at, f"{name}={value}", _TURNED_OFF[name], "leave it out")
            elif name in _LOOPBACK and value in ("lo", "=lo") and subject.total > 1:
                why = "no other pod is reached over the loopback interface"
                yield Advice("Loopback", at, f"{name}={value}", why, "eth0, or leave it out")


def visible(subject: Subject) -> Iterator[Advice]:
    """Containers that ask for no GPU and see all."""
    if not any(gpus(part.main[1]) for part in subject.parts):
        return
    for part in subject.parts:
        if _sees_all(part):
            field, main = part.main
            why = (
                "this image asks for all GPUs of its node, and gets them where NVIDIA's runtime is"
                f" the default, beside those whose they are; {part.type} asks for none"
            )
            instead = "an image without CUDA, or env NVIDIA_VISIBLE_DEVICES: void"
            yield Advice("AllGPUsVisible", f"{field}.image", main.get("image"), why, instead)


def _sees_all(part: Part) -> bool:
    """By the image's name, which says so for the usual ones."""
    _, main = part.main
    limits = mapping(dig(main, "resources", "limits"))
    device = any("/" in str(name) for name in limits)
    given = "NVIDIA_VISIBLE_DEVICES" in part.given or any(
        name == "NVIDIA_VISIBLE_DEVICES" for _, name, _ in variables(main)
    )
    return not device and not given and bool(_CUDA_IMAGE.search(str(main.get("image", ""))))
