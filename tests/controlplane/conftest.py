"""One real control plane for the session, a clean cluster for each test."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import yaml

from extender.runtime import Service, running
from extender.settings import Settings, parse
from extender.sim.binaries import binaries
from extender.sim.daemon import free_port
from extender.sim.kubelet import Kubelet
from extender.sim.realplane import RealPlane
from tests.controlplane import rights
from tests.controlplane.world import World, inhabited

ROOT = Path(__file__).parents[2]
#: Seconds; short, so that what takes a deadline in production takes a moment here.
QUICK = {
    "podMaxBackoffSeconds": 1,
    "planDeadlineSeconds": 3,
    "visibleAfterSeconds": 600,
    "leaderElection": {"enabled": False},
}
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def extender_port() -> int:
    """Where kube-scheduler expects Muster."""
    return free_port()


@pytest.fixture(scope="session")
def plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, extender_port: int
) -> Iterator[RealPlane]:
    """etcd, kube-apiserver and kube-scheduler with the sample configuration of config/.

    When the session ends, nothing that Muster asked for was beyond its role.
    """
    version = request.config.getoption("--kubernetes-version")
    folder = tmp_path_factory.mktemp("plane")
    with RealPlane(
        binaries(version),
        folder,
        version=version,
        users={rights.ACCOUNT: rights.GROUPS},
        apiserver_args=[rights.ADMISSION],
        audit="Metadata",
        audit_users=[rights.ACCOUNT],
    ) as real:
        real.start_etcd()
        real.start_apiserver()
        rights.grant(real)
        crds = sorted((ROOT / "manifests" / "crds").glob("*_*.yaml"))
        for crd in crds:
            real.kubectl("apply", "-f", str(crd))
        real.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
        real.start_scheduler(scheduler_config("scheduler-own.yaml", extender_port), "muster")
        yield real
        assert rights.forbidden(folder / "audit.log") == set()


def scheduler_config(name: str, port: int) -> str:
    """A sample of config/ with Muster's port and a short back-off."""
    text = (ROOT / "config" / name).read_text()
    config = yaml.safe_load(text.replace("127.0.0.1:8900", f"127.0.0.1:{port}"))
    config["podMaxBackoffSeconds"] = QUICK["podMaxBackoffSeconds"]
    config["leaderElection"] = {"leaderElect": False}
    return yaml.safe_dump(config)


@pytest.fixture
async def world(plane: RealPlane) -> AsyncIterator[World]:
    """A namespace of its own on an empty cluster, and a kubelet for all nodes."""
    async with (
        inhabited(plane, f"test-{next(_numbers)}") as seen,
        Kubelet(seen.client, policy=seen.outcome, dead=seen.dead),
    ):
        yield seen


@pytest.fixture
def mpi_rights(plane: RealPlane) -> Iterator[None]:
    """What MPIJobs of v2beta1 need beside manifests/base."""
    with rights.beside(plane, "mpijob"):
        yield


def settings_for(port: int, **more: object) -> Settings:
    """Settings of a Muster that listens where kube-scheduler expects it."""
    section = {**QUICK, "listen": {"host": "127.0.0.1", "port": port}, **more}
    return parse({"muster": section}, "test")


@pytest.fixture
async def muster(world: World, extender_port: int) -> AsyncIterator[Service]:
    """A leading Muster in this process; its invariants are checked when the test ends."""
    async with running(settings_for(extender_port), rights.account(world.plane)) as service:
        await leading(service)
        yield service
        check_service(service)


async def leading(service: Service) -> None:
    """Wait until the service leads; the first of a session may have to compile the kernels."""
    async with asyncio.timeout(150):
        while not service.view.leads():  # noqa: ASYNC110 - the view has no event to wait for
            await asyncio.sleep(0.01)


def check_service(service: Service) -> None:
    """What must hold of a Muster that is about to stop."""
    state = service.loop.coordinator.state
    assert service.loop.faults == 0
    state.cluster.verify()
    assert state.cluster.over_committed() == []
    for gang in state.gangs.values():
        planned = [m.name for m in gang.members.values() if m.node]
        for key in state.cluster.reserved_keys:
            namespace, _, name = key.partition("/")
            if namespace == gang.key.namespace and name in gang.members:
                assert name in planned, f"{key} is reserved without a plan"
