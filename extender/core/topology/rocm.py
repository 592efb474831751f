"""Reads the text of ``rocm-smi --showtopo``.

Three tables between GPUs (weight, hops, link type), then a list of NUMA nodes. A table may be
missing: ``--showtopotype`` prints one only. XGMI is a direct link where its weight is the least
of the text: the driver counts 15 for each step, also through other GPUs. Hops of PCIE are 2 within
a socket and 3 across (AMD SMI's own documentation).
"""

from __future__ import annotations

import re
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from extender.core.errors import InvalidObject
from extender.core.topology.dump import Reading
from extender.core.topology.model import (
    MOST_DEVICES,
    NO_ZONE,
    NODE,
    SELF,
    SYS,
    UNKNOWN,
    XGMI,
    Codes,
    topology,
)

MARK = "Link Type between two GPUs"
_TITLES = {"Weight between two GPUs": "weight", "Hops between two GPUs": "hops", MARK: "type"}
_NUMBER = re.compile(r"[0-9]{1,8}")
#: Stands for a number that is not there: more than any.
_NONE = 10**9
_ROW = re.compile(r"\s*GPU([0-9]{1,4})\s+(\S.*)")
_NUMA = re.compile(r"\s*GPU ?\[?([0-9]+)\]?\s*:\s*\(Topology\) Numa Node:\s*(\S+)")


def read_rocm(text: str, product: str = "") -> Reading:
    """The topology that ``text`` shows.

    Raises InvalidObject (field ``dump``) when it has no table of link types.
    """
    warnings: list[str] = []
    tables: dict[str, dict[int, list[str]]] = {"weight": {}, "hops": {}, "type": {}}
    nodes: dict[int, int] = {}
    table: dict[int, list[str]] = {}
    for line in text.splitlines():
        title = next((name for mark, name in _TITLES.items() if mark in line), None)
        if title is not None or line.startswith("="):
            table = tables[title] if title is not None else {}
        elif (numa := _NUMA.match(line)) is not None:
            if numa[2].isdigit() and len(numa[2]) < 5:
                nodes[int(numa[1])] = int(numa[2])
            elif numa[2] != "-1":
                warnings.append(f"GPU{numa[1]}: Numa Node {numa[2]!r} cannot be read")
        elif (row := _ROW.match(line)) is not None and not row[2].startswith("GPU"):
            table.setdefault(int(row[1]), row[2].split())
    words = tables["type"]
    index = tuple(words)
    if not index:
        raise InvalidObject("dump", text.strip(), "the output of `rocm-smi --showtopo`")
    if len(index) > MOST_DEVICES:
        raise InvalidObject("dump", f"{len(index)} GPUs", f"at most {MOST_DEVICES}")
    square = [[_at(words[a], j) for j in range(len(index))] for a in index]
    links = _links(index, square, tables, warnings)
    for i, row_words in enumerate(square):
        row_words[i] = "X"
    known = topology(
        links,
        index=index,
        numa=np.array([nodes.get(gpu, NO_ZONE) for gpu in index], dtype=np.int16),
        product=product,
    )
    affinity = [str(nodes[gpu]) if gpu in nodes else "" for gpu in index]
    return Reading(known, square, affinity, [None] * len(index), warnings)


def _links(
    index: tuple[int, ...],
    square: list[list[str]],
    tables: dict[str, dict[int, list[str]]],
    warnings: list[str],
) -> Codes:
    """(n, n) codes of the table of types, with what weights and hops add to it."""
    weights = _numbers(tables["weight"], index)
    hops = _numbers(tables["hops"], index)
    direct = weights[np.array(square) == "XGMI"]
    least = int(direct.min(initial=_NONE))
    links = np.full((len(index), len(index)), SELF, dtype=np.uint8)
    for i, j in permutations(range(len(index)), 2):
        word = square[i][j]
        if word == "XGMI":
            links[i, j] = XGMI + 1 if weights[i, j] == least else NODE
        elif word == "PCIE":
            links[i, j] = UNKNOWN if hops[i, j] == _NONE else SYS if hops[i, j] > 2 else NODE
        else:
            links[i, j] = UNKNOWN
            warnings.append(f"GPU{index[i]} to GPU{index[j]}: {word!r} is no link that is known")
    return links


def _at(words: list[str], column: int) -> str:
    return words[column] if column < len(words) else "?"


def _numbers(table: dict[int, list[str]], index: tuple[int, ...]) -> NDArray[np.int64]:
    """(n, n) the numbers of a table, _NONE where there is none."""
    words = [[_at(table.get(gpu, []), j) for j in range(len(index))] for gpu in index]
    return np.array(
        [[int(word) if _NUMBER.fullmatch(word) else _NONE for word in row] for row in words],
        dtype=np.int64,
    )
