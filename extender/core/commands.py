"""What the core asks for. With :mod:`extender.core.events`, the whole protocol of the loop.

A command with an ``id`` is answered by one :class:`extender.core.events.Done` of the same id.
The executor runs lanes in the order of :class:`Lane`, retries what is worth retrying (transport
faults, 429, 5xx) and reports everything else as it is.
"""

from __future__ import annotations

from enum import IntEnum
from typing import dataclass_transform

from msgspec import Struct, field

from extender.core import objects as o
from extender.core.api import Resource


class Lane(IntEnum):
    """Which commands go first when the API server is the bottleneck (lowest first)."""

    BIND = 0
    PLAN = 1
    RELEASE = 2
    JOB = 3
    STATUS = 4
    #: One per pod, wanted when its containers start: not before others are bound.
    SERVICE = 5


#: Reason in the Done of a Create: it existed already, and has the controller of the new one.
OWNED = "AlreadyOwned"


# mypy does not see that msgspec's subclasses inherit ``frozen``.
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Command(Struct, frozen=True, tag=True, tag_field="command", gc=False):
    """Base of every command."""


class Bind(Command):
    """POST a Binding with uid and resourceVersion as preconditions.

    "Already bound to the same node" under the same uid is success.
    """

    id: int
    namespace: str
    name: str
    uid: str
    resource_version: str
    node: str


class Create(Command):
    """POST an object. ``dry_run`` asks for the admitted object and changes nothing.

    What a job has one of by name (lane JOB; ConfigMaps and the like) and exists already is a success,
    with reason OWNED, if it is the job's own. A Secret gets a fresh SSH key pair as it is sent: keys
    are neither in the command nor in its Done.
    """

    id: int
    lane: Lane
    resource: Resource
    namespace: str
    body: o.Manifest
    dry_run: bool = False


class Patch(Command):
    """Merge-patch an object or its subresource.

    A ``metadata.uid`` or ``metadata.resourceVersion`` in ``body`` is a precondition (409).
    """

    id: int
    lane: Lane
    resource: Resource
    namespace: str
    name: str
    body: o.Manifest
    subresource: str = ""


class Delete(Command):
    """DELETE an object, with its uid as a precondition. ``grace``: seconds that a pod has to stop in;
    None: what it asks for itself.
    """

    id: int
    lane: Lane
    resource: Resource
    namespace: str
    name: str
    uid: str
    grace: int | None = None


class Answer(Command):
    """Answer an open /bind; an empty ``error`` means bound."""

    token: int
    error: str = ""


class Notice(Command):
    """A Kubernetes Event on an object (the shell aggregates and rate-limits)."""

    resource: Resource
    namespace: str
    name: str
    uid: str
    type: str
    reason: str
    message: str


class WakeAt(Command):
    """Call ``step`` at this time (seconds, the clock of ``now``) even if nothing happens."""

    at: float
