"""Notices as Kubernetes Events: counted, limited, bounded. Time is a number the test sets."""

import asyncio

import pytest

from extender.core.api import NODES, PODS
from extender.core.commands import Notice
from extender.obs.events import BESIDE_SECONDS, FAULTS, TRIES, UNSENT, Answer, EventWriter
from extender.obs.metrics import Metrics


class Api:
    def __init__(self):
        self.calls = []
        self.codes = []
        self.now = 0.0
        self.busy = False
        self.metrics = Metrics()
        self.writer = EventWriter(
            self.post,
            self.patch,
            self.metrics,
            instance="muster-0",
            clock=lambda: self.now,
            burst=3,
            refill=0.5,
            remembered=4,
            busy=lambda: self.busy,
        )

    async def post(self, namespace, body):
        self.calls.append(("POST", namespace, body["metadata"]["name"], body))
        return self.answer(201)

    async def patch(self, namespace, name, body):
        self.calls.append(("PATCH", namespace, name, body))
        return self.answer(200)

    def answer(self, usual):
        said = self.codes.pop(0) if self.codes else usual
        return said if isinstance(said, Answer) else Answer(said)

    async def write(self, *notices):
        for notice in notices:
            self.writer.put(notice)
        task = asyncio.get_running_loop().create_task(self.writer.run())
        while self.writer._pending:  # noqa: ASYNC110 (every step of the writer is one turn)
            await asyncio.sleep(0)
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def count(self, result):
        return self.metrics.registry.get_sample_value("muster_notices_total", {"result": result})


@pytest.fixture
async def api():
    return Api()


def notice(message="why", uid="u", name="p", resource=PODS, namespace="ns"):
    return Notice(resource, namespace, name, uid, "Warning", "NotEnoughRoom", message)


async def test_first_is_created_and_repeats_are_counted(api):
    await api.write(notice(), notice())
    await api.write(notice())
    [(_, namespace, name, body), again] = api.calls
    assert namespace == "ns"
    assert (body["count"], body["message"], body["reason"]) == (2, "why", "NotEnoughRoom")
    assert body["involvedObject"]["uid"] == "u"
    assert body["reportingComponent"] == body["source"]["component"] == "muster"
    assert again[:3] == ("PATCH", "ns", name)
    assert again[3]["count"] == 3


async def test_an_event_that_expired_is_begun_again(api):
    await api.write(notice())
    api.codes = [404]
    await api.write(notice())
    methods = [(call[0], call[3]["count"]) for call in api.calls]
    assert methods == [("POST", 1), ("PATCH", 2), ("POST", 1)]


async def test_what_was_refused_is_counted_with_the_next(api):
    api.codes = [403]
    await api.write(notice())
    await api.write(notice())
    assert [(call[0], call[3]["count"]) for call in api.calls] == [("POST", 1), ("POST", 2)]
    assert api.count("failed") == 1


async def test_one_object_cannot_talk_without_end(api):
    await api.write(*[notice(f"m{i}") for i in range(9)], notice("other", uid="v", name="q"))
    assert len(api.calls) == 4
    assert api.count("limited") == 6
    api.now = 2.0
    await api.write(notice("later"), notice("too soon"))
    assert api.calls[-1][3]["message"] == "later"


async def test_memory_is_bounded(api):
    for i in range(50):
        api.writer.put(notice(uid=f"u{i}", name=f"p{i}"))
    assert len(api.writer._series) == len(api.writer._buckets) == len(api.writer._pending) == 4
    assert api.count("limited") == 46


async def test_limits_of_validation(api):
    await api.write(
        notice("x" * 5000, name="a" * 235 + "-.b" + "c" * 15, resource=NODES, namespace="")
    )
    [(_, namespace, name, body)] = api.calls
    assert namespace == "default"
    assert len(body["message"]) == 1024
    assert len(name) <= 253
    assert "-." not in name


@pytest.mark.looptime(start=0)
async def test_a_busy_server_is_left_alone_and_nothing_is_lost(api, looptime):
    api.codes = [Answer(429, 7.0), 201, Answer(429), 201]
    task = asyncio.get_running_loop().create_task(api.writer.run())
    api.writer.put(notice(uid="a", name="a"))
    api.writer.put(notice(uid="b", name="b"))
    await asyncio.sleep(6.9)
    assert [body["involvedObject"]["name"] for *_, body in api.calls] == ["a"]
    await asyncio.sleep(3)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert [body["involvedObject"]["name"] for *_, body in api.calls] == ["a", "a", "b", "b"]
    assert (api.count("created"), api.count("failed")) == (2, None)


@pytest.mark.looptime(start=0)
async def test_events_stand_back_while_what_is_more_urgent_is_written(api, looptime):
    api.busy = True
    task = asyncio.get_running_loop().create_task(api.writer.run())
    for name in "abcd":
        api.writer.put(notice(uid=name, name=name))
    await asyncio.sleep(1.5 * BESIDE_SECONDS)
    assert [body["involvedObject"]["name"] for *_, body in api.calls] == ["a", "b"]
    api.busy = False
    await asyncio.sleep(BESIDE_SECONDS)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert [body["involvedObject"]["name"] for *_, body in api.calls] == ["a", "b", "c", "d"]


@pytest.mark.looptime(start=0)
@pytest.mark.parametrize("code", sorted(FAULTS))
async def test_an_event_outlives_faults_of_the_server_but_not_all_of_them(api, looptime, code):
    """Chaos seed 500018: the one Event that said why a gang waits met a 503."""
    api.codes = [code] * 2 + [201] + [code] * TRIES
    task = asyncio.get_running_loop().create_task(api.writer.run())
    api.writer.put(notice(uid="a", name="a"))
    await asyncio.sleep(60)
    assert [call[3]["count"] for call in api.calls] == [1, 1, 1]
    assert (api.count("created"), api.count("failed")) == (1, None)
    api.writer.put(notice(uid="b", name="b"))
    await asyncio.sleep(300)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(api.calls) == 3 + TRIES
    assert (api.count("created"), api.count("failed")) == (1, 1)


@pytest.mark.looptime(start=0)
async def test_a_replica_that_does_not_lead_tries_none_again(api, looptime):
    api.codes = [UNSENT]
    await api.write(notice())
    await asyncio.sleep(60)
    assert len(api.calls) == 1
    assert api.count("failed") == 1
