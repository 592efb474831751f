"""Reads what ``rocm-smi --showtopo`` and ``amd-smi topology`` print, as text and as JSON.

Both print tables between GPUs (weight, hops, link type, bandwidth), rocm-smi by number and amd-smi
by PCI address, and rocm-smi a list of NUMA nodes. A table may be missing: ``--showtopotype`` prints
one only. XGMI is a direct link where its weight is the least of the text: the driver counts 15 for
each step, also through other GPUs. Its links are the greatest bandwidth over the least, which is
one link's (amdgpu's ``amdgpu_amdkfd_get_xgmi_bandwidth_mbytes``). Hops of PCIE are 2 within a
socket and 3 across (AMD SMI's own documentation).
"""

from __future__ import annotations

import re
from itertools import permutations

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from extender.core.errors import InvalidObject
from extender.core.topology.dump import TOOLS, Reading
from extender.core.topology.model import (
    MOST_DEVICES,
    MOST_LINKS,
    NO_ZONE,
    NODE,
    SELF,
    SYS,
    UNKNOWN,
    XGMI,
    Codes,
    topology,
)
from extender.core.topology.pasted import lines_of

_MARKS = ("Link Type between two GPUs", "LINK TYPE TABLE", '"link_type"')
_TITLES = {
    "Weight between two GPUs": "weight",
    "WEIGHT TABLE": "weight",
    "Hops between two GPUs": "hops",
    "HOPS TABLE": "hops",
    "Link Type between two GPUs": "type",
    "LINK TYPE TABLE": "type",
    "Bandwidth between two GPUs": "bandwidth",
    "NUMA BW TABLE": "bandwidth",
}
_NUMBER = re.compile(r"[0-9]{1,8}")
_RANGE = re.compile(r"([0-9]{1,8})-([0-9]{1,8})")
#: Stands for a number that is not there: more than any.
_NONE = 10**9
_ADDRESS = r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]"
#: How a row of any of the tables begins: the way of a device to itself, or to the first one.
_FIRST_ROW = re.compile(
    rf"(?<!\s)\s*(?<![A-Za-z0-9:])(?:GPU[0-9]+|{_ADDRESS})\s+(?!GPU|{_ADDRESS})[0-9A-Z]"
)
_ROW = re.compile(rf"\s*(?:GPU([0-9]{{1,4}})|({_ADDRESS}))\s+(?!GPU|{_ADDRESS})(\S.*)")
_NUMA = re.compile(r"\s*GPU ?\[?([0-9]+)\]?\s*:\s*\(Topology\) Numa Node:\s*(\S+)")
#: One of the ways in ``rocm-smi --json``, which has each pair once.
_PAIR = re.compile(
    r"\(Topology\) (Weight|Hops|Link type) between DRM devices ([0-9]{1,4}) and ([0-9]{1,4})"
    r'"\s*:\s*"?([^\s",}]+)',
    re.IGNORECASE,
)
_CARD = re.compile(
    r'"card([0-9]{1,4})"\s*:\s*\{[^{}]*"\(Topology\) Numa Node"\s*:\s*"?([0-9]{1,4})\b',
    re.IGNORECASE,
)


class _Tables(Struct):
    """By table and device (its number or address): the words of that row."""

    weight: dict[str, list[str]] = {}
    hops: dict[str, list[str]] = {}
    type: dict[str, list[str]] = {}
    bandwidth: dict[str, list[str]] = {}
    #: NUMA nodes by number of the device.
    nodes: dict[int, int] = {}


class _Way(Struct):
    gpu: int
    link_type: str
    weight: int | str = ""
    num_hops: int | str = ""
    bandwidth: int | str = ""


class _Gpu(Struct):
    gpu: int
    links: list[_Way]


def is_rocm(text: str) -> bool:
    """Whether it is of one of the two tools."""
    return any(mark in text for mark in _MARKS) or _PAIR.search(text) is not None


def read_rocm(text: str, product: str = "") -> Reading:
    """The topology that ``text`` shows.

    Raises InvalidObject (field ``dump``) when it has no table of link types.
    """
    warnings: list[str] = []
    if text.lstrip().startswith("["):
        tables = _of_json(text)
    elif _PAIR.search(text) is not None:
        tables = _of_pairs(text)
    else:
        tables = _of_text(text, warnings)
    names = list(tables.type)
    if not names:
        raise InvalidObject("dump", text.strip(), f"the output of {TOOLS}")
    _check_number(len(names))
    # An address is no number: amd-smi counts its GPUs in the order in which it prints them.
    index = tuple(int(name) if name.isdigit() else at for at, name in enumerate(names))
    square = [[_at(tables.type[name], j) for j in range(len(names))] for name in names]
    links = _links(index, names, square, tables, warnings)
    for i, row_words in enumerate(square):
        row_words[i] = "X"
    nodes = tables.nodes
    known = topology(
        links,
        index=index,
        numa=np.array([nodes.get(gpu, NO_ZONE) for gpu in index], dtype=np.int16),
        product=product,
    )
    affinity = [str(nodes[gpu]) if gpu in nodes else "" for gpu in index]
    return Reading(known, square, affinity, [None] * len(index), warnings)


