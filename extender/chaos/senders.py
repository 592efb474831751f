"""One life of a replica as the wire shows it: what it sends, and what it knew when it did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import orjson
from msgspec import Struct

from extender.chaos import claims
from extender.chaos.claims import Group
from extender.chaos.network import Shown
from extender.chaos.past import Past
from extender.core import api
from extender.core.api import Resource
from extender.sim.history import Key
from extender.sim.rest import Request


class Sent(Struct, frozen=True):
    """A write as it was handed over: when, with which epoch, and up to where its sender saw."""

    at: float
    epoch: int
    pods: int
    nodes: int
    #: By kind of job, and of group.
    jobs: Mapping[Resource, int]
    groups: Mapping[Resource, int]
    #: Of pods, with what came and went unseen.
    shown: Shown
    #: In the middle of a list of pods, nodes or groups: no version says what it knew of them.
    listing: bool = False


class Life:
    """One life of a replica, as the wire shows it."""

    def __init__(self, identity: str) -> None:
        self.identity = identity
        self.epoch = 0
        #: When the last renewal that took effect was handed over; None after a release.
        self.renewed: float | None = None
        self.lease_sent = 0.0
        #: Since when it holds the Lease without a break.
        self.led_since: float | None = None
        #: Bindings and creations of pods, and statuses of groups, by the identity of their requests, which
        #: are kept for it.
        self.sent: dict[int, tuple[Request, Sent]] = {}
        #: (uid, node, resourceVersion) of Bindings.
        self.binds: set[tuple[str, str, str]] = set()
        #: Pods for which a Binding was sent, by group.
        self.sent_for: dict[Group, dict[str, tuple[str, str]]] = {}
        self.bound: set[str] = set()
        #: Open calls of /bind, by uid of the pod.
        self.open: dict[str, int] = {}


def placed(past: Past, life: Life, group: Group, record: Sent) -> set[str]:
    """Members that the sender had been shown in their places, or has bound itself."""
    own = {
        uid
        for uid, place in life.sent_for.get(group, {}).items()
        if uid in life.bound and stays(past, place, uid, record.pods)
    }
    return own | shown_placed(past, group, record)


def shown_placed(past: Past, group: Group, record: Sent) -> set[str]:
    """Members that the sender had been shown in their places."""
    return {
        pod["metadata"]["uid"]
        for _, pod in past.all(api.PODS, record.pods)
        if claims.group_of(pod) == group and claims.placed(pod)
    }


def stays(past: Past, place: Key, uid: str, version: int) -> bool:
    """Whether who was shown all up to a version knows no better than that the pod is there: what it
    made itself it knows before it is shown.
    """
    pod = past.at(api.PODS, place, version)
    if pod is not None and pod["metadata"]["uid"] == uid:
        return claims.phase(pod) != "Failed"
    return unshown(past, place, uid, version)


def unshown(past: Past, place: Key, uid: str, version: int) -> bool:
    """Whether a pod was created after what was shown."""
    born = past.born(api.PODS, place, uid)
    return born is not None and born[0] > version


def looks_since(life: Life, node: str, record: Sent) -> Iterator[int]:
    """Up to where its sender had been shown nodes when it has bound others to the same one later."""
    for request, sent in life.sent.values():
        later = sent.at > record.at and request.path.endswith("/binding")
        if later and orjson.loads(request.body)["target"]["name"] == node:
            yield sent.nodes
