"""Parts of GPUs as the judge reads them: whether there is any way to give them all.

By the annotations of Alibaba's convention: so many thousandths of each of so many different devices.
Who has which is nobody's to say here, so every way counts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from extender.core.objects import Manifest

MILLI = "alibabacloud.com/gpu-milli"
#: A node's resource, and a pod's annotation.
COUNT = "alibabacloud.com/gpu-count"
WHOLE = 1000

#: Thousandths of each of so many devices.
Share = tuple[int, int]


def of(pod: Manifest) -> Share | None:
    """What a pod asks for; None: no part of a GPU."""
    marks = pod["metadata"].get("annotations") or {}
    return (int(marks[MILLI]), int(marks.get(COUNT, 1))) if MILLI in marks else None


def devices_of(node: Manifest) -> int:
    """Devices of a node that are given away in parts."""
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    return int(allocatable.get(COUNT, 0))


def as_whole(pod: Manifest) -> Manifest:
    """The pod as one that asks for whole devices: where it fits so, a part of it fits, whoever has
    which.
    """
    share = of(pod)
    if share is None:
        return pod
    more = {"name": "share", "resources": {"requests": {COUNT: str(share[1])}}}
    return {**pod, "spec": {**pod["spec"], "containers": [*pod["spec"]["containers"], more]}}


def fit(wanted: Iterable[Share], devices: int) -> bool:
    """Whether some way gives each of them what it asks for."""
    ways = {(0,) * devices}
    # The largest first: what cannot be is found soonest.
    for milli, count in sorted(wanted, reverse=True):
        ways = {after for way in ways for after in _after(way, milli, count)}
        if not ways:
            return False
    return True


def _after(way: tuple[int, ...], milli: int, count: int) -> Iterator[tuple[int, ...]]:
    """What the devices may have given after one more; in order, as which is which does not matter."""
    for chosen in itertools.combinations(range(len(way)), count):
        if all(way[at] + milli <= WHOLE for at in chosen):
            yield tuple(sorted(given + milli * (at in chosen) for at, given in enumerate(way)))
