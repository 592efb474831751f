"""Users of a cluster: they write straight to the store."""

from __future__ import annotations

import random
from collections.abc import Callable

from extender.chaos import claims, workloads
from extender.chaos.plant import Plant
from extender.chaos.workloads import NAMESPACE, Workload
from extender.core import api
from extender.core.api import CONFIG_MAPS, Resource
from extender.core.errors import ApiError
from extender.core.objects import Manifest
from extender.sim.patches import merge


class Users:
    """Makes workloads and nodes, and changes them. ``rng`` decides what they choose."""

    def __init__(self, plant: Plant, rng: random.Random) -> None:
        self.plant, self.rng = plant, rng
        self.works: dict[str, Workload] = {}
        self._foreign = 0

    # --- workloads

    def submit(self, work: Workload) -> None:
        """Create all of it, in an order that is nobody's promise."""
        self.plant.note(f"submit {work}")
        self.works[work.name] = work
        if work.form == "job":
            self.create(work.kind.resource, workloads.job(work))
            return
        if work.record is not None and work.record_first:
            self._record(work)
        self.make_pods(work)
        if work.record is not None and not work.record_first:
            self._record(work)

    def withdraw(self, work: Workload) -> None:
        """Delete all of it."""
        self.plant.note(f"delete {work.name}")
        self.works.pop(work.name, None)
        self.delete(work.kind.resource, work.name)
        self.delete(CONFIG_MAPS, f"owner-{work.name}")
        if work.record is not None:
            self.delete(work.record, work.name)
        for name in work.pod_names() if work.form != "job" else ():
            self.delete(api.PODS, name)

    def delete_pod(self) -> None:
        """Any pod of a workload."""
        pods = self.pods()
        if pods:
            name = self.rng.choice(pods)["metadata"]["name"]
            self.plant.note(f"delete pod {name}")
            self.delete(api.PODS, name)

    def replace_pod(self) -> None:
        """A pod goes at once, and another one of its name comes at once."""
        work = self._work(lambda work: work.form != "job")
        if work is None:
            return
        name = self.rng.choice(work.pod_names())
        self.plant.note(f"replace pod {name}")
        self.delete(api.PODS, name, grace=0)
        self.create(api.PODS, workloads.pod(work, name, self._owner(work)))

    def recreate_record(self) -> None:
        """A PodGroup goes and another one of its name comes, perhaps with another minimum."""
        work = self._work(lambda work: work.record is not None)
        if work is None:
            return
        assert work.record is not None
        self.plant.note(f"recreate the group {work.name}")
        self.delete(work.record, work.name)
        work.least = self.rng.randint(1, work.size)
        self._record(work)

    def edit_minimum(self) -> None:
        """Another minMember."""
        work = self._work(lambda work: work.record is not None)
        if work is None:
            return
        assert work.record is not None
        work.least = self.rng.randint(1, work.size)
        self.plant.note(f"group {work.name}: at least {work.least}")
        body = {"spec": workloads.group(work, work.least)["spec"]}
        self.patch(work.record, NAMESPACE, work.name, body)

    def suspend(self, work: Workload, *, on: bool) -> None:
        """Set a job's runPolicy.suspend."""
        self.plant.note(f"job {work.name} is {'suspended' if on else 'resumed'}")
        body = {"spec": {"runPolicy": {"suspend": on}}}
        self.patch(work.kind.resource, NAMESPACE, work.name, body)

    def scale_job(self) -> None:
        """Another number of workers, be the job waiting, running or over."""
        work = self._work(lambda work: work.form == "job")
        if work is not None:
            self.scale(work, self.rng.randint(1, workloads.MOST_PODS))

    def scale(self, work: Workload, size: int) -> None:
        """Set a job's replicas, and what of them is enough."""
        work.least = size if work.least == work.size else min(work.least, size)
        work.size = size
        self.plant.note(f"job {work.name}: {size} replicas, at least {work.least}")
        spec = workloads.job(work)["spec"]
        roles: Manifest = dict.fromkeys(("Chief", "PS", "Master", "Worker"))
        spec[claims.JOBS[work.kind.resource]] = roles | spec[claims.JOBS[work.kind.resource]]
        policy: Manifest = spec.setdefault("runPolicy", {})
        policy.setdefault("schedulingPolicy", {"minAvailable": None})
        self.patch(work.kind.resource, NAMESPACE, work.name, {"spec": spec})

    def delete_belonging(self) -> None:
        """The list of hosts, or the keys, of a job with a launcher."""
        work = self._work(lambda work: work.form == "job" and work.kind.launched)
        if work is None:
            return
        resource, name = self.rng.choice(claims.belongings(work.kind.resource, work.name))
        self.plant.note(f"delete {resource.kind} {name}")
        self.delete(resource, name)

    def bind_foreign(self, milli: int = 0) -> None:
        """Another scheduler binds a pod of its own, whatever Muster has planned there."""
        if not (nodes := self.nodes()):
            return
        self._foreign += 1
        name, node = f"foreign-{self._foreign}", self.rng.choice(nodes)["metadata"]["name"]
        self.plant.note(f"{name} is bound to {node} by another scheduler")
        gpus = 0 if milli else self.rng.randint(1, 4)
        self.create(api.PODS, workloads.foreign(name, node, gpus, milli))

    def bind_member(self) -> None:
        """Another scheduler binds a pod that is not its own."""
        waiting = [pod for pod in self.pods() if not claims.node_of(pod)]
        if not waiting or not (nodes := self.nodes()):
            return
        name = self.rng.choice(waiting)["metadata"]["name"]
        node = self.rng.choice(nodes)["metadata"]["name"]
        self.plant.note(f"{name} is bound to {node} by another scheduler")
        try:
            self.plant.store.bind(NAMESPACE, name, node)
        except ApiError as error:
            self._expected(error, 409)

    def delete_foreign(self) -> None:
        """One of those goes."""
        names = [pod["metadata"]["name"] for pod in self.pods(foreign=True)]
        if names:
            name = self.rng.choice(names)
            self.plant.note(f"delete {name}")
            self.delete(api.PODS, name)

    def pods(self, *, foreign: bool = False) -> list[Manifest]:
        """Pods of workloads, or of other schedulers."""
        return [
            pod
            for pod in self.plant.store.list(api.PODS, NAMESPACE)
            if pod["metadata"]["name"].startswith("foreign-") == foreign
        ]

    def make_pods(self, work: Workload) -> None:
        """Create those that do not exist; those that failed make room for another try."""
        uid = self._owner(work)
        for name in work.pod_names():
            try:
                found = self.plant.store.get(api.PODS, NAMESPACE, name)
            except ApiError:
                self.create(api.PODS, workloads.pod(work, name, uid))
                continue
            if claims.phase(found) == "Failed" and uid:
                self.delete(api.PODS, name)

    # --- nodes

    def nodes(self) -> list[Manifest]:
        return self.plant.store.list(api.NODES)

    def add_node(self, name: str, gpus: int, devices: int = 0) -> None:
        """A machine joins, and its kubelet with it."""
        shared = f", and {devices} to share" if devices else ""
        self.plant.note(f"node {name} with {gpus} GPUs{shared}")
        self.create(api.NODES, workloads.node(name, gpus, devices))
        self.patch(api.NODES, "", name, {"spec": {"taints": None}})
        self.plant.start_kubelet(name)

    def patch_node(self, name: str, body: Manifest, subresource: str = "") -> None:
        self.plant.note(f"node {name}: {body}")
        self.patch(api.NODES, "", name, body, subresource)

    def remove_node(self, name: str) -> None:
        """The machine and its object."""
        self.plant.note(f"node {name} is removed")
        self.plant.stop_kubelet(name)
        self.delete(api.NODES, name, "")

    # --- writes; what is gone or there already is no fault of a user's

    def create(self, resource: Resource, body: Manifest) -> None:
        namespace = NAMESPACE if resource.namespaced else ""
        try:
            self.plant.store.create(resource, namespace, body)
        except ApiError as error:
            self._expected(error, 409)

    def delete(
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

    def patch(
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

    # --- parts of a workload

    def _work(self, is_one: Callable[[Workload], object]) -> Workload | None:
        """Any workload of that sort."""
        works = [work for work in self.works.values() if is_one(work)]
        return self.rng.choice(works) if works else None

    def _owner(self, work: Workload) -> str:
        """The uid of its controller's object, which is made where it is missing; "" without one."""
        if not work.owned or work.form == "job":
            return ""
        try:
            found = self.plant.store.get(CONFIG_MAPS, NAMESPACE, f"owner-{work.name}")
        except ApiError:
            found = self.plant.store.create(CONFIG_MAPS, NAMESPACE, workloads.owner(work))
        return str(found["metadata"]["uid"])

    def _record(self, work: Workload) -> None:
        assert work.record is not None
        self.create(work.record, workloads.group(work, work.least))
