"""A machine of the recordings with everything that an agent reads of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.agent.lacks import Lacks
from extender.agent.run import Reader
from extender.core.topology import read
from extender.obs.metrics import Metrics
from extender.settings import Agent
from tests.agent.machine import Machine, Nvml, write_sysfs
from tests.agent.podresources import Kubelet, serving

RECORDINGS: list[dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parent / "recordings.yaml").read_text()
)


def machine_of(recording: dict[str, Any]) -> Machine:
    product = recording["product"]
    return Machine(
        read(recording["dump"], product.replace(" ", "-")).topology,
        product,
        switch=recording.get("switch", 0),
        clique=recording.get("clique", ""),
        memory_gib=recording.get("memory", 80),
    )


@dataclass
class Bench:
    """One machine, and a reader of it."""

    machine: Machine
    kubelet: Kubelet
    settings: Agent
    metrics: Metrics
    lacks: Lacks
    reader: Reader

    def counted(self, source: str) -> float:
        return self.metrics.agent_lacks.labels(source)._value.get()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[[Machine], Bench]]:
    with ExitStack() as stack:

        def of(machine: Machine) -> Bench:
            kubelet, socket = Kubelet(), tmp_path / "kubelet.sock"
            stack.enter_context(serving(kubelet, socket))
            sysfs = write_sysfs(tmp_path / "sys", machine)
            settings = Agent.model_validate(
                {"sysfs": str(sysfs), "podResourcesSocket": str(socket)}
            )
            metrics = Metrics()
            lacks = Lacks(metrics)
            reader = Reader(settings, Nvml(machine), lacks)
            stack.callback(reader.close)
            return Bench(machine, kubelet, settings, metrics, lacks, reader)

        yield of


@pytest.fixture
def hgx(bench: Callable[[Machine], Bench]) -> Bench:
    """Eight H100 behind switches, three ports, two sockets."""
    return bench(machine_of(RECORDINGS[0]))
