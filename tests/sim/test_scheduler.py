"""The stand-in scheduler on the in-memory API server, against an extender with a script."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest
import yaml
from aiohttp import web

from extender.core import api
from extender.sim import fleet
from extender.sim.extenders import Extender
from extender.sim.podfit import Row, least_allocated
from extender.sim.scheduler import Scheduler
from tests.sim.behaviour import binding, pin, pod
from tests.sim.conftest import pod_when


class Script:
    """An extender that answers from attributes and writes down what it was asked."""

    def __init__(self, client):
        self.client = client
        self.calls = []
        self.hold = {}
        #: Nodes on which /preempt lets nobody be evicted.
        self.spared = ()
        self.answers = {}
        self.bind_gate = asyncio.Event()
        self.bind_gate.set()
        self.url = ""

    async def serve(self):
        app = web.Application()
        for verb in ("filter", "prioritize", "preempt", "bind"):
            app.router.add_post(f"/m/{verb}", getattr(self, verb))
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/m"
        return runner

    def entries(self, **more):
        return [
            Extender(self.url, filter_verb="filter", prioritize_verb="prioritize", **more),
            Extender(self.url, bind_verb="bind", http_timeout=60),
        ]

    def asked(self, verb):
        return [body for name, body in self.calls if name == verb]

    async def filter(self, request):
        body = await request.json()
        self.calls.append(("filter", body))
        if "filter" in self.answers:
            return self.answers["filter"]()
        if body["Nodes"] is not None:
            return web.json_response({"Nodes": body["Nodes"]})
        allowed = self.hold.get(body["Pod"]["metadata"]["name"])
        passed = [name for name in body["NodeNames"] if allowed is None or name in allowed]
        refused = {name: "held" for name in body["NodeNames"] if name not in passed}
        return web.json_response({"NodeNames": passed, "FailedAndUnresolvableNodes": refused})

    async def prioritize(self, request):
        body = await request.json()
        self.calls.append(("prioritize", body))
        best = max(body["NodeNames"])
        return web.json_response(
            [{"Host": name, "Score": 10 * (name == best)} for name in body["NodeNames"]]
        )

    async def preempt(self, request):
        body = await request.json()
        self.calls.append(("preempt", body))
        victims = body["NodeNameToMetaVictims"]
        allowed = {node: victims[node] for node in victims if node not in self.spared}
        return web.json_response({"NodeNameToMetaVictims": allowed})

    async def bind(self, request):
        body = await request.json()
        self.calls.append(("bind", body))
        await self.bind_gate.wait()
        if "bind" in self.answers:
            return self.answers["bind"]()
        name = body["PodName"]
        await self.client.create(
            api.PODS, body["PodNamespace"], binding(name, body["Node"], uid=body["PodUID"]),
            name=name, subresource="binding",
        )  # fmt: skip
        return web.json_response({"Error": ""})


@pytest.fixture
async def script(client):
    script = Script(client)
    runner = await script.serve()
    yield script
    script.bind_gate.set()
    await runner.cleanup()


@pytest.fixture
async def nodes(client):
    await fleet.add_nodes(client, [fleet.node(f"n{i}", gpus=4) for i in (1, 2, 3)])


def gpu_pod(name, gpus=1, **more):
    return pod(name, resources={"limits": {fleet.GPU: gpus}}, **more)


def bound(obj):
    return obj is not None and bool(obj["spec"].get("nodeName"))


def refused(obj):
    conditions = (obj or {}).get("status", {}).get("conditions") or ()
    return any(item["type"] == "PodScheduled" and item["status"] == "False" for item in conditions)


def condition(obj):
    return next(item for item in obj["status"]["conditions"] if item["type"] == "PodScheduled")


async def test_bodies_are_those_of_kube_scheduler(client, script, nodes):
    made = await client.create(api.PODS, "default", gpu_pod("a"))
    async with Scheduler(client, script.entries()):
        seen = await pod_when(client, "a", bound)
    assert seen["spec"]["nodeName"] == "n3", "the extender's score decides among equals"
    (asked,) = script.asked("filter")
    assert set(asked) == {"Pod", "Nodes", "NodeNames"}
    assert (asked["Nodes"], asked["NodeNames"]) == (None, ["n1", "n2", "n3"])
    assert "kind" not in asked["Pod"]
    assert asked["Pod"]["spec"]["containers"][0]["resources"]["requests"] == {fleet.GPU: "1"}
    assert script.asked("bind") == [
        {"PodName": "a", "PodNamespace": "default", "PodUID": made["metadata"]["uid"], "Node": "n3"}
    ]


async def test_whole_nodes_where_the_extender_keeps_no_cache(client, script, nodes):
    await client.create(api.PODS, "default", gpu_pod("a"))
    entry = Extender(script.url, filter_verb="filter", node_cache_capable=False)
    async with Scheduler(client, [entry]):
        await pod_when(client, "a", bound)
    (asked,) = script.asked("filter")
    assert asked["NodeNames"] is None
    assert [node["metadata"]["name"] for node in asked["Nodes"]["items"]] == ["n1", "n2", "n3"]


async def test_a_held_pod_is_asked_about_twice_and_then_rests(client, script, nodes):
    script.hold = {"a": ()}
    await client.create(api.PODS, "default", gpu_pod("a"))
    async with Scheduler(client, script.entries()) as scheduler:
        seen = await pod_when(client, "a", refused)
        await _until(lambda: _rests(scheduler, attempts=2))
        # Something later than anything that the refusals could still cause.
        await client.create(api.PODS, "default", gpu_pod("z"))
        await pod_when(client, "z", bound)
        attempts = len([body for body in script.asked("filter") if _name(body) == "a"])
    assert condition(seen)["reason"] == "Unschedulable"
    assert condition(seen)["message"] == (
        "0/3 nodes are available: 3 held. preemption: 0/3 nodes are available:"
        " 3 Preemption is not helpful for scheduling."
    )
    assert 2 <= attempts <= 3, "the assignment of z may have woken it by now"
    # One of each version of the pod: its first condition has made another version of it.
    listed = await client.list(api.EVENTS, fieldSelector="reason=FailedScheduling")
    assert [each["message"] for each in listed["items"]] == [condition(seen)["message"]] * 2


async def test_a_nomination_wakes_the_pod_and_its_node_is_asked_about_alone(client, script, nodes):
    script.hold = {"a": ()}
    await client.create(api.PODS, "default", gpu_pod("a"))
    async with Scheduler(client, script.entries()) as scheduler:
        await pod_when(client, "a", refused)
        await _until(lambda: _rests(scheduler, attempts=2))
        script.hold = {"a": ("n2",)}
        script.calls.clear()
        await client.patch(
            api.PODS, "default", "a", {"status": {"nominatedNodeName": "n2"}}, "status"
        )
        seen = await pod_when(client, "a", bound)
    assert seen["spec"]["nodeName"] == "n2"
    assert [name for name, _ in script.calls] == ["filter", "bind"]
    assert script.calls[0][1]["NodeNames"] == ["n2"]
    assert "nominatedNodeName" not in seen["status"]


async def test_a_refused_nomination_is_cleared_after_the_full_list(client, script, nodes):
    script.hold = {"a": ()}
    await client.create(api.PODS, "default", gpu_pod("a"))
    await client.patch(api.PODS, "default", "a", {"status": {"nominatedNodeName": "n2"}}, "status")
    async with Scheduler(client, script.entries()):
        await pod_when(
            client, "a", lambda obj: refused(obj) and not obj["status"].get("nominatedNodeName")
        )
    assert [len(body["NodeNames"]) for body in script.asked("filter")][:2] == [1, 3]


async def test_a_pinned_pod_costs_one_node(client, script, nodes):
    await client.create(api.PODS, "default", gpu_pod("a", affinity=pin("n2")))
    async with Scheduler(client, script.entries()):
        seen = await pod_when(client, "a", bound)
    assert seen["spec"]["nodeName"] == "n2"
    assert [body["NodeNames"] for body in script.asked("filter")] == [["n2"]]
    assert script.asked("prioritize") == []


async def test_a_pin_that_does_not_fit_never_reaches_the_extender(client, script, nodes):
    await client.create(api.PODS, "default", gpu_pod("a", 9, affinity=pin("n2")))
    async with Scheduler(client, script.entries()):
        seen = await pod_when(client, "a", refused)
    assert script.calls == []
    assert condition(seen)["message"].startswith(
        f"0/3 nodes are available: 1 Insufficient {fleet.GPU},"
        " 2 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    )


async def test_binds_are_open_side_by_side_and_hold_their_room(client, script, nodes):
    script.bind_gate.clear()
    async with Scheduler(client, script.entries()):
        for name in ("a", "b", "c", "d"):
            await client.create(api.PODS, "default", gpu_pod(name, 4))
        await pod_when(client, "d", refused)
        await _until(lambda: len(script.asked("bind")) == 3)
        assert {body["Node"] for body in script.asked("bind")} == {"n1", "n2", "n3"}
        script.bind_gate.set()
        for name in ("a", "b", "c"):
            await pod_when(client, name, bound)


async def test_a_bind_error_gives_the_room_back_and_is_tried_again(client, script):
    await fleet.add_node(client, fleet.node("n1", gpus=1))
    script.answers["bind"] = lambda: web.json_response({"Error": "gang is not complete"})
    now = [100.0]
    async with Scheduler(client, script.entries(), now=lambda: now[0]) as scheduler:
        await client.create(api.PODS, "default", gpu_pod("a"))
        seen = await pod_when(client, "a", refused)
        assert condition(seen)["reason"] == "SchedulerError"
        assert condition(seen)["message"] == "gang is not complete"
        assert scheduler.queue.counts()["backoff"] == 1
        del script.answers["bind"]
        await client.create(api.PODS, "default", gpu_pod("b"))
        assert (await pod_when(client, "b", bound))["spec"]["nodeName"] == "n1"
        await client.delete(api.PODS, "default", "b", grace=0)
        now[0] += 5
        await client.patch(api.PODS, "default", "a", {"metadata": {"labels": {"x": "1"}}})
        assert (await pod_when(client, "a", bound))["spec"]["nodeName"] == "n1"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda: web.Response(status=503), "failed filter with extender at URL"),
        (lambda: web.json_response({"Error": "not the leader"}), "not the leader"),
        (lambda: web.json_response({"NodeNames": ["n9"]}), 'claims a filtered node "n9"'),
        (lambda: web.Response(text="nonsense"), "invalid answer"),
    ],
)
async def test_a_failing_extender_is_an_error_not_a_refusal(client, script, nodes, answer, message):
    script.answers["filter"] = answer
    await client.create(api.PODS, "default", gpu_pod("a"))
    async with Scheduler(client, script.entries()):
        seen = await pod_when(client, "a", refused)
    assert condition(seen)["reason"] == "SchedulerError"
    assert message in condition(seen)["message"]


async def test_null_names_are_no_nodes(client, script, nodes):
    script.answers["filter"] = lambda: web.json_response({"NodeNames": None, "Nodes": None})
    await client.create(api.PODS, "default", gpu_pod("a"))
    async with Scheduler(client, script.entries()):
        seen = await pod_when(client, "a", refused)
    assert condition(seen)["message"].startswith("0/3 nodes are available: preemption:")


async def test_an_extender_that_is_down(client, nodes):
    gone = "http://127.0.0.1:1/m"
    await client.create(api.PODS, "default", gpu_pod("a"))
    async with Scheduler(client, [Extender(gone, filter_verb="filter")]):
        seen = await pod_when(client, "a", refused)
        assert condition(seen)["message"] == (
            f'Post "{gone}/filter": dial tcp 127.0.0.1:1: connect: connection refused'
        )
    async with Scheduler(client, [Extender(gone, filter_verb="filter", ignorable=True)]):
        await pod_when(client, "a", bound)


async def test_only_pods_with_a_managed_resource_are_sent(client, script, nodes):
    await client.create(api.PODS, "default", pod("plain"))
    await client.create(api.PODS, "default", gpu_pod("gpu"))
    entries = script.entries(managed_resources=(fleet.GPU,))[:1]
    async with Scheduler(client, entries):
        for name in ("plain", "gpu"):
            await pod_when(client, name, bound)
    assert {_name(body) for body in script.asked("filter")} == {"gpu"}


async def test_a_nominated_pod_keeps_its_room_from_equals(client, script):
    await fleet.add_node(client, fleet.node("n1", gpus=1))
    script.hold = {"a": ()}
    await client.create(api.PODS, "default", gpu_pod("a", schedulingGates=[{"name": "x.io/y"}]))
    await client.patch(api.PODS, "default", "a", {"status": {"nominatedNodeName": "n1"}}, "status")
    await client.create(api.PODS, "default", gpu_pod("b"))
    async with Scheduler(client, script.entries()):
        assert (
            f"Insufficient {fleet.GPU}"
            in condition(await pod_when(client, "b", refused))["message"]
        )


async def test_room_that_comes_is_used(client, script, nodes):
    await client.create(api.PODS, "default", gpu_pod("a", 8))
    async with Scheduler(client, script.entries()):
        await pod_when(client, "a", refused)
        await fleet.add_node(client, fleet.node("n4", gpus=8))
        assert (await pod_when(client, "a", bound))["spec"]["nodeName"] == "n4"


async def test_taints_cordons_and_other_schedulers(client, script):
    taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
    await fleet.add_node(client, fleet.node("n1", gpus=4, taints=[taint]))
    await fleet.add_node(client, fleet.node("n2", gpus=4))
    await client.patch(api.NODES, None, "n2", {"spec": {"unschedulable": True}})
    tolerated = [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}]
    await client.create(api.PODS, "default", gpu_pod("other", schedulerName="other"))
    await client.create(api.PODS, "default", gpu_pod("a"))
    await client.create(api.PODS, "default", gpu_pod("b", tolerations=tolerated))
    async with Scheduler(client, script.entries()) as scheduler:
        assert (await pod_when(client, "b", bound))["spec"]["nodeName"] == "n1"
        seen = await pod_when(client, "a", refused)
        assert "other" not in {
            entry.pod["metadata"]["name"] for entry in scheduler.queue.entries.values()
        }
    assert condition(seen)["message"].startswith(
        "0/2 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable."
    )


def test_entries_of_the_sample_configuration_are_read():
    text = """
    - urlPrefix: http://127.0.0.1:8900/scheduler
      filterVerb: filter
      prioritizeVerb: prioritize
      weight: 2
      httpTimeout: 1m30s
      nodeCacheCapable: true
      managedResources: [{name: nvidia.com/gpu, ignoredByScheduler: false}]
    - {urlPrefix: http://127.0.0.1:8900/scheduler, bindVerb: bind}
    """
    first, second = (Extender.from_config(entry) for entry in yaml.safe_load(text))
    assert (first.http_timeout, first.weight, first.node_cache_capable) == (90.0, 2, True)
    assert first.managed_resources == ("nvidia.com/gpu",)
    assert (second.bind_verb, second.http_timeout, second.node_cache_capable) == (
        "bind",
        5.0,
        False,
    )


def _name(body):
    return body["Pod"]["metadata"]["name"]


def _rests(scheduler, attempts):
    idle = scheduler.queue.counts()["unschedulable"] == len(scheduler.queue.entries)
    return idle and scheduler.counts["attempts"] == attempts


async def _until(condition):
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - counters of the scheduler have no event
            await asyncio.sleep(0)


async def fill(client, priorities):
    """A pod of 4 GPUs on each of the nodes n1, n2, …, with these priorities."""
    for number, value in enumerate(priorities, 1):
        name, of_class = f"old{number}", f"class{number}"
        await client.create(
            api.PRIORITY_CLASSES, None, {"metadata": {"name": of_class}, "value": value}
        )
        made = gpu_pod(name, 4, nodeName=f"n{number}", priorityClassName=of_class)
        await client.create(api.PODS, "default", made)
    urgent = {"metadata": {"name": "urgent"}, "value": 100}
    await client.create(api.PRIORITY_CLASSES, None, urgent)


async def test_preemption_evicts_the_least_important_where_the_extender_allows_it(
    client, script, nodes
):
    await fill(client, (30, 10, 20))
    script.spared = ("n2",)
    await client.create(api.PODS, "default", gpu_pod("a", 4, priorityClassName="urgent"))
    async with Scheduler(client, script.entries(preempt_verb="preempt")) as scheduler:
        await pod_when(client, "old3", lambda obj: obj and "deletionTimestamp" in obj["metadata"])
        seen = await pod_when(client, "a", lambda obj: obj["status"].get("nominatedNodeName"))
        victim = await client.get(api.PODS, "default", "old3")
        # What a kubelet does.
        await client.delete(api.PODS, "default", "old3", grace=0)
        placed = await pod_when(client, "a", bound)
        assert scheduler.counts["evicted"] == 1
    assert seen["status"]["nominatedNodeName"] == "n3"
    assert condition(seen)["message"] == "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    assert placed["spec"]["nodeName"] == "n3"
    (why,) = [item for item in victim["status"]["conditions"] if item["type"] == "DisruptionTarget"]
    assert why["reason"] == "PreemptionByScheduler"
    asked = script.asked("preempt")[0]["NodeNameToMetaVictims"]
    assert sorted(asked) == ["n1", "n2", "n3"]
    assert script.asked("preempt")[0]["NodeNameToVictims"] is None
    assert {len(entry["Pods"]) for entry in asked.values()} == {1}
    for name in ("old1", "old2"):
        assert "deletionTimestamp" not in (await client.get(api.PODS, "default", name))["metadata"]


async def test_where_the_extender_spares_everybody_nobody_is_evicted(client, script, nodes):
    await fill(client, (10, 10, 10))
    script.spared = ("n1", "n2", "n3")
    await client.create(api.PODS, "default", gpu_pod("a", 4, priorityClassName="urgent"))
    async with Scheduler(client, script.entries(preempt_verb="preempt")) as scheduler:
        seen = await pod_when(client, "a", refused)
        assert scheduler.counts["evicted"] == 0
    assert condition(seen)["message"] == (
        "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
        " preemption: no candidate node for preemption"
    )
    assert "nominatedNodeName" not in seen["status"]


async def test_nobody_is_evicted_for_an_equal(client, script, nodes):
    await fill(client, (100, 100, 100))
    await client.create(api.PODS, "default", gpu_pod("a", 4, priorityClassName="urgent"))
    async with Scheduler(client, script.entries(preempt_verb="preempt")):
        seen = await pod_when(client, "a", refused)
    assert script.asked("preempt") == []
    assert "3 No preemption victims found for incoming pod" in condition(seen)["message"]


def test_a_node_that_went_while_the_extenders_were_asked_scores_nothing():
    """Chaos seed 259: its row has nothing allocatable any more."""
    row = Row("n1")
    assert least_allocated({"cpu": Decimal(1)}, row) == 0
    row.allocatable = {"cpu": Decimal(4)}
    assert least_allocated({"cpu": Decimal(1)}, row) == 75
