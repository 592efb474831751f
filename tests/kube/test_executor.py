"""The executor: what it sends, when, and in which order. Time is the loop's, answers are a script."""

import asyncio

import orjson
import pytest

from extender.core.api import GANG_PLANS, PODS, VOLCANO_GROUPS
from extender.core.commands import Bind, Create, Delete, Lane, Notice
from extender.core.events import Done
from extender.kube.eventwriter import event_writer
from extender.kube.replies import Reply
from tests.kube.bench import BIND, BINDING, POD, Bench, patch, status

pytestmark = [pytest.mark.looptime(start=0), pytest.mark.timeout(20)]


async def test_bind_carries_its_preconditions(bench):
    assert await bench.run(BIND) == [Done(1, 201)]
    [(method, path, body, _)] = bench.client.sent
    assert (method, path) == ("POST", BINDING)
    assert body == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", "namespace": "ns", "uid": "u1", "resourceVersion": "7"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }


async def test_create_patch_and_delete_requests(bench):
    body = {"metadata": {"name": "g"}}
    bench.client.default = Reply(201, b'{"kind":"PodGroup"}')
    events = await bench.run(
        Create(1, Lane.JOB, VOLCANO_GROUPS, "ns", body),
        Create(2, Lane.JOB, PODS, "ns", body, dry_run=True),
        patch(3, body={"status": {"phase": None}}),
        Delete(4, Lane.JOB, PODS, "ns", "q", "u9"),
    )
    groups = "/apis/scheduling.volcano.sh/v1beta1/namespaces/ns/podgroups"
    assert sorted(bench.client.sent, key=repr) == sorted(
        [
            ("POST", groups, body, None),
            ("POST", "/api/v1/namespaces/ns/pods", body, {"dryRun": "All"}),
            ("PATCH", POD + "/status", {"status": {"phase": None}}, None),
            (
                "DELETE",
                "/api/v1/namespaces/ns/pods/q",
                {
                    "apiVersion": "v1",
                    "kind": "DeleteOptions",
                    "propagationPolicy": "Background",
                    "preconditions": {"uid": "u9"},
                },
                None,
            ),
        ],
        key=repr,
    )
    found = {"kind": "PodGroup"}
    assert sorted(events, key=lambda done: done.id) == [
        Done(1, 201, object=found),
        Done(2, 201, object=found),
        Done(3, 201, object=found),
        Done(4, 201),
    ]


async def test_of_a_pod_that_was_made_no_more_is_told_than_which_it_is(bench):
    made = {"metadata": {"name": "p", "uid": "u1", "resourceVersion": "7"}, "spec": {}}
    bench.client.default = Reply(201, orjson.dumps(made))
    body = {"kind": "Pod", "metadata": {"name": "p"}}
    assert await bench.run(Create(1, Lane.JOB, PODS, "ns", body)) == [
        Done(1, 201, object={"metadata": {"uid": "u1", "resourceVersion": "7"}})
    ]


async def test_who_does_not_lead_sends_nothing(bench):
    bench.leading = False
    [done] = await bench.run(BIND)
    assert (done.code, done.reason, bench.client.sent) == (0, "NotLeader", [])


async def test_leadership_lost_between_two_tries_ends_them(bench):
    bench.client.on("POST", BINDING, status(503, "Later"))
    bench.executor.submit(BIND)
    await asyncio.sleep(0.02)
    bench.leading = False
    await bench.inbox.until(lambda: bench.inbox.events)
    assert bench.inbox.events[0].reason == "NotLeader"
    assert len(bench.client.sent) == 1


@pytest.mark.parametrize("tries", [1, 2])
async def test_what_does_not_stand_any_more_is_not_sent(tries):
    asked = []

    def stands(command, *, again):
        asked.append((command, again))
        return len(asked) < tries

    bench = Bench(stands=stands)
    bench.client.on("POST", BINDING, *[status(500, "InternalError")] * 2)
    [done] = await bench.run(BIND)
    assert (done.code, done.reason) == (0, "Changed")
    assert asked == [(BIND, again) for again in (False, True)][:tries]
    assert bench.lines == [("POST", BINDING)] * (tries - 1)
    await bench.executor.drain(0)


async def test_commands_for_one_object_never_overtake(bench):
    bench.client.on("PATCH", POD + "/status", status(503, "Later"), status(429, "Later"))
    await bench.run(patch(1), patch(2, Lane.PLAN), patch(3), patch(4, name="other"))
    own = [body["id"] for _, path, body, _ in bench.client.sent if path == POD + "/status"]
    assert own == [1, 1, 1, 2, 3]
    assert [done.id for done in bench.inbox.events] == [4, 1, 2, 3]


async def test_concurrency_is_bounded_and_binds_keep_a_share():
    bench = Bench(concurrency=8)
    bench.client.gate = asyncio.Event()
    for number in range(20):
        bench.executor.submit(patch(number, name=f"s{number}"))
    for number in range(20, 40):
        bench.executor.submit(Bind(number, "ns", f"b{number}", "u", "", "n"))
    await asyncio.sleep(1)
    kinds = [path.endswith("binding") for _, path, _, _ in bench.client.sent]
    assert kinds == [False] * 6 + [True] * 2
    bench.client.gate.set()
    await bench.inbox.until(lambda: len(bench.inbox.events) == 40)
    assert bench.client.most_running == 8
    order = [path.endswith("binding") for _, path, _, _ in bench.client.sent]
    assert all(order[8:26])  # all binds, before any further status
    assert await bench.executor.drain(1)


