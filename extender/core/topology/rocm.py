"""Reads the text of ``rocm-smi --showtopo``.

Three tables between GPUs (weight, hops, link type), then a list of NUMA nodes. A table may be
missing: ``--showtopotype`` prints one only. XGMI is a direct link where its weight is the least
of the text: the driver counts 15 for each step, also through other GPUs. Hops of PCIE are 2 within
a socket and 3 across (AMD SMI's own documentation).
"""

from __future__ import annotations

import re

import numpy as np

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
    topology,
)

MARK = "Link Type between two GPUs"
_TITLES = {"Weight between two GPUs": "weight", "Hops between two GPUs": "hops", MARK: "type"}
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
    links = np.array(
        [
            [_code(tables, index, i, j, warnings) for j in range(len(index))]
            for i in range(len(index))
        ],
        dtype=np.uint8,
    )
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


def _code(
    tables: dict[str, dict[int, list[str]]],
    index: tuple[int, ...],
    i: int,
    j: int,
    warnings: list[str],
) -> int:
    if i == j:
        return SELF
    word = _at(tables["type"][index[i]], j)
    weight = _number(tables["weight"], index[i], j)
    if word == "XGMI":
        least = min(
            (
                other
                for a in range(len(index))
                for b in range(len(index))
                if a != b
                and _at(tables["type"][index[a]], b) == "XGMI"
                and (other := _number(tables["weight"], index[a], b)) is not None
            ),
            default=None,
        )
        return XGMI + 1 if weight is None or weight == least else NODE
    if word == "PCIE":
        hops = _number(tables["hops"], index[i], j)
        return UNKNOWN if hops is None else (SYS if hops > 2 else NODE)
    warnings.append(f"GPU{index[i]} to GPU{index[j]}: {word!r} is no link that is known")
    return UNKNOWN


def _at(words: list[str], column: int) -> str:
    return words[column] if column < len(words) else "?"


def _number(table: dict[int, list[str]], gpu: int, column: int) -> int | None:
    word = _at(table.get(gpu, []), column)
    return int(word) if word.isdigit() and len(word) < 9 else None
