"""What is fuzzed: functions of bytes that return, or raise for a finding.

The body of each target is a function of readable values as well (``objects``, ``story``, ``verb``), by which findings.yaml replays what was found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from extender.core import events as e
from extender.core import record
from extender.core.api import PODS
from extender.core.errors import InvalidObject
from extender.core.groups import wanted_record
from extender.core.identity import Membership, membership
from extender.core.nodes import NodeTable
from extender.core.places import Place
from extender.core.shape import shape_of
from extender.core.shapes import Shapes
from extender.core.topology.kubelet import Container
from extender.core.topology.nrt import zones_of
from extender.core.topology.stock import kubelet_of, stock_of
from extender.jobs import KINDS
from extender.kube.decode import ObjectDecoder
from tests.fuzz.draw import Draw, spoilt, written
from tests.fuzz.texts import config, configs, readable, scalars, shares, topologies
from tests.fuzz.world import METRICS, QUIET, START, Show, World, good, kinds, resource

_SHAPES = Shapes()
_ALIGNED = (Container(devices=(("nvidia.com/gpu", 2),), cpus=1, memory=(("memory", 2**30),)),)
VERBS = ("filter", "prioritize", "preempt", "bind")
#: Kinds whose objects meet in one story: a job with its group, its pods and what they name.
_STORY = (
    "pytorchjobs.kubeflow.org",
    "podgroups.scheduling.volcano.sh",
    "pods.",
    "bound pods.",
    "services.",
    "gangplans.scheduling.muster.dev",
)


def objects(kind: str, bodies: Sequence[bytes], fate: bytes = b"") -> list[str]:
    """An object as each of ``bodies`` in turn, beside good ones; then it is gone.

    Returns what was said of it, in Events.
    """
    return story([(kind, bodies)], fate)


def story(shown: Sequence[tuple[str, Sequence[bytes]]], fate: bytes = b"") -> list[str]:
    """Objects of several kinds, what follows from them, what is asked about them, and their end.

    ``fate`` is what the API server answers to Muster's writes. Returns what was said, in Events.
    """
    with World() as world:
        _tell(world, shown, fate)
        return world.said


def _tell(world: World, shown: Sequence[tuple[str, Sequence[bytes]]], fate: bytes) -> None:
    shows = [Show(world, resource(kind)) for kind, _ in shown]
    for show in shows:
        show.leave()
    world.settle()
    before = world.remembered()
    for show, (kind, bodies) in zip(shows, shown, strict=True):
        show.objects(*bodies)
        world.settle(fate, rounds=2)
        if resource(kind) == PODS:
            _ask_about(world, bodies[-1])
    _kube_scheduler(world, fate)
    world.check()
    if fate and fate[-1] & 1:
        world.put(e.LeaderLost())
        world.settle()
        world.put(e.LeaderGained(2))
        world.settle(fate)
        world.check()
    for show in reversed(shows):
        show.leave()
    _withdraw_made(world)
    world.now += 1000.0
    world.settle()
    world.check()
    after = world.remembered()
    left = {name: keys - before[name] for name, keys in after.items() if keys - before[name]}
    assert not left, f"remembered of what is gone: {left}"


def _ask_about(world: World, pod: bytes) -> None:
    for names in (b'"NodeNames":["n0","n1"]', b'"Nodes":{"items":[{"metadata":{"name":"n0"}}]}'):
        for verb in ("filter", "prioritize"):
            world.ask(verb, b'{"Pod":%s,%s}' % (pod, names))
    victims = b'{"n0":{"Pods":[{"UID":"u-quiet-0"}]},"n1":{"Pods":[]}}'
    world.ask("preempt", b'{"Pod":%s,"NodeNameToMetaVictims":%s}' % (pod, victims))


def _kube_scheduler(world: World, fate: bytes) -> None:
    """Every pod that is planned is asked to be bound there."""
    for (namespace, name), (_, slot) in list(world.state.slots.items()):
        if slot.node and namespace != QUIET:
            world.bind(namespace, name, slot.uid, slot.node)
    world.settle(fate, rounds=8)


def _withdraw_made(world: World) -> None:
    """What Muster made for the odd objects goes with them, as the garbage collector does."""
    state = world.state
    for key, gang in list(state.gangs.items()):
        if key.namespace != QUIET and gang.uid:
            world.put(e.GroupGone(key.resource, key.namespace, key.name, gang.uid))
    for (namespace, name), (_, slot) in list(state.slots.items()):
        if namespace != QUIET and slot.uid:
            world.put(e.PodGone(namespace, name, slot.uid))


def manifests(data: bytes) -> None:
    """One to three spoilt versions of an object of any kind."""
    draw = Draw(data)
    kind = kinds()[draw.below(len(kinds()))]
    versions = [good(kind) if draw.below(2) else spoilt(good(kind), draw)]
    versions += [spoilt(good(kind), draw) for _ in range(draw.below(3))]
    objects(kind, [written(each) for each in versions], draw.rest()[:16])


def stories(data: bytes) -> None:
    """A job, its group, pods, a service and a plan, of which some are spoilt."""
    draw = Draw(data)
    shown = []
    for kind in _STORY:
        match draw.below(4):
            case 0:
                continue
            case 1 | 2:
                raw = spoilt(good(kind), draw)
            case _:
                raw = good(kind)
        shown.append((kind, [written(raw)]))
    story(shown, draw.rest()[:16])


def marks(data: bytes) -> None:
    """Annotations and labels that Muster reads, with any text."""
    draw = Draw(data)
    marked = [kind for kind in kinds() if good(kind)["metadata"].keys() & {"annotations", "labels"}]
    kind = marked[draw.below(len(marked))]
    raw = good(kind)
    for _ in range(1 + draw.below(3)):
        where = [each for each in ("annotations", "labels") if each in raw["metadata"]]
        raw = spoilt(raw, draw, under=("metadata", where[draw.below(len(where))]), edits=2)
    objects(kind, [written(raw)], draw.rest()[:16])


def decoding(data: bytes) -> None:
    """A spoilt object of any kind, and what is made of it alone: a hundredth of a story's cost."""
    draw = Draw(data)
    kind = kinds()[draw.below(len(kinds()))]
    event = _decoder(kind).item(written(spoilt(good(kind), draw))).event
    try:
        match event:
            case e.PodSeen(pod):
                claim = membership(pod)
                if isinstance(claim, Membership):
                    wanted_record(claim.key, claim)
                assert hash(shape_of(pod)) == hash(shape_of(pod))
                alike = shape_of(pod, ignore_pin=True, ignore_node=True)
                assert _SHAPES.of(pod) == alike == _SHAPES.of(pod)
            case e.NodeSeen(node):
                NodeTable().upsert(node)
            case e.ZonesSeen(_, told):
                zones = zones_of(told)
                place = Place(kubelet_of(zones), stock_of(zones, {"nvidia.com/gpu"}))
                assert place.copies(_ALIGNED) <= place.emptied().copies(_ALIGNED)
            case e.PlanSeen(raw):
                record.decode(raw)
            case e.JobSeen(of, raw):
                reconciler = next(each for each in KINDS if each.resource == of)
                for replica in reconciler.reconcile(raw, (), frozenset(), START).wanted[:2]:
                    reconciler.pod(raw, replica)
            case _:
                pass  # its fields are looked at by the state alone
    except InvalidObject as error:
        readable(error, 2000)


