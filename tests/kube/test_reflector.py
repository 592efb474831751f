"""List and watch against a scripted API server; time is the loop's.

Excluded: HTTP itself (test_client), decoding (test_decode).
"""

import asyncio

import orjson
import pytest
import structlog

from extender.core import events as e
from extender.core.api import GANG_PLANS, NODES, PODS, VOLCANO_GROUPS
from extender.core.errors import ApiError, Gone, Unreachable
from extender.kube.decode import ObjectDecoder
from extender.kube.reflector import STRIDE, Reflector, Reflectors
from extender.obs.metrics import Metrics
from tests.kube.fakes import Recorder, rng

pytestmark = [pytest.mark.looptime(start=0), pytest.mark.timeout(20)]


def node(name, version="1", uid=None):
    return {"metadata": {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": version}}


def page(version, *items, after=None):
    meta = {"resourceVersion": version, "continue": after or ""}
    return orjson.dumps({"metadata": meta, "items": list(items) or None})


def line(type_, obj):
    return orjson.dumps({"type": type_, "object": obj})


def bookmark(version):
    return line("BOOKMARK", {"metadata": {"resourceVersion": version}})


class Source:
    """Lists and watches say what the script holds, in order; then nothing for ever."""

    def __init__(self, *script):
        self.script = list(script)
        self.asked = []

    async def list_page(self, resource, *, limit=500, after=""):
        self.asked.append(("list", after))
        return await self._next("list")

    async def watch_lines(self, resource, resource_version, *, timeout_seconds):
        self.asked.append(("watch", resource_version))
        said = await self._next("watch")
        for item in said:
            if isinstance(item, Exception):
                raise item
            yield item if isinstance(item, list) else [item]

    async def _next(self, verb):
        await asyncio.sleep(0.001)
        if not self.script:
            await asyncio.get_running_loop().create_future()
        wanted, said = self.script.pop(0)
        assert wanted == verb
        if isinstance(said, Exception):
            raise said
        return said


class Mirror:
    def __init__(self, resource, *script):
        self.source = Source(*script)
        self.inbox = Recorder()
        self.metrics = Metrics()
        self.listed = 0
        self.reflector = Reflector(
            self.source, self.inbox, resource, self.metrics, rng(), on_listed=self._count
        )
        self.task = None

    def _count(self):
        self.listed += 1

    async def done(self):
        """Until the script is used up and the reflector waits; what it said of objects."""
        self.task = self.task or asyncio.get_running_loop().create_task(self.reflector.run())
        while self.source.script:  # noqa: ASYNC110 (the loop's own time: nothing is waited for)
            await asyncio.sleep(1)
        await asyncio.sleep(60)
        return [event for event in self.inbox.events if not isinstance(event, e.Listed)]

    def restarts(self, cause, kind="Node"):
        labels = {"kind": kind, "cause": cause}
        value = self.metrics.registry.get_sample_value("muster_watch_restarts_total", labels)
        return value or 0


@pytest.fixture
async def mirror():
    made = []

    def make(*script, resource=NODES):
        made.append(Mirror(resource, *script))
        return made[-1]

    yield make
    for each in made:
        if each.task is not None:
            each.task.cancel()
            await asyncio.gather(each.task, return_exceptions=True)


def said(events):
    """Short: +name seen, -name gone."""
    out = []
    for event in events:
        match event:
            case e.NodeSeen():
                out.append("+" + event.node.metadata.name)
            case e.NodeGone():
                out.append("-" + event.name)
            case e.InvalidSeen():
                out.append("!" + event.name)
            case _:
                out.append(event)
    return out


async def test_a_complete_list_says_so_after_all_that_it_told(mirror):
    m = mirror(
        ("list", page("5", node("a"), after="t1")),
        ("list", page("5", node("b"))),
        ("watch", [Gone(410, "Expired", "")]),
        ("list", page("9", node("b"))),
    )
    await m.done()
    first, last = e.Listed(NODES, "5"), e.Listed(NODES, "9")
    assert said(m.inbox.events) == ["+a", "+b", first, "+b", "-a", last]


async def test_pages_then_changes(mirror):
    m = mirror(
        ("list", page("5", node("a"), after="t1")),
        ("list", page("5", node("b"))),
        ("watch", [line("ADDED", node("c", "6")), line("DELETED", node("a", "7"))]),
    )
    assert said(await m.done()) == ["+a", "+b", "+c", "-a"]
    assert m.source.asked == [("list", ""), ("list", "t1"), ("watch", "5"), ("watch", "7")]
    assert m.listed == 1


async def test_empty_list_is_listed(mirror):
    m = mirror(("list", page("5")))
    assert await m.done() == []
    assert m.listed == 1


async def test_silent_end_resumes_from_the_last_version_bookmarks_included(mirror):
    m = mirror(
        ("list", page("5")),
        ("watch", [line("ADDED", node("a", "6"))]),
        ("watch", [bookmark("90")]),
        ("watch", []),
    )
    assert said(await m.done()) == ["+a"]
    assert m.source.asked[1:] == [("watch", v) for v in ("5", "6", "90", "90")]
    assert m.restarts("ended") == 3


async def test_gone_lists_again_and_withdraws_what_disappeared_meanwhile(mirror):
    m = mirror(
        ("list", page("5", node("a"), node("b"), node("c"))),
        ("watch", [line("ERROR", {"code": 410, "reason": "Expired", "message": "too old"})]),
        ("list", page("50", node("b"), node("c", uid="another"))),
        ("watch", Gone(410, "Expired", "too old")),
        ("list", page("60", node("c", uid="another"))),
    )
    events = said(await m.done())
    assert events == ["+a", "+b", "+c", "+b", "-c", "+c", "-a", "+c", "-b"]
    assert m.listed == 1
    assert m.restarts("gone") == 2


async def test_a_list_that_breaks_off_is_done_again_whole(mirror):
    m = mirror(
        ("list", page("5", node("a"), after="t")),
        ("list", Gone(410, "Expired", "continue token")),
        ("list", page("6", node("b"))),
    )
    assert said(await m.done()) == ["+a", "+b", "-a"]
    assert m.listed == 1


async def test_unreachable_backs_off_and_goes_on(mirror, looptime):
    lost = Unreachable(0, "Unreachable", "refused")
    m = mirror(
        ("list", lost),
        ("list", lost),
        ("list", page("5", node("a"))),
        *[("watch", lost)] * 8,
        ("watch", [line("ADDED", node("b", "6")), lost]),
    )
    task = asyncio.get_running_loop().create_task(m.done())
    await m.inbox.until(lambda: "+b" in said(m.inbox.events))
    assert 5 < looptime < 15
    assert said(await task) == ["+a", "+b"]
    assert m.restarts("unreachable") == 11
    assert m.source.asked[-1] == ("watch", "6")


async def test_after_an_outage_the_list_follows_at_once(mirror, looptime):
    lost = Unreachable(0, "Unreachable", "refused")
    m = mirror(
        ("list", page("5", node("a"))),
        *[("watch", lost)] * 20,
        ("watch", Gone(410, "Expired", "too old")),
        ("list", page("50", node("b"))),
    )
    task = asyncio.get_running_loop().create_task(m.done())
    await m.inbox.until(lambda: "+b" in said(m.inbox.events))
    # Twenty tries take half a minute; what is seen of the server after the last one, no second.
    assert 20 < looptime < 40
    await task


async def test_bad_object_hides_none_of_the_others(mirror):
    bad = {"metadata": {**node("bad")["metadata"]}, "spec": {"taints": "all"}}
    m = mirror(
        ("list", page("5", node("a"), bad, node("b"))),
        ("watch", [[line("MODIFIED", bad), line("ADDED", node("c", "7"))]]),
    )
    assert said(await m.done()) == ["+a", "!bad", "+b", "!bad", "+c"]


async def test_garbage_reconnects_then_lists_again(mirror):
    m = mirror(
        ("list", page("5", node("a"))),
        ("watch", [[line("ADDED", node("b", "6")), b"<html>"]]),
        ("watch", [b"<html>"]),
        ("watch", [b"<html>"]),
        ("list", page("9", node("a"))),
    )
    assert said(await m.done()) == ["+a", "+b", "+a", "-b"]
    assert m.source.asked[1:4] == [("watch", "5"), ("watch", "6"), ("watch", "6")]


async def test_reused_name_is_withdrawn_first(mirror):
    m = mirror(
        ("list", page("5", node("a"))),
        ("watch", [line("ADDED", node("a", "6", uid="other"))]),
    )
    assert said(await m.done()) == ["+a", "-a", "+a"]


NOT_FOUND = ApiError(404, "NotFound", "the server could not find the requested resource")
GROUP = {"metadata": {"name": "g", "namespace": "ns", "uid": "u", "resourceVersion": "3"}}


async def test_optional_kind_appears_later(mirror):
    m = mirror(
        ("list", NOT_FOUND),
        ("list", NOT_FOUND),
        ("list", page("5", GROUP)),
        resource=VOLCANO_GROUPS,
    )
    events = await m.done()
    assert events[0] == e.KindServed(VOLCANO_GROUPS, served=False)
    assert isinstance(events[1], e.GroupSeen)
    assert events[2:] == [e.KindServed(VOLCANO_GROUPS, served=True)]
    assert m.listed == 1


async def test_optional_kind_that_goes_is_withdrawn_but_not_at_the_first_404(mirror):
    gone = Gone(410, "Expired", "x")
    m = mirror(
        ("list", page("5", GROUP)),
        ("watch", gone),
        ("list", NOT_FOUND),
        ("list", page("6", GROUP)),
        ("watch", NOT_FOUND),
        *[("list", NOT_FOUND)] * 4,
        resource=VOLCANO_GROUPS,
    )
    events = await m.done()
    assert [type(event).__name__ for event in events] == [
        "GroupSeen",
        "KindServed",
        "GroupSeen",
        "GroupGone",
        "KindServed",
    ]
    assert events[-1] == e.KindServed(VOLCANO_GROUPS, served=False)
    assert events[-2] == e.GroupGone(VOLCANO_GROUPS, "ns", "g", "u")


async def test_kind_that_must_be_there_is_waited_for(mirror):
    m = mirror(("list", NOT_FOUND), ("list", page("5", node("a"))))
    assert said(await m.done()) == ["+a"]


async def test_a_definition_that_is_missing_is_said_once_with_what_to_do(mirror):
    with structlog.testing.capture_logs() as lines:
        m = mirror(*[("list", NOT_FOUND)] * 3, ("list", page("5")), resource=GANG_PLANS)
        await m.done()
    assert [line["event"] for line in lines] == [
        "the API server refuses to list gangplans.scheduling.muster.dev",
        "the API server lets us list gangplans.scheduling.muster.dev",
    ]
    assert lines[0]["do"].endswith("kubectl apply -k manifests/crds")


async def test_big_lists_let_others_run():
    items = [node(f"n{i}") for i in range(400)]
    m = Mirror(NODES, ("list", page("5", *items)))
    loop = asyncio.get_running_loop()
    task = loop.create_task(m.reflector.run())
    counts = set()
    await m.inbox.until(lambda: m.inbox.events)
    while len(m.inbox.events) < 400:
        await asyncio.sleep(0)
        counts.add(len(m.inbox.events))
    assert {256, 384} <= counts
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_synced_is_said_once_after_every_kind():
    class Both(Source):
        async def list_page(self, resource, *, limit=500, after=""):
            if resource == VOLCANO_GROUPS:
                await asyncio.sleep(5)
                raise NOT_FOUND
            return page("5")

        async def watch_lines(self, resource, resource_version, *, timeout_seconds):
            await asyncio.get_running_loop().create_future()
            yield []

    inbox = Recorder()
    group = Reflectors(Both(), inbox, [NODES, PODS, VOLCANO_GROUPS], Metrics(), rng())
    task = asyncio.get_running_loop().create_task(group.run())
    await group.synced()
    await asyncio.sleep(100)
    lists = [e.Listed(NODES, "5"), e.Listed(PODS, "5")]
    assert inbox.events == [*lists, e.KindServed(VOLCANO_GROUPS, served=False), e.Synced()]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    ("resource", "error", "says"),
    [
        (
            VOLCANO_GROUPS,
            ApiError(403, "Forbidden", 'User "u" cannot list'),
            "podgroups.scheduling.volcano.sh: 403 Forbidden; kubectl apply -k manifests/base",
        ),
        (GANG_PLANS, NOT_FOUND, "gangplans.scheduling.muster.dev: 404 NotFound; the definition"),
        (NODES, Unreachable(0, "Unreachable", "no route to 10.0.0.1"), "nodes: no answer"),
    ],
)
async def test_what_is_not_listed_says_why_and_what_helps(resource, error, says):
    door = asyncio.Event()

    class Refusing(Source):
        async def list_page(self, asked, *, limit=500, after=""):
            if asked == resource and not door.is_set():
                raise error
            return page("5")

    group = Reflectors(Refusing(), Recorder(), [resource, PODS], Metrics(), rng())
    assert group.waits_for() == [says.partition(":")[0] + ": being listed", "pods: being listed"]
    task = asyncio.get_running_loop().create_task(group.run())
    await asyncio.sleep(5)
    (line,) = group.waits_for()
    assert line.startswith(says)
    assert not {"User", "10.0.0.1"} & set(line.replace('"', " ").split())
    door.set()
    await group.synced()
    assert group.waits_for() == []
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_the_decoder_and_the_script_agree():
    seen = ObjectDecoder(NODES, Metrics()).item(orjson.dumps(node("a")))
    assert (seen.key.name, seen.key.uid) == ("a", "uid-a")


async def test_the_next_page_is_asked_for_while_one_is_told(mirror):
    m = mirror(
        ("list", page("5", node("a"), after="t1")),
        ("list", page("5", node("b"), after="t2")),
        ("list", page("5", node("c"))),
    )
    asked = []
    put = m.inbox.put

    def noted(event):
        asked.append(len(m.source.asked))
        put(event)

    m.inbox.put = noted
    room = m.inbox.room

    async def slow():
        await asyncio.sleep(1)
        await room()

    m.inbox.room = slow
    assert said(await m.done()) == ["+a", "+b", "+c"]
    assert asked == [1, 2, 3, 3]


async def test_a_list_that_fails_leaves_no_request_behind(mirror):
    m = mirror(
        ("list", page("5", node("a"), after="t1")),
        ("list", Unreachable(0, "Unreachable", "")),
        ("list", b"no list"),
        ("list", page("6", node("b"))),
    )
    assert said(await m.done()) == ["+a", "+b", "-a"]


async def test_a_full_inbox_stops_the_reading_until_there_is_room(mirror):
    many = [line("ADDED", node(f"n{at}", str(at))) for at in range(1000)]
    m = mirror(("list", page("5")), ("watch", [many]))
    room = asyncio.Event()

    async def full():
        if m.inbox.of(e.Listed):
            await room.wait()

    m.inbox.room = full
    await m.done()
    assert len(m.inbox.of(e.NodeSeen)) == STRIDE
    room.set()
    await asyncio.sleep(1)
    assert len(m.inbox.of(e.NodeSeen)) == 1000


@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_the_server_s_wish_to_wait_is_respected(mirror, looptime, verb):
    refused = ApiError(429, "TooManyRequests", "", 7.0)
    script = {
        "list": [("list", refused), ("list", page("5", node("a")))],
        "watch": [
            ("list", page("5")),
            ("watch", refused),
            ("watch", [line("ADDED", node("a", "6"))]),
        ],
    }
    m = mirror(*script[verb])
    m.task = asyncio.get_running_loop().create_task(m.reflector.run())
    await m.inbox.until(lambda: m.inbox.of(e.NodeSeen))
    assert 7.0 <= looptime < 8.0
