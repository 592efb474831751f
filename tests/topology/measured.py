"""The model beside published measurements: ``python -m tests.topology.measured`` prints the table.

With ``--write`` it puts the table into ``docs/topology.md``; a test compares the two.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from extender.core.topology.bandwidth import (
    NET_GBS_PER_100G,
    NodeModel,
    model_of,
    ports_of,
    rates_of,
    sharp_of,
)
from extender.core.topology.between import at_size, in_clique, over_nodes
from extender.core.topology.choice import mask_of
from extender.core.topology.model import Topology, code_of, topology
from tests.topology.oracle import node

HERE = Path(__file__).resolve().parent
ROWS: list[dict[str, Any]] = yaml.safe_load((HERE / "measured.yaml").read_text())
PAGE = HERE.parents[1] / "docs/topology.md"
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"


def known_of(row: dict[str, Any]) -> Topology:
    """The node of a row, with its network ports."""
    if "node" in row:
        base = node(*row["node"])
    else:
        words = [line.split() for line in row["links"]]
        links = np.array([[code_of(word) for word in line] for line in words], dtype=np.uint8)
        half = (np.arange(len(links)) >= (len(links) + 1) // 2).astype(np.int16)
        base = topology(links, numa=half, product=row["product"])
    ports = row.get("ports", 0)
    near = np.full((len(base), ports), code_of(row.get("near", "PIX")), dtype=np.uint8)
    return topology(
        base.links.copy(),
        numa=base.numa.copy(),
        nics=tuple(f"mlx5_{at}" for at in range(ports)),
        nic_links=near,
        product=base.product,
    )


def predicted(row: dict[str, Any]) -> float:
    """GB/s, as Muster would predict for the row's devices."""
    known = known_of(row)
    port = row.get("port_gbps", 400) * NET_GBS_PER_100G / 100
    model: NodeModel = model_of(known, rates_of(known, port=port))
    devices = row.get("devices", list(range(len(known))))
    nodes = row.get("nodes", 1)
    found = float((model.ring if row.get("ring") else model.bandwidth)[mask_of(devices)])
    if nodes > 1:
        inside = float(model.ring[mask_of(devices)])
        sharp = 0.0 if row.get("ring") else sharp_of(model, mask_of(devices))
        if row.get("clique"):
            found = in_clique(inside, model.rates.nvls, len(devices) * nodes)
        else:
            found = over_nodes(
                [inside] * nodes,
                [ports_of(model, devices)] * nodes,
                devices=len(devices) * nodes,
                sharp=[sharp] * nodes,
            )
    if "size" in row:
        apart = 1 if row.get("clique") else nodes
        found = at_size(found, len(devices) * nodes, row["size"], apart)
    return found


def error(row: dict[str, Any]) -> float:
    """Per cent of the measurement, 0 within its range."""
    model, low, high = predicted(row), row["low"], row.get("high", row["low"])
    nearest = min(max(model, low), high)
    return 100 * (model - nearest) / nearest


def table() -> str:
    """Markdown, and below it why the rows that are off are off."""
    lines = ["| | measured | model | error | source |", "|---|---|---|---|---|"]
    notes: list[str] = []
    for row in ROWS:
        measured = f"{row['low']:g}" + (f" to {row['high']:g}" if "high" in row else "")
        mark = ""
        if "why" in row:
            why = f"{row['why'][0].upper()}{row['why'][1:]}"
            if why not in notes:
                notes.append(why)
            mark = f" [{notes.index(why) + 1}]"
        elif row.get("fitted"):
            mark = " (fitted)"
        cells = [row["what"], measured, f"{predicted(row):.1f}", f"{error(row):+.1f} %{mark}"]
        lines.append(f"| {' | '.join(cells)} | {row['source']} |")
    numbered = [f"{at}. {why}" for at, why in enumerate(notes, 1)]
    return "\n".join([*lines, "", *numbered]) + "\n"


def page_with(table_: str) -> str:
    """The page with this table in its place."""
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    return before + BEGIN + table_ + END + rest.split(END)[1]


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page_with(table()))
    else:
        print(table(), end="")
