"""Draws the story: live on a terminal, line by line elsewhere, and as a picture."""

from __future__ import annotations

import io
import re
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from extender.demo.chronicle import Chronicle, Gang

#: One colour a gang, in the order of the cast; a free GPU is dim.
_COLOURS = ("green", "magenta", "cyan")
_WIDTH = 100
#: Sentences that a live screen keeps in view.
_RECENT = 12


class Screen:
    """A Teller that draws on a stream, and may record a picture."""

    def __init__(self, stream: TextIO, *, picture: bool) -> None:
        """``picture``: keep what :meth:`svg` needs."""
        self._console = Console(
            file=stream, width=None if stream.isatty() else _WIDTH, highlight=False
        )
        self._live: Live | None = None
        self._chronicle: Chronicle | None = None
        self._said: list[str] = []
        self._album: list[Text | Group] = []
        self._picture = picture

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def follow(self, chronicle: Chronicle) -> None:
        """Draw this cluster from now on."""
        self._chronicle = chronicle
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=False)
            self._live.start()
            chronicle.changed = self._redraw

    def say(self, text: str) -> None:
        """A sentence of the narration."""
        self._said.append(text)
        self._keep(_sentence(text))
        if self._live is None:
            self._console.print(_sentence(text))
        else:
            self._redraw()

    def show(self) -> None:
        """The cluster as it is now."""
        if self._chronicle is None:
            return
        frame = _frame(self._chronicle)
        if any(map(self._chronicle.used, self._chronicle.nodes)) or self._waits():
            # An empty cluster is not worth its place in the picture.
            self._keep(frame)
        if self._live is None:
            self._console.print(frame)

    def svg(self) -> str:
        """Everything told so far as a picture."""
        console = Console(
            file=io.StringIO(), record=True, width=_WIDTH, highlight=False, force_terminal=True
        )
        for item in self._album:
            console.print(item)
        picture = console.export_svg(title="scripts/demo", unique_id="demo")
        # A picture that asks nobody for a font.
        return re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)

    def _waits(self) -> bool:
        return self._chronicle is not None and any(
            gang.reason for gang in self._chronicle.gangs.values()
        )

    def _keep(self, what: Text | Group) -> None:
        if self._picture:
            self._album.append(what)

    def _redraw(self) -> None:
        if self._live is not None and self._chronicle is not None:
            told = [_sentence(text) for text in self._said[-_RECENT:]]
            self._live.update(Group(*told, _frame(self._chronicle)), refresh=True)


def _sentence(text: str) -> Text:
    return Text.assemble(("▸ ", "bold yellow"), text)


def _frame(chronicle: Chronicle) -> Group:
    """The nodes, their GPUs, and the gangs that have been seen."""
    colours = dict(zip(chronicle.gangs, _COLOURS, strict=True))
    nodes = Table.grid(padding=(0, 2))
    for name, gpus in sorted(chronicle.nodes.items()):
        nodes.add_row(
            f"  {name}", _gpus(chronicle, colours, name, gpus), _pods(chronicle, colours, name)
        )
    gangs = Table.grid(padding=(0, 2))
    for gang in chronicle.gangs.values():
        if gang.members:
            title = Text(f"  {gang.name}", style=colours[gang.name])
            gangs.add_row(title, f"{gang.count()}/{gang.members} bound", _state(gang))
    return Group(Text(), nodes, gangs, Text())


def _gpus(chronicle: Chronicle, colours: dict[str, str], node: str, gpus: int) -> Text:
    cells = Text()
    for pod, count in chronicle.used(node):
        cells.append("■ " * count, style=_colour(colours, pod))
    free = gpus - len(cells) // 2
    return cells.append("□ " * free, style="dim")


def _pods(chronicle: Chronicle, colours: dict[str, str], node: str) -> Text:
    text = Text()
    for pod, _ in chronicle.used(node):
        text.append(f"{pod} ", style=_colour(colours, pod))
    return text


def _colour(colours: dict[str, str], pod: str) -> str:
    return next((colour for name, colour in colours.items() if pod.startswith(f"{name}-")), "")


def _state(gang: Gang) -> Text:
    """What it is at: its job's last condition, or that of its pods, or why it waits."""
    if gang.ended():
        return Text("Succeeded", style="dim")
    if gang.whole():
        return Text(gang.states[-1] if gang.states else "Running", style="bold")
    return Text(f"waits: {gang.reason}" if gang.reason else "", style="yellow")
