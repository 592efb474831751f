"""Alibaba's trace of a cluster with shared GPUs (openb), as columns, and FGD's protocol of arrivals.

Source: alibaba/clusterdata cluster-trace-gpu-v2023; Weng et al., Beware of Fragmentation, USENIX
ATC '23; the protocol is the one of kubernetes-scheduler-simulator (pkg/simulator/utils.go).
"""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray

from extender.core.errors import ConfigError, brief

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]

#: Thousandths in a whole GPU.
WHOLE = 1000
#: GPUs of one node, and of one pod.
MOST_GPUS = 64
MOST = 2**40

_GZIP = b"\x1f\x8b"
#: A whole number, also as a table of floats writes it.
_NUMBER = re.compile(r"([0-9]{1,19})(?:\.0*)?", re.ASCII)

NODE_FIELDS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_FIELDS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")


@dataclass(frozen=True, slots=True)
class Nodes:
    """Nodes in the order of their names."""

    names: tuple[str, ...]
    #: cpu (milli) and memory (MiB). (N, 2).
    host: Int64s
    #: Thousandths of each GPU; 0 where the node has fewer. (N, most GPUs).
    devices: Int64s
    #: GPU model, an index into ``models``. (N,).
    model: Int64s
    models: tuple[str, ...]

    @property
    def total(self) -> int:
        """Thousandths of all GPUs."""
        return int(self.devices.sum())


@dataclass(frozen=True, slots=True)
class Tasks:
    """The pods of a trace in the order of their names, as S distinct shapes."""

    #: The shape of each pod. (P,).
    shape: Int64s
    #: cpu (milli) and memory (MiB). (S, 2).
    hosts: Int64s
    #: Thousandths of each GPU, and how many; both 0 for a pod without one. (S,).
    shares: Int64s
    counts: Int64s
    #: Models of ``Nodes.models`` that the shape may use. (S, models).
    reach: Bools

    @property
    def asked(self) -> Int64s:
        """Thousandths that a pod of each shape asks for. (S,)."""
        return self.shares * self.counts


def read_nodes(file: Path) -> Nodes:
    """The cluster. Raises ConfigError naming file, line, field and what is allowed.

    A node without GPUs (the trace's list of all nodes has some) need not have a model.
    """
    rows = sorted(rows_of(file, NODE_FIELDS), key=lambda row: row.text("sn"))
    names = tuple(row.text("sn") for row in rows)
    if len(set(names)) < len(names):
        raise ConfigError(f"{file}: two nodes have the same sn")
    gpus = np.array([row.number("gpu", MOST_GPUS) for row in rows])
    if not gpus.sum():
        raise ConfigError(f"{file}: no node has a GPU")
    kinds = [
        row.text("model") if count else row.fields["model"]
        for row, count in zip(rows, gpus.tolist(), strict=True)
    ]
    models = tuple(sorted(set(kinds)))
    host = [(row.number("cpu_milli"), row.number("memory_mib")) for row in rows]
    return Nodes(
        names=names,
        host=np.array(host, dtype=np.int64),
        devices=(np.arange(gpus.max()) < gpus[:, None]) * np.int64(WHOLE),
        model=np.array([models.index(kind) for kind in kinds], dtype=np.int64),
        models=models,
    )


def read_tasks(file: Path, nodes: Nodes) -> Tasks:
    """The pods. Raises ConfigError as :func:`read_nodes`.

    ``gpu_spec`` names the models that a pod may use (``V100M16|V100M32``); absent or empty is any.
    Only a pod of exactly one GPU may share it, as in the trace.
    """
    rows = sorted(rows_of(file, POD_FIELDS), key=lambda row: row.text("name"))
    if not rows:
        raise ConfigError(f"{file}: no pods")
    keys = [_shape(row, nodes.models) for row in rows]
    shapes = sorted(set(keys))
    number = {shape: i for i, shape in enumerate(shapes)}
    return Tasks(
        shape=np.array([number[key] for key in keys], dtype=np.int64),
        hosts=np.array([shape[:2] for shape in shapes], dtype=np.int64),
        shares=np.array([shape[2] for shape in shapes], dtype=np.int64),
        counts=np.array([shape[3] for shape in shapes], dtype=np.int64),
        reach=np.array([shape[4] for shape in shapes], dtype=np.bool_),
    )


