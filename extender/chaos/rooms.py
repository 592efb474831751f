"""I2: what a sender has bound to a node, and had been shown there, fits the node that it had seen."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from extender.chaos import claims, senders, shares
from extender.chaos.past import Past
from extender.chaos.senders import Life, Sent
from extender.chaos.shares import Share
from extender.core import api
from extender.core.objects import Manifest
from extender.sim.podfit import amounts, requests


def overfull(past: Past, version: int, life: Life, record: Sent, pod: Manifest) -> Iterator[str]:
    """What is given twice now that the pod has been bound as of a ``version``.

    The node as its sender had seen it then, or when it has bound another there since.
    """
    node, name = claims.node_of(pod), pod["metadata"]["name"]
    looks = {record.nodes, *senders.looks_since(life, node, record)}
    states = [past.at(api.NODES, ("", node), look) for look in sorted(looks)]
    known = [state for state in states if state]
    if not known:
        return
    sizes = [amounts((state.get("status") or {}).get("allocatable")) for state in known]
    others = list(_others(past, version, life, record, pod))
    total: dict[str, Decimal] = {}
    for each in (*others, pod):
        for resource, value in requests(each).items():
            total[resource] = total.get(resource, Decimal(0)) + value
    for resource, value in requests(pod).items():
        most = max(size.get(resource, Decimal(0)) for size in sizes)
        if value > 0 and total[resource] > most:
            given = f"{total[resource]} of {most} {resource}"
            yield f"{given} given on {node}, the last to {name} by {life.identity}"
    mine = shares.of(pod)
    if mine is None:
        return
    before: list[Share] = [each for each in map(shares.of, others) if each is not None]
    devices = max(map(shares.devices_of, known))
    if shares.fit(before, devices) and not shares.fit([*before, mine], devices):
        given = f"{mine} beside {before} of {devices} devices"
        yield f"{given} given on {node} to {name} by {life.identity}"


def _others(
    past: Past, version: int, life: Life, record: Sent, pod: Manifest
) -> Iterator[Manifest]:
    """Pods that the sender knows there: it was shown them in their place, or has bound them."""
    for key, other in past.all(api.PODS, version):
        if claims.node_of(other) != claims.node_of(pod) or claims.ended(other):
            continue
        uid = other["metadata"]["uid"]
        then = past.at(api.PODS, key, record.pods)
        shown = then is not None and then["metadata"]["uid"] == uid and claims.node_of(then)
        if uid != pod["metadata"]["uid"] and (shown or uid in life.bound):
            yield other
