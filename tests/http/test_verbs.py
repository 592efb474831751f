"""The verbs over real sockets: what the view is asked, and what goes into the inbox."""

from __future__ import annotations

import asyncio

import pytest

from extender.core.events import BindAbandoned, BindAsked, FilterAsked
from extender.core.objects import Meta, Pod
from extender.core.verdict import FilterAnswer
from extender.http import verbs
from extender.http.app import KEEPALIVE_SECONDS
from extender.http.verbs import Bindings
from extender.http.wire import BindingArgs
from tests.http.conftest import Queue

POD = {"metadata": {"name": "w-0", "namespace": "team-a", "uid": "u-0", "creationTimestamp": None}}
DECODED = Pod(Meta(name="w-0", namespace="team-a", uid="u-0"))
ARGS = {"Pod": POD, "Nodes": None, "NodeNames": ["n2", "n1"]}
BINDING = {"PodName": "w-0", "PodNamespace": "team-a", "PodUID": "u-0", "Node": "n1"}


def asked(token: int) -> BindAsked:
    return BindAsked(token, "team-a", "w-0", "u-0", "n1")


async def test_filter_asks_the_view_and_tells_the_loop(service):
    event = FilterAsked("u-0", full=True, planned_offered=True)
    service.view.on_filter = lambda _, names: FilterAnswer(names[1:], "planned on n1", event=event)
    assert await service.post("filter", ARGS) == (
        200,
        {
            "Nodes": None,
            "NodeNames": ["n1"],
            "FailedNodes": {},
            "FailedAndUnresolvableNodes": {"n2": "planned on n1"},
            "Error": "",
        },
    )
    assert service.view.asked == [("filter", DECODED, ["n2", "n1"])]
    assert service.inbox.get_nowait() == event
    assert service.counted("filter", "passed") == 1


@pytest.mark.parametrize(("seconds", "notes"), [(1e9, 1), (0.0, 3)])
async def test_filter_of_pods_of_no_group_tells_now_and_then_that_it_is_asked(
    service, monkeypatch, seconds, notes
):
    monkeypatch.setattr(verbs, "HEARD_SECONDS", seconds)
    for _ in range(3):
        status, answer = await service.post("filter", ARGS)
        assert (status, answer["NodeNames"]) == (200, ["n2", "n1"])
    for _ in range(notes):
        assert service.inbox.get_nowait() == FilterAsked("", full=False, planned_offered=True)
    assert service.inbox.empty()


async def test_prioritize(service):
    service.view.on_prioritize = lambda _, names: [3, 10]
    assert await service.post("prioritize", ARGS) == (
        200,
        [{"Host": "n2", "Score": 3}, {"Host": "n1", "Score": 10}],
    )
    assert service.view.asked == [("prioritize", DECODED, ["n2", "n1"])]


async def test_preempt_keeps_pdb_violations_of_the_nodes_that_stay(service):
    service.view.on_preempt = lambda _, victims: {"n1": victims["n1"]}
    victims = {
        "n1": {"Pods": [{"UID": "v1"}], "NumPDBViolations": 2},
        "n2": {"Pods": [{"UID": "v2"}], "NumPDBViolations": 0},
    }
    body = {"Pod": POD, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}
    expected = {"NodeNameToMetaVictims": {"n1": victims["n1"]}}
    assert await service.post("preempt", body) == (200, expected)
    assert service.view.asked == [("preempt", DECODED, {"n1": ("v1",), "n2": ("v2",)})]


@pytest.mark.parametrize("prefix", ["/muster", "muster/", "/muster/"])
async def test_the_prefix_may_have_slashes(start, prefix):
    service = await start(prefix=prefix)
    assert (await service.post("filter", ARGS))[0] == 200


async def test_without_a_prefix(start):
    service = await start(prefix="/")
    async with service.session.post("/filter", json=ARGS) as response:
        assert response.status == 200


# --- /bind -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("error", "result"), [("", "bound"), ("no room on n1", "refused")])
async def test_bind_waits_for_the_loop(service, error, result):
    call = asyncio.create_task(service.post("bind", BINDING))
    assert await service.inbox.get() == asked(1)
    assert not call.done()
    assert service.bindings.resolve(1, error)
    assert await call == (200, {"Error": error})
    assert service.inbox.empty()
    assert service.counted("bind", result) == 1


