"""`serve --record`: files that rotate, gaps that are said, and what `muster replay` makes of them."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from extender import cli
from extender.core import api, codec
from extender.core import commands as c
from extender.core import events as e
from extender.core.errors import LogError
from extender.core.redact import Redactor
from extender.kube import credentials
from extender.loop import Loop
from extender.obs import recorder as module
from extender.obs.logfile import OBJECTS, START, LogFile, header_of
from extender.obs.metrics import Metrics
from extender.obs.recorder import LIMITS, Limits, Recorder
from extender.runtime import running
from extender.settings import Settings, parse
from extender.sim import fleet
from extender.sim.apiserver import ApiServer
from extender.sim.client import Client
from extender.sim.extenders import Extender
from extender.sim.kubelet import Kubelet
from extender.sim.scheduler import Scheduler
from tests import builders
from tests.core import machine_stories as do
from tests.core.machine import RULES, Machine, Replica
from tests.core.machine_stories import Chaos
from tests.core.recording import listen

Begin = Callable[..., Recorder]


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "muster.log"


@pytest.fixture
def record(
    path: Path, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Limits], Recorder]]:
    """Begins to record what the first replica of a machine is told from now on."""
    made: list[Recorder] = []

    def begin(limits: Limits = LIMITS) -> Recorder:
        header = header_of(Settings(), RULES)
        recorder = Recorder(path, header, metrics, key=b"k" * 32, limits=limits)
        recorder.start()
        made.append(recorder)

        def tell(
            replica: Replica, events: Sequence[e.Event], commands: Sequence[c.Command]
        ) -> None:
            if replica.name == "r0":
                recorder.turn(replica.machine.now, events, commands, replica.state)

        listen(monkeypatch, tell)
        return recorder

    yield begin
    for recorder in made:
        recorder.close()


def replayed(capsys: pytest.CaptureFixture[str], *files: Path) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = cli.main(["replay", "--json", *map(str, files)])
    said = capsys.readouterr()
    return code, json.loads(said.out) if said.out else {"said": said.err}


def test_a_story_of_faults_is_written_and_replays_identically(path: Path, record, capsys) -> None:
    recorder = record()
    Chaos(11).run(400)
    recorder.close()
    code, found = replayed(capsys, path)
    turns = list(LogFile(path).turns())
    assert (code, found["identical"], found["begins"]) == (0, True, START)
    assert found["events"] == sum(len(turn.events) for turn in turns) > 50
    assert found["commands"] == found["judged"] == sum(len(turn.commands) for turn in turns) > 10
    assert path.stat().st_mode & 0o077 == 0


def test_a_log_of_other_commands_is_answered_with_where_it_differs(
    path: Path, record, capsys
) -> None:
    recorder = record()
    m = Machine()
    do.nodes(m, 2)
    do.gang(m, "g", 2)
    m.rest()
    recorder.close()
    lines = path.read_bytes().splitlines(keepends=True)
    number = next(n for n, line in enumerate(lines) if b'"command":"Bind"' in line)
    before = sum(len(json.loads(line)["events"]) for line in lines[1 : number + 1])
    lines[number] = re.sub(rb'("command":"Bind".*?"node":)"n0"', rb'\1"n7"', lines[number])
    path.write_bytes(b"".join(lines))
    code, found = replayed(capsys, path)
    assert (code, found["identical"]) == (1, False)
    difference = found["difference"]
    assert difference["event"] == before
    assert (difference["expected"]["command"], difference["expected"]["node"]) == ("Bind", "n7")
    assert (difference["got"]["command"], difference["got"]["node"]) == ("Bind", "n0")
    assert cli.main(["replay", str(path)]) == 1
    said = capsys.readouterr().out
    assert "not identical" in said
    assert f"at event {before}" in said
    assert "'n7'" in said


SMALL = Limits(file=12_000, older=3)


def parts(path: Path) -> list[Path]:
    """The parts that are there, in order."""
    older = sorted(path.parent.glob(f"{path.name}.*"), key=lambda each: int(each.suffix[1:]))
    return [*older, path]


def many(m: Machine, count: int) -> None:
    """Gangs that come and go, one at a time."""
    for number in range(count):
        do.gang(m, f"g{number}", 2)
        m.rest(5)
        for place in list(m.api.objects):
            if place[2].startswith(f"g{number}"):
                m.api.remove(place)
        m.rest(5)


def test_parts_are_bounded_and_each_can_be_replayed_by_itself(path: Path, record, capsys) -> None:
    recorder = record(SMALL)
    m = Machine()
    do.nodes(m, 4)
    many(m, 12)
    recorder.close()
    found = parts(path)
    assert len(found) == SMALL.older + 1
    headers = [LogFile(each).header for each in found]
    assert [header.part for header in headers] == list(
        range(headers[0].part, headers[0].part + len(found))
    )
    assert headers[0].part > 0
    assert {header.begins for header in headers} == {OBJECTS}
    assert all(each.stat().st_size < 4 * SMALL.file for each in found)
    for each in found[:-1]:
        code, answer = replayed(capsys, each)
        assert (code, answer.get("identical")) == (0, True), answer
        assert answer["judged"] > 5
    code, answer = replayed(capsys, *found)
    assert (code, answer.get("identical")) == (0, True), answer


def test_all_parts_of_a_run_are_judged_as_one(path: Path, record, capsys) -> None:
    recorder = record(Limits(file=12_000, older=100))
    m = Machine()
    do.nodes(m, 4)
    many(m, 6)
    recorder.close()
    found = parts(path)
    assert len(found) > 2
    code, answer = replayed(capsys, *found)
    assert (code, answer.get("identical"), answer.get("begins")) == (0, True, START), answer
    assert answer["judged"] == answer["commands"]
    code, answer = replayed(capsys, found[0], *found[2:])
    assert code == 2
    assert "is not what follows" in answer["said"]


def test_what_was_there_before_is_kept_beside(path: Path, record) -> None:
    path.write_text("of an earlier process\n")
    record().close()
    assert [each.name for each in parts(path)] == ["muster.log.1", "muster.log"]
    assert path.with_name("muster.log.1").read_text() == "of an earlier process\n"


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """A disk that takes nothing until it is told to, and that can be full."""
    found = Disk()
    write = module._write

    def written(file: BinaryIO, data: bytes) -> None:
        if found.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(file, data)

    monkeypatch.setattr(module, "_write", written)
    monkeypatch.setattr(module, "FLUSH_SECONDS", 3600.0)
    return found


class Disk:
    full = False

    def takes(self, recorder: Recorder) -> None:
        """What the writing thread does, here and now."""
        recorder._drain()


def test_a_slow_disk_costs_a_gap_that_the_log_says(
    path: Path, record, disk: Disk, metrics: Metrics, capsys
) -> None:
    recorder = record(Limits(file=1 << 20, buffer=20_000))
    m = Machine()
    do.nodes(m, 4)
    m.rest()
    disk.takes(recorder)
    many(m, 8)
    lost = metrics.registry.get_sample_value("muster_record_lost_turns_total")
    assert lost is not None
    assert lost > 5
    disk.takes(recorder)
    m.advance(module.RETRY_SECONDS)
    do.gang(m, "later", 2)
    m.rest(5)
    total = metrics.registry.get_sample_value("muster_record_lost_turns_total")
    recorder.close()
    first, second = parts(path)
    header = LogFile(second).header
    assert header.lost is not None
    assert lost <= header.lost.turns == total
    assert header.lost.events > 0
    for each in (first, second):
        code, answer = replayed(capsys, each)
        assert (code, answer.get("identical")) == (0, True), answer
    code, answer = replayed(capsys, first, second)
    assert code == 2
    assert f"{header.lost.turns} turns before it are lost" in answer["said"]


def test_a_disk_that_stays_full_costs_none_of_the_files_before(
    path: Path, record, disk: Disk
) -> None:
    recorder = record(Limits(older=2))
    m = Machine()
    do.nodes(m, 8)
    m.rest()
    disk.takes(recorder)
    before = path.read_bytes()
    disk.full = True
    for number in range(5):
        do.gang(m, f"lost-{number}", 2)
        m.rest(module.RETRY_SECONDS * 2)
        disk.takes(recorder)
    assert [each.read_bytes() for each in parts(path) if each.exists()] == [before]
    disk.full = False
    m.now += module.RETRY_SECONDS
    do.gang(m, "kept", 2)
    m.rest(module.RETRY_SECONDS * 2)
    recorder.close()
    assert [each.read_bytes() == before for each in parts(path)] == [True, False]


def test_a_full_disk_is_said_and_the_log_goes_on_when_there_is_room(
    path: Path, record, disk: Disk, metrics: Metrics, capsys
) -> None:
    recorder = record()
    m = Machine()
    do.nodes(m, 8)
    m.rest()
    disk.takes(recorder)
    disk.full = True
    for name in ("lost", "lost-too"):
        do.gang(m, name, 2)
        m.rest(module.RETRY_SECONDS * 2)
        disk.takes(recorder)
    disk.full = False
    m.now += module.RETRY_SECONDS
    for name in ("seen", "kept"):
        do.gang(m, name, 2)
        m.rest(module.RETRY_SECONDS * 2)
    recorder.close()
    header = LogFile(path).header
    assert header.lost is not None
    assert header.lost.turns == metrics.registry.get_sample_value("muster_record_lost_turns_total")
    assert b'"name":"lost-0"' in path.read_bytes()  # among the objects
    code, answer = replayed(capsys, path)
    assert (code, answer.get("identical")) == (0, True), answer


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.999])
def test_a_crash_leaves_what_can_be_read(path: Path, record, capsys, share: float) -> None:
    recorder = record()
    Chaos(12).run(200)
    recorder.close()
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    file = LogFile(path)
    turns = list(file.turns())
    assert file.cut
    assert len(turns) == whole[: int(len(whole) * share)].count(b"\n") - 1
    code, answer = replayed(capsys, path)
    assert (code, answer.get("identical")) == (0, True), answer


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is no log of Muster"),
        (b"{}\n", "missing required field `muster-log`"),
        (b'{"muster-log":"record","version":9}\n', "version 9 is not allowed: 1"),
        (b'{"muster-log":"diary","version":1}\n', "'diary' is not allowed"),
        (b'{"muster-log":"record"}\nno\n', "line 2: "),
        (b'{"muster-log":"record"}\n{"now":1,"events":[{"event":"No"}]}\n', "line 2: "),
        (b'{"muster-log":"record","tiers":[{"plugins":[{"name":"no"}]}]}\n', "no"),
    ],
)
def test_what_is_no_log_is_wrong_use(path: Path, capsys, content: bytes, words: str) -> None:
    path.write_bytes(content)
    code, answer = replayed(capsys, path)
    assert code == 2
    assert words in answer["said"]
    assert str(path) in answer["said"]


def test_a_log_that_is_not_there_is_wrong_use(path: Path, capsys) -> None:
    assert replayed(capsys, path)[0] == 2
    with pytest.raises(LogError, match="No such file"):
        LogFile(path)


async def test_a_fault_of_the_log_s_own_costs_the_log_alone(
    path: Path, record, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = record()
    m = Machine()
    loop = Loop(m.replicas[0].coordinator, metrics, clock=lambda: m.now, recorder=recorder)

    def fails(self: Redactor, event: e.Event) -> e.Event:
        raise TypeError("cannot")

    with monkeypatch.context() as patch:
        patch.setattr(Redactor, "event", fails)
        loop.put(e.NodeSeen(builders.node("n1")))
        loop.turn()
    assert loop.faults == 0
    assert m.replicas[0].state.cluster.row_of("n1") is not None
    assert metrics.registry.get_sample_value("muster_record_lost_turns_total") == 1
    name = "muster_invariant_violations_total"
    assert metrics.registry.get_sample_value(name, {"invariant": "recorder"}) == 1


async def test_a_step_that_breaks_off_is_written_and_replays(
    path: Path, record, metrics: Metrics, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """A fault of the core's own is the same fault in the replay, or a difference."""
    recorder = record()
    m = Machine()
    coordinator = m.replicas[0].coordinator
    loop = Loop(coordinator, metrics, clock=lambda: m.now, recorder=recorder)

    def fails(now: float) -> list[c.Command]:
        raise RuntimeError("a fault")

    with monkeypatch.context() as patch:
        patch.setattr(coordinator, "step", fails)
        loop.put(e.Tick())
        loop.turn()
    recorder.close()
    assert [turn.failed for turn in LogFile(path).turns()][-1]
    code, answer = replayed(capsys, path)
    assert (code, answer["identical"]) == (1, False)
    assert answer["difference"]["broken"] == "recorded"


