"""kube-scheduler reaches Muster over TLS with a client certificate, as the samples say."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest
import trustme
import yaml

from extender.kube import credentials
from extender.runtime import running
from extender.sim.daemon import free_port
from tests.controlplane.conftest import check_service, leading, scheduler_config, settings_for
from tests.controlplane.world import World


def tls_scheduler(folder: Path, port: int, ca: trustme.CA) -> str:
    """The sample configuration with https and a certificate of ``ca`` in both entries."""
    client = ca.issue_cert("kube-scheduler.example")
    client.private_key_pem.write_to_path(folder / "client.key")
    client.cert_chain_pems[0].write_to_path(folder / "client.crt")
    config = yaml.safe_load(scheduler_config("scheduler-own.yaml", port))
    for entry in config["extenders"]:
        entry["urlPrefix"] = entry["urlPrefix"].replace("http://", "https://")
        entry["enableHTTPS"] = True
        entry["tlsConfig"] = {
            "caFile": str(folder / "ca.crt"),
            "certFile": str(folder / "client.crt"),
            "keyFile": str(folder / "client.key"),
        }
    return yaml.safe_dump(config)


@pytest.mark.parametrize("trusted", [True, False])
async def test_only_a_certificate_of_our_ca_gets_in(
    world: World, tmp_path: Path, trusted: bool
) -> None:
    ca, other, port = trustme.CA(), trustme.CA(), free_port()
    server = ca.issue_cert("127.0.0.1")
    ca.cert_pem.write_to_path(tmp_path / "ca.crt")
    server.private_key_pem.write_to_path(tmp_path / "tls.key")
    server.cert_chain_pems[0].write_to_path(tmp_path / "tls.crt")
    tls = {
        "certFile": str(tmp_path / "tls.crt"),
        "keyFile": str(tmp_path / "tls.key"),
        "clientCAFile": str(tmp_path / "ca.crt"),
    }
    world.plane.kill_scheduler("muster")
    world.plane.start_scheduler(tls_scheduler(tmp_path, port, ca if trusted else other), "tls")
    try:
        where = credentials.from_kubeconfig(str(world.plane.kubeconfig_path))
        pages = free_port()
        listen = {"host": "127.0.0.1", "port": port, "adminPort": pages}
        async with running(settings_for(port, tls=tls, listen=listen), where) as service:
            await leading(service)
            # A kubelet's probe has no certificate.
            async with (
                aiohttp.ClientSession() as probe,
                probe.get(f"http://127.0.0.1:{pages}/readyz") as answer,
            ):
                assert answer.status == 200
            await world.nodes("n1", "n2")
            await world.group("train", 2)
            await world.gang("train", 2)
            if trusted:
                await world.until(lambda: len(world.bound()) == 2, "the gang")
            else:
                await world.until(
                    lambda: "/filter" in world.scheduled_message("train-0"), "the refusal"
                )
                assert world.ever_bound() == set()
            check_service(service)
    finally:
        world.plane.kill_scheduler("tls")
        config = (world.plane.work_dir / "scheduler-muster.yaml").read_text()
        world.plane.start_scheduler(config, "muster")
