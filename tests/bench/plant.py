"""What benchmarks run on: a real control plane with nodes, Muster in a process, CPU seconds of each."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import yaml
from prometheus_client.parser import text_string_to_metric_families

from extender.core import api
from extender.sim import fleet
from extender.sim.binaries import binaries
from extender.sim.client import Client
from extender.sim.daemon import Daemon, free_port
from extender.sim.realplane import RealPlane
from tests.controlplane.world import client_of

ROOT = Path(__file__).parents[2]
#: schedulerName of every kube-scheduler that is measured.
SCHEDULER = "muster"
#: Of a node.
GPUS = 8
#: How often a collection is deleted before that is called a failure.
TRIES = 50
_TICKS = os.sysconf("SC_CLK_TCK")
#: Kinds that a run leaves behind, owners before what they own.
_LEFT_BEHIND = (
    api.PYTORCH_JOBS,
    api.GANG_PLANS,
    api.VOLCANO_GROUPS,
    api.NATIVE_GROUPS,
    api.PODS,
    api.SERVICES,
)


@dataclass
class Plant:
    """A control plane that is up, and what was started on it for the run that is under way."""

    plane: RealPlane
    client: Client
    muster: Daemon | None = None
    #: The extender that decides nothing, where a run is measured with it.
    passthrough: Daemon | None = None
    muster_port: int = 0
    _runs: int = 0

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far, by process; ``client`` is the benchmark itself."""
        daemons = {d.name.partition("-")[0]: d for d in [*self.plane.daemons, *self._musters()]}
        used = {name: cpu_seconds(d.pid) for name, d in daemons.items() if d.alive}
        own = resource.getrusage(resource.RUSAGE_SELF)
        return {**used, "client": own.ru_utime + own.ru_stime}

    def _musters(self) -> list[Daemon]:
        return [each for each in (self.muster, self.passthrough) if each]

    async def namespace(self) -> str:
        """A fresh one."""
        self._runs += 1
        name = f"bench-{self._runs}"
        await fleet.add_namespace(self.client, name)
        return name

    @contextlib.asynccontextmanager
    async def running(
        self,
        config: Mapping[str, Any] | str,
        gates: Mapping[str, bool],
        *,
        muster: bool,
        passthrough: bool = False,
        nice: int = 0,
    ) -> AsyncIterator[None]:
        """A kube-scheduler (and a Muster) of its own for one run; what the run made is deleted.

        ``nice``: Muster's, as by nice(1); below 0 takes root.
        """
        if passthrough:
            self.passthrough = await asyncio.to_thread(
                _start_passthrough, self.plane, self.muster_port
            )
        if muster:
            self.muster = await asyncio.to_thread(_start_muster, self.plane, self.muster_port, nice)
        await asyncio.to_thread(self.plane.start_scheduler, config, "measured", feature_gates=gates)
        try:
            yield
        finally:
            await asyncio.to_thread(self.plane.kill_scheduler, "measured")
            if self.muster is not None:
                await asyncio.to_thread(self.muster.stop, signal.SIGINT)
                self.muster = None
            if self.passthrough is not None:
                await asyncio.to_thread(self.passthrough.stop, signal.SIGTERM)
                self.passthrough = None
            await self._clear()

    async def _clear(self) -> None:
        namespace = f"bench-{self._runs}"
        groups = await self.client.list(api.NATIVE_GROUPS, namespace)
        for each in groups["items"] or ():
            # No controller runs that would take the finalizer off.
            name, bare = each["metadata"]["name"], {"metadata": {"finalizers": None}}
            await self.client.patch(api.NATIVE_GROUPS, namespace, name, bare)
        for resource_ in _LEFT_BEHIND:
            await delete_all(self.client, resource_, namespace)

    async def story(self) -> str:
        """What Muster has to say about a run that does not end."""
        if self.muster is None:
            return ""
        base = f"http://127.0.0.1:{self.muster_port}/debug"
        pages = [await asyncio.to_thread(_get, f"{base}/{page}") for page in ("state", "gangs")]
        log = self.muster.log.read_text()[-1500:]
        return "\n".join([*(page[:1500] for page in pages), log])

    def written(self) -> dict[str, float]:
        """Muster's writes to the API so far, by command and result."""
        text = _get(f"http://127.0.0.1:{self.muster_port}/metrics")
        return {
            " ".join(each.labels.values()): each.value
            for family in text_string_to_metric_families(text)
            for each in family.samples
            if each.name in ("muster_commands_total", "muster_command_retries_total")
        }

    def sample(self, name: str, **labels: str) -> float:
        """One of Muster's metrics; 0 where it has not been counted yet."""
        text = _get(f"http://127.0.0.1:{self.muster_port}/metrics")
        for family in text_string_to_metric_families(text):
            for each in family.samples:
                if each.name == name and each.labels == labels:
                    return float(each.value)
        return 0.0


