"""``muster explain``: why a gang waits, and what stands in the way of an answer."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.error import URLError

import pytest

from extender import cli
from extender.core import api
from extender.kube import credentials
from extender.runtime import running
from extender.settings import parse
from extender.sim import fleet
from extender.sim.apiserver import ApiServer
from extender.sim.client import Client
from extender.sim.daemon import free_port
from tests.cli.conftest import Write, member


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """Of a Muster that has said in the API why the gang default/train waits."""
    section = {"listen": {"host": "127.0.0.1", "port": 0}, "leaderElection": {"enabled": False}}
    async with (
        ApiServer() as server,
        Client(server.url) as client,
        running(parse({"muster": section}, "test"), credentials.plain(server.url)) as service,
    ):
        await fleet.add_node(client, fleet.node("n1", gpus=1))
        group = {"metadata": {"name": "train"}, "spec": {"minMember": 2}}
        await client.create(api.VOLCANO_GROUPS, "default", group)
        for name in ("train-0", "train-1"):
            pod = member(name, **{"scheduling.k8s.io/group-name": "train"})
            await client.create(api.PODS, "default", pod)
        async with asyncio.timeout(60):
            async for _, groups in client.follow(api.VOLCANO_GROUPS, "default"):
                conditions = groups[0].get("status", {}).get("conditions") if groups else None
                if conditions and "1 of 2 pods would fit" in conditions[0]["message"]:
                    break
        yield service.url.removesuffix("/scheduler")
        assert service.loop.faults == 0
        service.loop.coordinator.state.cluster.verify()


async def explain(*words: str) -> int:
    return await asyncio.to_thread(cli.main, ["explain", *words])


async def test_explain_says_why_a_gang_waits(url: str, capsys):
    assert await explain("default/train", "--url", url, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["group"], found["phase"], found["plan"]) == ("default/train", "Waiting", None)
    codes = [(reason["code"], reason["nodes"]) for reason in found["reasons"]]
    assert codes == [("NeverFits", 0), ("FitsAlone", 1)]

    assert await explain("train", "--url", url) == 0
    text = capsys.readouterr().out
    assert "default/train (scheduling.volcano.sh/v1beta1): Waiting" in text
    assert "waits for 1 of 2 pods would fit even if every node were empty" in text
    assert "train-0" in text


async def test_explain_without_a_name_lists_every_gang(url: str, capsys):
    assert await explain("--url", url, "--json") == 0
    (gang,) = json.loads(capsys.readouterr().out)["gangs"]
    assert gang["group"] == "default/train"
    assert await explain("--url", url) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.split()[:3] == ["default/train", "Waiting", "0/2"]
    assert line.endswith("1 node: room for 1")


async def test_explain_answers_no_for_a_gang_that_is_not_there(url: str, capsys):
    assert await explain("default/other", "--url", url, "--json") == 1
    shown = capsys.readouterr()
    said = "no gang default/other: no PodGroup or job of that name, and no pod that is"
    assert said in json.loads(shown.out)["error"]
    assert said in shown.err


async def test_explain_says_of_a_job_that_is_not_valid_what_is_wrong_with_it(capsys):
    section = {"listen": {"host": "127.0.0.1", "port": 0}, "leaderElection": {"enabled": False}}
    async with (
        ApiServer() as server,
        Client(server.url) as client,
        running(parse({"muster": section}, "test"), credentials.plain(server.url)) as service,
    ):
        job = {"metadata": {"name": "digits"}, "spec": {"pytorchReplicaSpecs": {"Workers": {}}}}
        await client.create(api.PYTORCH_JOBS, "default", job)
        async with asyncio.timeout(60):
            async for _, jobs in client.follow(api.PYTORCH_JOBS, "default"):
                conditions = jobs[0].get("status", {}).get("conditions") if jobs else None
                if conditions and conditions[-1]["type"] == "Invalid":
                    break
            url = service.url.removesuffix("/scheduler")
            said = "no gang default/digits: PyTorchJob digits has none: Invalid: "
            while True:
                assert await explain("default/digits", "--url", url) == 1
                shown = capsys.readouterr()
                if ": Invalid: " in shown.err:
                    break
                await asyncio.sleep(0.05)  # the service is still to read what it wrote
    assert said in shown.err
    assert "'Workers' is not allowed" in shown.err


class Pages(BaseHTTPRequestHandler):
    """A service that says of itself what ``state`` is."""

    state: ClassVar[dict[str, Any]] = {}

    def do_GET(self) -> None:
        body = json.dumps(self.state if self.path == "/debug/state" else []).encode()
        status, token = 200, self.state.get("token")
        if token is not None and self.headers["Authorization"] != f"Bearer {token}":
            status, body = 403, b"no right to that\n"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: the test looks at what explain prints."""


