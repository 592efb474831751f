"""The executor: what it makes of answers, and what it tries again. Answers are a script."""

import orjson
import pytest
import structlog

from extender.core.api import GANG_PLANS, PODS
from extender.core.commands import Create, Delete, Lane
from extender.core.events import Done
from extender.kube.replies import Reply
from extender.kube.requests import wanted_right
from tests.kube.bench import BIND, BINDING, POD, patch, pod, status

pytestmark = [pytest.mark.looptime(start=0), pytest.mark.timeout(20)]


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (pod(), Done(1, 201, "AlreadyBound")),
        (pod(node="n2"), Done(1, 409, "Conflict", "told so", orjson.loads(pod(node="n2").body))),
        (pod(uid="u2"), Done(1, 409, "Conflict", "told so", orjson.loads(pod(uid="u2").body))),
        (pod(node=""), Done(1, 409, "Conflict", "told so", orjson.loads(pod(node="").body))),
        (status(404, "NotFound"), Done(1, 404, "NotFound", "told so")),
        (status(403, "Forbidden"), Done(1, 409, "Conflict", "told so")),
    ],
)
async def test_bind_conflict_is_judged_by_the_pod(bench, now, expected):
    bench.client.on("POST", BINDING, status(409, "Conflict"))
    bench.client.on("GET", POD, now)
    assert await bench.run(BIND) == [expected]


async def test_bind_whose_answer_was_lost_is_found_to_have_worked(bench):
    bench.client.on("POST", BINDING, Reply(0, reason="Unreachable"), status(409, "Conflict"))
    bench.client.on("GET", POD, pod())
    assert await bench.run(BIND) == [Done(1, 201, "AlreadyBound")]


@pytest.mark.parametrize("code", [0, 429, 500, 502, 503, 504])
async def test_what_may_pass_is_tried_again(bench, code):
    bench.client.on("POST", BINDING, status(code, "Later"), status(code, "Later"))
    assert await bench.run(BIND) == [Done(1, 201)]
    assert len(bench.client.sent) == 3
    value = bench.metrics.registry.get_sample_value
    assert value("muster_command_retries_total", {"kind": "Bind", "code": str(code)}) == 2


@pytest.mark.parametrize("code", [400, 401, 403, 404, 422])
async def test_what_is_an_answer_is_reported_at_once(bench, code):
    bench.client.on("POST", BINDING, status(code, "No"))
    assert await bench.run(BIND) == [Done(1, code, "No", "told so")]
    assert len(bench.client.sent) == 1


NO_RIGHT = (
    'pods "p" is forbidden: User "m" cannot create resource "pods/binding" in API group "" in'
)


#: Of admission, right after the start of an API server.
STARTING = 'pods "p" is forbidden: not yet ready to handle request'


async def test_an_api_server_that_starts_is_asked_again(bench):
    bench.client.on("POST", BINDING, Reply(403, b"{}", "Forbidden", STARTING))
    assert await bench.run(BIND) == [Done(1, 201)]
    assert len(bench.client.sent) == 2


async def test_an_api_server_that_does_not_get_ready_is_no_word_on_the_object(bench):
    bench.client.default = Reply(403, b"{}", "Forbidden", STARTING)
    assert await bench.run(BIND) == [Done(1, 503, "NotReady", STARTING)]


async def test_a_missing_right_may_be_there_in_a_moment(bench):
    """An API server that has just started grants nothing until it has read its roles."""
    bench.client.on("POST", BINDING, Reply(403, b"{}", "Forbidden", NO_RIGHT))
    assert await bench.run(BIND) == [Done(1, 201)]
    assert len(bench.client.sent) == 2


async def test_a_missing_right_is_no_word_on_the_object(bench):
    bench.client.default = Reply(403, b"{}", "Forbidden", NO_RIGHT)
    assert await bench.run(BIND) == [Done(1, 503, "NoRight", NO_RIGHT)]


async def test_a_missing_right_is_named_in_the_log_once_and_so_is_its_return(bench):
    """Who waits for it sees nothing: its gang is on its way for as long as writes are tried again."""
    nomination, status = patch(1), patch(2, body={})
    bench.client.on("PATCH", POD + "/status", *[Reply(403, b"{}", "Forbidden", NO_RIGHT)] * 3)
    with structlog.testing.capture_logs() as lines:
        await bench.run(nomination, status)
    (refused, given) = lines
    assert refused["event"] == "the API server refuses to patch pods/status"
    assert "cannot create" in refused["error"]
    assert "rbac.yaml" in refused["do"]
    assert given["event"] == "the API server lets us patch pods/status"


@pytest.mark.parametrize(
    ("command", "right"),
    [
        (BIND, "create pods/binding"),
        (Create(1, Lane.PLAN, GANG_PLANS, "ns", {}), "create gangplans.scheduling.muster.dev"),
        (Delete(1, Lane.STATUS, PODS, "ns", "p", "u1"), "delete pods"),
    ],
)
def test_a_right_is_named_as_roles_name_it(command, right):
    assert wanted_right(command) == right


async def test_quota_says_so_at_once(bench):
    words = 'pods "p" is forbidden: exceeded quota: gpus, requested: pods=1, used: pods=2'
    bench.client.default = Reply(403, b"{}", "Forbidden", words)
    assert await bench.run(BIND) == [Done(1, 403, "Forbidden", words)]
    assert len(bench.client.sent) == 1


async def test_retry_after_is_respected(bench, looptime):
    bench.client.on("POST", BINDING, status(429, "TooManyRequests", retry_after=7.0))
    await bench.run(BIND)
    assert looptime >= 7


async def test_patience_ends_with_the_last_answer(bench, looptime):
    bench.client.default = status(503, "ServiceUnavailable")
    assert await bench.run(BIND) == [Done(1, 503, "ServiceUnavailable", "told so")]
    assert looptime < 21


async def test_body_that_is_no_json_is_a_bad_request(bench):
    [done] = await bench.run(patch(1, body={"x": object()}))
    assert (done.code, done.reason) == (400, "BadRequest")
    assert bench.client.sent == []


async def test_uid_of_another_life_is_a_conflict(bench):
    wrong = {"details": {"causes": [{"field": "metadata.uid", "reason": "FieldValueInvalid"}]}}
    bench.client.on(
        "PATCH", POD + "/status", Reply(422, orjson.dumps(wrong), "Invalid"), status(422, "Invalid")
    )
    events = await bench.run(patch(1, body={"metadata": {"uid": "old"}}), patch(2))
    assert [(done.code, done.reason) for done in events] == [(409, "Conflict"), (422, "Invalid")]


async def test_a_fault_of_ours_is_still_an_answer(bench, monkeypatch):
    async def broken(*args, **kwargs):
        raise ZeroDivisionError

    monkeypatch.setattr(bench.client, "send", broken)
    [done] = await bench.run(BIND)
    assert (done.code, done.reason) == (0, "Internal")
