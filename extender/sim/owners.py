"""Who owns whom: what garbage collection needs to know."""

from __future__ import annotations

from extender.core.api import Resource
from extender.core.objects import Manifest
from extender.sim.history import Key


class Owners:
    """The uids of living objects, and the dependents of each owner in the order they came."""

    def __init__(self) -> None:
        self._living: set[str] = set()
        self._dependents: dict[str, dict[tuple[Resource, Key], None]] = {}

    def add(self, resource: Resource, key: Key, obj: Manifest) -> None:
        """An object is stored."""
        self._living.add(obj["metadata"]["uid"])
        for reference in obj["metadata"].get("ownerReferences") or ():
            self._dependents.setdefault(reference["uid"], {})[resource, key] = None

    def remove(self, resource: Resource, key: Key, obj: Manifest) -> None:
        """An object, as it was stored, is stored no longer."""
        self._living.discard(obj["metadata"]["uid"])
        for reference in obj["metadata"].get("ownerReferences") or ():
            known = self._dependents.get(reference["uid"], {})
            known.pop((resource, key), None)
            if not known:
                self._dependents.pop(reference["uid"], None)

    def lives(self, uid: str) -> bool:
        return uid in self._living

    def dependents(self, owner: str) -> list[tuple[Resource, Key]]:
        return list(self._dependents.get(owner, {}))
