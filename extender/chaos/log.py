"""A run as a file: what happened in it, what it came to, and the same again.

The first line is a header, {"muster-log": "chaos", "version": 1, …}; each line after it is one act.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import orjson
from msgspec import Struct

from extender.chaos.judge import Violation
from extender.chaos.run import Outcome, play
from extender.chaos.schedule import ACTS, Act, Script
from extender.core.errors import InvalidObject

VERSION = 1


class Circumstances(Struct):
    """What a script has beside its acts (:class:`extender.chaos.schedule.Script`)."""

    seed: int
    seconds: float
    replicas: int
    rest: float
    enough: int


class Result(Struct):
    """What the run came to when it was written."""

    steps: int
    digest: str
    violations: list[Violation]


class Header(Struct, rename={"log": "muster-log"}):
    """The first line."""

    log: str
    version: int
    script: Circumstances
    result: Result


def write(outcome: Outcome, path: Path) -> None:
    """Write an outcome for :func:`replay`. Raises OSError."""
    script = outcome.script
    header = Header(
        "chaos",
        VERSION,
        Circumstances(script.seed, script.seconds, script.replicas, script.rest, script.enough),
        Result(outcome.steps, outcome.digest, outcome.violations),
    )
    lines = [msgspec.json.encode(line) for line in (header, *script.acts)]
    path.write_bytes(b"\n".join(lines) + b"\n")


def read(path: Path) -> tuple[Header, Script]:
    """Read such a file. Raises OSError, and InvalidObject where it is not one."""
    first, *rest = path.read_bytes().splitlines() or [b""]
    try:
        header = msgspec.json.decode(first, type=Header)
    except msgspec.DecodeError as error:
        raise InvalidObject(f"{path} line 1", first.decode(errors="replace"), str(error)) from error
    if (header.log, header.version) != ("chaos", VERSION):
        what = f'"muster-log": "chaos" of version {VERSION}'
        raise InvalidObject(f"{path} line 1", f"{header.log} of version {header.version}", what)
    acts = tuple(_act(path, number, line) for number, line in enumerate(rest, 2) if line)
    given = header.script
    script = Script(given.seed, given.seconds, acts, given.replicas, given.rest, given.enough)
    return header, script


def replay(path: str | Path) -> dict[str, Any]:
    """Run a file again with the code as it is.

    The answer: ``events`` (acts), ``commands`` (changes of the store), ``identical`` (the same
    history and the same violations) and the ``violations``. Raises as :func:`read`.
    """
    header, script = read(Path(path))
    outcome, before = play(script), header.result
    return {
        "events": len(script.acts),
        "commands": outcome.steps,
        "identical": (outcome.digest, outcome.violations) == (before.digest, before.violations),
        "violations": orjson.loads(msgspec.json.encode(outcome.violations)),
    }


def _act(path: Path, number: int, line: bytes) -> Act:
    place = f"{path} line {number}"
    try:
        act = msgspec.json.decode(line, type=Act)
    except msgspec.DecodeError as error:
        raise InvalidObject(place, line.decode(errors="replace"), str(error)) from error
    if act.name not in ACTS:
        raise InvalidObject(f"{place}: name", act.name, f"one of {', '.join(sorted(ACTS))}")
    return act
