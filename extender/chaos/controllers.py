"""The controllers of a cluster that are not Muster: of replicas, of lost pods, and of nodes."""

from __future__ import annotations

import asyncio
import random

from extender.chaos import claims
from extender.chaos.plant import NAMESPACE as OWN
from extender.chaos.plant import Plant
from extender.chaos.users import Users
from extender.core import api
from extender.core.objects import Manifest

#: Seconds between two looks.
LOOK_SECONDS = 1.0
#: Seconds after which pods of a node that is gone are deleted.
GONE_SECONDS = 15.0
#: Seconds without a kubelet's word after which its node is not ready (40 s in a real cluster).
GRACE_SECONDS = 5.0
#: Seconds of that after which its pods are evicted (300 s in a real cluster).
EVICT_SECONDS = 20.0

_UNREACHABLE = "node.kubernetes.io/unreachable"
_TAINTS = [{"key": _UNREACHABLE, "effect": effect} for effect in ("NoSchedule", "NoExecute")]


class Controllers:
    """Looks at the store every now and then, and puts right what it finds."""

    def __init__(self, plant: Plant, users: Users, rng: random.Random) -> None:
        self._plant, self._users, self._rng = plant, users, rng
        #: When a pod's node was first seen gone, and when a node was last heard of.
        self._gone: dict[str, float] = {}
        self._heard: dict[str, float] = {}

    async def run(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS * self._rng.uniform(0.5, 1.5))
            for work in list(self._users.works.values()):
                if work.form != "job" and work.owned:
                    self._users.make_pods(work)
            self._collect_lost()
            for node in self._users.nodes():
                self._see_node(node)

    def _collect_lost(self) -> None:
        """As the pod garbage collector of kube-controller-manager."""
        names = {node["metadata"]["name"] for node in self._users.nodes()}
        now = self._plant.now()
        for pod in self._plant.store.list(api.PODS):
            meta, node = pod["metadata"], claims.node_of(pod)
            if not node or node in names or meta["namespace"] == OWN:
                self._gone.pop(meta["uid"], None)
            elif now - self._gone.setdefault(meta["uid"], now) >= GONE_SECONDS:
                self._users.delete(api.PODS, meta["name"], grace=0)

    def _see_node(self, node: Manifest) -> None:
        """As the node lifecycle controller, and the one that evicts by taints."""
        name, uid, now = node["metadata"]["name"], node["metadata"]["uid"], self._plant.now()
        if self._plant.hears_of(name):
            self._heard[uid] = now
        silent = now - self._heard.setdefault(uid, now)
        taints = (node["spec"] or {}).get("taints") or []
        others = [taint for taint in taints if taint["key"] != _UNREACHABLE]
        if silent >= GRACE_SECONDS:
            self._set_ready(node, [*others, *_TAINTS], "Unknown")
        else:
            self._set_ready(node, others, "True")
        if silent >= GRACE_SECONDS + EVICT_SECONDS:
            for pod in self._users.pods():
                if claims.node_of(pod) == name and "deletionTimestamp" not in pod["metadata"]:
                    self._users.delete(api.PODS, pod["metadata"]["name"])

    def _set_ready(self, node: Manifest, taints: list[Manifest], ready: str) -> None:
        name = node["metadata"]["name"]
        if taints != ((node["spec"] or {}).get("taints") or []):
            self._users.patch_node(name, {"spec": {"taints": taints or None}})
        conditions = [dict(condition) for condition in node["status"].get("conditions") or ()]
        for condition in conditions:
            if condition["type"] == "Ready" and condition["status"] != ready:
                condition["status"] = ready
                self._users.patch_node(name, {"status": {"conditions": conditions}}, "status")
