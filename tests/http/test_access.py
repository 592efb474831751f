"""Who may read metrics and debug pages: asked of the API server, kept briefly, refused in doubt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import aiohttp
import pytest

from extender.core.errors import ApiError, Unreachable
from extender.http import access
from extender.http.access import Gate, Verdict
from extender.http.app import make_admin_app, serve
from extender.obs.metrics import Metrics
from tests.http.conftest import Reviewer, ScriptedView


@dataclass
class Door:
    """A guarded listener, the word of the API server behind it, and the time."""

    gate: Gate
    reviewer: Reviewer
    metrics: Metrics
    session: aiohttp.ClientSession
    heard: list[ApiError | None]
    now: float = 0.0

    async def get(self, path: str, token: str | None = None, scheme: str = "Bearer"):
        headers = {"Authorization": f"{scheme} {token}"} if token is not None else {}
        async with self.session.get(path, headers=headers) as response:
            return response.status, (await response.text()).strip()

    def counted(self, verdict: Verdict) -> float:
        return self.metrics.page_access.labels(verdict)._value.get()


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    reviewer, metrics = Reviewer(), Metrics()
    heard: list[ApiError | None] = []
    gate = Gate(reviewer, metrics, lambda: made.now, heard.append)
    app = make_admin_app(ScriptedView(), metrics, gate=gate)
    runner = await serve(app, "127.0.0.1", 0, shutdown_seconds=0.1)
    host, port = runner.addresses[0][:2]
    async with aiohttp.ClientSession(f"http://{host}:{port}") as session:
        made = Door(gate, reviewer, metrics, session, heard)
        yield made
    await runner.cleanup()


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_probes_need_no_token(door: Door, path):
    assert (await door.get(path))[0] == 200
    assert door.reviewer.asked == []


@pytest.mark.parametrize("path", ["/metrics", "/debug", "/debug/state", "/debug/gangs/a/b", "/x"])
async def test_everything_else_does(door: Door, path):
    async with door.session.get(path) as response:
        assert response.status == 401
        assert response.headers["WWW-Authenticate"] == "Bearer"
        assert "Authorization: Bearer" in await response.text()
    assert door.counted(Verdict.NO_TOKEN) == 1
    assert door.reviewer.asked == []


async def test_another_scheme_is_no_token(door: Door):
    assert (await door.get("/metrics", "reader", "Basic"))[0] == 401
    assert (await door.get("/metrics", ""))[0] == 401
    assert door.reviewer.asked == []


async def test_a_token_that_the_api_server_does_not_know(door: Door):
    assert await door.get("/metrics", "forged") == (401, "the API server does not know this token")
    assert door.reviewer.asked == [("token", "forged")]
    assert door.counted(Verdict.UNKNOWN_TOKEN) == 1


async def test_a_user_without_the_right_is_told_which_one(door: Door):
    door.reviewer.rights = {("prometheus", "get", "/metrics")}
    assert (await door.get("/metrics", "reader"))[0] == 200
    status, said = await door.get("/debug/state", "reader")
    assert status == 403
    assert said.startswith("prometheus has no right to get /debug/state")
    assert door.reviewer.asked == [
        ("token", "reader"),
        ("prometheus", "get", "/metrics"),
        ("prometheus", "get", "/debug/state"),
    ]
    assert door.heard == [None, None]


async def test_answers_count_for_a_while(door: Door):
    door.reviewer.rights = {("prometheus", "get", "/metrics")}
    for _ in range(3):
        assert (await door.get("/metrics", "reader"))[0] == 200
        assert (await door.get("/metrics", "forged"))[0] == 401
        assert (await door.get("/debug/nodes", "reader"))[0] == 403
    assert len(door.reviewer.asked) == 4
    del door.reviewer.users["reader"]
    door.reviewer.users["forged"] = door.reviewer.users["any"]
    door.now = access.DENIED_SECONDS
    assert (await door.get("/metrics", "forged"))[0] == 200
    assert (await door.get("/metrics", "reader"))[0] == 200
    door.now = access.ALLOWED_SECONDS
    assert (await door.get("/metrics", "reader"))[0] == 401


async def test_an_api_server_that_does_not_answer_lets_nobody_in(door: Door):
    door.reviewer.down = Unreachable(0, "Unreachable", "no route")
    for _ in range(2):
        status, said = await door.get("/metrics", "any")
        assert status == 503
        assert said.startswith("refused: the API server cannot be asked")
    assert door.heard == [door.reviewer.down] * 2
    assert (await door.get("/healthz"))[0] == 200
    door.reviewer.down = None
    assert (await door.get("/metrics", "any"))[0] == 200
    assert door.counted(Verdict.NO_ANSWER) == 2


async def test_what_was_answered_counts_while_the_api_server_is_away(door: Door):
    assert (await door.get("/metrics", "any"))[0] == 200
    door.reviewer.down = Unreachable(0, "Unreachable", "no route")
    assert (await door.get("/metrics", "any"))[0] == 200
    assert (await door.get("/debug/state", "any"))[0] == 503


async def test_a_flood_of_tokens_is_no_flood_of_reviews(door: Door):
    door.reviewer.answers.clear()
    flood = [asyncio.create_task(door.gate.verdict(f"Bearer t{i}", "get", "/x")) for i in range(99)]
    await asyncio.sleep(0)
    assert len(door.reviewer.asked) == access.ASKING
    door.reviewer.answers.set()
    said = [verdict for verdict, _ in await asyncio.gather(*flood)]
    assert said.count(Verdict.BUSY) == 99 - access.ASKING
    # Those who ask next are heard.
    assert (await door.get("/metrics", "any"))[0] == 200


async def test_what_is_kept_is_bounded_and_holds_no_token(door: Door, monkeypatch):
    monkeypatch.setattr(access, "ANSWERS", 3)
    for number in range(9):
        await door.gate.verdict(f"Bearer secret-{number}", "get", "/metrics")
        await door.gate.verdict("Bearer any", "get", f"/debug/gangs/a/{number}")
    kept = [*door.gate._users._kept, *door.gate._rights._kept]
    assert len(kept) == 6
    assert "secret" not in repr(vars(door.gate._users)) + repr(vars(door.gate._rights))


async def test_a_token_that_is_no_text_is_refused(door: Door):
    assert (await door.gate.verdict("Bearer \udcff", "get", "/x"))[0] is Verdict.UNKNOWN_TOKEN
