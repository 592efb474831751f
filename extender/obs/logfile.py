"""The format of a recorded log: JSON on lines of its own, readable up to where it was cut off.

First line: a :class:`Header`. Then ``{"told": EVENT}`` for each object that the file begins with,
then a :class:`TurnLine` for each turn of the loop. A snapshot is a log that ends with its beginning,
and has the gangs as the service saw them in a line ``{"view": …}``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw, Struct, field

from extender import __version__
from extender.core import codec
from extender.core.errors import LogError
from extender.core.events import Event
from extender.core.objects import Manifest
from extender.core.replaying import Turn
from extender.core.state import Rules
from extender.core.times import LAST
from extender.settings import Settings

VERSION: Final = 1
#: ``Header.kind``: of the service, and of `simulate chaos`, whose lines extender.chaos reads.
RECORD: Final = "record"
CHAOS: Final = "chaos"
#: ``Header.begins``: with nothing, as its process did, or with what had been told by then.
START, OBJECTS = "start", "objects"


class Lost(Struct):
    """What the log before this file lacks: the disk was slower than the cluster, or full."""

    turns: int = 0
    events: int = 0


class Header(Struct):
    """The first line. ``run`` is one process's life, whose files are numbered by ``part``."""

    kind: str = field(name="muster-log")
    version: int = VERSION
    muster: str = ""
    run: str = ""
    part: int = 0
    begins: str = START
    #: Nothing was under way when it began, see :func:`extender.core.replaying.at_rest`.
    rest: bool = False
    lost: Lost | None = None
    rules: Rules = Rules()
    #: Of the configuration, what chooses plugins: in the format of muster.yaml.
    actions: str = ""
    tiers: list[Manifest] = []


class TurnLine(Struct, omit_defaults=True):
    """A turn, as it is written; see :class:`extender.core.replaying.Turn`."""

    now: Annotated[float, Meta(ge=0, le=LAST)] = 0.0
    events: list[Raw] = []
    commands: list[Raw] = []
    failed: bool = False
    rest: bool = False


class Line(TurnLine):
    """Any line but the first, as it is read."""

    told: Raw = Raw()
    view: Manifest | None = None


class LogFile:
    """One file, read from its beginning as often as asked. Raises LogError for what is no log."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                first = file.readline()
        except OSError as error:
            raise LogError(f"{path}: {error.strerror}") from error
        self.header = self._header(first)
        #: A last line that was cut off, as a crash leaves it.
        self.cut = False

    def told(self) -> Iterator[Event]:
        """The objects that it begins with."""
        for number, line in self._lines():
            if not bytes(line.told):
                return
            yield self._event(line.told, number)

    def turns(self) -> Iterator[Turn]:
        """What happened from there on."""
        for number, line in self._lines():
            if not bytes(line.told) and line.view is None:
                events = tuple(self._event(raw, number) for raw in line.events)
                commands = tuple(
                    self._decoded(codec.decode_command, x, number) for x in line.commands
                )
                yield Turn(line.now, events, commands, line.failed, line.rest)

    def view(self) -> Manifest | None:
        """What the service itself said of its gangs, in a snapshot."""
        return next((line.view for _, line in self._lines() if line.view is not None), None)

    def _lines(self) -> Iterator[tuple[int, Line]]:
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    self.cut = True
                    return
                if number > 1:
                    yield number, self._decoded(_line.decode, line, number)

    def _event(self, raw: Raw, number: int) -> Event:
        event: Event = self._decoded(codec.decode_event, raw, number)
        return event

    def _decoded(self, decode: Any, raw: bytes | Raw, number: int) -> Any:
        try:
            return decode(raw)
        except RecursionError as error:
            raise LogError(f"{self.path}: line {number}: is nested too deeply") from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise LogError(f"{self.path}: line {number}: {error}") from error

    def _header(self, first: bytes) -> Header:
        try:
            header = _header.decode(first)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise LogError(f"{self.path}: is no log of Muster: {error}") from error
        if header.kind not in (RECORD, CHAOS):
            raise LogError(f"{self.path}: muster-log {header.kind!r} is not allowed: record, chaos")
        if header.kind == RECORD and header.version != VERSION:
            raise LogError(f"{self.path}: version {header.version} is not allowed: {VERSION}")
        if header.begins not in (START, OBJECTS):
            raise LogError(f"{self.path}: begins {header.begins!r} is not allowed: start, objects")
        return header


def header_of(settings: Settings, rules: Rules) -> Header:
    """The first line of the log of a process that begins now."""
    tiers = settings.model_dump(mode="json", by_alias=True, include={"tiers"})["tiers"]
    return Header(
        RECORD,
        muster=__version__,
        run=uuid.uuid4().hex,
        rules=rules,
        actions=", ".join(settings.actions),
        tiers=tiers,
    )


_header = msgspec.json.Decoder(Header)
_line = msgspec.json.Decoder(Line)
