"""What /preempt may allow: no gang that is whole loses so much that it is whole no longer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set

import orjson

from extender.chaos import claims
from extender.chaos.claims import Group
from extender.chaos.network import Link
from extender.chaos.past import Past
from extender.core import api


def broken(past: Past, link: Link, bound: Set[str], asked: bytes, answer: bytes) -> Iterator[str]:
    """What an answer of the replica behind ``link`` allows that it should have refused.

    ``bound`` are uids of pods that it bound itself, shown or not. Judged by what it was shown last and by what it was shown before that, for the last may not
    have reached its core yet: only what is wrong by both is wrong.
    """
    pod = orjson.loads(asked)["Pod"]
    allowed = orjson.loads(answer)["NodeNameToMetaVictims"]
    if allowed and claims.group_of(pod) is not None:
        yield f"/preempt makes room for {pod['metadata']['name']}, a member of a gang"
    shown = link.shown[api.PODS]
    for node, victims in allowed.items():
        uids = {victim["UID"] for victim in victims["Pods"]}
        wrong = [
            set(_broken_by(past, link, bound, uids, version))
            for version in (shown.before, shown.version)
        ]
        for group in sorted(wrong[0] & wrong[1], key=str):
            yield f"/preempt allows victims on {node} that break the gang {group[1]}/{group[2]}"


def _broken_by(
    past: Past, link: Link, bound: Set[str], uids: Set[str], version: int
) -> Iterator[Group]:
    placed: Counter[Group] = Counter()
    lost: Counter[Group] = Counter()
    for _, pod in past.all(api.PODS, version):
        group = claims.group_of(pod)
        uid = pod["metadata"]["uid"]
        if group is None or not (claims.placed(pod) or uid in bound):
            continue
        placed[group] += 1
        lost[group] += uid in uids
    for group, count in lost.items():
        resource, namespace, name = group
        record = past.at(resource, (namespace, name), link.shown[resource].version)
        if count and record is not None:
            least = claims.minimum(resource, record)
            if placed[group] >= least > placed[group] - count:
                yield group
