"""HyperNode and Topology objects as they come and go, and what is said of those that are wrong."""

from __future__ import annotations

from extender.core import events as e
from extender.core.api import HYPER_NODES, TOPOLOGIES, Resource
from extender.core.state import State


def hyper_seen(s: State, event: e.HyperNodeSeen) -> None:
    """A HyperNode was added or changed."""
    if s.cluster.nodes.network.tell_hyper(event.hyper):
        _changed(s)


def hyper_gone(s: State, event: e.HyperNodeGone) -> None:
    """A HyperNode was deleted."""
    forget(s, HYPER_NODES, event.name)


def topology_seen(s: State, event: e.TopologySeen) -> None:
    """A Topology was added or changed."""
    if s.cluster.nodes.network.tell_topology(event.topology, event.resource.version):
        _changed(s)


def topology_gone(s: State, event: e.TopologyGone) -> None:
    """A Topology was deleted."""
    forget(s, event.resource, event.name)


def forget(s: State, resource: Resource, name: str) -> None:
    """What an object told of the network holds no longer."""
    network = s.cluster.nodes.network
    if resource == HYPER_NODES:
        changed = network.forget_hyper(name)
    else:
        changed = network.forget_topology(name, resource.version)
    if changed:
        _changed(s)


def report(s: State) -> None:
    """Say on each object what is wrong with it: beside others too, and nodes that came since."""
    table = s.cluster.nodes.domains
    network = s.cluster.nodes.network
    if not network.unsaid:
        return
    problems = network.problems(table)
    for resource in (HYPER_NODES, TOPOLOGIES):
        for each in problems[resource.kind]:
            s.notice(
                resource,
                "",
                each.name,
                each.uid,
                "Warning",
                f"Invalid{resource.kind}",
                each.message,
            )


def _changed(s: State) -> None:
    """Gangs that were too far apart may be near each other now."""
    s.cluster.nodes.network_changed()
    s.cluster.capacity_generation += 1
