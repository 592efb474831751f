from __future__ import annotations

import asyncio
import io
import json

import aiohttp
import pytest
from aiohttp import web

from extender.core import api
from extender.core.api import Resource
from extender.core.errors import ApiError, Gone
from extender.sim.client import Client
from tests.sim.behaviour import JSON_PATCH, MERGE, STORIES, fill, look, pod

THINGS = Resource("example.org", "v1", "things", "Thing")


async def run_step(session, url, step, kept):
    """Carry out one step and hold it against the table; the Status reason, or ""."""
    body = fill(step.body, kept)
    async with session.request(
        step.method,
        url + step.path,
        data=None if body is None else json.dumps(body),
        params=step.query,
        headers={"Content-Type": step.content_type},
    ) as answer:
        text = await answer.text()
    assert answer.status == step.code, text
    if answer.content_type != "application/json":
        return ""
    obj = json.loads(text)
    if step.keep:
        kept[f"{step.keep}.uid"] = obj["metadata"]["uid"]
        kept[f"{step.keep}.rv"] = obj["metadata"]["resourceVersion"]
    assert step.message in (obj.get("message") or "")
    assert {path: look(obj, path) for path in step.has} == fill(step.has, kept)
    return obj.get("reason", "") if step.code >= 400 else ""


@pytest.mark.parametrize("story", STORIES)
async def test_answers_as_the_table_says(server, story):
    kept: dict[str, str] = {}
    async with aiohttp.ClientSession() as session:
        for step in STORIES[story]:
            await run_step(session, server.url, step, kept)


def watch(session, server, path, **query):
    return session.get(server.url + path, params={"watch": "true", **query})


async def event(answer):
    return json.loads(await answer.content.readline())


async def test_a_watch_tells_what_enters_changes_and_leaves_its_selector(server, client):
    listed = await client.list(api.PODS)
    async with aiohttp.ClientSession() as session, watch(
        session, server, "/api/v1/pods", labelSelector="a=1",
        resourceVersion=listed["metadata"]["resourceVersion"],
    ) as answer:  # fmt: skip
        await client.create(api.PODS, "default", pod("other"))
        await client.create(api.PODS, "default", pod("p"))
        for labels in ({"a": "1"}, {"b": "2"}, {"a": "2"}, {"a": "1"}):
            await client.patch(api.PODS, "default", "p", {"metadata": {"labels": labels}})
        await client.delete(api.PODS, "default", "p")
        seen = [await event(answer) for _ in range(5)]
    assert [item["type"] for item in seen] == ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]
    versions = [int(item["object"]["metadata"]["resourceVersion"]) for item in seen]
    assert versions == sorted(set(versions))


