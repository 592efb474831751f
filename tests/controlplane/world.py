"""What a test of the main path sees: the API server's own history, and short ways to make things.

Nothing here is Muster's code but the plain client of the simulation: the history is the API
server's, and its invariants are judged from it alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from extender.core import api
from extender.core.errors import ApiError
from extender.core.objects import Manifest
from extender.sim import fleet
from extender.sim.client import Client
from extender.sim.kubelet import Outcome, annotated
from extender.sim.realplane import RealPlane

GPU = "nvidia.com/gpu"
#: Seconds after which a test gives up waiting for something that should have happened.
PATIENCE = 40.0


@dataclass
class Sighting:
    """A pod as one watch event showed it."""

    kind: str
    namespace: str
    name: str
    uid: str
    node: str
    phase: str


@dataclass
class World:
    """One test's view of the cluster: a client, and every pod event since the test began."""

    client: Client
    plane: RealPlane
    namespace: str
    seen: list[Sighting] = field(default_factory=list)
    pods: dict[tuple[str, str], Manifest] = field(default_factory=dict)
    #: How long pods run that do not say so themselves; None: until they are deleted.
    run_seconds: float | None = None
    #: Nodes without a kubelet.
    dead: set[str] = field(default_factory=set)
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)

    def outcome(self, pod: Manifest) -> Outcome | None:
        """The simulated kubelet's question: how does this pod end?"""
        said = annotated(pod)
        if said is not None or self.run_seconds is None:
            return said
        return Outcome(self.run_seconds)

    async def follow(self) -> None:
        """Record pod events until cancelled."""
        async for kind, pods in self.client.follow(api.PODS):
            async with self._news:
                for pod in pods:
                    self._note(kind, pod)
                self._news.notify_all()
            # Events that came together: whoever waits looks at each of them.
            await asyncio.sleep(0)

    def _note(self, kind: str, pod: Manifest) -> None:
        meta = pod["metadata"]
        key = (meta["namespace"], meta["name"])
        if kind == "DELETED":
            self.pods.pop(key, None)
        else:
            self.pods[key] = pod
        node, phase = pod["spec"].get("nodeName", ""), pod["status"].get("phase", "")
        self.seen.append(Sighting(kind, *key, meta["uid"], node, phase))

    async def until(
        self, condition: Callable[[], Any], what: str, patience: float = PATIENCE
    ) -> None:
        """Wait for a condition on what was seen; looked at after every pod event."""

        def story() -> str:
            pods = {k[1]: (p["spec"].get("nodeName"), p["status"]) for k, p in self.pods.items()}
            return f"not seen: {what}; pods: {pods}"

        try:
            async with asyncio.timeout(patience), self._news:
                await self._news.wait_for(condition)
        except TimeoutError:
            raise AssertionError(story()) from None

    async def until_object(
        self,
        resource: api.Resource,
        name: str,
        condition: Callable[[Manifest], Any],
        what: str,
        namespace: str | None = None,
        patience: float = PATIENCE,
    ) -> Manifest:
        """Wait for a condition on one object, by watching its kind."""
        where = namespace or self.namespace
        last: Manifest = {}
        try:
            async with asyncio.timeout(patience):
                async for _, objects in self.client.follow(resource, where):
                    for each in objects:
                        if each["metadata"]["name"] == name:
                            last = each
                            if condition(each):
                                return each
        except TimeoutError:
            pass
        raise AssertionError(f"not seen: {what}; last: {last.get('spec')} {last.get('status')}")

    async def until_any(self, resource: api.Resource, patience: float = PATIENCE) -> Manifest:
        """Wait until the namespace holds an object of this kind."""
        async with asyncio.timeout(patience):
            async for _, objects in self.client.follow(resource, self.namespace):
                for each in objects:
                    return each
        raise AssertionError(f"no {resource.kind} appeared")

    # what there is

    def bound(self, prefix: str = "", namespace: str | None = None) -> dict[str, str]:
        """Bound pods by name, with their nodes."""
        where = namespace or self.namespace
        return {
            name: pod["spec"]["nodeName"]
            for (ns, name), pod in self.pods.items()
            if ns == where and name.startswith(prefix) and pod["spec"].get("nodeName")
        }

    def ever_bound(self, prefix: str = "", namespace: str | None = None) -> set[str]:
        """Names of pods that any event of the history shows on a node."""
        where = namespace or self.namespace
        return {
            each.name
            for each in self.seen
            if each.namespace == where and each.name.startswith(prefix) and each.node
        }

    def lives(self) -> set[str]:
        """Uids of the pods that any event shows on a node: of one that kube-scheduler refuses, as it has
        not read of a node yet, another is made.
        """
        return {each.uid for each in self.seen if each.namespace == self.namespace and each.node}

    def phases(self, prefix: str = "") -> list[str]:
        """Phases of the pods that exist, sorted."""
        return sorted(
            pod["status"].get("phase", "")
            for (ns, name), pod in self.pods.items()
            if ns == self.namespace and name.startswith(prefix)
        )

    def scheduled_message(self, name: str) -> str:
        """PodScheduled's message, as `kubectl describe` shows it."""
        pod = self.pods.get((self.namespace, name), {"status": {}})
        for condition in pod["status"].get("conditions") or ():
            if condition["type"] == "PodScheduled":
                return str(condition.get("message", ""))
        return ""

    async def events(self, name: str) -> list[Manifest]:
        """Kubernetes Events on an object."""
        selector = f"involvedObject.name={name}"
        found = await self.client.list(api.EVENTS, self.namespace, fieldSelector=selector)
        return list(found["items"] or ())

    async def until_event(
        self, name: str, words: str, patience: float = PATIENCE, namespace: str | None = None
    ) -> Manifest:
        """Wait for an Event on an object whose message holds the words."""
        async with asyncio.timeout(patience):
            async for _, events in self.client.follow(api.EVENTS, namespace or self.namespace):
                for event in events:
                    if event["involvedObject"]["name"] == name and words in event.get(
                        "message", ""
                    ):
                        return event
        raise AssertionError("the stream of events ended")

    # making things

    async def priority_class(self, name: str, value: int) -> None:
        """A PriorityClass, known to the API server's admission, which reads it a moment later."""
        await fleet.add_priority_class(self.client, name, value)
        probe = pod("probe", priorityClassName=name)
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    await self.client.create(api.PODS, self.namespace, probe, dry_run=True)
                    return
                except ApiError as error:
                    if error.code != 403:
                        raise
                await asyncio.sleep(0.05)

    async def nodes(self, *names: str, gpus: int = 1, **options: Any) -> None:
        """Ready GPU nodes."""
        await fleet.add_nodes(self.client, [fleet.node(n, gpus=gpus, **options) for n in names])

    async def group(self, name: str, minimum: int, **spec: Any) -> Manifest:
        """A Volcano PodGroup."""
        body = {"metadata": {"name": name}, "spec": {"minMember": minimum, **spec}}
        return await self.client.create(api.VOLCANO_GROUPS, self.namespace, body)

    async def gang(self, name: str, count: int, **options: Any) -> None:
        """``count`` pods that carry Volcano's annotation."""
        annotations = {"scheduling.k8s.io/group-name": name}
        await self.create(
            pod(f"{name}-{i}", annotations=annotations, **options) for i in range(count)
        )

    async def create(self, bodies: Iterable[Manifest]) -> None:
        """Create pods all at once."""
        async with asyncio.TaskGroup() as tasks:
            for body in bodies:
                tasks.create_task(self.client.create(api.PODS, self.namespace, body))

    async def delete_pod(self, name: str) -> None:
        """Delete a pod without grace."""
        await self.client.delete(api.PODS, self.namespace, name, grace=0)

    async def end(self, name: str, code: int = 0) -> None:
        """The containers of a running pod end with this exit code."""
        phase, reason = ("Failed", "Error") if code else ("Succeeded", "Completed")
        ended = {"ready": False, "state": {"terminated": {"exitCode": code, "reason": reason}}}
        status = self.pods[self.namespace, name]["status"]
        containers = [each | ended for each in status["containerStatuses"]]
        body = {"status": {"phase": phase, "containerStatuses": containers}}
        await self.client.patch(api.PODS, self.namespace, name, body, "status")