def test_the_header_says_what_decides(path: Path, record) -> None:
    record().close()
    header = LogFile(path).header
    assert header.rules == RULES
    assert {"name": "binpack"}.items() <= header.tiers[1]["plugins"][2].items()
    assert codec.EVENTS


SECRET = "hunter2"


def job() -> dict[str, Any]:
    """A PyTorchJob of a master and two workers, with a secret wherever one may be."""
    box = {
        "name": "pytorch",
        "image": "train",
        "args": [f"--token={SECRET}"],
        "env": [{"name": "PASSWORD", "value": SECRET}],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    meta = {"annotations": {"example.com/token": SECRET}}
    template = {"metadata": meta, "spec": {"schedulerName": "muster", "containers": [box]}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "job", **meta},
        "spec": {
            "pytorchReplicaSpecs": {
                "Master": {"replicas": 1, "template": template},
                "Worker": {"replicas": 2, "template": template},
            }
        },
    }


async def test_a_run_of_the_whole_service_replays_identically_under_any_hash_seed(
    path: Path,
) -> None:
    section = {"listen": {"host": "127.0.0.1", "port": 0}, "leaderElection": {"enabled": False}}
    given = parse({"muster": section}, "test")
    async with (
        ApiServer() as server,
        running(given, credentials.plain(server.url), record=path) as service,
        Client(server.url) as client,
        Scheduler(client, extenders(service.url), names=["muster"], max_backoff=1.0),
        Kubelet(client, start_seconds=0.01),
    ):
        await fleet.add_nodes(client, [fleet.node(f"n{n}", gpus=1) for n in range(4)])
        await client.create(api.PYTORCH_JOBS, "default", job())
        async with asyncio.timeout(60):
            async for _, jobs in client.follow(api.PYTORCH_JOBS, "default"):
                if any(running_now(each) for each in jobs):
                    break
    text = await asyncio.to_thread(path.read_bytes)
    assert SECRET.encode() not in text
    for written in (b'"Bind"', b'"WORLD_SIZE"', b'"JobSeen"', b'"BindAsked"', b'"PASSWORD"'):
        assert written in text
    for seed in ("1", "2"):
        command = [sys.executable, "-m", "extender.cli", "replay", "--json", str(path)]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONHASHSEED": seed}
        )
        out, _ = await process.communicate()
        found = json.loads(out)
        assert (process.returncode, found["identical"], found["faults"]) == (0, True, 0), found
        assert found["judged"] == found["commands"] > 10


