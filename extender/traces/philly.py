"""Jobs of Microsoft's Philly trace on a cluster of nodes below leaf switches.

Source: pkusys/Muri simulator/trace-data, one file for each of four virtual clusters; of its columns
``job_id``, ``num_gpu``, ``submit_time`` and ``duration`` (milliseconds) are read. Philly: Jeon et
al., USENIX ATC '19.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from extender.core import topology
from extender.core.errors import ConfigError, InvalidObject
from extender.core.topology.bandwidth import NodeModel, model_of, ports_of, sharp_of
from extender.core.topology.between import over_nodes
from extender.core.topology.choice import Choices, choices_of, positions_of, take
from extender.traces.openb import rows_of

Int64s = NDArray[np.int64]

FIELDS = ("job_id", "num_gpu", "submit_time", "duration")
#: GPUs of one job.
MOST_GPUS = 4096


@dataclass(frozen=True, slots=True)
class Jobs:
    """The jobs in the order in which they are submitted. Times are in milliseconds. All (J,)."""

    names: tuple[str, ...]
    gpus: Int64s
    submitted: Int64s
    duration: Int64s


@dataclass(frozen=True, slots=True)
class Plant:
    """Nodes of 8 GPUs, say, in leaves; every node has a port to its leaf for each of its GPUs' rails."""

    #: What the GPUs of each node are to each other. (N,) of them.
    models: tuple[NodeModel, ...]
    choices: tuple[Choices, ...]
    #: The leaf of each node. (N,).
    leaf: Int64s
    #: GPUs of each node. (N,).
    gpus: Int64s
    #: What the nodes of a leaf can send, over what its uplinks carry.
    oversubscription: float


def read_jobs(file: Path) -> Jobs:
    """Raises ConfigError: no such file, a column or a value that is wrong."""
    rows = list(rows_of(file, FIELDS))
    if not rows:
        raise ConfigError(f"{file}: no jobs")
    for row in rows:
        if not row.number("num_gpu", MOST_GPUS) >= 1:
            raise row.wrong("num_gpu", f"1 to {MOST_GPUS}")
        if not row.number("duration"):
            raise row.wrong("duration", "at least 1 millisecond")
    found = sorted(
        (row.number("submit_time"), at, row.text("job_id")) for at, row in enumerate(rows)
    )
    order = [at for _, at, _ in found]
    return Jobs(
        names=tuple(name for _, _, name in found),
        gpus=np.array([rows[at].number("num_gpu") for at in order], dtype=np.int64),
        submitted=np.array([time for time, _, _ in found], dtype=np.int64),
        duration=np.array([rows[at].number("duration") for at in order], dtype=np.int64),
    )


def plant(dumps: Sequence[Path], nodes: int, per_leaf: int, oversubscription: float) -> Plant:
    """``nodes`` in leaves of ``per_leaf``; the nodes of one leaf are as one of the ``dumps`` says, of
    the next as the next one does. Raises ConfigError: a dump that cannot be read, or has one GPU.
    """
    known = [_node(dump) for dump in dumps]
    choices = [choices_of(model) for model in known]
    leaf = np.arange(nodes, dtype=np.int64) // per_leaf
    kind = [int(each) % len(known) for each in leaf]
    return Plant(
        models=tuple(known[each] for each in kind),
        choices=tuple(choices[each] for each in kind),
        leaf=leaf,
        gpus=np.array([len(known[each].topology) for each in kind], dtype=np.int64),
        oversubscription=oversubscription,
    )


def _node(dump: Path) -> NodeModel:
    try:
        text = dump.read_text(encoding="utf-8")
        model = model_of(topology.read(text).topology)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{dump}: cannot be read: {error}") from error
    except InvalidObject as error:
        raise ConfigError(f"{dump}: {error}") from error
    everything = range(len(model.topology))
    if len(everything) < 2 or not ports_of(model, everything):
        raise ConfigError(f"{dump}: a node of at least 2 GPUs and a network port is needed")
    return model


class Fleet:
    """Which devices of the plant's nodes are free, as masks; bit i of a node is its device i."""

    def __init__(self, made: Plant) -> None:
        """Everything is free."""
        self.plant = made
        self.masks = [(1 << int(gpus)) - 1 for gpus in made.gpus]
        #: (N,).
        self.free: Int64s = made.gpus.copy()

    def give(self, counts: Int64s) -> dict[int, int]:
        """So many devices of each node (N,): the best that are free there, as masks by node."""
        given = {}
        for node in np.flatnonzero(counts).tolist():
            mask = take(self.plant.choices[node], self.masks[node], int(counts[node]))
            given[node] = mask
            self.masks[node] ^= mask
            self.free[node] -= counts[node]
        return given

    def take_back(self, given: dict[int, int]) -> None:
        """A job has ended."""
        for node, mask in given.items():
            self.masks[node] |= mask
            self.free[node] += mask.bit_count()

    def bandwidth(self, given: dict[int, int]) -> float:
        """GB/s that the model predicts for a job with these devices; 0 for one device."""
        models, leaf = self.plant.models, self.plant.leaf
        if len(given) == 1:
            ((node, mask),) = given.items()
            return float(models[node].bandwidth[mask])
        return over_nodes(
            [float(models[node].ring[mask]) for node, mask in given.items()],
            [ports_of(models[node], positions_of(mask)) for node, mask in given.items()],
            [[int(leaf[node]) for node in given]],
            [self.plant.oversubscription],
            devices=sum(mask.bit_count() for mask in given.values()),
            sharp=[sharp_of(models[node], mask) for node, mask in given.items()],
        )
