"""What must be true once faults have stopped: every gang that fits is whole, others say why not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from extender.chaos import claims, shares
from extender.chaos.claims import Group
from extender.core import api
from extender.core.api import CONFIG_MAPS, NATIVE_GROUPS, VOLCANO_GROUPS, Resource
from extender.core.errors import ApiError
from extender.core.objects import Manifest
from extender.sim.intree import refuse
from extender.sim.podfit import Row, Usage, requests
from extender.sim.store import Store

Problem = tuple[str, str]

_NO_TASKS: Counter[str] = Counter()
#: Condition of Kubernetes' own PodGroup.
_NATIVE = "PodGroupInitiallyScheduled"


class Settled:
    """One look at the store.

    ``whole``: uids of records that were whole at some time; ``bound``: of pods that Muster bound;
    ``rests``: whether a job's gang need not be there yet.
    """

    def __init__(
        self,
        store: Store,
        namespace: str,
        whole: set[str],
        bound: set[str],
        rests: Callable[[Manifest], bool],
    ) -> None:
        self._store, self._namespace = store, namespace
        self._whole, self._bound, self._rests = whole, bound, rests
        self._pods = [shares.as_whole(pod) for pod in store.list(api.PODS, namespace)]
        self._usage = Usage()
        for node in store.list(api.NODES):
            self._usage.set_node(node["metadata"]["name"], node)
        for pod in store.list(api.PODS):
            if claims.node_of(pod) and not claims.ended(pod):
                self._usage.add(shares.as_whole(pod))

    def problems(self) -> list[Problem]:
        """Invariants that do not hold, with what is wrong."""
        return [*self._groups(), *self._jobs(), *self._plain()]

    def _groups(self) -> Iterator[Problem]:
        for resource in claims.GROUPS:
            for record in self._store.list(resource, self._namespace):
                yield from self._group(resource, record)

    def _group(self, resource: Resource, record: Manifest) -> Iterator[Problem]:
        name = record["metadata"]["name"]
        group: Group = (resource, self._namespace, name)
        members = [pod for pod in self._pods if claims.group_of(pod) == group]
        wanted = [*members, *self._unmade(resource, record, members)]
        least = claims.minimum(resource, record)
        there = sum(map(claims.placed, members))
        waiting = [pod for pod in wanted if not claims.node_of(pod) and not claims.ended(pod)]
        short = claims.tasks_short(record, members)
        launcher = self._early_launcher(resource, record, members)
        if there >= least:
            for pod in () if short else waiting:
                if pod["metadata"]["name"] == launcher:
                    continue
                if self._fits([pod], 1):
                    yield "I7", f"{pod['metadata']['name']} of the whole gang {name} fits and waits"
                    return
            return
        running = [pod for pod in members if claims.placed(pod) and not claims.ended(pod)]
        if not waiting and not running:
            return
        count = max(least - there, short.total())
        if any(pod["metadata"]["name"] == launcher for pod in waiting):
            count, short = count + 1, short + Counter(["launcher"])
        if self._fits(waiting, count, short):
            yield "I7", f"gang {name}: {there} of {least} are placed, and the rest fits"
        elif not self._says_why(resource, record):
            yield "I7", f"gang {name}: {there} of {least} are placed, and it does not say why"
        # What another scheduler bound is not Muster's to take back.
        if (
            any(pod["metadata"]["uid"] in self._bound for pod in running)
            and record["metadata"]["uid"] not in self._whole
            and self._removable(record, running)
        ):
            yield "I4", f"gang {name} is left with {len(running)} of {least} bound"

    def _says_why(self, resource: Resource, record: Manifest) -> bool:
        """In a condition; a native group's is final once it was whole, so an event will do."""
        native = resource == NATIVE_GROUPS
        said = (_NATIVE, "False") if native else ("Unschedulable", "True")
        if any(
            (condition["type"], condition["status"]) == said and condition.get("message")
            for condition in (record.get("status") or {}).get("conditions") or ()
        ):
            return True
        uid = record["metadata"]["uid"]
        return native and any(
            event["involvedObject"].get("uid") == uid and event["type"] == "Warning"
            for event in self._store.list(api.EVENTS, self._namespace)
        )

    def _unmade(
        self, resource: Resource, record: Manifest, members: list[Manifest]
    ) -> list[Manifest]:
        """Pods that a job wants and that do not exist."""
        found = self._job_of(record) if resource == VOLCANO_GROUPS else None
        if found is None:
            return []
        kind, job = found
        if claims.verdict(job) or "deletionTimestamp" in job["metadata"]:
            return []
        if self._rests(job):
            return []
        names = {pod["metadata"]["name"] for pod in members}
        return [
            {
                "metadata": {
                    "name": name,
                    "uid": f"unmade {name}",
                    "annotations": {claims.TASK: claims.role_of(job, name)},
                },
                "spec": spec,
            }
            for name, spec in claims.replicas(kind, job).items()
            if name not in names
        ]

    def _early_launcher(self, resource: Resource, record: Manifest, members: list[Manifest]) -> str:
        """The launcher that waits until its workers are ready, as long as they are not: it has its place
        with them, and makes nobody whole; "" where there is none.
        """
        found = self._job_of(record) if resource == VOLCANO_GROUPS else None
        if found is None or not claims.launcher_waits(found[1]):
            return ""
        placed = [
            claims.ready(pod)
            for pod in members
            if claims.task_of(pod) == "worker" and claims.node_of(pod)
        ]
        whole = all(placed) and len(placed) >= claims.least_workers(*found)
        return "" if whole else claims.launcher_of(found[1])

    def _job_of(self, record: Manifest) -> tuple[Resource, Manifest] | None:
        """The job that has the group's name: its group, whoever made it."""
        for kind in claims.JOBS:
            for job in self._store.list(kind, self._namespace):
                if job["metadata"]["name"] == record["metadata"]["name"]:
                    return kind, job
        return None

    def _jobs(self) -> Iterator[Problem]:
        """A job that has not ended has its group, for that says why it waits, and the pods that
        it asks for now, no others.
        """
        groups = {
            record["metadata"]["name"]: record
            for record in self._store.list(VOLCANO_GROUPS, self._namespace)
        }
        for kind in claims.JOBS:
            for job in self._store.list(kind, self._namespace):
                if not claims.verdict(job):
                    yield from self._job(kind, job, groups.get(job["metadata"]["name"]))

    def _job(self, kind: Resource, job: Manifest, group: Manifest | None) -> Iterator[Problem]:
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        if group is None:
            yield "I7", f"job {name} has no PodGroup"
            return
        least, may = claims.minimum(VOLCANO_GROUPS, group), claims.least_of(kind, job)
        if least not in may:
            yield "I7", f"job {name} asks for {may[0]} to {may[-1]} pods, its group for {least}"
        wanted = claims.replicas(kind, job)
        if kind in claims.LAUNCHED:
            yield from self._launched(kind, job, sorted(wanted))
        for pod in self._pods:
            mine = claims.owner_uid(pod) == uid and not claims.ended(pod)
            if mine and pod["metadata"]["name"] not in wanted:
                yield "I7", f"{pod['metadata']['name']} runs, and job {name} does not ask for it"

    def _launched(self, kind: Resource, job: Manifest, wanted: list[str]) -> Iterator[Problem]:
        """It has what its launcher reads, which names its workers, and ends with it."""
        name, uid, launcher = (
            job["metadata"]["name"],
            job["metadata"]["uid"],
            claims.launcher_of(job),
        )
        for resource, place in claims.belongings(kind, name):
            try:
                found = self._store.get(resource, self._namespace, place)
            except ApiError:
                yield "I7", f"job {name} has no {resource.kind}"
                continue
            if claims.owner_uid(found) != uid:
                yield "I7", f"{resource.kind} {place} is not that of job {name}"
            elif resource == CONFIG_MAPS:
                lines = found["data"]["hostfile"].splitlines()
                hosts = {line.split()[0].partition(".")[0] for line in lines} | {launcher}
                if sorted(hosts) != wanted:
                    yield "I7", f"job {name} asks for {wanted}, its hostfile names {sorted(hosts)}"
        mine = [pod for pod in self._pods if claims.owner_uid(pod) == uid]
        if any(
            pod["metadata"]["name"] == launcher and claims.phase(pod) == "Succeeded" for pod in mine
        ):
            yield "I7", f"the launcher of job {name} has succeeded, and it goes on"

    def _plain(self) -> Iterator[Problem]:
        for pod in self._pods:
            waits = claims.group_of(pod) is None and not claims.node_of(pod)
            if waits and not claims.ended(pod) and self._fits([pod], 1):
                yield "I7", f"plain pod {pod['metadata']['name']} fits and waits"

    def _removable(self, record: Manifest, running: list[Manifest]) -> bool:
        """Whether the rest may be rolled back: somebody makes its pods again, or it is allowed."""
        annotations = record["metadata"].get("annotations") or {}
        return annotations.get("scheduling.muster.dev/rollback") == "delete" or all(
            map(claims.owner_uid, running)
        )

    def _fits(self, pods: list[Manifest], count: int, tasks: Counter[str] = _NO_TASKS) -> bool:
        """Whether ``count`` of the pods fit at once, with so many of these ``tasks``: every choice is
        tried.
        """
        if count <= 0:
            return not tasks
        if len(pods) < count or tasks.total() > count:
            return False
        first, rest = pods[0], pods[1:]
        others = tasks - Counter([claims.task_of(first)])
        tried: list[tuple[object, ...]] = []
        for row in self._usage.nodes():
            alike = (sorted(row.used.items()), sorted(row.allocatable.items()), _open(first, row))
            if alike in tried or not _open(first, row):
                continue
            tried.append(alike)
            self._usage.add({**first, "metadata": {"uid": first["metadata"]["uid"]}}, row.name)
            try:
                if self._fits(rest, count - 1, others):
                    return True
            finally:
                self._usage.remove(first["metadata"]["uid"])
        return self._fits(rest, count, tasks)


def _open(pod: Manifest, row: Row) -> bool:
    """Whether the node takes the pod; where Muster has pinned it before does not matter."""
    spec = {key: value for key, value in pod["spec"].items() if key != "affinity"}
    bare = {**pod, "spec": spec}
    return refuse(bare, requests(bare), row, {}) is None
