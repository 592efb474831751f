"""A Muster without sockets and clock, to which anything can be shown.

The path is the real one: bytes of lists and watches through the reflector and its decoder, events
into the coordinator, commands into requests and Events, questions through the verbs. Nothing here
catches a fault: what escapes is a finding.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

import orjson
import yaml

from extender.core import commands as c
from extender.core import events as e
from extender.core.answers import StateView
from extender.core.api import (
    GANG_PLANS,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    VOLCANO_GROUPS,
    Resource,
)
from extender.core.coordinator import Coordinator
from extender.core.errors import InvalidObject, WireError
from extender.core.identity import GroupKey
from extender.core.state import Rules
from extender.http import wire
from extender.http.verbs import Bindings, Verbs
from extender.jobs import KINDS
from extender.kube.decode import WATCHED, ObjectDecoder
from extender.kube.reflector import Reflector
from extender.kube.requests import request_of
from extender.obs.events import Answer, EventWriter
from extender.obs.metrics import Metrics
from extender.settings import Settings

START = 1_800_000_000.0
RULES = Rules(visible_after=15.0, plan_deadline=5.0)
SESSION = Settings().session()
METRICS = Metrics()

#: Namespace, node and prefix of good objects: no spoilt one goes by these names.
QUIET = "quiet"
#: What the API server says to writes: to most of them yes.
CODES = (201, 201, 201, 409, 422, 404, 0, 403)


class Over(Exception):
    """The script of a watch is at its end."""


@cache
def _manifests() -> dict[str, str]:
    text = (Path(__file__).parent / "manifests.yaml").read_text(encoding="utf-8")
    return {kind: orjson.dumps(raw).decode() for kind, raw in yaml.safe_load(text).items()}


def kinds() -> list[str]:
    """The keys of manifests.yaml."""
    return list(_manifests())


def good(kind: str, name: str = "odd-0", uid: str = "u-0") -> Any:
    """A good object of manifests.yaml."""
    return orjson.loads(Template(_manifests()[kind]).substitute(name=name, uid=uid))


def resource(kind: str) -> Resource:
    """The resource of a key of manifests.yaml, which ends in plural and group."""
    words = kind.rpartition(" ")[2]
    return next(each for each in WATCHED if f"{each.plural}.{each.group}" == words)


class World:
    """One life of the core: a quiet gang that is placed, and whatever it is shown."""

    def __init__(self) -> None:
        self.coordinator = Coordinator(RULES, SESSION, {kind.resource: kind for kind in KINDS})
        self.state = self.coordinator.state
        self.view = StateView(self.state, lambda: True)
        self.verbs = Verbs(
            self.view, self, Bindings(self), metrics=METRICS, bind_deadline=1.0, clock=lambda: 0.0
        )
        self.now = START
        self._runner = asyncio.Runner()
        self._token = 0
        self._given: list[c.Command] = []
        #: Messages of Events on anything but the quiet gang.
        self.said: list[str] = []
        self._events = EventWriter(
            _post, _patch, METRICS, instance="fuzz", clock=lambda: 0.0, wall=lambda: START
        )
        for event in _base():
            self.put(event)
        self.settle()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine to its end, or to the end of the script that it reads."""
        try:
            return self._runner.get_loop().run_until_complete(work)
        except Over:
            return None

    def put(self, event: e.Event) -> None:
        """The inbox; the core is told at once."""
        self.coordinator.apply(event, self.now)

    async def room(self) -> None:
        """There is always room."""

    # -- what happens

    def settle(self, codes: bytes = b"", rounds: int = 4) -> None:
        """Steps, each after what the API server said to the last one's commands (``codes``)."""
        answers = iter(codes)
        for _ in range(rounds):
            for command in (*self._given, *self.coordinator.step(self.now)):
                code = CODES[next(answers, 0) % len(CODES)]
                if (done := self._carry_out(command, code)) is not None:
                    self.put(done)
            self.now += 1.0
            # The last answer, too, is looked at; what follows is carried out next time.
            self._given = self.coordinator.step(self.now)

    def bind(self, namespace: str, name: str, uid: str, node: str) -> None:
        """kube-scheduler calls /bind."""
        self._token += 1
        self.put(e.BindAsked(self._token, namespace, name, uid, node))

    def ask(self, verb: str, body: bytes) -> Any:
        """What a verb answers, None where it says that it cannot read the body."""
        try:
            if verb == "bind":
                args = wire.read(body, wire.BindingArgs)
                self.bind(args.pod_namespace, args.pod_name, args.pod_uid, args.node)
                return None
            return orjson.loads(_at_once(self.verbs.answer(verb, body)).body)
        except (WireError, InvalidObject):
            return None

    def _carry_out(self, command: c.Command, code: int) -> e.Done | None:
        if isinstance(command, c.Notice):
            self._events.put(command)
            if command.namespace != QUIET:
                self.said.append(command.message)
            while self._events._pending:
                key, _ = self._events._pending.popitem(last=False)
                _at_once(self._events._write(self._events._series[key]))
            return None
        if not isinstance(command, c.Bind | c.Create | c.Patch | c.Delete):
            return None
        try:
            body = orjson.loads(request_of(command).body)
        except TypeError as error:  # the executor's rule: it cannot be written, and that is said
            return e.Done(command.id, 400, message=str(error))
        if not 200 <= code < 300 or isinstance(command, c.Bind | c.Delete):
            return e.Done(command.id, code, "Said", "said by the fuzzer")
        name = command.name if isinstance(command, c.Patch) else body["metadata"]["name"]
        meta = {"name": name, "namespace": command.namespace, "uid": f"u-{name}"}
        meta["resourceVersion"] = str(100 + command.id)
        made = {**body, "metadata": {**(body.get("metadata") or {}), **meta}}
        return e.Done(command.id, code, object=made)

    # -- what must hold

    def check(self) -> None:
        """The books are right, every page can be shown, and the quiet gang goes its way."""
        self.state.cluster.verify()
        shown = (self.view.state(), self.view.gangs(), self.view.nodes(), self.view.plans())
        orjson.dumps(shown, option=orjson.OPT_SERIALIZE_NUMPY)
        gang = self.state.gangs[GroupKey(VOLCANO_GROUPS, QUIET, QUIET)]
        assert gang.attempt or gang.refusal is not None, "the quiet gang is forgotten"

    def remembered(self) -> dict[str, set[str]]:
        """Of what something is remembered: the same again once spoilt objects are gone."""
        s = self.state
        found = {name: value for name, value in vars(s).items() if isinstance(value, dict)}
        bounded = ("admissions", "aside", "counters", "refusals", "served", "_awaiting", "_shapes")
        found = {name: value for name, value in found.items() if name not in bounded}
        found |= {"pods": s.cluster.pods.slots, "nodes": s.cluster.nodes.row_of}
        return {
            name: {str(key) for key in value if QUIET not in str(key)}
            for name, value in found.items()
        }


