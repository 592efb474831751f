"""Users and the controllers of a cluster that are not Muster: they write straight to the store."""

from __future__ import annotations

import asyncio
import random

from extender.chaos import claims, workloads
from extender.chaos.plant import NAMESPACE as OWN
from extender.chaos.plant import Plant
from extender.chaos.workloads import NAMESPACE, Workload
from extender.core import api
from extender.core.api import Resource
from extender.core.errors import ApiError
from extender.core.objects import Manifest
from extender.sim.kinds import CONFIG_MAPS
from extender.sim.patches import merge

#: Seconds after which pods of a node that is gone are deleted, and between two looks.
GONE_SECONDS = 15.0
LOOK_SECONDS = 1.0


class Users:
    """Makes workloads and changes them; keeps those with a controller complete."""

    def __init__(self, plant: Plant, rng: random.Random) -> None:
        self.plant, self.rng = plant, rng
        self.works: dict[str, Workload] = {}
        self._gone: dict[str, float] = {}
        self._foreign = 0

    # --- workloads

    def submit(self, work: Workload) -> None:
        """Create all of it, in an order that is nobody's promise."""
        self.plant.note(f"submit {work}")
        self.works[work.name] = work
        if work.form == "job":
            self._create(api.PYTORCH_JOBS, workloads.job(work))
            return
        first = work.record is not None and self.rng.random() < 0.5
        if first:
            self._record(work)
        self._pods(work)
        if work.record is not None and not first:
            self._record(work)

    def withdraw(self, work: Workload) -> None:
        """Delete all of it."""
        self.plant.note(f"delete {work.name}")
        self.works.pop(work.name, None)
        self._delete(api.PYTORCH_JOBS, work.name)
        self._delete(CONFIG_MAPS, f"owner-{work.name}")
        if work.record is not None:
            self._delete(work.record, work.name)
        for name in work.pod_names() if work.form != "job" else ():
            self._delete(api.PODS, name)

    def delete_pod(self) -> None:
        """Any pod of a workload."""
        pods = self.pods()
        if pods:
            name = self.rng.choice(pods)["metadata"]["name"]
            self.plant.note(f"delete pod {name}")
            self._delete(api.PODS, name)

    def recreate_record(self) -> None:
        """A PodGroup goes and another one of its name comes, perhaps with another minimum."""
        works = [work for work in self.works.values() if work.record is not None]
        if not works:
            return
        work = self.rng.choice(works)
        assert work.record is not None
        self.plant.note(f"recreate the group {work.name}")
        self._delete(work.record, work.name)
        work.least = self.rng.randint(1, work.size)
        self._record(work)

    def edit_minimum(self) -> None:
        """Another minMember."""
        works = [work for work in self.works.values() if work.record is not None]
        if not works:
            return
        work = self.rng.choice(works)
        assert work.record is not None
        work.least = self.rng.randint(1, work.size)
        self.plant.note(f"group {work.name}: at least {work.least}")
        body = {"spec": workloads.group(work, work.least)["spec"]}
        self._patch(work.record, NAMESPACE, work.name, body)

    def bind_foreign(self) -> None:
        """Another scheduler binds a pod, whatever Muster has planned there."""
        nodes = self.nodes()
        if not nodes:
            return
        self._foreign += 1
        name, node = f"foreign-{self._foreign}", self.rng.choice(nodes)["metadata"]["name"]
        self.plant.note(f"{name} is bound to {node} by another scheduler")
        self._create(api.PODS, workloads.foreign(name, node, self.rng.randint(1, 4)))

    def delete_foreign(self) -> None:
        """One of those goes."""
        names = [pod["metadata"]["name"] for pod in self.pods(foreign=True)]
        if names:
            name = self.rng.choice(names)
            self.plant.note(f"delete {name}")
            self._delete(api.PODS, name)

    def pods(self, *, foreign: bool = False) -> list[Manifest]:
        """Pods of workloads, or of other schedulers."""
        return [
            pod
            for pod in self.plant.store.list(api.PODS, NAMESPACE)
            if pod["metadata"]["name"].startswith("foreign-") == foreign
        ]

    # --- nodes

    def nodes(self) -> list[Manifest]:
        return self.plant.store.list(api.NODES)

    def add_node(self, name: str, gpus: int) -> None:
        self.plant.note(f"node {name} with {gpus} GPUs")
        self._create(api.NODES, workloads.node(name, gpus))
        self._patch(api.NODES, "", name, {"spec": {"taints": None}})

    def patch_node(self, name: str, body: Manifest, subresource: str = "") -> None:
        self.plant.note(f"node {name}: {body}")
        self._patch(api.NODES, "", name, body, subresource)

    def remove_node(self, name: str) -> None:
        self.plant.note(f"node {name} is removed")
        self._delete(api.NODES, name, "")

    # --- controllers

    async def control(self) -> None:
        """Make missing pods again, and delete pods of nodes that are gone; for ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS * self.rng.uniform(0.5, 1.5))
            for work in list(self.works.values()):
                if work.form != "job" and work.owned:
                    self._pods(work)
            self._collect_lost()

    def _pods(self, work: Workload) -> None:
        """Create those that do not exist; those that failed make room for another try."""
        uid = self._owner(work) if work.owned else ""
        for name in work.pod_names():
            try:
                found = self.plant.store.get(api.PODS, NAMESPACE, name)
            except ApiError:
                self._create(api.PODS, workloads.pod(work, name, uid))
                continue
            if claims.phase(found) == "Failed" and uid:
                self._delete(api.PODS, name)

    def _owner(self, work: Workload) -> str:
        try:
            found = self.plant.store.get(CONFIG_MAPS, NAMESPACE, f"owner-{work.name}")
        except ApiError:
            found = self.plant.store.create(CONFIG_MAPS, NAMESPACE, workloads.owner(work))
        return str(found["metadata"]["uid"])

    def _record(self, work: Workload) -> None:
        assert work.record is not None
        self._create(work.record, workloads.group(work, work.least))

    def _collect_lost(self) -> None:
        """As the pod garbage collector of kube-controller-manager."""
        names = {node["metadata"]["name"] for node in self.nodes()}
        now = self.plant.now()
        for pod in self.plant.store.list(api.PODS):
            meta, node = pod["metadata"], claims.node_of(pod)
            if not node or node in names or meta["namespace"] == OWN:
                self._gone.pop(meta["uid"], None)
            elif now - self._gone.setdefault(meta["uid"], now) >= GONE_SECONDS:
                self._delete(api.PODS, meta["name"], grace=0)

    # --- writes; what is gone or there already is no fault of a user's

    def _create(self, resource: Resource, body: Manifest) -> None:
        namespace = NAMESPACE if resource.namespaced else ""
        try:
            self.plant.store.create(resource, namespace, body)
        except ApiError as error:
            self._expected(error, 409)

    def _delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = NAMESPACE,
        *,
        grace: int | None = None,
    ) -> None:
        try:
            self.plant.store.delete(resource, namespace, name, grace=grace)
        except ApiError as error:
            self._expected(error, 404)

    def _patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: Manifest,
        subresource: str = "",
    ) -> None:
        try:
            self.plant.store.replace(
                resource, namespace, name, lambda old: merge(old, body), subresource=subresource
            )
        except ApiError as error:
            self._expected(error, 404)

    def _expected(self, error: ApiError, code: int) -> None:
        if error.code != code:
            raise error
        self.plant.note(f"  {error.code} {error.message}")