@cache
def _decoder(kind: str) -> ObjectDecoder:
    return ObjectDecoder(resource(kind), METRICS)


def streams(data: bytes) -> None:
    """Bytes that an API server, or what stands before it, sends as a list and a watch."""
    draw = Draw(data)
    kind = kinds()[draw.below(len(kinds()))]
    page, _, lines = draw.rest().partition(b"\n")
    with World() as world:
        Show(world, resource(kind)).stream(page, lines)
        world.settle()
        world.check()


def wire(data: bytes) -> None:
    """Bytes that somebody posts to a verb; no Binding, which is a story (see requests)."""
    draw = Draw(data)
    verb(VERBS[draw.below(len(VERBS) - 1)], draw.rest())


def requests(data: bytes) -> None:
    """Spoilt requests of a scheduler, in both forms (nodeCacheCapable)."""
    draw = Draw(data)
    name = VERBS[draw.below(len(VERBS))]
    body = written(spoilt(_request(name, full=bool(draw.below(2))), draw))
    verb(name, body.replace(b'"Pod"', b'"pod"') if draw.below(4) == 3 else body)


def _request(name: str, *, full: bool) -> Any:
    pod = good("pods.")
    victim = good("bound pods.", "odd-1", "u-1")
    match name, full:
        case "bind", _:
            keys = ("PodName", "PodNamespace", "PodUID", "Node")
            return dict(zip(keys, ("odd-0", "odd", "u-0", "n0"), strict=True))
        case "preempt", True:
            nodes = {"n0": {"Pods": [victim], "NumPDBViolations": 1}}
            return {"Pod": pod, "NodeNameToVictims": nodes, "NodeNameToMetaVictims": None}
        case "preempt", False:
            nodes = {"n0": {"Pods": [{"UID": "u-quiet-0"}], "NumPDBViolations": 0}}
            return {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": nodes}
        case _, True:
            return {"Pod": pod, "Nodes": {"items": [good("nodes.", "n0")]}, "NodeNames": None}
        case _:
            return {"Pod": pod, "Nodes": None, "NodeNames": ["n0", "n1", "n2"]}


def verb(name: str, body: bytes) -> None:
    """A request, and what follows from it."""
    if name != "bind":
        answer = _asked().ask(name, body)
        assert answer is None or isinstance(answer, list if name == "prioritize" else dict)
        return
    world = World()
    world.ask(name, body)
    world.settle()
    world.check()


@cache
def _asked() -> World:
    """A world for questions that change nothing."""
    return World()


TARGETS: dict[str, Callable[[bytes], None]] = {
    each.__name__: each
    for each in (
        decoding, manifests, stories, marks, streams, wire, requests,
        config, configs, scalars, shares, topologies,
    )
}  # fmt: skip
