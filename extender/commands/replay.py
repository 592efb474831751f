"""``muster replay``: does today's code give the commands that a log holds?"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from extender.commands.common import MISUSE, NO, OK, answer, json_flag, say

if TYPE_CHECKING:
    from extender.core.replaying import Replay
    from extender.obs.logfile import LogFile

HELP = "tell a recorded log to today's code, and say where its commands differ"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "log",
        nargs="+",
        metavar="LOG",
        type=Path,
        help="of `serve --record`, several parts of one run in order, or of `simulate chaos`",
    )
    json_flag(parser)


def run(args: argparse.Namespace) -> int:
    from extender.core.errors import ConfigError, InvalidObject, LogError
    from extender.obs.logfile import CHAOS, LogFile

    try:
        files = [LogFile(path) for path in args.log]
        found = _chaos(files[0]) if files[0].header.kind == CHAOS else _record(files)
    except OSError as error:
        say("replay", f"{error.filename}: {error.strerror}")
        return MISUSE
    except (ConfigError, InvalidObject, LogError) as error:
        say("replay", error)
        return MISUSE
    if args.json:
        answer(found)
    else:
        _print(found)
    return OK if found["identical"] else NO


def _chaos(file: LogFile) -> dict[str, Any]:
    """A run of ``simulate chaos`` over again; ``commands`` are the changes of its store."""
    from extender import chaos
    from extender.chaos.run import silence

    silence()
    return chaos.replay(file.path)


def _record(files: list[LogFile]) -> dict[str, Any]:
    from extender.core.coordinator import Coordinator
    from extender.core.errors import LogError
    from extender.core.replaying import Replay
    from extender.jobs import KINDS
    from extender.obs.logfile import START
    from extender.settings import parse

    first = files[0].header
    said = {"actions": first.actions, "tiers": first.tiers}
    settings = parse({key: x for key, x in said.items() if x}, str(files[0].path))
    kinds = {kind.resource: kind for kind in KINDS}
    whole = first.begins == START
    replay = Replay(
        Coordinator(first.rules, settings.session(), kinds),
        None if whole else files[0].told(),
        rest=first.rest,
    )
    for number, file in enumerate(files):
        header = file.header
        if number and (header.run, header.part) != (first.run, first.part + number):
            raise LogError(
                f"{file.path}: is not what follows {files[number - 1].path}: it is part"
                f" {header.part} of run {header.run}"
            )
        if number and header.lost is not None:
            raise LogError(
                f"{file.path}: {header.lost.turns} turns before it are lost; replay it by itself"
            )
        for turn in file.turns():
            replay.turn(turn)
        if file.cut:
            say("replay", f"{file.path}: the last line was cut off, and is left out")
    if not replay.judges:
        raise LogError(
            f"{files[0].path}: nothing can be judged: it begins with objects, and there is no"
            " moment in it at which nothing waits or is under way; give the parts before it, too"
        )
    return _found(replay, first.begins)


def _found(replay: Replay, begins: str) -> dict[str, Any]:
    """``judged``: commands that were compared; fewer than all where the log begins with objects."""
    import msgspec

    found: dict[str, Any] = {
        "events": replay.events,
        "commands": replay.commands,
        "identical": replay.difference is None,
        "judged": replay.judged,
        "begins": begins,
        "faults": replay.faults,
    }
    if replay.difference is not None:
        found["difference"] = msgspec.to_builtins(replay.difference)
    return found


def _print(found: dict[str, Any]) -> None:
    verdict = "identical" if found["identical"] else "not identical"
    print(f"{found['events']} events, {found['commands']} commands: {verdict}")
    if found.get("begins") == "objects":
        print(
            f"  the log begins with objects: {found['judged']} commands were judged, from when"
            " nothing was under way; what had been learnt by then is not in it"
        )
    for violation in found.get("violations", ()):
        print(f"  {violation}")
    difference = found.get("difference")
    if difference is not None:
        print(f"  at event {difference['event']}")
        if difference["broken"]:
            print(f"  the step was broken off by a fault of Muster's own: {difference['broken']}")
        for side in ("expected", "got"):
            print(f"  {side:<8}  {difference[side] or 'nothing'}")
