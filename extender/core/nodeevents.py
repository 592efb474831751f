"""What events of nodes change in the state, and what jobs are told of them."""

from __future__ import annotations

from extender.core import events as e
from extender.core.api import NODES
from extender.core.errors import InvalidObject
from extender.core.state import State
from extender.core.topology import equipment


def node_seen(s: State, event: e.NodeSeen, now: float) -> None:
    """A node was added or changed. One that cannot be read takes no pods."""
    meta = event.node.metadata
    name = meta.name
    before, surprises = _generation(s, name), s.cluster.zones.surprises
    capacity, there = s.cluster.capacity_generation, s.cluster.row_of(name) is not None
    found, wrong = equipment.read(meta.annotations, event.node.status.allocatable)
    for each in wrong:
        s.count("invalid_equipment")
        s.notice(NODES, "", name, meta.uid, "Warning", "InvalidTopology", str(each))
    try:
        s.cluster.upsert_node(event.node, found)
    except InvalidObject as error:
        s.count("invalid_nodes")
        _take_away(s, name)
        s.notice(NODES, "", name, meta.uid, "Warning", "InvalidNode", str(error))
    if not there:
        _hold_again(s, name)
    if s.cluster.zones.surprises != surprises:
        s.count("device_surprises")
    if _generation(s, name) != before or s.cluster.capacity_generation != capacity:
        touch(s, name)
    left = s.health.leaves(name)
    if s.health.seen(event.node, now):
        s.node_news.add(name)
    if left and not s.health.leaves(name):
        # Room again, whether or not the row has changed.
        s.cluster.capacity_generation += 1


def node_gone(s: State, event: e.NodeGone, now: float) -> None:
    """A node was deleted."""
    touch(s, event.name)
    _take_away(s, event.name)
    s.health.deleted(event.name, now)
    s.node_news.add(event.name)


def _take_away(s: State, node: str) -> None:
    if held := s.cluster.held_on(node):
        s.unhoused.setdefault(node, set()).update(held)
    s.cluster.remove_node(node)


def _hold_again(s: State, node: str) -> None:
    """A node that was away is back, be it another of its name: what is still planned there, or may be
    bound there, holds its place again (I2). Whether it fits is looked at in the next step.
    """
    row = s.cluster.row_of(node)
    if row is None:
        return
    for key in sorted(s.unhoused.pop(node, ())):
        shape = s.housed(key, node)
        if shape is not None:
            s.cluster.reserve(key, shape, row)


def tell_jobs(s: State) -> None:
    """What is the matter with a node is the matter of the jobs that have pods there. All nodes of a step
    are told at once: where a zone goes, a look at every pod for each of its nodes takes minutes.
    """
    if s.node_news:
        for job in s.jobs.values():
            if any(pod.spec.node_name in s.node_news for pod in job.pods.values()):
                job.dirty = True
        s.node_news.clear()


def touch(s: State, node: str) -> None:
    """A node changed otherwise than by Muster's own Bindings."""
    s.touched.add(node)
    s.evidence.forget(node)


def _generation(s: State, name: str) -> int:
    row = s.cluster.row_of(name)
    return -1 if row is None else int(s.cluster.generation[row])
