"""A kubelet's podresources, served by gRPC on a Unix socket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from extender.agent import podresources_pb2 as wire


@dataclass
class Kubelet:
    """What it answers; tests change it while it serves."""

    #: ``namespace/name`` of a pod to the device ids of its container.
    pods: dict[str, list[str]] = field(default_factory=dict)
    #: The same to (driver, device) of its claims.
    claims: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    offered: list[str] | None = field(default_factory=list)
    asked: int = 0

    def list_(
        self, request: wire.ListPodResourcesRequest, context: grpc.ServicerContext
    ) -> wire.ListPodResourcesResponse:
        self.asked += 1
        answer = wire.ListPodResourcesResponse()
        for pod in sorted({*self.pods, *self.claims}):
            namespace, _, name = pod.partition("/")
            container = answer.pod_resources.add(name=name, namespace=namespace).containers.add()
            # One entry for each NUMA node, as the kubelet sends them.
            for device in self.pods.get(pod, ()):
                container.devices.add(resource_name="nvidia.com/gpu", device_ids=[device])
            for driver, device in self.claims.get(pod, ()):
                claim = container.dynamic_resources.add(claim_name="c", claim_namespace=namespace)
                claim.claim_resources.add(driver_name=driver, pool_name="n", device_name=device)
        return answer

    def allocatable(
        self, request: wire.AllocatableResourcesRequest, context: grpc.ServicerContext
    ) -> wire.AllocatableResourcesResponse:
        if self.offered is None:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown method")
        answer = wire.AllocatableResourcesResponse()
        for device in self.offered or ():
            answer.devices.add(resource_name="nvidia.com/gpu", device_ids=[device])
        return answer


@contextmanager
def serving(kubelet: Kubelet, socket: Path) -> Iterator[None]:
    """Answer on ``socket`` inside a ``with``."""
    service = wire.DESCRIPTOR.services_by_name["PodResourcesLister"]
    methods: dict[str, Callable[..., Any]] = {
        "List": kubelet.list_,
        "GetAllocatableResources": kubelet.allocatable,
    }
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            method,
            getattr(wire, service.methods_by_name[name].input_type.name).FromString,
            getattr(wire, service.methods_by_name[name].output_type.name).SerializeToString,
        )
        for name, method in methods.items()
    }
    with ThreadPoolExecutor(2) as workers:
        server = grpc.server(workers)
        generic = grpc.method_handlers_generic_handler(service.full_name, handlers)
        server.add_generic_rpc_handlers([generic])
        server.add_insecure_port(f"unix://{socket}")
        server.start()
        try:
            yield
        finally:
            server.stop(grace=None).wait()
