"""The executor: what it sends, retries and answers. Time is the loop's, answers are a script."""

import asyncio
from base64 import b64decode

import orjson
import pytest
import structlog
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_public_key

from extender.core.api import CONFIG_MAPS, GANG_PLANS, PODS, SECRETS, VOLCANO_GROUPS
from extender.core.commands import OWNED, Bind, Create, Delete, Lane, Notice, Patch
from extender.core.events import Done
from extender.kube.executor import Executor, event_writer
from extender.kube.replies import Reply
from extender.kube.requests import wanted_right
from extender.obs.metrics import Metrics
from tests.kube.fakes import Recorder, Scripted, rng

pytestmark = [pytest.mark.looptime(start=0), pytest.mark.timeout(20)]

POD = "/api/v1/namespaces/ns/pods/p"
BINDING = POD + "/binding"
BIND = Bind(1, "ns", "p", "u1", "7", "n1")


def status(code, reason, retry_after=None):
    return Reply(code, b"{}", reason, "told so", retry_after)


def pod(uid="u1", node="n1"):
    spec = {"nodeName": node} if node else {}
    return Reply(200, orjson.dumps({"kind": "Pod", "metadata": {"uid": uid}, "spec": spec}))


class Bench:
    def __init__(self, **options):
        self.client = Scripted()
        self.inbox = Recorder()
        self.metrics = Metrics()
        self.leading = True
        self.executor = Executor(
            self.client,
            self.inbox,
            lambda: self.leading,
            self.metrics,
            rng(),
            clock=asyncio.get_running_loop().time,
            **options,
        )

    async def run(self, *commands):
        for command in commands:
            self.executor.submit(command)
        await self.inbox.until(lambda: len(self.inbox.events) >= len(commands))
        return self.inbox.events

    @property
    def lines(self):
        return [(method, path) for method, path, _, _ in self.client.sent]


@pytest.fixture
async def bench():
    bench = Bench()
    yield bench
    await bench.executor.drain(0)


def patch(id_, lane=Lane.STATUS, name="p", body=None):
    return Patch(id_, lane, PODS, "ns", name, body if body is not None else {"id": id_}, "status")


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


KEYS = "/api/v1/namespaces/ns/secrets"


def of_job(resource, name, uid="j1"):
    """A command that makes what a job has one of."""
    owner = {"uid": uid, "controller": True}
    meta = {"name": name, "ownerReferences": [owner]}
    body = {"metadata": meta, "type": "kubernetes.io/ssh-auth"}
    return Create(1, Lane.JOB, resource, "ns", body)


def owned_by(uid):
    meta = {"name": "j-ssh", "uid": "s1", "ownerReferences": [{"uid": uid, "controller": True}]}
    return Reply(200, orjson.dumps({"kind": "Secret", "metadata": meta, "data": {"k": "secret"}}))


async def test_keys_are_made_as_the_secret_is_sent_and_go_nowhere_else():
    bench = Bench()
    bench.client.default = owned_by("j1")
    create = of_job(SECRETS, "j-ssh")
    (done,) = await bench.run(create)
    assert (done.ok, done.object) == (True, None)
    assert "data" not in create.body
    ((_, _, sent, _),) = bench.client.sent
    assert sent["type"] == "kubernetes.io/ssh-auth"
    private = b64decode(sent["data"]["ssh-privatekey"])
    key = load_pem_private_key(private, None)
    assert private.startswith(b"-----BEGIN EC PRIVATE KEY-----")
    assert isinstance(key, EllipticCurvePrivateKey)
    assert key.curve.name == "secp521r1"
    public = b64decode(sent["data"]["ssh-publickey"])
    assert public.startswith(b"ecdsa-sha2-nistp521 ")
    assert public.endswith(b"\n")
    assert load_ssh_public_key(public) == key.public_key()


async def test_each_secret_has_keys_of_its_own_and_a_retry_has_the_same():
    bench = Bench()
    bench.client.script["POST", KEYS] = [status(503, "Unavailable"), owned_by("j1")]
    await bench.run(of_job(SECRETS, "j-ssh"))
    bench.client.default = owned_by("j2")
    bench.inbox.events.clear()
    await bench.run(of_job(SECRETS, "k-ssh", "j2"))
    first, again, other = (sent["data"]["ssh-privatekey"] for _, _, sent, _ in bench.client.sent)
    assert first == again != other


@pytest.mark.parametrize("resource", [SECRETS, CONFIG_MAPS])
async def test_what_a_job_has_already_is_no_conflict(resource):
    bench = Bench()
    path = resource.path("ns")
    bench.client.script["POST", path] = [status(409, "AlreadyExists")]
    bench.client.script["GET", f"{path}/j-ssh"] = [owned_by("j1")]
    (done,) = await bench.run(of_job(resource, "j-ssh"))
    assert (done.code, done.reason, done.object) == (200, OWNED, None)


async def test_what_is_not_the_job_s_is_a_conflict():
    bench = Bench()
    bench.client.script["POST", KEYS] = [status(409, "AlreadyExists")]
    bench.client.script["GET", f"{KEYS}/j-ssh"] = [owned_by("another")]
    (done,) = await bench.run(of_job(SECRETS, "j-ssh"))
    assert (done.code, done.reason, done.object) == (409, "AlreadyExists", None)


async def test_what_is_gone_again_is_made():
    bench = Bench()
    bench.client.script["POST", KEYS] = [status(409, "AlreadyExists"), owned_by("j1")]
    bench.client.script["GET", f"{KEYS}/j-ssh"] = [status(404, "NotFound")]
    (done,) = await bench.run(of_job(SECRETS, "j-ssh"))
    assert done.ok
    assert [method for method, _ in bench.lines] == ["POST", "GET", "POST"]
