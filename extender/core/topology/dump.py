"""Reads the text of ``nvidia-smi topo -m`` as people paste it.

The columns of a row cannot be found by blanks: terminals wrap lines, and pasted columns run into
each other (``NODENODE``, ``SYS0-35,72-107``, ``NIC8CPU Affinity``). So a row is read from left to
right, one link word for each name of the header; what follows is affinity. A part that cannot be
read is unknown and leaves a warning; only a text without any device is refused.
"""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from extender.core.errors import InvalidObject
from extender.core.topology.model import (
    MOST_DEVICES,
    NO_ZONE,
    UNKNOWN,
    Topology,
    code_of,
    topology,
)

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_BREAK = re.compile(r"<br ?/?>")
_QUOTED = re.compile(r"^ *(?:[#>|│*] ?)+")
_HEADER = re.compile(r"\s*GPU[0-9]+\s*(?:GPU[0-9]|NIC[0-9]|CPU\s*Aff|[a-z])")
#: The next word of a matrix; a bonded link may run into the CPU list that follows it (NV40-35).
_CELL = re.compile(
    r"\s*(X(?![A-Za-z])|SYS|NODE|PHB|PXB|PIX|PSB|SOC|NV[1-9][0-9](?![-,])|NV[1-9])",
)
_FIRST_ROW = re.compile(rf"\s*GPU[0-9]+{_CELL.pattern}")
_TITLE = re.compile(r"CPU\s*Affinity|NUMA\s*Affinity|GPU\s*NUMA\s*ID")
_GLUED = re.compile(r"(?:GPU|NIC)[0-9]+|mlx[0-9]+_(?:bond_)?[0-9]+")
_WRAPPED = re.compile(r"[A-Z0-9 ,/-]+")
_DEVICE = re.compile(r"GPU([0-9]{1,4})")
_LEGEND = re.compile(r"(NIC[0-9]+): *(.*?) *(?=NIC[0-9]+:|\Z)")
_NIC_NAME = re.compile(r"[a-z][\w.\-]*[0-9]")
#: A word behind the links; N/A may run into the number before it.
_WORD = re.compile(r"N/A|\S+?(?=N/A|\s|\Z)")
_CPUS = re.compile(r"[0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*")
_NODES = re.compile(r"[0-9]+(?:[-,][0-9]+)*")
_CPU, _NUMA, _MEMORY = "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"
#: By their first letter: a wrapped title has lost its blanks.
_TITLES = {"C": _CPU, "N": _NUMA, "G": _MEMORY}


class Reading(Struct):
    """What a dump says, and what of it could not be read."""

    topology: Topology
    #: (n, n) the words of the dump itself, "?" where there is none.
    words: list[list[str]]
    #: (n,) NUMA affinity as written (``0``, ``0-1``), "" where it is missing or N/A.
    affinity: list[str]
    #: (n,) the NUMA node of the device's own memory, where it has one.
    memory_nodes: list[int | None]
    warnings: list[str]


class _Row(Struct):
    """One line of the matrix: its words, and where in the line the last of them begins."""

    words: list[str]
    last: int = 0
    rest: str = ""
    #: Where ``rest`` begins in the line.
    at: int = 0


def read_dump(text: str, product: str = "") -> Reading:
    """The topology that ``text`` shows.

    Raises InvalidObject (field ``dump``) when there is no matrix of devices in it.
    """
    warnings: list[str] = []
    lines = [_plain(line) for line in _BREAK.sub("\n", text).splitlines()]
    first = next((i for i, line in enumerate(lines) if _FIRST_ROW.match(line)), 0)
    start = _begin(lines, first)
    if start is None:
        raise InvalidObject(
            "dump", text.strip(), "the output of `nvidia-smi topo -m` or `rocm-smi --showtopo`"
        )
    header = "".join(lines[start:first])
    title = _TITLE.search(header)
    columns = _names(header[: title.start()] if title else header)
    devices = [name for name in columns if _DEVICE.fullmatch(name)]
    if not devices:
        raise InvalidObject("dump", header.strip(), "columns of GPUs: GPU0, GPU1 …")
    if len(devices) > MOST_DEVICES:
        raise InvalidObject("dump", f"{len(devices)} GPUs", f"at most {MOST_DEVICES}")
    rows = _rows(lines[first:], columns, warnings)
    words = _square(devices, columns, rows, warnings)
    affinity = _Affinity(header, columns)
    for name in devices:
        affinity.read(name, rows.get(name), warnings)
    nics = [name for name in columns if not _DEVICE.fullmatch(name)]
    cells = [[_cell(rows, columns, name, nic) for nic in nics] for name in devices]
    known = topology(
        np.array([[_code(word) for word in row] for row in words], dtype=np.uint8),
        index=tuple(int(name[3:]) for name in devices),
        numa=np.array(affinity.numa, dtype=np.int16),
        cpus=tuple(affinity.cpus),
        nics=tuple(_nic_names(nics, lines, warnings)),
        nic_links=np.array(
            [[_code(word) for word in row] for row in cells], dtype=np.uint8
        ).reshape(len(devices), len(nics)),
        product=product,
    )
    return Reading(known, words, affinity.text, affinity.memory, warnings)


def _plain(line: str) -> str:
    """Without colours, quotation marks and the lines of a table; columns stay where they were."""
    return _QUOTED.sub("", _ESCAPE.sub("", line).expandtabs(8)).replace("|", " ")


