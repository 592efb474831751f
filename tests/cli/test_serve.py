"""``muster serve``: what it refuses, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from extender import cli
from extender.sim.apiserver import ApiServer
from tests.cli.conftest import Write

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = sorted((ROOT / "config").glob("scheduler-*.yaml"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("muster: {listen: {port: 70000}}", "muster.listen.port: 70000 is not allowed"),
        ("muster: {lisen: {}}", "muster.lisen: no such field"),
        ("tiers: [{plugins: [{name: magic}]}]", "no plugin 'magic'"),
        ("a: [", "is not YAML"),
    ],
)
def test_serve_refuses_a_wrong_file(write: Write, content, words, capsys):
    assert cli.main(["serve", "--config", write("muster.yaml", content)]) == 2
    assert words in capsys.readouterr().err


def test_serve_refuses_a_missing_file(capsys):
    assert cli.main(["serve", "--config", "nowhere.yaml"]) == 2
    assert "nowhere.yaml: cannot be read" in capsys.readouterr().err


def test_serve_says_which_certificate_is_not_there(write: Write, capsys):
    tls = {"certFile": "a.crt", "keyFile": "a.key", "clientCAFile": "ca.crt"}
    section = {
        "kubeconfig": write("kubeconfig", kubeconfig("http://127.0.0.1:1")),
        "listen": {"host": "127.0.0.1", "port": 0},
        "tls": tls,
    }
    assert cli.main(["serve", "--config", write("muster.yaml", {"muster": section})]) == 2
    assert "a.crt" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"listen": {"port": 0}}, "muster.listen.host: is missing: without muster.tls"),
        ({"listen": {"host": "0.0.0.0"}}, "'0.0.0.0' is not allowed without tls"),
        ({"tls": {"certFile": "a", "keyFile": "b"}}, "muster.tls.clientCAFile: is missing"),
    ],
)
def test_serve_does_not_open_the_verbs_to_whoever_comes(write: Write, more, words, capsys):
    section = {"kubeconfig": write("kubeconfig", kubeconfig("http://127.0.0.1:1")), **more}
    assert cli.main(["serve", "--config", write("muster.yaml", {"muster": section})]) == 2
    assert words in capsys.readouterr().err


def test_serve_says_that_its_address_cannot_be_had(write: Write, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        section = {
            "kubeconfig": write("kubeconfig", kubeconfig("http://127.0.0.1:1")),
            "listen": {"host": "127.0.0.1", "port": (port := taken.getsockname()[1])},
        }
        assert cli.main(["serve", "--config", write("muster.yaml", {"muster": section})]) == 1
    said = capsys.readouterr().err
    assert f"127.0.0.1:{port} is taken by another program; see listen.port" in said


def test_serve_refuses_a_file_of_kubernetes_by_its_kind(capsys):
    assert cli.main(["serve", "--config", str(SAMPLES[0])]) == 2
    assert "is a KubeSchedulerConfiguration, not a muster.yaml" in capsys.readouterr().err


def test_serve_refuses_a_kubeconfig_that_is_not_there(write: Write, capsys):
    section = {"kubeconfig": "nowhere", "listen": {"host": "127.0.0.1", "port": 0}}
    assert cli.main(["serve", "--config", write("muster.yaml", {"muster": section})]) == 2
    assert "kubeconfig nowhere" in capsys.readouterr().err


def kubeconfig(server: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "it", "cluster": {"server": server}}],
        "users": [{"name": "it", "user": {}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "current-context": "it",
    }


async def test_serve_runs_until_it_is_told_to_stop(write: Write):
    async with ApiServer() as server:
        section = {
            "kubeconfig": write("kubeconfig", kubeconfig(server.url)),
            "listen": {"host": "127.0.0.1", "port": 0},
            "leaderElection": {"enabled": False},
        }
        config = write("muster.yaml", {"muster": section})
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "extender.cli", "serve", "--config", config, "--json",
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        seen = []
        async for line in process.stderr:
            seen.append(json.loads(line)["event"])
            if seen[-1] == "ready":
                process.terminate()
        assert await process.wait() == 0
        assert seen == ["listening", "ready", "stopping"]
        assert json.loads(await process.stdout.read()) == {"stopped": True}
