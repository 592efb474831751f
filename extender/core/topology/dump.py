"""Reads the text of ``nvidia-smi topo -m`` as people paste it.

The columns of a row cannot be found by blanks: terminals wrap lines, and pasted columns run into
each other (``NODENODE``, ``SYS0-35,72-107``, ``NIC8CPU Affinity``). So a row is read from left to
right, one link word for each name of the header; what follows is affinity. A part that cannot be
read is unknown and leaves a warning; only a text without any device is refused. ``pasted`` has
taken away what is not the tool's.
"""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from extender.core.errors import InvalidObject
from extender.core.topology.affinity import CPUS, TITLE, Affinity, Row
from extender.core.topology.model import (
    MOST_DEVICES,
    UNKNOWN,
    Topology,
    code_of,
    topology,
)
from extender.core.topology.pasted import lines_of

#: What is read, for whoever gave something else.
TOOLS = "`nvidia-smi topo -m`, `rocm-smi --showtopo` or `amd-smi topology`"

_HEADER = re.compile(
    r"\s*GPU[0-9]+\s*(?:GPU[0-9]|NIC[0-9]|CPU\s*Aff|NUMA\s*Aff|\.\.\.|[a-z][a-z_-]*[0-9])"
)
#: The next word of a matrix; a bonded link may run into the CPU list that follows it (NV40-35).
_CELL = re.compile(
    r"\s*(X(?![A-Za-z])|SYS|NODE|PHB|PXB|PIX|PSB|SOC|NV[1-9][0-9](?![-,])|NV[1-9])",
)
_FIRST_ROW = re.compile(rf"(?<!\s)\s*(?<![A-Za-z0-9])GPU[0-9]+{_CELL.pattern}")
#: A row of ``nvidia-smi topo -p2p``: shown beside the matrix, it says nothing of links.
_PEERS = re.compile(r"\s*GPU[0-9]+(?:\s+X)?\s+(?:OK|[CGT]?NS|DR|U)(?:\s|\Z)")
#: Whoever shortens a table writes this for what is left out.
_LEFT_OUT = re.compile(r"\.\.+|…")
_GLUED = re.compile(r"(?:GPU|NIC)[0-9]+|mlx[0-9]+_(?:bond_)?[0-9]+")
_WRAPPED = re.compile(r"[A-Z0-9 ,/-]+")
_DEVICE = re.compile(r"GPU([0-9]{1,4})")
_LEGEND = re.compile(r"(NIC[0-9]+):")
_NIC_NAME = re.compile(r"[A-Za-z][\w.\-]+")
_PORT = re.compile(r"[A-Za-z][\w.\-]*[0-9][\w.\-]*")


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


def read_dump(text: str, product: str = "") -> Reading:
    """The topology that ``text`` shows.

    Raises InvalidObject (field ``dump``) when there is no matrix of devices in it.
    """
    warnings: list[str] = []
    lines = [line for line in lines_of(text, _FIRST_ROW) if not _PEERS.match(line)]
    first = next((i for i, line in enumerate(lines) if _FIRST_ROW.match(line)), 0)
    start = _begin(lines, first)
    header = "".join(lines[start:first]) if start is not None else _diagonal(lines[first:])
    if not header:
        raise InvalidObject("dump", text.strip(), f"the output of {TOOLS}")
    if start is None:
        warnings.append("no header: columns are named by the X of each row, affinity is not read")
    if _LEFT_OUT.search(header):
        warnings.append("columns are left out of the text (...)")
        header, *lines[first:] = (_LEFT_OUT.sub(_blank, line) for line in (header, *lines[first:]))
    title = TITLE.search(header)
    columns = _names(header[: title.start()] if title else header)
    devices = [name for name in columns if _DEVICE.fullmatch(name)]
    if not devices:
        raise InvalidObject("dump", header.strip(), "columns of GPUs: GPU0, GPU1 …")
    if len(devices) > MOST_DEVICES:
        raise InvalidObject("dump", f"{len(devices)} GPUs", f"at most {MOST_DEVICES}")
    rows = _rows(lines[first:], columns, warnings)
    words = _square(devices, columns, rows, warnings)
    affinity = Affinity(header, columns)
    for name in devices:
        affinity.read(name, rows.get(name), warnings)
    nics = [name for name in columns if not _DEVICE.fullmatch(name) and _PORT.fullmatch(name)]
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


def _blank(found: re.Match[str]) -> str:
    return " " * len(found[0])


def _diagonal(lines: list[str]) -> str:
    """The header that rows without one must have had, by the X of each; "" where none fits."""
    at: dict[int, str] = {}
    width = 0
    for line in lines:
        name = line.split(maxsplit=1)[0] if line.strip() else ""
        cells = _cells_of(line, name)
        if "X" in cells:
            at.setdefault(cells.index("X"), name)
            width = max(width, len(cells))
    if sum(_DEVICE.fullmatch(name) is not None for name in at.values()) < 2:
        return ""
    return " ".join(at.get(column, f"?{column}") for column in range(width))


def _cells_of(line: str, name: str) -> list[str]:
    """The link words that follow ``name`` in its line."""
    out: list[str] = []
    at = line.index(name) + len(name)
    while (cell := _CELL.match(line, at)) is not None:
        out.append(cell[1])
        at = cell.end()
    return out


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


def _rows(lines: list[str], columns: dict[str, int], warnings: list[str]) -> dict[str, Row]:
    """The matrix's rows by name; a wrapped row goes on in the lines that follow it."""
    whole: dict[str, str] = {}
    name = ""
    for at, line in enumerate(lines):
        if _HEADER.match(line):
            if any(_FIRST_ROW.match(later) for later in lines[at:]):
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


def _row(name: str, line: str, columns: dict[str, int], warnings: list[str]) -> Row:
    row = Row([])
    at = line.index(name) + len(name)
    for column in columns:
        cell = _CELL.match(line, at)
        if cell is None:
            token = line[at:].split(maxsplit=1)[:1]
            if not token or CPUS.match(token[0]) or token[0] == "N/A":
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
    devices: list[str], columns: dict[str, int], rows: dict[str, Row], warnings: list[str]
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


def _cell(rows: dict[str, Row], columns: dict[str, int], row: str, column: str) -> str:
    at = columns[column]
    words = rows[row].words if row in rows else []
    return words[at] if at < len(words) else "?"


def _code(word: str) -> int:
    code = code_of(word)
    return UNKNOWN if code is None else code


def _nic_names(nics: list[str], lines: list[str], warnings: list[str]) -> list[str]:
    """The device names of the legend below the matrix; a column without one keeps its own."""
    told: dict[str, str] = {}
    for _, *parts in map(_LEGEND.split, lines):
        for nic, rest in zip(parts[::2], parts[1::2], strict=True):
            name = rest.strip()
            if nic in told or nic not in nics:
                continue
            if _NIC_NAME.fullmatch(name):
                told[nic] = name
            else:
                warnings.append(f"NIC Legend: {nic}: {name!r} is no device name")
    return [told.get(nic, nic) for nic in nics]