def record(id_, namespace, lane=Lane.PLAN):
    return Create(id_, lane, VOLCANO_GROUPS, namespace, {"metadata": {"name": f"g{id_}"}})


async def test_namespaces_take_turns_in_a_lane():
    bench = Bench(concurrency=8)  # six slots for what is no bind
    many = [record(number, "many") for number in range(1000)]
    few = [record(number, "few") for number in range(1000, 1003)]
    third = [record(number, "third") for number in range(1003, 1005)]
    late = [record(number, "late", Lane.STATUS) for number in range(1005, 1007)]
    for command in (*late, *many, *few, *third):
        bench.executor.submit(command)
    await bench.inbox.until(lambda: len(bench.inbox.events) == 1007)
    sent = [int(body["metadata"]["name"][1:]) for _, _, body, _ in bench.client.sent]
    # Slots were free when the first came; then the others have their turns, the oldest first.
    assert sent[:6] == [1005, 1006, 0, 1, 2, 3]
    assert sent[6:16] == [4, 1000, 1003, 5, 1001, 1004, 6, 1002, 7, 8]
    assert sent[16:] == list(range(9, 1000))
    assert await bench.executor.drain(1)


async def test_services_wait_for_others_but_not_for_ever():
    bench = Bench(concurrency=1)
    services = [record(number, "ns", Lane.SERVICE) for number in (1, 2)]
    for command in (*services, *(record(number, "ns") for number in range(3, 1500))):
        bench.executor.submit(command)
    await bench.inbox.until(lambda: len(bench.inbox.events) == 1499)
    sent = [int(body["metadata"]["name"][1:]) for _, _, body, _ in bench.client.sent]
    # The first comes to an idle executor; the second has its turn long before the 1,497 others.
    assert sent[0] == 1
    assert 400 < sent.index(2) < 600  # 5 s, of writes that take 10 ms
    assert await bench.executor.drain(1)


async def test_a_rest_keeps_no_turn_and_costs_none():
    bench = Bench(concurrency=1)
    path = VOLCANO_GROUPS.path("few")
    bench.client.on("POST", path, status(503, "Later"), status(503, "Later"))
    for command in (record(1, "few"), *(record(number, "many") for number in range(2, 500))):
        bench.executor.submit(command)
    await bench.inbox.until(lambda: len(bench.inbox.events) == 499)
    done = [event.id for event in bench.inbox.events]
    assert done.index(1) < 100  # of the 498 whose writes take 5 s in all
    assert await bench.executor.drain(1)


async def test_drain_finishes_what_was_taken_and_refuses_more(bench):
    bench.client.on("POST", BINDING, status(503, "Later"))
    bench.executor.submit(BIND)
    assert await bench.executor.drain(5)
    assert bench.inbox.events == [Done(1, 201)]
    bench.executor.submit(patch(2))
    assert bench.inbox.events[-1].reason == "Stopped"


async def test_drain_that_is_not_done_in_time_answers_everything():
    bench = Bench(concurrency=2)
    bench.client.on("POST", BINDING, status(503, "Later", retry_after=9.0))
    bench.executor.submit(BIND)
    await asyncio.sleep(0.1)  # it rests now
    bench.client.gate = asyncio.Event()
    for number in range(2, 9):
        bench.executor.submit(patch(number, name="p" if number < 5 else f"p{number}"))
    assert not await bench.executor.drain(1)
    assert {done.id for done in bench.inbox.events} == set(range(1, 9))
    assert len(bench.inbox.events) == 8
    assert {done.reason for done in bench.inbox.events} == {"Cancelled", "Stopped"}


async def test_a_gang_of_3000_is_bound_with_every_slot_busy(looptime):
    bench = Bench(concurrency=64)
    gang = [Bind(i, "ns", f"p{i}", f"u{i}", "1", f"n{i}") for i in range(3000)]
    events = await bench.run(*gang)
    assert sorted(done.id for done in events) == list(range(3000))
    assert bench.client.most_running == 64
    assert looptime < 0.01 * 3000 / 64 * 1.1
    assert await bench.executor.drain(1)


async def test_notices_become_events_only_of_the_leader():
    bench = Bench()
    clock = asyncio.get_running_loop().time
    writer = event_writer(
        bench.client, lambda: bench.leading, bench.metrics, instance="m-0", clock=clock
    )
    bench.executor._events = writer
    notice = Notice(GANG_PLANS, "ns", "g", "u", "Normal", "Planned", "3 of 3")
    bench.executor.submit(notice)
    bench.leading = False
    bench.executor.submit(notice)
    task = asyncio.get_running_loop().create_task(writer.run())
    await asyncio.sleep(1)
    assert bench.client.sent == []
    bench.leading = True
    bench.executor.submit(notice)
    await asyncio.sleep(1)
    [(method, path, body, _)] = bench.client.sent
    assert (method, path) == ("POST", "/api/v1/namespaces/ns/events")
    assert (body["count"], body["message"]) == (2, "3 of 3")
    task.cancel()