def _of_text(text: str, warnings: list[str]) -> _Tables:
    tables = _Tables()
    table: dict[str, list[str]] = {}
    for line in lines_of(text, _FIRST_ROW):
        title = next((name for mark, name in _TITLES.items() if mark in line), None)
        if title is not None:
            table = getattr(tables, title)
        elif (numa := _NUMA.match(line)) is not None:
            if numa[2].isdigit() and len(numa[2]) < 5:
                tables.nodes[int(numa[1])] = int(numa[2])
            elif numa[2] != "-1":
                warnings.append(f"GPU{numa[1]}: Numa Node {numa[2]!r} cannot be read")
        elif (row := _ROW.match(line)) is not None:
            # Tables that are not read stand behind the others, and have their rows again.
            table.setdefault(row[1] or row[2], row[3].split())
    return tables


def _of_json(text: str) -> _Tables:
    """``amd-smi topology --json``: each GPU has its ways to all, in any order."""
    try:
        gpus = msgspec.json.decode(text, type=list[_Gpu])
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InvalidObject("dump", text.strip(), f"the output of {TOOLS} ({error})") from error
    _check_number(len(gpus))
    tables = _Tables()
    for gpu in gpus:
        ways = {way.gpu: way for way in gpu.links}
        row = [ways.get(other.gpu) for other in gpus]
        for name, field in (
            ("type", "link_type"),
            ("weight", "weight"),
            ("hops", "num_hops"),
            ("bandwidth", "bandwidth"),
        ):
            words = [str(getattr(way, field)) if way is not None else "?" for way in row]
            getattr(tables, name).setdefault(str(gpu.gpu), words)
    return tables


def _of_pairs(text: str) -> _Tables:
    """``rocm-smi --showtopo --json``."""
    ways: dict[str, dict[tuple[int, int], str]] = {"weight": {}, "hops": {}, "link type": {}}
    for about, a, b, word in _PAIR.findall(text):
        both = ways[about.lower()]
        both[int(a), int(b)] = both[int(b), int(a)] = word
    tables = _Tables(nodes={int(gpu): int(node) for gpu, node in _CARD.findall(text)})
    gpus = sorted({gpu for pair in ways["link type"] for gpu in pair})
    _check_number(len(gpus))
    for gpu in gpus:
        for name, table in zip(ways, (tables.weight, tables.hops, tables.type), strict=True):
            table[str(gpu)] = [ways[name].get((gpu, other), "?") for other in gpus]
    return tables


def _check_number(gpus: int) -> None:
    if gpus > MOST_DEVICES:
        raise InvalidObject("dump", f"{gpus} GPUs", f"at most {MOST_DEVICES}")


def _links(
    index: tuple[int, ...],
    names: list[str],
    square: list[list[str]],
    tables: _Tables,
    warnings: list[str],
) -> Codes:
    """(n, n) codes of the table of types, with what the other tables add to it."""
    weights = _numbers(tables.weight, names)
    hops = _numbers(tables.hops, names)
    xgmi = np.array(square) == "XGMI"
    least = int(weights[xgmi].min(initial=_NONE))
    links = np.full((len(index), len(index)), SELF, dtype=np.uint8)
    for i, j in permutations(range(len(index)), 2):
        word = square[i][j]
        if word == "XGMI":
            count = _count(_at(tables.bandwidth.get(names[i], []), j))
            links[i, j] = XGMI + count if weights[i, j] == least else NODE
        elif word == "PCIE":
            links[i, j] = UNKNOWN if hops[i, j] == _NONE else SYS if hops[i, j] > 2 else NODE
        else:
            links[i, j] = UNKNOWN
            warnings.append(f"GPU{index[i]} to GPU{index[j]}: {word!r} is no link that is known")
    return links


def _count(bandwidth: str) -> int:
    """How many links ``50000-200000`` (MB/s of one of them, of all) means; 1 where it is not told."""
    found = _RANGE.fullmatch(bandwidth)
    if found is None or not int(found[1]):
        return 1
    return min(MOST_LINKS, max(1, int(found[2]) // int(found[1])))


def _at(words: list[str], column: int) -> str:
    return words[column] if column < len(words) else "?"


def _numbers(table: dict[str, list[str]], names: list[str]) -> NDArray[np.int64]:
    """(n, n) the numbers of a table, _NONE where there is none."""
    words = [[_at(table.get(name, []), j) for j in range(len(names))] for name in names]
    return np.array(
        [[int(word) if _NUMBER.fullmatch(word) else _NONE for word in row] for row in words],
        dtype=np.int64,
    )
