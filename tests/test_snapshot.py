"""`/debug/snapshot`, and what `explain --snapshot` and `simulate snapshot` say of it, and of a log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from extender import cli
from extender.core import api
from extender.core import events as e
from extender.core.coordinator import Coordinator
from extender.core.errors import InvariantViolated
from extender.kube import credentials
from extender.obs.logfile import OBJECTS, LogFile
from extender.runtime import Service, running
from extender.settings import parse
from extender.sim import fleet
from extender.sim.apiserver import ApiServer
from extender.sim.client import Client

SECRET = "hunter2"


def member(name: str, group: str) -> dict[str, Any]:
    """A pod with one GPU, of a Volcano group, that has a secret on it."""
    marks = {"scheduling.k8s.io/group-name": group, "example.com/token": SECRET}
    box = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {
        "metadata": {"name": name, "annotations": marks},
        "spec": {"schedulerName": "muster", "containers": [box]},
    }


async def gang(client: Client, name: str, size: int) -> None:
    body = {"metadata": {"name": name}, "spec": {"minMember": size}}
    await client.create(api.VOLCANO_GROUPS, "default", body)
    for number in range(size):
        await client.create(api.PODS, "default", member(f"{name}-{number}", name))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "snapshot.log"


@asynccontextmanager
async def waiting(log: Path) -> AsyncIterator[Service]:
    """A recorded Muster whose gang default/train waits for one GPU more than there are."""
    section = {"listen": {"host": "127.0.0.1", "port": 0}, "leaderElection": {"enabled": False}}
    given = parse({"muster": section}, "test")
    async with (
        ApiServer() as server,
        Client(server.url) as client,
        running(given, credentials.plain(server.url), record=log) as found,
    ):
        await fleet.add_node(client, fleet.node("n1", gpus=1))
        await gang(client, "train", 2)
        async with asyncio.timeout(60):
            async for _, groups in client.follow(api.VOLCANO_GROUPS, "default"):
                if any(each.get("status", {}).get("conditions") for each in groups):
                    break
        yield found


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with waiting(tmp_path / "muster.log") as found:
        yield found


async def fetch(service: Service, path: Path) -> bytes:
    host, port = service.addresses[0][:2]
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"http://{host}:{port}/debug/snapshot") as answer,
    ):
        assert answer.status == 200
        content = await answer.read()
    await asyncio.to_thread(path.write_bytes, content)
    return content


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    capsys.readouterr()
    code = cli.main([*words, "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else err


async def test_a_snapshot_holds_every_object_and_no_secret(service: Service, path: Path) -> None:
    content = await fetch(service, path)
    assert SECRET.encode() not in content
    file = LogFile(path)
    told = list(file.told())
    assert file.header.begins == OBJECTS
    assert {x.pod.metadata.name for x in told if isinstance(x, e.PodSeen)} == {"train-0", "train-1"}
    assert [x.node.metadata.name for x in told if isinstance(x, e.NodeSeen)] == ["n1"]
    assert told[-2:] == [e.Synced(), e.LeaderGained(1)]
    view = file.view()
    assert view is not None
    assert view["gangs"] == json.loads(json.dumps(service.view.gangs()))
    assert view["state"]["nodes"] == 1


async def test_explain_says_the_same_of_a_snapshot_as_of_the_service(
    service: Service, path: Path, capsys
) -> None:
    await fetch(service, path)
    (known,) = json.loads(json.dumps(service.view.gangs()))
    assert said(capsys, "explain", "--snapshot", str(path)) == (0, {"gangs": [known]})
    assert said(capsys, "explain", "train", "--snapshot", str(path)) == (0, known)
    # A pod's name is what people have at hand.
    member = known["pods"][0]["name"]
    assert service.view.gang("default", member) == known
    assert said(capsys, "explain", member, "--snapshot", str(path)) == (0, known)
    assert known["reasons"][0]["code"] == "NeverFits"
    code, words = said(capsys, "explain", "absent", "--snapshot", str(path))
    assert (code, words) == (1, {"error": f"no gang default/absent in {path}"})
    assert cli.main(["explain", "train", "--snapshot", str(path)]) == 0
    assert known["reasons"][0]["message"] in capsys.readouterr().out


async def test_explain_and_a_what_if_read_a_log_to_its_end(tmp_path: Path, capsys) -> None:
    log = tmp_path / "muster.log"
    async with waiting(log) as service:
        (known,) = json.loads(json.dumps(service.view.gangs()))
    code, found = said(capsys, "explain", "train", "--snapshot", str(log))
    assert (code, found["reasons"]) == (0, known["reasons"])
    words = ("simulate", "snapshot", str(log), "--nodes", "1", "--like", "n1")
    code, found = said(capsys, *words)
    assert (code, len(found["gangs"][0]["plan"]["members"])) == (0, 2)


async def test_a_what_if_places_what_would_fit(service: Service, path: Path, capsys) -> None:
    await fetch(service, path)
    code, found = said(capsys, "simulate", "snapshot", str(path))
    (train,) = found["gangs"]
    assert (code, train["group"], train["plan"]) == (0, "default/train", None)
    assert train["reasons"][0]["code"] == "NeverFits"
    words = ("simulate", "snapshot", str(path), "--nodes", "1", "--like", "n1")
    code, found = said(capsys, *words)
    (train,) = found["gangs"]
    assert code == 0
    assert sorted(train["plan"]["members"].values()) == ["n1", "n1-what-if-0"]
    assert cli.main(list(words)) == 0
    assert "1 of 1 gangs that wait would be placed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--nodes", "1"), "--like name the node"),
        (("--nodes", "-1", "--like", "n1"), "--nodes must be at least 0"),
        (("--nodes", "1", "--like", "n9"), "'n9' is not allowed: a node of"),
    ],
)
def test_a_what_if_that_cannot_be_asked_is_wrong_use(path: Path, capsys, words, told) -> None:
    path.write_text('{"muster-log":"record","begins":"objects"}\n')
    code, answer = said(capsys, "simulate", "snapshot", str(path), *words)
    assert code == 2
    assert told in answer


@pytest.mark.parametrize("command", [["explain", "--snapshot"], ["simulate", "snapshot"]])
@pytest.mark.parametrize("content", ["", "{}\n", '{"muster-log":"chaos","version":1}\n'])
def test_what_is_no_snapshot_is_wrong_use(path: Path, capsys, command, content) -> None:
    path.write_text(content)
    code, answer = said(capsys, *command, str(path))
    assert code == 2
    assert str(path) in answer


HEADER = '{"muster-log":"record","begins":"start"}\n'


@pytest.mark.parametrize(
    "command", [["explain", "--snapshot"], ["simulate", "snapshot"], ["replay"]]
)
@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('{"muster-log":"record","begins":"end"}\n', "begins 'end' is not allowed: start, objects"),
        (HEADER + '{"now":1e300}\n', "line 2: Expected `float` <= 253402300799"),
        (HEADER + '{"now":-1}\n', "line 2: Expected `float` >= 0"),
        (HEADER + '{"x":' + "[" * 50_000 + "]" * 50_000 + "}\n", "line 2: is nested too deeply"),
    ],
    ids=["begins", "beyond", "before", "deep"],
)
def test_a_log_that_was_edited_is_wrong_use(path: Path, capsys, command, content, told) -> None:
    path.write_text(content)
    code, answer = said(capsys, *command, str(path))
    assert code == 2
    assert told in answer


@pytest.mark.parametrize(
    ("view", "told"),
    [
        ("{}", "missing required field `gangs`"),
        ('{"gangs":[{"group":"default/a"}]}', "missing required field `kind`"),
        ('{"gangs":3}', "Expected `array`, got `int` - at `$.gangs`"),
    ],
)
def test_a_snapshot_whose_gangs_were_edited_is_wrong_use(path: Path, capsys, view, told) -> None:
    path.write_text(HEADER + f'{{"view":{view}}}\n')
    code, answer = said(capsys, "explain", "--snapshot", str(path))
    assert code == 2
    assert told in answer


def test_a_fault_in_what_a_log_tells_costs_one_event_as_in_the_service(
    path: Path, capsys, monkeypatch
) -> None:
    def broken(*_: object) -> None:
        raise InvariantViolated("I2", "told so")

    monkeypatch.setattr(Coordinator, "step", broken)
    path.write_text(HEADER + '{"now":1}\n{"now":2}\n')
    assert cli.main(["explain", "--snapshot", str(path)]) == 0
    shown = capsys.readouterr()
    assert shown.out == "no gangs\n"
    assert f"{path}: 2 events or steps were broken off by a fault" in shown.err
