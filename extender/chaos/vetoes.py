"""What /preempt may allow: no gang that is whole loses so much that it is whole no longer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

import orjson

from extender.chaos import claims
from extender.chaos.claims import Group
from extender.chaos.network import Link
from extender.chaos.past import Past
from extender.chaos.senders import unshown
from extender.core import api
from extender.sim.history import Key

#: By group, what a replica has bound of it: places by uid.
Own = Mapping[Group, Mapping[str, Key]]


def broken(past: Past, link: Link, own: Own, asked: bytes, answer: bytes) -> Iterator[str]:
    """What an answer of the replica behind ``link`` allows that it should have refused."""
    pod = orjson.loads(asked)["Pod"]
    allowed = orjson.loads(answer)["NodeNameToMetaVictims"]
    if allowed and claims.group_of(pod) is not None:
        yield f"/preempt makes room for {pod['metadata']['name']}, a member of a gang"
    version = link.shown[api.PODS].version
    for node, victims in allowed.items():
        uids = {victim["UID"] for victim in victims["Pods"]}
        for group in sorted(_broken_by(past, link, own, uids, version), key=str):
            yield f"/preempt allows victims on {node} that break the gang {group[1]}/{group[2]}"


def _broken_by(past: Past, link: Link, own: Own, uids: Set[str], version: int) -> Iterator[Group]:
    # What it has bound it knows to be placed, even before its watch shows the pod at all.
    members: dict[Group, set[str]] = {
        group: {uid for uid, place in bound.items() if unshown(past, place, uid, version)}
        for group, bound in own.items()
    }
    for _, pod in past.all(api.PODS, version):
        group = claims.group_of(pod)
        uid = pod["metadata"]["uid"]
        if group is not None and (claims.placed(pod) or uid in own.get(group, ())):
            members.setdefault(group, set()).add(uid)
    for group, placed in members.items():
        resource, namespace, name = group
        record = past.at(resource, (namespace, name), link.shown[resource].version)
        if placed & uids and record is not None:
            least = claims.minimum(resource, record)
            if len(placed) >= least > len(placed - uids):
                yield group
