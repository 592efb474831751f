"""Claims and volumes, as far as they tie a pod to nodes."""

from __future__ import annotations

from collections.abc import Mapping

from extender.core.objects import NodeSelector


class Storage:
    """Bound claims and the node affinity of volumes."""

    def __init__(self) -> None:
        self._claims: dict[tuple[str, str], str] = {}
        self._volumes: dict[str, NodeSelector | None] = {}
        self._view: StorageView | None = None

    def set_claim(self, namespace: str, name: str, volume: str) -> bool:
        """Whether this changes anything. ``volume`` is empty while the claim is not bound."""
        key = (namespace, name)
        if self._claims.get(key) == volume:
            return False
        self._claims[key] = volume
        self._view = None
        return True

    def drop_claim(self, namespace: str, name: str) -> bool:
        """Whether the claim was known."""
        self._view = None
        return self._claims.pop((namespace, name), None) is not None

    def set_volume(self, name: str, affinity: NodeSelector | None) -> bool:
        """Whether this changes anything. No affinity: reachable from every node."""
        if name in self._volumes and self._volumes[name] == affinity:
            return False
        self._volumes[name] = affinity
        self._view = None
        return True

    def drop_volume(self, name: str) -> bool:
        """Whether the volume was known."""
        known = name in self._volumes
        self._volumes.pop(name, None)
        self._view = None
        return known

    def view(self) -> StorageView:
        """The present state, frozen; the same object until something changes."""
        if self._view is None:
            self._view = StorageView(dict(self._claims), dict(self._volumes))
        return self._view


class StorageView:
    """Claims and volumes at one moment."""

    def __init__(
        self,
        claims: Mapping[tuple[str, str], str],
        volumes: Mapping[str, NodeSelector | None],
    ) -> None:
        self._claims = claims
        self._volumes = volumes

    def has(self, namespace: str, claim: str) -> bool:
        """Whether the claim exists, bound or not."""
        return (namespace, claim) in self._claims

    def affinity(self, namespace: str, claim: str) -> NodeSelector | bool:
        """Which nodes can use the claim: a selector, all (True), or none (False).

        None while the claim or its volume does not exist. All while it is not bound: where an
        unbound claim can be bound is left to kube-scheduler, and learnt from its refusals.
        """
        volume = self._claims.get((namespace, claim))
        if volume is None:
            return False
        if not volume:
            return True
        if volume not in self._volumes:
            return False
        return self._volumes[volume] or True
