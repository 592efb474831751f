"""Host ports that are taken (NodePorts)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from extender.core.framework import BoolArray
from extender.core.nodes import NodeView
from extender.core.reasons import Code, Reason
from extender.core.shape import PodShape


class PortTracker:
    """Per host port of one shape, how many pods of each row hold a port that conflicts with it."""

    def __init__(self, view: NodeView, shape: PodShape) -> None:
        self._ports = shape.host_ports
        self._taken = np.zeros((len(self._ports), view.rows), np.int32)

    def minds(self, other: PodShape) -> bool:
        """Whether pods of the shape ``other`` hold any host port."""
        return bool(other.host_ports)

    def add(self, other: PodShape, row: int, count: int, *, leaving: int = 0) -> None:
        """``count`` pods of the shape ``other`` came to the row (went, if negative)."""
        if other.host_ports:
            for index, port in enumerate(self._ports):
                if any(port.conflicts(held) for held in other.host_ports):
                    self._taken[index, row] += count

    def refusals(self) -> Iterator[tuple[Reason, BoolArray]]:
        """A reason and the rows that it holds for, shape (rows,)."""
        for port, taken in zip(self._ports, self._taken, strict=True):
            yield Reason.of(Code.HOST_PORT, port=port.port), taken > 0
