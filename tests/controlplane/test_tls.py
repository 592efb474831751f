"""kube-scheduler reaches Muster over TLS with a client certificate of scripts/certificates."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from extender.core.objects import Manifest
from extender.http import doors
from extender.runtime import running
from extender.sim.daemon import free_port
from tests.controlplane.conftest import (
    ROOT,
    check_service,
    leading,
    scheduler_config,
    settings_for,
)
from tests.controlplane.rights import account
from tests.controlplane.world import World

Certificates = Callable[..., Path]


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    """Makes certificates into a folder, which is what it returns."""

    def make(folder: str, *options: str) -> Path:
        command = [str(ROOT / "scripts/certificates"), *options, str(tmp_path / folder)]
        subprocess.run(command, check=True, capture_output=True)
        return tmp_path / folder

    return make


def server(folder: Path) -> Manifest:
    """The section ``tls`` of muster.yaml."""
    files = {"certFile": "server.crt", "keyFile": "server.key", "clientCAFile": "ca.crt"}
    return {name: str(folder / file) for name, file in files.items()}


@asynccontextmanager
async def scheduler(world: World, port: int, ca: Path, client: Path | None) -> AsyncIterator[None]:
    """The sample configuration over https, in place of the plane's own kube-scheduler."""
    config = yaml.safe_load(scheduler_config("scheduler-own.yaml", port))
    files = {"caFile": str(ca)}
    if client is not None:
        files |= {"certFile": str(client / "client.crt"), "keyFile": str(client / "client.key")}
    for entry in config["extenders"]:
        entry["urlPrefix"] = entry["urlPrefix"].replace("http://", "https://")
        entry["enableHTTPS"] = True
        entry["tlsConfig"] = files
    world.plane.kill_scheduler("muster")
    world.plane.start_scheduler(yaml.safe_dump(config), "tls")
    try:
        yield
    finally:
        world.plane.kill_scheduler("tls")
        own = (world.plane.work_dir / "scheduler-muster.yaml").read_text()
        world.plane.start_scheduler(own, "muster")


async def refused(world: World) -> None:
    """A gang is not let through, because kube-scheduler itself is not."""
    await world.until(lambda: "/filter" in world.scheduled_message("train-0"), "the refusal")
    assert world.ever_bound() == set()


@pytest.mark.parametrize("whose", ["ours", "another CA's", "expired", "none"])
async def test_only_a_certificate_of_our_ca_gets_in(
    world: World, certificates: Certificates, whose: str
) -> None:
    port, client = free_port(), None
    if whose == "another CA's":
        client = certificates("other")
    elif whose == "expired":
        client = shutil.copytree(
            certificates("ours", "--days", "0"), certificates("old"), dirs_exist_ok=True
        )
    folder = certificates("ours")
    if whose == "ours":
        client = folder
    settings = settings_for(port, tls=server(folder))
    async with (
        scheduler(world, port, folder / "ca.crt", client),
        running(settings, account(world.plane)) as service,
    ):
        await leading(service)
        await world.nodes("n1", "n2")
        await world.group("train", 2)
        await world.gang("train", 2)
        if whose == "ours":
            await world.until(lambda: len(world.bound()) == 2, "the gang")
        else:
            await refused(world)
        check_service(service)


async def test_ca_and_certificates_are_rotated_without_a_restart(
    world: World, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "TLS_RELOAD_SECONDS", 0.05)
    port, folder = free_port(), certificates("ours")
    old = shutil.copytree(folder, folder.with_name("before"))
    settings = settings_for(port, tls=server(folder))
    async with running(settings, account(world.plane)) as service:
        await leading(service)
        await world.nodes("n1", "n2", "n3", "n4")
        # Both sides' CA files hold both CAs in between, and only the new one in the end.
        certificates("ours", "--new-ca")
        (folder / "ca.crt").write_bytes((folder / "ca.pem").read_bytes())
        async with scheduler(world, port, folder / "ca.crt", old):
            await world.group("train", 2)
            await world.gang("train", 2)
            await refused(world)
        async with scheduler(world, port, folder / "ca.crt", folder):
            await world.until(lambda: len(world.bound()) == 2, "the gang")
        check_service(service)
