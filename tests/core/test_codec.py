"""Every event and command survives being written and read; a new type is part of this by itself."""

from __future__ import annotations

import enum
import types
import typing
from typing import Any, Union

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.core import codec
from extender.core import events as e
from extender.core.api import (
    NATIVE_GROUPS,
    NODES,
    PODS,
    PYTORCH_JOBS,
    SIGS_GROUPS,
    VOLCANO_GROUPS,
    Resource,
)
from extender.core.coordinator import Coordinator
from extender.core.podgroups import NativeGroup, SigsGroup, VolcanoGroup
from extender.core.routing import handlers
from extender.core.state import Rules
from extender.core.told import USES, Told
from tests import builders
from tests.core.machine import SESSION

RESOURCES = st.sampled_from([PODS, NODES, PYTORCH_JOBS, VOLCANO_GROUPS])
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=8),
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    type(None): st.none(),
}
JSON = st.recursive(
    st.one_of(*SCALARS.values()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SCALARS[str], inner, max_size=3),
    max_leaves=8,
)


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a type that the protocol uses."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return JSON
    if kind in SCALARS:
        return SCALARS[kind]
    if kind is Resource:
        return RESOURCES
    if origin in (Union, types.UnionType):
        return st.one_of(*map(values, arguments))
    if origin is tuple:
        return st.lists(values(arguments[0]), max_size=2).map(tuple)
    if origin is dict:
        return st.dictionaries(values(arguments[0]), values(arguments[1]), max_size=2)
    if issubclass(kind, enum.Enum):
        return st.sampled_from(list(kind))
    if kind is e.GroupSeen:
        groups = {
            VOLCANO_GROUPS: VolcanoGroup,
            SIGS_GROUPS: SigsGroup,
            NATIVE_GROUPS: NativeGroup,
        }
        return st.sampled_from(list(groups)).flatmap(
            lambda resource: values(groups[resource]).map(lambda x: e.GroupSeen(resource, x))
        )
    assert issubclass(kind, msgspec.Struct), kind
    hints = typing.get_type_hints(kind)
    fields = {f.name: st.deferred(lambda f=f: values(hints[f.name])) for f in msgspec.structs.fields(kind)}  # type: ignore[misc] # fmt: skip
    return st.builds(kind, **fields)


@pytest.mark.parametrize("kind", codec.EVENTS, ids=lambda kind: kind.__name__)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_an_event_is_what_was_written(kind: type[e.Event], data: st.DataObject) -> None:
    event = data.draw(values(kind))
    assert codec.decode_event(codec.encode(event)) == event


@pytest.mark.parametrize("kind", codec.COMMANDS, ids=lambda kind: kind.__name__)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_command_is_what_was_written(kind: Any, data: st.DataObject) -> None:
    command = data.draw(values(kind))
    line = codec.encode(command)
    assert b"\n" not in line
    assert codec.decode_command(line) == command


def test_every_event_is_handled_and_has_a_place_in_what_was_told() -> None:
    state = Coordinator(Rules(), SESSION, {}).state
    assert set(codec.EVENTS) == set(handlers(state)) == set(USES)


@pytest.mark.parametrize(
    "line",
    [b"", b"{", b'{"event":"Nothing"}', b'{"event":"NodeGone"}', b'{"event":"NodeGone","name":1}'],
)
def test_what_is_no_event_is_refused(line: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        codec.decode_event(line)


def test_a_group_of_no_known_kind_is_refused() -> None:
    line = codec.encode(e.GroupSeen(PODS, VolcanoGroup()))
    with pytest.raises(msgspec.ValidationError, match="v1 is no PodGroup"):
        codec.decode_event(line)


def test_what_was_told_is_told_again_by_object() -> None:
    told = Told()
    old, new = builders.node("n1", gpus=1), builders.node("n1", gpus=2)
    first, second = builders.pod("p", uid="1"), builders.pod("p", uid="2")
    story: list[tuple[e.Event, bool]] = [
        (e.LeaderGained(7), True),
        (e.NodeSeen(old), False),
        (e.PodSeen(first), False),
        (e.PodSeen(second), True),
        (e.PodGone("default", "p", "1"), False),
        (e.Tick(), False),
        (e.Synced(), True),
        (e.InvalidSeen(NODES, "", "n1", "u", "bad"), False),
        (e.NodeSeen(new), True),
        (e.InvalidSeen(PODS, "default", "p", "2", "worse"), True),
    ]
    for event, _ in story:
        told.tell(event, codec.encode(event))
    again = [codec.decode_event(line) for line in told.again()]
    kept = [event for event, stays in story if stays]
    assert sorted(again, key=repr) == sorted(kept, key=repr)
    assert again[-2:] == [e.Synced(), e.LeaderGained(7)]
    for gone in (e.NodeGone("n1"), e.PodGone("default", "p", "2"), e.LeaderLost()):
        told.tell(gone, codec.encode(gone))
    assert [codec.decode_event(line) for line in told.again()] == [e.Synced()]
