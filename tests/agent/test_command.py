"""``muster agent --once``, and what is wrong with how it is called."""

from __future__ import annotations

import json
import logging

import pynvml
import pytest
import structlog
import yaml

from extender import cli
from extender.core.topology import annotation, devices
from tests.agent.machine import Nvml


@pytest.fixture(autouse=True)
def the_log_stays_as_it_is():
    """The command sets up the process's log, which then writes to the stderr of this test alone."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def config(hgx, tmp_path):
    file = tmp_path / "muster.yaml"
    file.write_text(yaml.safe_dump({"muster": {"agent": hgx.settings.model_dump(by_alias=True)}}))
    return str(file)


@pytest.fixture
def recorded(hgx, monkeypatch):
    """The command on a machine with a driver: NVML's functions answer from the recording."""
    nvml = Nvml(hgx.machine)
    for name in [name for name in dir(pynvml) if name.startswith("nvml")]:
        if hasattr(Nvml, "_" + name.removeprefix("nvml")):
            monkeypatch.setattr(pynvml, name, getattr(nvml, name))


def test_once_prints_what_would_be_published(hgx, config, recorded, capsys):
    hgx.kubelet.pods = {"team/train-0": [hgx.machine.uuid(3)]}
    hgx.machine.used_gib = [70.0] * 8
    assert cli.main(["agent", "--once", "--json", "--config", config]) == 0
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert said.err == ""
    assert set(document) == {"annotations", "devices", "clique", "lacks"}
    assert annotation.decode(document["annotations"][annotation.KEY]).same(hgx.machine.known)
    assert devices.decode(document["annotations"][devices.KEY]).held[3] == ("team/train-0",)
    assert document["devices"][3] == {
        "index": 3,
        "bus": "0000:30:00.0",
        "uuid": hgx.machine.uuid(3),
        "numa": 0,
        "health": "ok",
        "held": ["team/train-0"],
        "memory_total": 80 << 30,
        "memory_used": 70 << 30,
        "utilisation": 7,
        "mig": [],
    }
    assert document["lacks"] == []


def test_once_for_people(hgx, config, capsys):
    assert cli.main(["agent", "--once", "--config", config]) == 0
    said = capsys.readouterr()
    assert "GPU3    0000:30:00.0 numa 0   ?         held by ?" in said.out
    assert f"{annotation.KEY}: {{" in said.out
    assert said.err == "muster agent: nvml: driver is not known: NVML Shared Library Not Found\n"


def test_once_where_there_are_no_devices(tmp_path, capsys):
    file = tmp_path / "muster.yaml"
    file.write_text("muster: {agent: {sysfs: /nowhere, podResourcesSocket: /nowhere}}")
    assert cli.main(["agent", "--once", "--json", "--config", str(file)]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["annotations"] == {}
    assert [lack["source"] for lack in document["lacks"]] == [
        "nvml", "nvml", "podresources", "sysfs",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        ("{}", [], "--node: is missing"),
        ("muster: {agent: {readEverySeconds: 0}}", [], "muster.agent.readEverySeconds: 0 is not"),
        ("muster: {agent: {every: 1}}", [], "allowed: compareEverySeconds, kubeletConfig,"),
        ("{}", ["--node", "n", "--kubeconfig", "/nowhere"], "kubeconfig /nowhere"),
    ],
)
def test_wrong_use_is_said(tmp_path, monkeypatch, capsys, text, words, said):
    monkeypatch.delenv("NODE_NAME", raising=False)
    file = tmp_path / "muster.yaml"
    file.write_text(text)
    assert cli.main(["agent", "--config", str(file), *words]) == 2
    assert said in capsys.readouterr().err