def _begin(lines: list[str], first: int) -> int | None:
    """Where the header of the matrix begins whose first row is ``first``; None: nowhere.

    A header may be wrapped, so the earliest line of the block above the row counts; text further
    up may look like one too.
    """
    start = None
    for at in range(first - 1, -1, -1):
        if _HEADER.match(lines[at]):
            start = at
        elif start is not None and not lines[at].strip():
            break
    return start


def _names(header: str) -> dict[str, int]:
    """The columns by name, in order; names that run into each other are taken apart."""
    out: list[str] = []
    for token in header.split():
        parts = _GLUED.findall(token)
        out += parts if "".join(parts) == token else [token]
    return {name: at for at, name in enumerate(dict.fromkeys(out))}


def _rows(lines: list[str], columns: dict[str, int], warnings: list[str]) -> dict[str, _Row]:
    """The matrix's rows by name; a wrapped row goes on in the lines that follow it."""
    whole: dict[str, str] = {}
    name = ""
    for line in lines:
        if _HEADER.match(line):
            warnings.append("a second matrix follows; only the first is read")
            break
        token = line.split(maxsplit=1)[0] if line.strip() else ""
        if token in columns and _CELL.match(line, line.index(token) + len(token)):
            name = token
            if name in whole:
                warnings.append(f"{name}: a second row of this name is ignored")
                name = ""
            else:
                whole[name] = line
        elif name and token and _WRAPPED.fullmatch(line):
            whole[name] += line
        else:
            name = ""
    return {name: _row(name, line, columns, warnings) for name, line in whole.items()}


def _row(name: str, line: str, columns: dict[str, int], warnings: list[str]) -> _Row:
    row = _Row([])
    at = line.index(name) + len(name)
    for column in columns:
        cell = _CELL.match(line, at)
        if cell is None:
            token = line[at:].split(maxsplit=1)[:1]
            if not token or _CPUS.match(token[0]) or token[0] == "N/A":
                missing = len(columns) - len(row.words)
                warnings.append(f"{name}: {missing} of {len(columns)} links are missing")
                break
            warnings.append(f"{name} to {column}: {token[0]!r} is no link that is known")
            row.words.append("?")
            at = line.index(token[0], at) + len(token[0])
            continue
        row.words.append(cell[1])
        # X is printed in the middle of its column.
        row.last, at = cell.start(1) - (cell[1] == "X"), cell.end()
    if _CELL.match(line, at):
        warnings.append(f"{name}: has more links than the header has columns")
        at = len(line)
    row.rest, row.at = line[at:], at
    return row


def _square(
    devices: list[str], columns: dict[str, int], rows: dict[str, _Row], warnings: list[str]
) -> list[list[str]]:
    """(n, n) words between devices; a row that is missing is taken from the others' columns."""
    words = [[_cell(rows, columns, a, b) for b in devices] for a in devices]
    gone = [name for name in devices if name not in rows]
    if gone:
        warnings.append(f"no row of {', '.join(gone)}: their links are read from the other rows")
    for i, name in enumerate(devices):
        if words[i][i] not in ("X", "?"):
            warnings.append(f"{name}: its link to itself is {words[i][i]}, X expected")
        words[i][i] = "X"
        for j in range(i):
            if words[i][j] == "?":
                words[i][j] = words[j][i]
            elif words[j][i] == "?":
                words[j][i] = words[i][j]
            elif words[i][j] != words[j][i]:
                pair = f"{devices[j]} to {name}"
                both = f"{words[j][i]} there and {words[i][j]} back"
                warnings.append(f"{pair}: {both}; the slower one counts")
    return words


def _cell(rows: dict[str, _Row], columns: dict[str, int], row: str, column: str) -> str:
    at = columns[column]
    words = rows[row].words if row in rows else []
    return words[at] if at < len(words) else "?"


def _code(word: str) -> int:
    code = code_of(word)
    return UNKNOWN if code is None else code


def _nic_names(nics: list[str], lines: list[str], warnings: list[str]) -> list[str]:
    """The device names of the legend below the matrix; a column without one keeps its own."""
    told: dict[str, str] = {}
    for entry in (found for line in lines for found in _LEGEND.finditer(line)):
        if entry[1] in told or entry[1] not in nics:
            continue
        if _NIC_NAME.fullmatch(entry[2]):
            told[entry[1]] = entry[2]
        else:
            warnings.append(f"NIC Legend: {entry[1]}: {entry[2]!r} is no device name")
    return [told.get(nic, nic) for nic in nics]


class _Affinity:
    """The columns behind the links: CPUs, NUMA node, NUMA node of the device's own memory."""

    def __init__(self, header: str, columns: dict[str, int]) -> None:
        #: The titles and how far right of the last link's column each begins.
        self._titles = [_TITLES[found[0][0]] for found in _TITLE.finditer(header)]
        before = _TITLE.split(header)[0]
        last = before.rindex(list(columns)[-1])
        self._offsets = [found.start() - last for found in _TITLE.finditer(header)]
        self.cpus: list[str] = []
        self.text: list[str] = []
        self.numa: list[int] = []
        self.memory: list[int | None] = []

    def read(self, name: str, row: _Row | None, warnings: list[str]) -> None:
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

        self.cpus.append(value(_CPU, _CPUS))
        self.text.append(value(_NUMA, _NODES))
        node = self.text[-1]
        self.numa.append(int(node) if node.isdigit() and len(node) < 5 else NO_ZONE)
        memory = value(_MEMORY, _NODES)
        self.memory.append(int(memory) if memory.isdigit() else None)

    def _cells(self, row: _Row) -> dict[str, str]:
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
