"""What is wrong is said where kube-scheduler reads it; nothing is ever a 500."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from extender.http.app import _log_of
from extender.obs.metrics import Metrics
from tests.http.conftest import Queue, ScriptedView

CASES = yaml.safe_load(
    (Path(__file__).parents[1] / "cases" / "http_malformed.yaml").read_text(encoding="utf-8")
)
POD = '{"metadata":{"name":"w-0","namespace":"team-a","uid":"u-0"}}'
EMPTY = {"prioritize": [], "preempt": {"NodeNameToMetaVictims": {}}}


@pytest.mark.parametrize(
    ("verb", "case"),
    [(verb, case) for case in CASES for verb in case["verbs"]],
    ids=lambda value: value if isinstance(value, str) else value["name"].replace(" ", "-"),
)
async def test_malformed(service, verb, case):
    body = case["body"].replace('"Pod":pod', f'"Pod":{POD}').encode()
    status, answer = await service.post(verb, body)
    assert status == case.get("status", 200)
    if status == 200:
        if verb in EMPTY:
            assert answer == EMPTY[verb]
        else:
            assert case["error"] in answer["Error"]
    assert service.view.asked == []
    assert service.inbox.empty()
    assert service.counted(verb, "malformed") == service.malformed(verb) == 1


async def test_a_body_over_the_limit(start):
    service = await start(body_limit=1000)
    body = b'{"Pod":' + POD.encode() + b',"NodeNames":["' + b"n" * 1000 + b'"]}'
    assert await service.post("prioritize", body) == (200, [])
    status, answer = await service.post("filter", body)
    assert status == 200
    assert "at most 1000 bytes" in answer["Error"]


async def test_the_default_limit_takes_thousands_of_whole_nodes(service):
    node = b'{"metadata":{"name":"n%d"},"status":{"x":"' + b"x" * 4000 + b'"}}'
    nodes = b",".join(node % at for at in range(1000))
    body = b'{"Pod":' + POD.encode() + b',"Nodes":{"items":[' + nodes + b"]}}"
    status, answer = await service.post("filter", body)
    assert (status, answer["Error"], len(answer["Nodes"]["items"])) == (200, "", 1000)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_body_that_is_not_in_the_encoding_it_claims(service, encoding):
    headers = {"Content-Encoding": encoding}
    async with service.session.post("/muster/filter", data=b"{}", headers=headers) as response:
        assert response.status == 400
    assert service.counted("filter", "fault") == 0


HEAD = b"POST /muster/filter HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize(
    "request_",
    [
        HEAD + b"Authorization: Bearer hush\x01\r\n\r\n",
        HEAD + b"hush\r\n\r\n",
        b"GET /?token=hush HTTP/9.9\r\n\r\n",
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nhush",
    ],
    ids=["header", "no-header", "version", "length", "encoding"],
)
async def test_what_is_no_http_is_counted_and_not_quoted_in_the_log(service, request_, caplog):
    """Anybody who reaches the port could fill the log, and a token would be in it."""
    host, port = service.runner.addresses[0][:2]
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(request_)
    assert b" 400 " in await reader.readline()
    await reader.read()
    writer.close()
    assert caplog.records == []
    assert service.malformed("none") >= 1


def test_a_fault_of_our_own_is_logged(caplog):
    log = _log_of(Metrics())
    try:
        raise ValueError("told so")
    except ValueError:
        log.exception("Unhandled exception")
    assert "told so" in caplog.text


async def test_a_body_that_never_ends_is_given_up(service, monkeypatch):
    monkeypatch.setattr("extender.http.verbs.BODY_SECONDS", 0.0)
    host, port = service.runner.addresses[0][:2]
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"POST /muster/filter HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
    assert (await reader.readline()).startswith(b"HTTP/1.1 400 ")
    writer.close()
    await writer.wait_closed()


FAULTS = {
    "filter": "on_filter",
    "prioritize": "on_prioritize",
    "preempt": "on_preempt",
}
GOOD = {
    "filter": f'{{"Pod":{POD},"NodeNames":["n1"]}}',
    "prioritize": f'{{"Pod":{POD},"NodeNames":["n1"]}}',
    "preempt": f'{{"Pod":{POD},"NodeNameToMetaVictims":{{"n1":{{"Pods":[{{"UID":"v"}}]}}}}}}',
}


@pytest.mark.parametrize("verb", FAULTS)
async def test_a_fault_of_ours_is_counted_and_not_a_500(service, verb, capsys):
    def fail(*_):
        raise ZeroDivisionError("a fault")

    setattr(service.view, FAULTS[verb], fail)
    status, answer = await service.post(verb, GOOD[verb].encode())
    assert status == 200
    assert answer == EMPTY.get(verb, answer)
    if verb == "filter":
        assert answer["Error"] == "internal error in Muster: ZeroDivisionError('a fault')"
    assert service.counted(verb, "fault") == 1
    assert "Traceback" in capsys.readouterr().out


KEYS = (
    *("Pod", "metadata", "name", "uid", "spec", "containers", "PodUID", "Node"),
    *("Nodes", "NodeNames", "items", "NodeNameToVictims", "NodeNameToMetaVictims", "Pods", "UID"),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=16,
)


@given(body=JSON.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=32))
def test_no_body_makes_a_fault(body):
    """The verbs without the socket, so that hundreds of bodies cost nothing."""
    from extender.http.verbs import Bindings, Result, Verbs
    from extender.obs.metrics import Metrics

    inbox, metrics = Queue(), Metrics()
    verbs = Verbs(
        ScriptedView(),
        inbox,
        Bindings(inbox),
        metrics=metrics,
        bind_deadline=0.0,
        clock=lambda: 0.0,
    )

    class Request:
        client_max_size = 1 << 20

        async def read(self) -> bytes:
            return body

    async def ask() -> None:
        for route in verbs.routes("/"):
            response = await route.handler(Request())  # type: ignore[arg-type] # only read()
            assert response.status in {200, 400}

    asyncio.run(ask())
    for verb in ("filter", "prioritize", "preempt", "bind"):
        labels = {"verb": verb, "result": Result.FAULT}
        assert metrics.registry.get_sample_value("muster_verb_results_total", labels) == 0