@pytest.fixture
def service_that_says(monkeypatch) -> Iterator[Callable[..., str]]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()

        def says(**state: Any) -> str:
            monkeypatch.setattr(Pages, "state", state)
            # Without a scheme, as people type it.
            return f"127.0.0.1:{server.server_address[1]}"

        yield says
        server.shutdown()
        thread.join()


def test_explain_of_a_service_that_has_not_read_the_cluster_is_no_answer(service_that_says, capsys):
    assert cli.main(["explain", "--url", service_that_says(synced=False, leading=False)]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "has not read the cluster yet" in shown.err


def test_explain_of_a_standby_says_what_it_knows_and_who_leads(service_that_says, capsys):
    url = service_that_says(synced=True, leading=False, leaseHolder="other_1")
    assert cli.main(["explain", "--url", url]) == 0
    shown = capsys.readouterr()
    assert shown.out == "no gangs\n"
    assert "this replica stands by (the Lease is held by other_1)" in shown.err
    url = service_that_says(synced=True, leading=False, leaseHolder="it", identity="it")
    assert cli.main(["explain", "--url", url]) == 0
    assert "this replica has taken the Lease" in capsys.readouterr().err


def test_explain_answers_no_where_nothing_listens(capsys):
    assert cli.main(["explain", "--url", f"http://127.0.0.1:{free_port()}"]) == 1
    assert "no answer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "scheme", "error", "hint"),
    [
        ("--url", "http", ConnectionResetError("gone"), "gone (is it https there?)"),
        ("--url", "https", ConnectionResetError("gone"), "gone (does it ask for a certificate?"),
        ("--url", "http", ConnectionRefusedError("refused"), "refused\n"),
        ("--url", "https", ssl.SSLCertVerificationError(1, "who?"), "who? (--ca: who signed it?)"),
        ("", "", URLError(ConnectionRefusedError("refused")), "(in a cluster: --url, docs/sec"),
        ("--url", "https", ssl.SSLError(1, "alert"), "alert\n"),
    ],
)
def test_no_answer_names_the_option_that_is_most_likely_missing(
    option, scheme, error, hint, monkeypatch, capsys
):
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("urllib.request.urlopen", fail)
    assert cli.main(["explain", *([option, f"{scheme}://muster:1"] if option else [])]) == 1
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize("name", ["a b", "é", "a?b", "a\n", "..%2f"])
async def test_explain_asks_for_any_name_as_it_is(url: str, name, capsys):
    assert await explain(f"default/{name}", "--url", url) == 1
    assert f"no gang default/{name}: no PodGroup" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["http://[::1", "http://a b", f"http://{'a' * 300}"])
def test_explain_of_an_address_that_cannot_be_is_no_answer(url, capsys):
    assert cli.main(["explain", "--url", url]) == 1
    assert f"{url}: no answer: " in capsys.readouterr().err


def test_explain_of_another_service_is_no_answer(service_that_says, capsys):
    assert cli.main(["explain", "--url", service_that_says(status="ok")]) == 1
    assert "is that Muster?" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--ca", "--cert", "--token-file"])
@pytest.mark.parametrize("content", ["", "a\nb: c", "é☃"])
def test_explain_names_the_file_that_is_no_credential(write: Write, option, content, capsys):
    file = write("credential", content or "a b")
    assert cli.main(["explain", "--url", "https://127.0.0.1:1", option, file]) == 2
    shown = capsys.readouterr().err
    assert f"{option}: {file}: " in shown
    assert "☃" not in shown


@pytest.mark.parametrize("words", [["a/b/c"], ["a/"], ["a", "--url", "ftp://x"]])
def test_explain_refuses_what_cannot_be_asked(words, capsys):
    assert cli.main(["explain", *words]) == 2
    assert "is not allowed" in capsys.readouterr().err


def test_explain_brings_a_token_and_says_what_a_refusal_says(
    service_that_says, write: Write, capsys
):
    url = service_that_says(synced=True, leading=True, token="sesame")
    assert cli.main(["explain", "--url", url]) == 1
    assert "HTTP 403: no right to that" in capsys.readouterr().err
    token = write("token", "sesame\n")
    assert cli.main(["explain", "--url", url, "--token-file", token]) == 0
    assert cli.main(["explain", "--url", url, "--token-file", "nowhere"]) == 2
    assert "--token-file: nowhere: cannot be read" in capsys.readouterr().err