class Script:
    """What an API server lists, and what its watch then says; and then it is over."""

    def __init__(self) -> None:
        self.page, self.lines = b"", [b""]
        self.lists = 0

    async def list_page(self, resource: Resource, *, limit: int = 500, after: str = "") -> bytes:
        self.lists += 1
        if self.lists > 2:
            raise Over
        return self.page

    async def watch_lines(
        self, resource: Resource, resource_version: str, *, timeout_seconds: int
    ) -> AsyncGenerator[list[bytes], None]:
        lines, self.lines = self.lines, []
        if not lines:
            raise Over
        yield lines


class Show:
    """Objects of one kind, shown to a world by the reflector of that kind."""

    def __init__(self, world: World, what: Resource) -> None:
        self._world, self._what = world, what
        self._script = Script()
        quiet: Any = Silent()
        self._reflector = Reflector(
            self._script, world, what, METRICS, Unhurried(1), complaints=quiet
        )
        self._reflector._log = quiet
        self._beside = _beside(what)

    def objects(self, first: bytes, *later: bytes) -> None:
        """A list of an object and a good one, then a watch that changes it, as ever then the good.

        Each has to be JSON; whatever else they are, the good one is known.
        """
        lines = [b'{"type":"MODIFIED","object":%s}' % body for body in (*later, self._beside)]
        self._run([first, self._beside], lines)
        meta = orjson.loads(self._beside)["metadata"]
        place = (meta.get("namespace", ""), meta["name"])
        assert place in self._reflector.known, f"{self._what.kind} {place} is hidden"

    def stream(self, page: bytes, lines: bytes) -> None:
        """A list and a watch of any bytes."""
        self._script.page, self._script.lines, self._script.lists = page, lines.split(b"\n"), 0
        self._world.run(self._reflector.run())

    def leave(self) -> None:
        """A list of the good object alone: all others are gone."""
        self._run([self._beside], [])

    def _run(self, items: Sequence[bytes], lines: list[bytes]) -> None:
        page = b'{"metadata":{"resourceVersion":"9"},"items":[' + b",".join(items) + b"]}"
        self.stream(page, b"\n".join(lines))


