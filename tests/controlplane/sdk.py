"""kubeflow-training's TrainingClient in an environment of its own, asked over pipes.

It needs libraries older than Muster's. The environment is made from requirements-sdk.lock where the
cache lacks it, and shared by every checkout.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from extender.sim.binaries import cache_dir

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements-sdk.lock"
AGENT = Path(__file__).with_name("sdk_agent.py")
#: Seconds that one call may take: those that wait for a condition wait for less.
PATIENCE = 150.0


def interpreter() -> Path:
    """Python of the environment; made first where it is missing."""
    stamp = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()[:16]
    folder = cache_dir().parent / "sdk" / stamp
    python = folder / "bin/python"
    if python.exists():
        return python
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=folder.parent, prefix="new-"))
    try:
        _install(fresh)
        # Whole or not at all; who comes second has the same.
        if not python.exists():
            fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return python


def _install(folder: Path) -> None:
    """With uv, or, since uv does not read pip's configuration (mirrors, proxies), with pip."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin/python")
    locked = ["--require-hashes", "--quiet"]
    uv = Path(sys.executable).with_name("uv")
    quick = [str(uv), "pip", "sync", "--python", python, *locked, str(LOCK)]
    if uv.exists() and subprocess.run(quick, capture_output=True).returncode == 0:
        return
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", *locked, "-r", str(LOCK)]
    subprocess.run(pip, check=True)


class SdkError(Exception):
    """The client raised; the text is its own."""


class Sdk:
    """One TrainingClient. Its methods are called by name: ``await sdk.call("get_job", name=...)``."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def call(self, method: str, **arguments: Any) -> Any:
        """What the method returns, as JSON has it. Raises SdkError with what it raises."""
        pipe, answers = self._process.stdin, self._process.stdout
        assert pipe is not None
        assert answers is not None
        pipe.write(json.dumps({"method": method, "arguments": arguments}).encode() + b"\n")
        async with asyncio.timeout(PATIENCE):
            line = await answers.readline()
        assert line, "the client has ended; its last words are on stderr"
        answer = json.loads(line)
        if "raised" in answer:
            raise SdkError(answer["raised"])
        return answer["returned"]


@asynccontextmanager
async def client(python: Path, kubeconfig: Path, namespace: str, kind: str) -> AsyncIterator[Sdk]:
    """A client of a namespace and a kind."""
    process = await asyncio.create_subprocess_exec(
        str(python),
        "-I",
        str(AGENT),
        str(kubeconfig),
        namespace,
        kind,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 24,
    )
    try:
        yield Sdk(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
