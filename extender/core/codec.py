"""Events and commands as JSON and back, for logs. The name of the type stands in the value itself.

A decoded value equals the encoded one. The three kinds of PodGroup have no tag of their own: which
one it is follows from the event's resource.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import Any, Final

import msgspec

from extender.core import commands as c
from extender.core import events as e
from extender.core.api import NATIVE_GROUPS, SIGS_GROUPS, VOLCANO_GROUPS, Resource
from extender.core.podgroups import NativeGroup, SigsGroup, VolcanoGroup

#: Every type of the protocol: what is missing here cannot exist.
EVENTS: Final[tuple[type[e.Event], ...]] = tuple(e.Event.__subclasses__())
COMMANDS: Final[tuple[type[c.Command], ...]] = tuple(c.Command.__subclasses__())

_GROUPS: dict[Resource, type[msgspec.Struct]] = {
    VOLCANO_GROUPS: VolcanoGroup,
    SIGS_GROUPS: SigsGroup,
    NATIVE_GROUPS: NativeGroup,
}


class _Group(msgspec.Struct, frozen=True, tag="GroupSeen", tag_field="event"):
    """GroupSeen before it is known what the group is."""

    resource: Resource
    group: msgspec.Raw


def _any_of(types: Iterable[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(reduce(or_, types))


_event = _any_of([_Group, *(each for each in EVENTS if each is not e.GroupSeen)])
_command = _any_of(COMMANDS)
_encoder = msgspec.json.Encoder()


def encode(value: e.Event | c.Command) -> bytes:
    """The value as JSON on one line."""
    return _encoder.encode(value)


def decode_event(raw: bytes | msgspec.Raw) -> e.Event:
    """The event. Raises msgspec.DecodeError (ValidationError is one) for what is none."""
    found = _event.decode(raw)
    if not isinstance(found, _Group):
        event: e.Event = found
        return event
    kind = _GROUPS.get(found.resource)
    if kind is None:
        raise msgspec.ValidationError(f"GroupSeen: {found.resource.api_version} is no PodGroup")
    group: Any = msgspec.json.decode(found.group, type=kind)
    return e.GroupSeen(found.resource, group)


def decode_command(raw: bytes | msgspec.Raw) -> c.Command:
    """The command. Raises msgspec.DecodeError (ValidationError is one) for what is none."""
    command: c.Command = _command.decode(raw)
    return command