class Silent:
    """For logs and complaints: millions of them say nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


class Unhurried(random.Random):
    """Draws no pause at all."""

    def uniform(self, a: float, b: float) -> float:
        return 0.0


def _at_once(work: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine answers that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits")


async def _post(namespace: str, body: Any) -> Answer:
    orjson.dumps(body)
    return Answer(201)


async def _patch(namespace: str, name: str, body: Any) -> Answer:
    orjson.dumps(body)
    return Answer(200)


@cache
def _base() -> tuple[e.Event, ...]:
    """Nodes, a class, a quiet gang of two that fits the quiet node alone; this replica leads."""
    node = good("nodes.")
    objects: list[tuple[Resource, Any]] = [
        (NODES, {**node, "metadata": {"name": name, "uid": name}, "spec": {}})
        for name in ("n0", "n1", QUIET)
    ]
    objects[-1][1]["metadata"]["labels"] = {QUIET: "yes"}
    high = {"metadata": {"name": "high", "uid": "u-high"}, "value": 1000}
    objects.append((PRIORITY_CLASSES, high))
    meta = {"namespace": QUIET, "resourceVersion": "3"}
    group = {"metadata": {**meta, "name": QUIET, "uid": "u-quiet"}, "spec": {"minMember": 2}}
    objects.append((VOLCANO_GROUPS, group))
    for index in range(2):
        pod = good("bound pods.", f"{QUIET}-{index}", f"u-{QUIET}-{index}")
        pod["metadata"] |= {**meta, "annotations": {"scheduling.k8s.io/group-name": QUIET}}
        del pod["spec"]["nodeName"]
        pod["spec"]["nodeSelector"] = {QUIET: "yes"}
        pod["status"] = {"phase": "Pending"}
        objects.append((PODS, pod))
    seen = [ObjectDecoder(what, METRICS).item(orjson.dumps(raw)).event for what, raw in objects]
    return (*seen, e.Synced(), e.LeaderGained(1))


@cache
def _beside(what: Resource) -> bytes:
    """A good object of the kind, where nobody looks."""
    kind = next(each for each in kinds() if resource(each) == what)
    raw = good(kind)
    raw["metadata"] |= {"name": f"{QUIET}-beside", "uid": f"u-{QUIET}-beside"}
    if what.namespaced:
        raw["metadata"]["namespace"] = QUIET
    if what == PODS:
        raw["spec"] = {"containers": [], "schedulerName": "other"}
        raw["metadata"]["annotations"] = {}
    raw["metadata"].pop("ownerReferences", None)
    if what == GANG_PLANS:
        raw["spec"]["state"] = "Void"
    return orjson.dumps(raw)