@contextlib.asynccontextmanager
async def plant(nodes: int) -> AsyncIterator[Plant]:
    """A control plane with this many GPU nodes and Muster's CRDs."""
    with _plane() as plane:
        async with client_of(plane) as client:
            await fleet.add_nodes(client, fleet.racks(nodes, gpus=GPUS))
            yield Plant(plane, client, muster_port=free_port())


@contextlib.contextmanager
def _plane() -> Iterator[RealPlane]:
    with (
        tempfile.TemporaryDirectory(prefix="muster-bench-") as folder,
        RealPlane(binaries(), Path(folder)) as plane,
    ):
        plane.start_etcd()
        plane.start_apiserver()
        for crd in sorted((ROOT / "manifests" / "crds").glob("*_*.yaml")):
            plane.kubectl("apply", "-f", str(crd))
        plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
        yield plane


def stock_scheduler() -> dict[str, Any]:
    """kube-scheduler as it comes, under the name that is measured."""
    return {"profiles": [{"schedulerName": SCHEDULER}]}


def muster_scheduler(port: int) -> str:
    """The sample configuration with Muster's extender entries."""
    text = (ROOT / "config" / "scheduler-own.yaml").read_text()
    config = yaml.safe_load(text.replace("127.0.0.1:8900", f"127.0.0.1:{port}"))
    config["leaderElection"] = {"leaderElect": False}
    return yaml.safe_dump(config)


def passthrough_scheduler(port: int) -> str:
    """The same with the extender that decides nothing: /filter and /bind, as for a pinned pod."""
    config = yaml.safe_load(muster_scheduler(port))
    for entry in config["extenders"]:
        entry["urlPrefix"] = f"http://127.0.0.1:{port}"
        entry.pop("prioritizeVerb", None)
        entry.pop("preemptVerb", None)
        entry.pop("weight", None)
    return yaml.safe_dump(config)


def _start_muster(plane: RealPlane, port: int, nice: int) -> Daemon:
    """The service as users start it, with the plugins of the sample configuration."""
    config = yaml.safe_load((ROOT / "config" / "muster.yaml").read_text())
    config["muster"] |= {
        "listen": {"host": "127.0.0.1", "port": port, "prefix": "/scheduler"},
        "leaderElection": {"enabled": False},
        "kubeconfig": str(plane.kubeconfig_path),
    }
    file = plane.work_dir / "muster.yaml"
    file.write_text(yaml.safe_dump(config))
    command = [sys.executable, *_profiler(), "-m", "extender.cli", "serve", "--config", str(file)]
    if nice:
        command = [shutil.which("nice") or "nice", "-n", str(nice), *command]
    daemon = Daemon("muster", command, plane.work_dir / "muster.log", port=port)
    daemon.start(lambda: _leads(port))
    return daemon


def _start_passthrough(plane: RealPlane, port: int) -> Daemon:
    """Built here: Go is there wherever the control plane was built."""
    program = plane.work_dir / "passthrough"
    build = ["go", "build", "-o", str(program), "."]
    subprocess.run(build, check=True, cwd=ROOT / "tests" / "bench" / "passthrough")
    keys = [str(each) for each in (plane.ca, *plane.client_cert)]
    command = [str(program), f"127.0.0.1:{port}", plane.server_url, *keys]
    daemon = Daemon("passthrough", command, plane.work_dir / "passthrough.log", port=port)
    daemon.start(lambda: _answers(port))
    return daemon


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _profiler() -> list[str]:
    """``MUSTER_BENCH_PROFILE=FILE`` runs Muster under cProfile."""
    file = os.environ.get("MUSTER_BENCH_PROFILE")
    return ["-m", "cProfile", "-o", file] if file else []


def _leads(port: int) -> bool:
    try:
        return bool(orjson.loads(_get(f"http://127.0.0.1:{port}/debug/state"))["leading"])
    except (OSError, urllib.error.URLError):
        return False


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


def cpu_seconds(pid: int) -> float:
    """User and system time of a process that lives."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


async def delete_all(client: Client, resource_: api.Resource, namespace: str) -> None:
    """Delete a collection without grace, and wait until it is empty."""
    url = client.url + resource_.path(namespace)
    session = client._session
    assert session is not None
    said = ""
    for _ in range(TRIES):
        async with session.delete(url, params={"gracePeriodSeconds": "0"}) as answer:
            said = (await answer.text())[:500]
        async with session.get(url, params={"limit": "1"}) as answer:
            found = orjson.loads(await answer.read())
        if not found.get("items"):
            return
        await asyncio.sleep(0.2)
    raise RuntimeError(f"{resource_.plural} are not deleted: {said}")
