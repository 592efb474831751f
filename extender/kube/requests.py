"""The HTTP request of each command, and how its answer is judged; no state."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import orjson
from msgspec import Struct

from extender.core.api import (
    BATCH_JOBS,
    CONFIG_MAPS,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
)
from extender.core.commands import Bind, Create, Delete, Lane, Patch
from extender.core.objects import Manifest
from extender.kube import sshkeys
from extender.kube.replies import JSON, MERGE_PATCH, Query, Reply, delete_options

Write = Bind | Create | Patch | Delete

#: Answers after which the same request may succeed: none at all, too many requests, and faults of
#: the server or of what stands before it. Everything else is an answer.
RETRIED = frozenset({0, 429, 500, 502, 503, 504})

#: What a job has one of by a name that does not say whose it is: a conflict may be with its own.
_CHILDREN = frozenset(
    {BATCH_JOBS, CONFIG_MAPS, ROLE_BINDINGS, ROLES, SECRETS, SERVICE_ACCOUNTS, SERVICES}
)

#: How no right to a request is said (apiserver endpoints/handlers/responsewriters, forbiddenMessage);
#: quota and admission also answer 403, in other words.
_FORBIDDEN = re.compile(r'\bUser "[^"]*" cannot ')
#: Reason of such an answer.
NO_RIGHT = "NoRight"
#: What admission says of everything until it has read what it looks at, right after a start (apiserver
#: pkg/admission: WaitForReady), as a 403.
_STARTING = "not yet ready to handle request"


class _Cause(Struct, frozen=True):
    field: str = ""


class _Details(Struct, frozen=True):
    causes: tuple[_Cause, ...] = ()


class _Refusal(Struct, frozen=True):
    """The part of a metav1.Status that says which fields were wrong."""

    details: _Details = _Details()


class _Who(Struct, frozen=True, rename="camel"):
    uid: str
    resource_version: str


class _Made(Struct, frozen=True):
    """The part of an object that says which it is."""

    metadata: _Who


_REFUSAL = msgspec.json.Decoder(_Refusal)
_MADE = msgspec.json.Decoder(_Made)


class Request(Struct, frozen=True):
    """One HTTP request."""

    method: str
    path: str
    body: bytes
    content_type: str = JSON
    query: Query | None = None


def request_of(command: Write) -> Request:
    """The request that carries a command out.

    Raises TypeError (orjson's JSONEncodeError): the body holds what JSON cannot.
    """
    match command:
        case Bind():
            path = PODS.path(command.namespace, command.name, "binding")
            return Request("POST", path, orjson.dumps(_binding(command)))
        case Create():
            query = {"dryRun": "All"} if command.dry_run else None
            path = command.resource.path(command.namespace)
            body = command.body
            if command.resource == SECRETS:
                # The only Secrets that Muster makes; what is in them is in no command.
                body = {**body, "data": sshkeys.fresh()}
            return Request("POST", path, orjson.dumps(body), query=query)
        case Patch():
            path = command.resource.path(command.namespace, command.name, command.subresource)
            return Request("PATCH", path, orjson.dumps(command.body), MERGE_PATCH)
        case Delete():
            path = command.resource.path(command.namespace, command.name)
            return Request("DELETE", path, delete_options(command.uid, command.grace))


def wanted_right(command: Write) -> str:
    """The right that it needs, as roles name it: ``patch pods/status``, ``create gangplans.GROUP``."""
    if isinstance(command, Bind):
        return "create pods/binding"
    sub = f"/{command.subresource}" if isinstance(command, Patch) and command.subresource else ""
    kind = ".".join(part for part in (command.resource.plural, command.resource.group) if part)
    return f"{type(command).__name__.lower()} {kind}{sub}"


def lane_of(command: Write) -> Lane:
    """The lane it waits in."""
    return Lane.BIND if isinstance(command, Bind) else command.lane


def order_key(command: Write) -> tuple[str, str, str] | None:
    """Commands with the same key are carried out in the order given; None: in any order.

    Binds are guarded by their preconditions, dry runs change nothing, and objects that the server
    names have no order to keep.
    """
    if isinstance(command, Bind):
        return None
    if isinstance(command, Create):
        name = "" if command.dry_run else str(command.body.get("metadata", {}).get("name", ""))
    else:
        name = command.name
    return (command.resource.path(), command.namespace, name) if name else None


def told_of(command: Write, reply: Reply) -> Manifest | None:
    """The object that the core is told of; of a pod that was made, no more than which it is."""
    if isinstance(command, Bind):
        return object_in(reply) if reply.code == 409 else None
    if isinstance(command, Delete) or not reply.ok or command.resource == SECRETS:
        return None  # a private key goes no further
    if isinstance(command, Create) and command.resource == PODS and not command.dry_run:
        return _made_in(reply)
    return object_in(reply)


def _made_in(reply: Reply) -> Manifest | None:
    """Pods are made by the thousand, and the watch tells what became of them."""
    try:
        meta = _MADE.decode(reply.body).metadata
    except msgspec.DecodeError:
        return None
    return {"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version}}


def object_in(reply: Reply) -> Manifest | None:
    """The object of an answer; None when it holds none (a Status, or no JSON)."""
    try:
        found: Any = orjson.loads(reply.body)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(found, dict) or not found or found.get("kind") == "Status":
        return None
    return found


def judged(command: Write, reply: Reply) -> Reply:
    """The answer as the protocol names it.

    A missing right is no word on the object, and may be there in a moment: an API server that has
    just started refuses everything until it has read its roles, and then until its admission is
    ready. It is tried again, as a fault of the server's.

    A uid in a patch that is not the object's is "immutable" (422) to kube-apiserver 1.37, where
    every other precondition conflicts (409).
    """
    if reply.code == 403 and _FORBIDDEN.search(reply.message):
        return Reply(503, reply.body, NO_RIGHT, reply.message)
    if reply.code == 403 and reply.message.endswith(_STARTING):
        return Reply(503, reply.body, "NotReady", reply.message)
    if not isinstance(command, Patch) or reply.code != 422:
        return reply
    try:
        causes = _REFUSAL.decode(reply.body).details.causes
    except msgspec.DecodeError:
        return reply
    if any(cause.field == "metadata.uid" for cause in causes):
        return Reply(409, reply.body, "Conflict", reply.message)
    return reply


def of_job(command: Write) -> bool:
    """Whether it makes what a job has one of: one that exists already may be the job's own."""
    if not isinstance(command, Create) or command.dry_run:
        return False
    return command.lane == Lane.JOB and command.resource in _CHILDREN


def owned_alike(command: Create, found: Manifest) -> bool:
    """Whether an object has the controller that the new one would have had."""
    return _controller(found) == _controller(command.body) is not None


def _controller(body: Manifest) -> str | None:
    owners = (body.get("metadata") or {}).get("ownerReferences") or ()
    return next((owner.get("uid") for owner in owners if owner.get("controller")), None)


def bound_as_asked(command: Bind, pod: Manifest) -> bool:
    """Whether the pod, as it is, is what the Bind wanted to reach."""
    meta, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    return meta.get("uid") == command.uid and spec.get("nodeName") == command.node


def _binding(command: Bind) -> Manifest:
    metadata = {"name": command.name, "namespace": command.namespace, "uid": command.uid}
    if command.resource_version:
        metadata["resourceVersion"] = command.resource_version
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": {"apiVersion": "v1", "kind": "Node", "name": command.node},
    }