async def test_a_watch_without_version_begins_with_what_exists(server, client):
    await client.create(api.PODS, "default", pod("p"))
    async with (
        aiohttp.ClientSession() as session,
        watch(
            session, server, "/api/v1/namespaces/default/pods", sendInitialEvents="true"
        ) as answer,
    ):
        first, second = await event(answer), await event(answer)
    assert (first["type"], first["object"]["metadata"]["name"]) == ("ADDED", "p")
    assert second["type"] == "BOOKMARK"
    assert second["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_a_watch_from_forgotten_history_is_told_410_in_the_stream(server, client):
    old = (await client.list(api.PODS))["metadata"]["resourceVersion"]
    await client.create(api.PODS, "default", pod("p"))
    server.store.history.forget()
    async with (
        aiohttp.ClientSession() as session,
        watch(session, server, "/api/v1/pods", resourceVersion=old) as answer,
    ):
        said = await event(answer)
        assert await answer.content.read() == b""
    assert answer.status == 200
    assert said["type"] == "ERROR"
    assert (said["object"]["code"], said["object"]["reason"]) == (410, "Expired")


async def test_bookmarks_come_to_those_who_ask(server):
    server._bookmark_seconds = 0.0
    async with (
        aiohttp.ClientSession() as session,
        watch(
            session, server, "/api/v1/pods", resourceVersion="1", allowWatchBookmarks="true"
        ) as answer,
    ):
        said = await event(answer)
    assert said["type"] == "BOOKMARK"
    assert said["object"]["metadata"]["resourceVersion"] == str(server.store.version)


async def test_a_watch_ends_at_its_timeout_and_when_its_kind_is_no_longer_served(server):
    server.store.serve(THINGS)
    path = "/apis/example.org/v1/things"
    async with aiohttp.ClientSession() as session:
        async with watch(session, server, path, resourceVersion="1", timeoutSeconds="0") as answer:
            assert await answer.content.read() == b""
        async with watch(session, server, path) as answer:
            server.store.unserve(THINGS)
            assert await answer.content.read() == b""
        async with watch(session, server, path) as answer:
            assert answer.status == 404


async def test_a_slow_watcher_is_cut_off_without_an_error(store):
    woken = []
    _, watch = store.watch(
        api.PODS, None, _everything(), store.version, wake=lambda: woken.append(1), limit=2
    )
    for name in "abc":
        store.create(api.PODS, "default", pod(name))
    assert watch.cut
    assert len(watch.take()) == 2
    assert len(woken) == 3


def _everything():
    from extender.sim.selectors import Selector

    return Selector()


async def test_follow_survives_a_restart_and_a_lost_history(server, client):
    await client.create(api.PODS, "default", pod("a"))
    async with asyncio.timeout(10):
        seen = client.follow(api.PODS)
        assert [len(objects) for kind, objects in [await anext(seen)] if kind == "SYNC"] == [1]
        port = int(server.url.rsplit(":", 1)[1])
        await server.stop()
        server.store.create(api.PODS, "default", pod("b"))
        await server.start(port)
        kind, objects = await anext(seen)
        assert (kind, objects[0]["metadata"]["name"]) == ("ADDED", "b")
        await server.stop()
        server.store.delete(api.PODS, "default", "a")
        server.store.history.forget()
        await server.start(port)
        kind, objects = await anext(seen)
        assert (kind, [item["metadata"]["name"] for item in objects]) == ("SYNC", ["b"])


async def test_pages_show_one_moment(client, server):
    for name in "abcd":
        await client.create(api.PODS, "default", pod(name))
    first = await client.list(api.PODS, limit="2")
    await client.delete(api.PODS, "default", "c")
    await client.create(api.PODS, "default", pod("bb"))
    rest = await client.list(api.PODS, **{"limit": "2", "continue": first["metadata"]["continue"]})
    names = [obj["metadata"]["name"] for page in (first, rest) for obj in page["items"]]
    assert names == ["a", "b", "c", "d"]
    assert "continue" not in rest["metadata"]
    server.store.history.forget()
    await client.create(api.PODS, "default", pod("e"))
    with pytest.raises(Gone):
        await client.list(api.PODS, **{"continue": first["metadata"]["continue"]})


async def test_a_custom_resource_counts_generations_and_keeps_status_apart(server, client):
    server.store.serve(THINGS)
    body = {"metadata": {"name": "t"}, "spec": {"n": 1}, "status": {"phase": "Hacked"}}
    made = await client.create(THINGS, "default", body)
    assert (made["metadata"]["generation"], made.get("status")) == (1, None)
    told = await client.patch(
        THINGS, "default", "t", {"spec": {"n": 9}, "status": {"phase": "Ok"}}, "status"
    )
    assert (told["spec"], told["status"], told["metadata"]["generation"]) == (
        {"n": 1}, {"phase": "Ok"}, 1,
    )  # fmt: skip
    changed = await client.patch(THINGS, "default", "t", {"spec": {"n": 2}})
    assert (changed["metadata"]["generation"], changed["status"]) == (2, {"phase": "Ok"})


async def test_metadata_alone_where_that_is_asked_for(server, client):
    await client.create(api.PODS, "default", pod("p"))
    accept = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
    async with aiohttp.ClientSession(headers=accept) as session:
        async with session.get(server.url + "/api/v1/pods") as answer:
            listed = await answer.json()
        async with watch(session, server, "/api/v1/pods") as answer:
            said = await event(answer)
    assert listed["kind"] == "PartialObjectMetadataList"
    for obj in (listed["items"][0], said["object"]):
        assert obj["kind"] == "PartialObjectMetadata"
        assert set(obj) == {"kind", "apiVersion", "metadata"}


async def test_a_fault_stands_in_for_the_answer(server, client):
    asked = []

    def fault(request):
        asked.append(request.path)
        return web.json_response({"reason": "TooManyRequests", "message": "later"}, status=429)

    server.fault = fault
    with pytest.raises(ApiError, match="429 TooManyRequests: later"):
        await client.list(api.PODS)
    server.fault = lambda _: 0.0
    assert (await client.list(api.PODS))["items"] == []
    assert asked == ["/api/v1/pods"]


async def test_a_body_over_the_limit_is_413(server):
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            server.url + "/api/v1/namespaces/default/pods",
            data=io.BytesIO(b"x" * (3 * 1024 * 1024 + 1)),
        ) as answer,
    ):
        assert answer.status == 413
        assert (await answer.json())["reason"] == "RequestEntityTooLarge"


async def test_health_and_version(server):
    async with aiohttp.ClientSession() as session:
        async with session.get(server.url + "/readyz") as answer:
            assert await answer.text() == "ok"
        async with session.get(server.url + "/version") as answer:
            assert (await answer.json())["gitVersion"] == "v1.37.2"


async def test_patch_formats_say_what_is_wrong(server, client):
    await client.create(api.PODS, "default", pod("p"))
    path = f"{server.url}/api/v1/namespaces/default/pods/p"
    async with aiohttp.ClientSession() as session:
        for kind, raw, code in (
            (MERGE, b"{", 400),
            (MERGE, b"[]", 400),
            (JSON_PATCH, b"{}", 400),
            (JSON_PATCH, b'[{"op":"remove","path":"/metadata/labels/x"}]', 422),
            (JSON_PATCH, b'[{"op":"nonsense","path":"/metadata"}]', 400),
        ):
            async with session.patch(path, data=raw, headers={"Content-Type": kind}) as answer:
                assert answer.status == code


async def test_client_reports_an_unreachable_server():
    from extender.core.errors import Unreachable

    async with Client("http://127.0.0.1:1") as client:
        with pytest.raises(Unreachable):
            await client.list(api.PODS)