async def test_members_are_answered_each_by_its_token(service):
    calls = [asyncio.create_task(service.post("bind", BINDING | {"PodUID": u})) for u in "abc"]
    tokens = {}
    for _ in calls:
        event = await service.inbox.get()
        tokens[event.uid] = event.token
    for uid in "cab":
        service.bindings.resolve(tokens[uid], f"for {uid}")
    answers = [answer["Error"] for _, answer in await asyncio.gather(*calls)]
    assert answers == ["for a", "for b", "for c"]


async def test_a_caller_that_leaves_is_abandoned(service):
    call = asyncio.create_task(service.post("bind", BINDING))
    assert await service.inbox.get() == asked(1)
    call.cancel()
    assert await service.inbox.get() == BindAbandoned(1)
    assert not service.bindings.resolve(1, "")
    assert service.counted("bind", "abandoned") == 1


async def test_a_second_bind_of_the_same_pod_is_a_new_token(service):
    first = asyncio.create_task(service.post("bind", BINDING))
    assert await service.inbox.get() == asked(1)
    second = asyncio.create_task(service.post("bind", BINDING))
    assert await service.inbox.get() == asked(2)
    service.bindings.resolve(1, "replaced by a newer call")
    service.bindings.resolve(2, "")
    assert (await first)[1] == {"Error": "replaced by a newer call"}
    assert (await second)[1] == {"Error": ""}


async def test_the_deadline_answers_and_abandons(start):
    service = await start(bind_deadline=0.0)
    status, answer = await service.post("bind", BINDING)
    assert (status, answer["Error"]) == (
        200,
        "no decision within 0 s, nothing was bound for this call",
    )
    assert [service.inbox.get_nowait(), service.inbox.get_nowait()] == [asked(1), BindAbandoned(1)]
    assert service.counted("bind", "expired") == 1


async def test_what_the_loop_answered_is_not_abandoned():
    """The caller leaves in the moment between the answer and its delivery."""
    inbox = Queue()
    bindings = Bindings(inbox)
    call = asyncio.create_task(bindings.ask(BindingArgs("w-0", "team-a", "u-0", "n1"), 60.0))
    assert await inbox.get() == asked(1)
    assert bindings.resolve(1, "")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert inbox.empty()
    assert len(bindings) == 0


async def test_abandoning_all_answers_everybody(service):
    calls = [asyncio.create_task(service.post("bind", BINDING)) for _ in range(2)]
    assert {(await service.inbox.get()).token for _ in calls} == {1, 2}
    service.bindings.abandon_all("leadership was lost")
    assert await asyncio.gather(*calls) == [(200, {"Error": "leadership was lost"})] * 2
    assert [service.inbox.get_nowait(), service.inbox.get_nowait()] == [
        BindAbandoned(1),
        BindAbandoned(2),
    ]
    assert service.inbox.empty()


async def test_stopping_answers_held_binds(service):
    call = asyncio.create_task(service.post("bind", BINDING))
    assert await service.inbox.get() == asked(1)
    await service.runner.cleanup()
    assert await call == (200, {"Error": "Muster is stopping; the pod is tried again"})


# --- connections -------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt", "bind"])
@pytest.mark.parametrize(("door", "result"), [("leading", "not_leader"), ("synced", "not_ready")])
async def test_a_replica_that_cannot_answer_closes_the_connection(service, verb, door, result):
    setattr(service.view, door, False)
    async with service.session.post(f"/muster/{verb}", json=ARGS) as response:
        assert response.status == 503
        assert response.headers["Connection"] == "close"
        assert await response.text()
    assert service.view.asked == []
    assert service.inbox.empty()
    assert service.counted(verb, result) == 1


async def test_connections_are_kept_longer_than_a_go_client_keeps_them(service):
    assert KEEPALIVE_SECONDS > 90
    peers = set()
    service.view.on_filter = lambda _, names: FilterAnswer(names)
    for _ in range(3):
        await service.post("filter", ARGS)
        peers.update(service.runner.server.connections)
    assert len(peers) == 1
    (connection,) = peers
    assert connection._keepalive_timeout == KEEPALIVE_SECONDS


async def test_only_post(service):
    async with service.session.get("/muster/filter") as response:
        assert response.status == 405
