"""Snapshots and logs without a service: the core as it would decide about what they hold."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from extender.commands.common import say

if TYPE_CHECKING:
    from extender.core.coordinator import Coordinator
    from extender.obs.logfile import LogFile


class _Words(msgspec.Struct):
    message: str


class _Places(msgspec.Struct):
    nodes: list[str]


class _Pod(msgspec.Struct):
    name: str
    state: str
    node: str


class _Gang(msgspec.Struct, rename="camel"):
    """What is shown of a gang, of :func:`extender.core.inspecting.gang`."""

    group: str
    kind: str
    phase: str
    message: str
    min_member: int
    members: dict[str, int]
    reasons: list[_Words]
    pods: list[_Pod]
    plan: _Places | None


class _View(msgspec.Struct):
    """The line ``view`` of a snapshot, as far as it is shown."""

    gangs: list[_Gang]


#: Rounds of answers after which a core that goes on asking is asked no further.
_ROUNDS = 50
#: Seconds after the last turn of a log at which a what-if is asked.
_LATER = 60.0


def view(path: Path) -> dict[str, Any]:
    """``state`` and ``gangs`` as the service said them, or as they stand at the end of a log.

    Raises LogError, ConfigError.
    """
    from extender.core import inspecting
    from extender.core.errors import LogError
    from extender.obs.logfile import LogFile

    file = LogFile(path)
    said = file.view()
    if said is not None:
        try:
            msgspec.convert(said, _View)
        except msgspec.ValidationError as error:
            raise LogError(f"{path}: what the service said cannot be read: {error}") from error
        return said
    coordinator = core(file)
    s = coordinator.state
    gangs = [inspecting.gang(s, s.gangs[key]) for key in sorted(s.gangs)]
    return {"state": inspecting.state(s), "gangs": gangs}


def core(file: LogFile) -> Coordinator:
    """A core that was told all of a file, and leads. Raises LogError, ConfigError."""
    from extender.core.coordinator import Coordinator
    from extender.core.errors import LogError
    from extender.jobs import KINDS
    from extender.obs.logfile import RECORD
    from extender.settings import parse

    header = file.header
    if header.kind != RECORD:
        raise LogError(f"{file.path}: is of muster-log {header.kind!r}; allowed: {RECORD}")
    plugins = {"actions": header.actions, "tiers": header.tiers}
    settings = parse({key: x for key, x in plugins.items() if x}, str(file.path))
    kinds = {kind.resource: kind for kind in KINDS}
    coordinator = Coordinator(header.rules, settings.session(), kinds)
    faults = 0
    for event in file.told():
        faults += _broken(partial(coordinator.apply, event, 0.0))
    for turn in file.turns():
        for event in turn.events:
            faults += _broken(partial(coordinator.apply, event, turn.now))
        if _broken(partial(coordinator.step, turn.now)):
            faults += 1
            coordinator.set_aside(turn.now)
    if faults:
        say("snapshot", f"{file.path}: {faults} events or steps were broken off by a fault")
    return coordinator


def _broken(work: Callable[[], object]) -> bool:
    """Whether it was broken off by a fault of the core's own; the caller counts."""
    try:
        work()
    except Exception:  # noqa: BLE001 - as in the loop, a fault costs one event
        return True
    return False


def what_if(path: Path, more: int = 0, like: str = "") -> list[dict[str, Any]]:
    """Gangs that are not placed in a snapshot or at the end of a log, as they would be in a moment
    if every write went well: as in ``/debug/gangs``, with the ``plan`` that each would get.

    ``more`` nodes as the node ``like`` are added before. Raises LogError, ConfigError.
    """
    from extender.core import inspecting
    from extender.core.events import LeaderGained, NodeSeen, Synced
    from extender.obs.logfile import LogFile

    file = LogFile(path)
    coordinator = core(file)
    s = coordinator.state
    now = max((turn.now for turn in file.turns()), default=0.0) + _LATER
    for event in (NodeSeen(node) for node in _copies(file, more, like)):
        coordinator.apply(event, now)
    if not s.synced:
        coordinator.apply(Synced(), now)
    # Whatever was under way goes on from what the API server shows, as after a change of leader.
    coordinator.apply(LeaderGained(s.epoch + 1), now)
    waiting = [key for key, gang in s.gangs.items() if not gang.satisfied()]
    _decide(coordinator, now)
    return [inspecting.gang(s, s.gangs[key]) for key in sorted(waiting) if key in s.gangs]


def _decide(coordinator: Coordinator, now: float) -> None:
    """Until nothing more follows at once. Plans are not answered: what they hold, they hold."""
    from msgspec import convert

    from extender.core import commands as c
    from extender.core.api import VOLCANO_GROUPS
    from extender.core.events import Done, GroupSeen
    from extender.core.podgroups import VolcanoGroup

    for _ in range(_ROUNDS):
        again = False
        for command in coordinator.step(now):
            match command:
                case c.WakeAt(at):
                    again = again or at <= now
                case c.Create(id=number, dry_run=True, body=body):
                    coordinator.apply(Done(number, 201, object=body), now)
                    again = True
                case c.Create(resource=resource, body=body) if resource == VOLCANO_GROUPS:
                    meta = {**body["metadata"], "uid": f"what-if-{body['metadata']['name']}"}
                    group = convert({**body, "metadata": meta}, VolcanoGroup)
                    coordinator.apply(GroupSeen(resource, group), now)
                    again = True
                case _:
                    pass
        if not again:
            return


def _copies(file: LogFile, count: int, like: str) -> list[Any]:
    from msgspec.structs import replace

    from extender.core.errors import ConfigError
    from extender.core.events import NodeSeen

    if not count:
        return []
    events = [*file.told(), *(event for turn in file.turns() for event in turn.events)]
    nodes = {x.node.metadata.name: x.node for x in events if isinstance(x, NodeSeen)}
    if like not in nodes:
        allowed = ", ".join(sorted(nodes)[:10]) or "there are none"
        raise ConfigError(f"--like: {like!r} is not allowed: a node of {file.path} ({allowed})")
    node = nodes[like]
    found = []
    for number in range(count):
        name = f"{like}-what-if-{number}"
        labels = {k: name if v == like else v for k, v in node.metadata.labels.items()}
        found.append(
            replace(node, metadata=replace(node.metadata, name=name, uid="", labels=labels))
        )
    return found