def arrivals(tasks: Tasks, nodes: Nodes, ratio: float, seed: int) -> Int64s:
    """Shapes in the order in which their pods arrive, asking for ``ratio`` times the cluster's GPUs.

    All pods of the trace in an order drawn by ``seed``, then more of them, drawn with replacement
    until the next one would ask for too much. A trace that is too large already loses its last.
    """
    random = Random(seed)
    order = list(range(len(tasks.shape)))
    random.shuffle(order)
    asked = tasks.asked[tasks.shape].tolist()
    if not sum(asked):
        raise ConfigError("no pod of the trace asks for a GPU")
    left = ratio * nodes.total - sum(asked)
    while left < 0:
        left += asked[order.pop()]
    while len(order) >= len(asked):
        drawn = random.randrange(len(asked))
        left -= asked[drawn]
        if left < 0:
            break
        order.append(drawn)
    return tasks.shape[order]


Shape = tuple[int, int, int, int, tuple[bool, ...]]


def _shape(row: Row, models: tuple[str, ...]) -> Shape:
    count = row.number("num_gpu", MOST_GPUS)
    share = row.number("gpu_milli", WHOLE) if count else 0
    if count and not share:
        raise row.wrong("gpu_milli", f"a pod of {count} GPUs asks for 1 to {WHOLE}")
    if count > 1 and share != WHOLE:
        raise row.wrong("gpu_milli", f"a pod of {count} GPUs takes whole ones, {WHOLE}")
    wanted = {model for model in row.fields.get("gpu_spec", "").split("|") if model}
    reach = tuple(not count or not wanted or model in wanted for model in models)
    return row.number("cpu_milli"), row.number("memory_mib"), share, count, reach


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a CSV file; what is wrong with it names file, line, field and value."""

    file: Path
    line: int
    fields: Mapping[str, str]

    def text(self, field: str) -> str:
        """Raises ConfigError: it is empty."""
        if not self.fields[field]:
            raise self.wrong(field, "a name")
        return self.fields[field]

    def number(self, field: str, most: int = MOST) -> int:
        """Raises ConfigError: it is no whole number of 0 to ``most``."""
        found = _NUMBER.fullmatch(self.fields[field])
        if found is None or int(found[1]) > most:
            raise self.wrong(field, f"a whole number of 0 to {most}")
        return int(found[1])

    def wrong(self, field: str, allowed: str) -> ConfigError:
        """The error to raise for a field."""
        value = brief(self.fields[field])
        return ConfigError(f"{self.file}:{self.line}: {field}: {value} is not allowed: {allowed}")


def rows_of(file: Path, fields: tuple[str, ...]) -> Iterator[Row]:
    """The lines of a CSV file that has these columns, among others and in any order.

    The file may be compressed by gzip and begin with a byte order mark; blanks around a field do
    not count. Raises ConfigError.
    """
    try:
        with file.open("rb") as raw:
            packed = raw.read(len(_GZIP)) == _GZIP
            raw.seek(0)
            plain = gzip.GzipFile(fileobj=raw) if packed else raw
            lines = TextIOWrapper(plain, encoding="utf-8-sig", newline="")
            yield from _rows(file, lines, fields)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ConfigError(f"{file}: gzip: {error}") from error
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{file}: no CSV file: {error}") from error


def _rows(file: Path, lines: TextIOWrapper, fields: tuple[str, ...]) -> Iterator[Row]:
    reader = csv.reader(lines)
    header = [name.strip() for name in next(reader, [])]
    missing = [field for field in fields if field not in header]
    if missing:
        raise ConfigError(f"{file}: no column {missing[0]!r}; needed: {', '.join(fields)}")
    for cells in reader:
        if len(cells) > len(header):
            raise ConfigError(f"{file}:{reader.line_num}: more fields than the header has")
        if cells:
            cells += [""] * (len(header) - len(cells))
            of_row = dict(zip(header, map(str.strip, cells), strict=True))
            yield Row(file, reader.line_num, of_row)
