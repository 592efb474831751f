"""What the in-memory API server knows of each kind it serves."""

from __future__ import annotations

from msgspec import Struct

from extender.core import api
from extender.core.api import Resource


class Kind(Struct, frozen=True):
    """How one resource behaves; the defaults are those of a CustomResourceDefinition.

    ``status``: it has the status subresource, so that writes to the object leave its status alone
    (and creation drops it). ``generation``: a change of anything but metadata and status counts
    up ``metadata.generation``. ``unconditional``: PUT without a resourceVersion is allowed.
    ``fields``: what a fieldSelector may name, apart from name and namespace.
    """

    resource: Resource
    status: bool = True
    generation: bool = True
    unconditional: bool = False
    fields: tuple[str, ...] = ()


_POD_FIELDS = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.nominatedNodeName",
    "status.phase",
    "status.podIP",
)
_EVENT_FIELDS = (
    "involvedObject.kind",
    "involvedObject.name",
    "involvedObject.namespace",
    "involvedObject.uid",
    "reason",
    "reportingComponent",
    "source",
    "type",
)


def _builtin(
    resource: Resource,
    *,
    status: bool = False,
    generation: bool = False,
    fields: tuple[str, ...] = (),
) -> Kind:
    return Kind(resource, status, generation, unconditional=True, fields=fields)


#: What a new store serves.
SERVED = (
    _builtin(api.PODS, status=True, generation=True, fields=_POD_FIELDS),
    _builtin(api.NODES, status=True, fields=("spec.unschedulable",)),
    _builtin(api.NAMESPACES, status=True, fields=("status.phase",)),
    _builtin(api.SERVICES, status=True),
    _builtin(api.CLAIMS, status=True),
    _builtin(api.VOLUMES, status=True),
    _builtin(api.AUTOSCALERS, status=True),
    _builtin(api.BATCH_JOBS, status=True, generation=True),
    _builtin(api.EVENTS, fields=_EVENT_FIELDS),
    _builtin(api.CONFIG_MAPS),
    _builtin(api.SECRETS, fields=("type",)),
    _builtin(api.SERVICE_ACCOUNTS),
    _builtin(api.ROLES),
    _builtin(api.ROLE_BINDINGS),
    Kind(api.LEASES, status=False, generation=False),
    _builtin(api.PRIORITY_CLASSES, generation=True),
    Kind(api.NATIVE_GROUPS),
    Kind(api.VOLCANO_GROUPS),
    Kind(api.SIGS_GROUPS),
    Kind(api.NODE_TOPOLOGIES, status=False),
    Kind(api.HYPER_NODES),
    Kind(api.TOPOLOGIES, status=False),
    Kind(api.GANG_PLANS),
    *(Kind(resource) for resource in api.JOBS),
)
