"""Real processes for pods, in place of the simulated kubelet."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from extender.sim.realplane import RealPlane
from tests.controlplane.training.kubelet import ProcessKubelet
from tests.controlplane.world import World, inhabited

_numbers = itertools.count(1)


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Left out unless asked for: it takes root, and programs that scripts/training installs."""
    return None if config.getoption("--training") else True


@pytest.fixture
def environment(request: pytest.FixtureRequest) -> Path:
    """Python with JAX and XGBoost; PyTorch and MPI are the machine's own."""
    return Path(request.config.getoption("--training"))


@pytest.fixture
async def world(plane: RealPlane) -> AsyncIterator[World]:
    """A namespace of its own on an empty cluster; nothing runs its pods but :func:`kubelet`."""
    async with inhabited(plane, f"training-{next(_numbers)}") as seen:
        yield seen


@pytest.fixture
async def kubelet(world: World, tmp_path: Path) -> AsyncIterator[ProcessKubelet]:
    async with ProcessKubelet(world.client, world.namespace, tmp_path / "kubelet") as running:
        yield running
