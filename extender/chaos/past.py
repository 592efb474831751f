"""Every state that an object of the store has had, to be asked what was true at a version."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator

from extender.core.api import Resource
from extender.core.objects import Manifest
from extender.sim.history import Change, Key


class Past:
    """States by place, each from its version on; None where nothing was there."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._times: dict[int, float] = {}
        self._states: dict[Resource, dict[Key, tuple[list[int], list[Manifest | None]]]] = {}
        #: By kind, place and uid: since when it is there, and as what it was created.
        self._born: dict[tuple[Resource, Key, str], tuple[int, Manifest]] = {}

    def add(self, change: Change) -> None:
        self._times[change.version] = self._clock()
        places = self._states.setdefault(change.resource, {})
        versions, states = places.setdefault(change.key, ([], []))
        versions.append(change.version)
        states.append(None if change.kind == "DELETED" else change.object)
        if change.kind != "DELETED":
            place = (change.resource, change.key, change.object["metadata"].get("uid", ""))
            self._born.setdefault(place, (change.version, change.object))

    def time_of(self, version: int) -> float | None:
        """When the change of a version was made; None for one from before the story."""
        return self._times.get(version)

    def at(self, resource: Resource, key: Key, version: int) -> Manifest | None:
        """The object as of a version of the store."""
        versions, states = self._states.get(resource, {}).get(key, ([], []))
        index = bisect_right(versions, version)
        return states[index - 1] if index else None

    def born(self, resource: Resource, key: Key, uid: str) -> tuple[int, Manifest] | None:
        """The object of this uid as it was created, and at which version."""
        return self._born.get((resource, key, uid))

    def every(self, resource: Resource) -> Iterator[Manifest]:
        """Every state of every object of a kind."""
        for _, states in self._states.get(resource, {}).values():
            yield from (obj for obj in states if obj is not None)

    def all(self, resource: Resource, version: int) -> Iterator[tuple[Key, Manifest]]:
        """Every object of a kind as of a version, in the order in which their places came up."""
        for key in self._states.get(resource, {}):
            obj = self.at(resource, key, version)
            if obj is not None:
                yield key, obj
