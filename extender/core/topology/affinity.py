"""Reads what stands behind the links in a row of ``nvidia-smi topo -m``: CPUs and NUMA nodes."""

from __future__ import annotations

import re

from msgspec import Struct

from extender.core.topology.model import NO_ZONE

TITLE = re.compile(r"CPU\s*Affinity|NUMA\s*Affinity|GPU\s*NUMA\s*ID|\bCPUs?\b|\bNUMA\b")
#: A word behind the links; N/A may run into the number before it.
_WORD = re.compile(r"N/A|\S+?(?=N/A|\s|\Z)")
CPUS = re.compile(r"[0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*")
_NODES = re.compile(r"[0-9]+(?:[-,][0-9]+)*")
_CPU, _NUMA, _MEMORY = "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"
#: By their first letter: a wrapped title has lost its blanks.
_TITLES = {"C": _CPU, "N": _NUMA, "G": _MEMORY}


class Row(Struct):
    """One line of the matrix: its words, and where in the line the last of them begins."""

    words: list[str]
    last: int = 0
    rest: str = ""
    #: Where ``rest`` begins in the line.
    at: int = 0


class Affinity:
    """The columns behind the links: CPUs, NUMA node, NUMA node of the device's own memory."""

    def __init__(self, header: str, columns: dict[str, int]) -> None:
        #: The titles and how far right of the last link's column each begins.
        self._titles = [_TITLES[found[0][0]] for found in TITLE.finditer(header)]
        before = TITLE.split(header)[0]
        last = before.rindex(list(columns)[-1])
        self._offsets = [found.start() - last for found in TITLE.finditer(header)]
        self.cpus: list[str] = []
        self.text: list[str] = []
        self.numa: list[int] = []
        self.memory: list[int | None] = []

    def read(self, name: str, row: Row | None, warnings: list[str]) -> None:
        """Append what the row of device ``name`` says; what is not there is unknown."""
        cells = self._cells(row) if row is not None else {}

        def value(title: str, form: re.Pattern[str]) -> str:
            word = cells.get(title, "")
            if word in ("", "N/A"):
                return ""
            if not form.fullmatch(word):
                warnings.append(f"{name}: {title} {word!r} cannot be read")
                return ""
            return word

        self.cpus.append(value(_CPU, CPUS))
        self.text.append(value(_NUMA, _NODES))
        node = self.text[-1]
        self.numa.append(int(node) if node.isdigit() and len(node) < 5 else NO_ZONE)
        memory = value(_MEMORY, _NODES)
        self.memory.append(int(memory) if memory.isdigit() else None)

    def _cells(self, row: Row) -> dict[str, str]:
        """The words behind the links by title: in order if all are there, else the nearest."""
        begin = row.at - row.last
        words = [(begin + found.start(), found[0]) for found in _WORD.finditer(row.rest)]
        if len(words) < len(self._titles):
            words = [part for word in words for part in self._cut(*word)]
        if len(words) >= len(self._titles):
            return dict(zip(self._titles, (word for _, word in words), strict=False))
        out: dict[str, str] = {}
        for at, word in words:
            far = [abs(offset - at) for offset in self._offsets]
            out.setdefault(self._titles[far.index(min(far))], word)
        return out

    def _cut(self, at: int, word: str) -> list[tuple[int, str]]:
        """A word that runs on under the next title is two."""
        for offset in self._offsets:
            if at < offset < at + len(word):
                return [(at, word[: offset - at]), (offset, word[offset - at :])]
        return [(at, word)]
