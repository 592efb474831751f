"""Muster's start beside a large cluster: from the start of the process to /readyz 200, and its memory.

The API server is the in-memory one, in a process of its own; the first list is all that is timed,
so it need not be the real one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import orjson
import yaml

from extender.sim.daemon import free_port
from tests.bench import restart_cluster
from tests.bench.plant import ROOT, cpu_seconds

HELP = "seconds from the start of Muster to /readyz 200, and its memory"
#: Seconds between two looks at /readyz.
LOOK = 0.02


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=140_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--patience", type=float, default=120.0, help="seconds a start may take")


def run(args: argparse.Namespace) -> dict[str, Any]:
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(
        target=restart_cluster.serve, args=(args.nodes, args.pods, there)
    )
    server.start()
    try:
        url = here.recv()
        with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
            runs = [_start(url, Path(folder), args.patience) for _ in range(args.repeat)]
    finally:
        here.send(None)
        server.join()
    median = sorted(runs, key=lambda each: each["ready_seconds"])[len(runs) // 2]
    pods = [obj for resource, obj in restart_cluster.cluster(50, 1_400) if resource.kind == "Pod"]
    return {
        "nodes": args.nodes,
        "pods": args.pods,
        "pod_bytes": _mean(pods),
        **median,
        "runs": runs,
    }


def _mean(objects: list[Any]) -> int:
    """Bytes of JSON."""
    return sum(len(orjson.dumps(obj)) for obj in objects) // len(objects)


def _start(url: str, folder: Path, patience: float) -> dict[str, Any]:
    port = free_port()
    config = _config(url, folder, port)
    command = [sys.executable, "-m", "extender.cli", "serve", "--config", str(config)]
    # An installed package has its byte code beside it.
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    with (folder / "muster.log").open("wb") as log:
        began = time.monotonic()
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT, env=env)
        try:
            while not _ready(port):
                if process.poll() is not None or time.monotonic() - began > patience:
                    raise RuntimeError((folder / "muster.log").read_text()[-2000:])
                time.sleep(LOOK)
            ready = time.monotonic() - began
            used, memory = cpu_seconds(process.pid), _memory(process.pid)
            time.sleep(2.0)  # what leading costs comes after
            later = _memory(process.pid)
        finally:
            process.terminate()
            process.wait()
    return {
        "ready_seconds": round(ready, 2),
        "cpu_seconds": round(used, 2),
        "rss_mb": memory["VmRSS"],
        "peak_rss_mb": memory["VmHWM"],
        "peak_rss_mb_leading": later["VmHWM"],
    }


def _config(url: str, folder: Path, port: int) -> Path:
    """The sample configuration, on this server and port."""
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump({
        "apiVersion": "v1", "kind": "Config", "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": {"server": url}}],
        "users": [{"name": "bench", "user": {}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
    }))  # fmt: skip
    config = yaml.safe_load((ROOT / "config" / "muster.yaml").read_text())
    config["muster"] |= {
        "listen": {"host": "127.0.0.1", "port": port, "prefix": "/scheduler"},
        "leaderElection": {"enabled": False},
        "kubeconfig": str(kubeconfig),
    }
    file = folder / "muster.yaml"
    file.write_text(yaml.safe_dump(config))
    return file


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def _memory(pid: int) -> dict[str, int]:
    """VmRSS and VmHWM (the most it was) of a process, in MB of 10**6 bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return {name: int(fields[name].split()[0]) * 1024 // 10**6 for name in ("VmRSS", "VmHWM")}
