"""Probes, metrics and the debug pages."""

from __future__ import annotations

import aiohttp
import pytest

from extender.http import admin
from extender.http.app import make_admin_app, serve
from extender.obs.metrics import Metrics
from tests.http.conftest import BEARER, ScriptedView, open_gate

PAGES = {
    "/debug/state": {"leader": False, "epoch": 3},
    "/debug/gangs": [{"namespace": "team-a", "name": "train"}],
    "/debug/gangs/team-a/train": {"namespace": "team-a", "name": "train", "phase": "Pending"},
    "/debug/nodes": [{"name": "n1"}],
    "/debug/plan": [{"attempt": 1}],
}


async def get(service, path):
    async with service.session.get(path) as response:
        if response.content_type == "application/json":
            return response.status, await response.json()
        return response.status, await response.text()


@pytest.mark.parametrize("path", PAGES)
async def test_debug_pages_are_served_by_a_standby_too(service, path):
    service.view.leading = False
    assert await get(service, path) == (200, PAGES[path])


async def test_an_unknown_gang_is_a_404_that_names_it(service):
    path = "/debug/gangs/team-a/absent"
    assert await get(service, path) == (404, {"error": "no gang team-a/absent"})
    why = "PyTorchJob wrong has none: Invalid: no"
    said = {"error": "no gang team-a/wrong", "why": why}
    assert await get(service, "/debug/gangs/team-a/wrong") == (404, said)


async def test_ready_is_synced_and_not_leading(service):
    service.view.leading = False
    assert await get(service, "/readyz") == (200, "ok\n")
    service.view.synced = False
    assert (await get(service, "/readyz"))[0] == 503
    assert await get(service, "/healthz") == (200, "ok\n")


async def test_who_is_not_ready_says_what_it_waits_for(start):
    waits = ["nodes: being listed", "pods: 403 Forbidden"]
    service = await start(facts=lambda: {"notListed": waits})
    service.view.synced = False
    said = "caches are not synced yet\nnodes: being listed\npods: 403 Forbidden\n"
    assert await get(service, "/readyz") == (503, said)


async def test_metrics_count_what_was_answered(service):
    await service.post("filter", b"no JSON")
    status, text = await get(service, "/metrics")
    assert status == 200
    assert 'muster_verb_results_total{result="malformed",verb="filter"} 1.0' in text
    assert 'muster_verb_seconds_count{verb="filter"} 1.0' in text


async def test_a_reason_that_no_gang_has_any_more_is_not_told(service):
    _, text = await get(service, "/metrics")
    assert 'muster_gangs_waiting{reason="NotEnoughRoom"} 2.0' in text
    assert "muster_oldest_waiting_timestamp_seconds 1234.5" in text
    assert "muster_ready 1.0" in text
    service.view.reason, service.view.synced = "NeverFits", False
    _, text = await get(service, "/metrics")
    assert 'muster_gangs_waiting{reason="NeverFits"} 2.0' in text
    assert "NotEnoughRoom" not in text
    assert "muster_ready 0.0" in text


async def test_metrics_count_gangs_as_they_are_when_asked(service):
    _, text = await get(service, "/metrics")
    assert 'muster_gangs{phase="Waiting"} 2.0' in text
    assert 'muster_gangs{phase="Running"} 0.0' in text


async def test_the_pages_alone_have_no_verbs():
    app = make_admin_app(ScriptedView(), Metrics(), gate=open_gate())
    runner = await serve(app, "127.0.0.1", 0)
    host, port = runner.addresses[0][:2]
    async with aiohttp.ClientSession(f"http://{host}:{port}") as session:
        async with session.get("/readyz") as response:
            assert response.status == 200
        async with session.post("/filter", data=b"{}", headers=BEARER) as response:
            assert response.status == 404
    await runner.cleanup()


@pytest.mark.parametrize("path", ["/debug", "/debug/"])
async def test_the_index_names_every_page(service, path):
    status, found = await get(service, path)
    assert status == 200
    pages = {each.path for each in admin.routes() if not each.path.rstrip("/").endswith("debug")}
    assert set(found["paths"]) == pages


async def test_the_state_shows_what_only_the_shell_knows_too():
    facts = {"version": "1", "leaseHolder": "b_2"}
    app = make_admin_app(ScriptedView(), Metrics(), lambda: dict(facts), gate=open_gate())
    runner = await serve(app, "127.0.0.1", 0)
    host, port = runner.addresses[0][:2]
    async with (
        aiohttp.ClientSession(f"http://{host}:{port}") as session,
        session.get("/debug/state", headers=BEARER) as response,
    ):
        found = await response.json()
    await runner.cleanup()
    assert found == {**ScriptedView().state(), **facts}
