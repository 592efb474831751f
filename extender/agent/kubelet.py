"""Which pods hold which devices, as the kubelet's podresources API (v1) tells on its socket, and what
its configuration file says of its Topology Manager.
"""

from __future__ import annotations

from pathlib import Path

import grpc
import yaml

from extender.agent import podresources_pb2 as wire
from extender.agent.facts import Held
from extender.agent.lacks import Lacks
from extender.core.topology.nrt import POLICIES, SCOPES

#: Seconds for an answer. The kubelet limits calls (100 a second, all clients together).
TIMEOUT = 10.0
#: Bytes of an answer, as the kubelet's own client allows; gRPC's default is a quarter of it.
MOST = 16 << 20

_SERVICE = "/v1.PodResourcesLister/"


def read(socket: str, lacks: Lacks) -> Held | None:
    """What the kubelet at ``socket`` (a path) says; None if it does not answer. Blocks."""
    options = [
        ("grpc.max_receive_message_length", MOST),
        # A path is no name for a host, and Go's server refuses what is none.
        ("grpc.default_authority", "localhost"),
    ]
    # A channel for each reading: a kubelet that starts makes its socket anew.
    with grpc.insecure_channel(f"unix://{socket}", options) as channel:
        try:
            listed = channel.unary_unary(
                _SERVICE + "List",
                wire.ListPodResourcesRequest.SerializeToString,
                wire.ListPodResourcesResponse.FromString,
            )(wire.ListPodResourcesRequest(), timeout=TIMEOUT)
        except grpc.RpcError as error:
            lacks.add("podresources", "List", _words(error))
            return None
        try:
            offered = channel.unary_unary(
                _SERVICE + "GetAllocatableResources",
                wire.AllocatableResourcesRequest.SerializeToString,
                wire.AllocatableResourcesResponse.FromString,
            )(wire.AllocatableResourcesRequest(), timeout=TIMEOUT)
        except grpc.RpcError as error:
            lacks.add("podresources", "GetAllocatableResources", _words(error))
            offered = None
    return Held(
        _holders(listed),
        None if offered is None else frozenset(i for d in offered.devices for i in d.device_ids),
    )


def alignment(path: str, lacks: Lacks) -> tuple[str, str]:
    """Policy and scope of the Topology Manager by the KubeletConfiguration at ``path``; "" for what
    cannot be read. Flags of the kubelet's command line, which win, are not seen.
    """
    try:
        document = yaml.safe_load(Path(path).read_bytes())
    except (OSError, yaml.YAMLError, ValueError) as error:
        lacks.add("kubelet", path, getattr(error, "strerror", None) or error)
        return "", ""
    if not isinstance(document, dict) or document.get("kind") != "KubeletConfiguration":
        lacks.add("kubelet", path, "is no KubeletConfiguration")
        return "", ""
    policy = document.get("topologyManagerPolicy", "none")
    scope = document.get("topologyManagerScope", "container")
    for name, word, allowed in (
        ("topologyManagerPolicy", policy, POLICIES),
        ("topologyManagerScope", scope, SCOPES),
    ):
        if word not in allowed:
            lacks.add("kubelet", name, f"{word!r} is not allowed: {' '.join(allowed)}")
            return "", ""
    return policy, scope


def _holders(listed: wire.ListPodResourcesResponse) -> dict[str, tuple[str, ...]]:
    found: dict[str, set[str]] = {}
    for pod in listed.pod_resources:
        name = f"{pod.namespace}/{pod.name}"
        for container in pod.containers:
            for given in container.devices:
                for device in given.device_ids:
                    found.setdefault(device, set()).add(name)
            for claim in container.dynamic_resources:
                for device in claim.claim_resources:
                    key = f"{device.driver_name}/{device.device_name}"
                    found.setdefault(key, set()).add(name)
    return {device: tuple(sorted(pods)) for device, pods in found.items()}


def _words(error: grpc.RpcError) -> str:
    # Every error of a call is also the call, and carries these.
    return f"{error.code().name}: {error.details()}"