def extenders(url: str) -> list[Extender]:
    common = {"urlPrefix": url, "nodeCacheCapable": True, "ignorable": False, "httpTimeout": "30s"}
    return [
        Extender.from_config(
            {**common, "filterVerb": "filter", "prioritizeVerb": "prioritize", "weight": 1}
        ),
        Extender.from_config({**common, "bindVerb": "bind"}),
    ]


def running_now(job: dict[str, Any]) -> bool:
    conditions = job.get("status", {}).get("conditions") or ()
    return any((each["type"], each["status"]) == ("Running", "True") for each in conditions)


def test_serve_says_that_the_log_cannot_be_written(
    tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It would go on writing to this test's stderr.
    monkeypatch.setattr("extender.obs.log.configure", lambda *_: None)
    config = tmp_path / "muster.yaml"
    kubeconfig = tmp_path / "kubeconfig"
    cluster = {"clusters": [{"name": "it", "cluster": {"server": "http://127.0.0.1:1"}}]}
    context = {"contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}]}
    user = {"users": [{"name": "it", "user": {}}], "current-context": "it"}
    kubeconfig.write_text(
        json.dumps({"apiVersion": "v1", "kind": "Config", **cluster, **context, **user})
    )
    listen = {"host": "127.0.0.1", "port": 0}
    config.write_text(json.dumps({"muster": {"kubeconfig": str(kubeconfig), "listen": listen}}))
    absent = tmp_path / "absent" / "muster.log"
    assert cli.main(["serve", "--config", str(config), "--record", str(absent)]) == 1
    assert f"No such file or directory: '{absent}'" in capsys.readouterr().err