def pod(
    name: str,
    *,
    gpus: int = 1,
    scheduler: str = "muster",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    run_seconds: float | None = None,
    **spec: Any,
) -> Manifest:
    """A one-container pod that asks for GPUs."""
    limits = {GPU: str(gpus)} if gpus else {}
    marks = dict(annotations or {})
    if run_seconds is not None:
        marks["sim.muster.dev/run-seconds"] = str(run_seconds)
    return {
        "metadata": {"name": name, "labels": labels or {}, "annotations": marks},
        "spec": {
            "schedulerName": scheduler,
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "none", "resources": {"limits": limits}}],
            **spec,
        },
    }


@contextlib.asynccontextmanager
async def inhabited(plane: RealPlane, namespace: str) -> AsyncIterator[World]:
    """The cluster, emptied before and after, with a new namespace of this name. Nothing runs its pods."""
    async with client_of(plane) as client:
        await empty(client)
        await fleet.add_namespace(client, namespace)
        seen = World(client, plane, namespace)
        following = asyncio.create_task(seen.follow())
        try:
            yield seen
        finally:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following
            await empty(client)


def client_of(plane: RealPlane) -> Client:
    """A client with every right."""
    context = ssl.create_default_context(cafile=str(plane.ca))
    return Client(plane.server_url, headers={"Authorization": f"Bearer {plane.token}"}, tls=context)


async def empty(client: Client) -> None:
    """Delete everything that tests make, in every namespace."""
    for resource in (
        *api.JOBS,
        api.AUTOSCALERS,
        api.VOLCANO_GROUPS,
        api.SIGS_GROUPS,
        api.NATIVE_GROUPS,
        api.GANG_PLANS,
        api.PODS,
        api.SERVICES,
        api.CLAIMS,
        api.VOLUMES,
        api.LEASES,
        api.NODES,
    ):
        found = await _list(client, resource)
        async with asyncio.TaskGroup() as tasks:
            for each in found["items"] or ():
                tasks.create_task(_remove(client, resource, each))


async def _list(client: Client, resource: api.Resource) -> Manifest:
    """All objects of a kind; none where it is not served. A new CRD answers 429 at first."""
    while True:
        try:
            return await client.list(resource)
        except ApiError as error:
            if error.code == 404:
                return {"items": []}
            if error.code != 429:
                raise
            await asyncio.sleep(0.1)


async def _remove(client: Client, resource: api.Resource, body: Manifest) -> None:
    meta = body["metadata"]
    if meta.get("namespace") == "default" and meta["name"] == "kubernetes":
        return
    namespace = meta.get("namespace") if resource.namespaced else None
    try:
        if meta.get("finalizers"):
            await client.patch(resource, namespace, meta["name"], {"metadata": {"finalizers": []}})
        await client.delete(resource, namespace, meta["name"], grace=0)
    except ApiError as error:
        if error.code != 404:
            raise
