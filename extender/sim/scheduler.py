"""A stand-in for kube-scheduler 1.37, for a cluster of which only the API and the nodes exist.

One pod at a time: in-tree filters, the extenders over HTTP, score, assume; then it binds beside the
loop while the next pod has its turn. What it writes, and when, is what kube-scheduler writes, for
that is what Muster sees of it. Not there: the plugins that :mod:`extender.sim.podfit`
leaves out, native pod groups, sampling of nodes (every node is looked at, as
percentageOfNodesToScore 100 has it), disruption budgets. Equal scores are decided by name, not by chance.

Source: kubernetes ``pkg/scheduler/schedule_one.go``, ``eventhandlers.go``.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

import aiohttp
from msgspec import Struct

from extender.core import api
from extender.core.errors import ApiError
from extender.core.objects import Manifest
from extender.sim import extenders, preemption
from extender.sim.client import Client
from extender.sim.diagnosis import Diagnosis, Failure
from extender.sim.extenders import Extender, Post
from extender.sim.intree import pinned, refuse
from extender.sim.podfit import Amounts, Row, Usage, least_allocated, requests
from extender.sim.schedqueue import EXTENDER, Entry, Queue
from extender.sim.schedwriter import Writer
from extender.sim.wakes import Wake, node_wakes

#: Finished pods are as good as deleted to kube-scheduler's informer.
_UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"


class Nominated(Struct, frozen=True):
    """What a pod that waits for its nominated node may count on there."""

    node: str
    priority: int
    amounts: Amounts


class Scheduler:
    """Schedules the pods that name it; ``async with Scheduler(client, entries):`` or :meth:`run`."""

    def __init__(
        self,
        client: Client,
        entries: Iterable[Extender] = (),
        *,
        names: Sequence[str] = ("default-scheduler",),
        initial_backoff: float = 1.0,
        max_backoff: float = 10.0,
        now: Callable[[], float] = time.time,
        post: Post | None = None,
    ) -> None:
        """``names`` are the profiles' schedulerNames; back-offs and ``now`` in seconds.

        ``post`` is the way to the extenders: HTTP, unless it is given.
        """
        self.queue = Queue(initial_backoff=initial_backoff, max_backoff=max_backoff)
        #: What happened so often: attempts, filter, prioritize, bind, bound, and failures by reason.
        self.counts: Counter[str] = Counter()
        self._client = client
        self._entries = tuple(sorted(entries, key=lambda entry: entry.ignorable))
        self._names = frozenset(names)
        self._now = now
        self._writer = Writer(client, now, self.counts)
        self._pods: dict[str, Manifest] = {}
        self._usage = Usage()
        self._assumed: dict[str, str] = {}
        self._nominated: dict[str, Nominated] = {}
        self._unsynced = {api.NODES, api.PODS}
        self._work = asyncio.Event()
        self._beside: set[asyncio.Task[None]] = set()
        self._post = post
        self._main: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Scheduler:
        self._main = asyncio.create_task(self.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._main is not None
        self._main.cancel()
        with suppress(asyncio.CancelledError):
            await self._main

    async def run(self) -> None:
        """Schedule until cancelled; binds that are open are dropped then."""
        async with contextlib.AsyncExitStack() as stack:
            if self._post is None:
                # One connection for every bind that an extender holds open.
                connector = aiohttp.TCPConnector(limit=0)
                session = aiohttp.ClientSession(connector=connector)
                self._post = extenders.over_http(await stack.enter_async_context(session))
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._follow_nodes())
                    tasks.create_task(self._follow_pods())
                    tasks.create_task(self._loop())
            finally:
                beside = list(self._beside)
                for task in beside:
                    task.cancel()
                await asyncio.gather(*beside, return_exceptions=True)

    def _extender_post(self) -> Post:
        assert self._post is not None, "run() chooses the way to the extenders"
        return self._post

    # --- what the cluster tells

    async def _follow_nodes(self) -> None:
        async for kind, nodes in self._client.follow(api.NODES):
            seen = {node["metadata"]["name"] for node in nodes}
            if kind == "SYNC":
                self._unsynced.discard(api.NODES)
                for row in self._usage.nodes():
                    if row.name not in seen:
                        self._see_node(row.name, None)
            for node in nodes:
                self._see_node(node["metadata"]["name"], None if kind == "DELETED" else node)
            self._work.set()

    def _see_node(self, name: str, node: Manifest | None) -> None:
        row = self._usage.rows.get(name)
        old = row.node if row else None
        self._usage.set_node(name, node)
        for wake in node_wakes(old, node):
            self.queue.move(wake, self._now())

    async def _follow_pods(self) -> None:
        async for kind, pods in self._client.follow(api.PODS, fieldSelector=_UNFINISHED):
            if kind == "SYNC":
                self._unsynced.discard(api.PODS)
                for uid in self._pods.keys() - {pod["metadata"]["uid"] for pod in pods}:
                    self._lose_pod(uid)
            for pod in pods:
                if kind == "DELETED":
                    self._lose_pod(pod["metadata"]["uid"])
                else:
                    self._see_pod(pod)
            self._work.set()

    def _see_pod(self, pod: Manifest) -> None:
        uid = pod["metadata"]["uid"]
        old = self._pods.get(uid)
        self._pods[uid] = pod
        if pod["spec"].get("nodeName"):
            known = old is not None and old["spec"].get("nodeName")
            self._assumed.pop(uid, None)
            self._nominated.pop(uid, None)
            self._usage.add(pod)
            self.queue.remove(uid)
            self.queue.move(Wake.POD_UPDATE if known else Wake.POD_ADD, self._now())
        elif pod["spec"].get("schedulerName") in self._names:
            self._nominate(pod)
            self.queue.see(pod, self._now())
            if old is not None and _nominated(old) not in ("", _nominated(pod)):
                # As if it had been deleted there (eventhandlers.go, hasNominatedNodeNameChanged).
                self.queue.move(Wake.POD_DELETE, self._now())

    def _lose_pod(self, uid: str) -> None:
        old = self._pods.pop(uid, None)
        self._assumed.pop(uid, None)
        self._nominated.pop(uid, None)
        self._writer.forget(uid)
        self.queue.remove(uid)
        if self._usage.remove(uid) or (old is not None and _nominated(old)):
            self.queue.move(Wake.POD_DELETE, self._now())

    def _nominate(self, pod: Manifest) -> None:
        uid, node = pod["metadata"]["uid"], _nominated(pod)
        if node and uid not in self._assumed:
            priority = pod["spec"].get("priority") or 0
            self._nominated[uid] = Nominated(node, priority, requests(pod))
        else:
            self._nominated.pop(uid, None)

    # --- one cycle after the other

    async def _loop(self) -> None:
        while True:
            entry = None if self._unsynced else self.queue.pop(self._now())
            if entry is None:
                self._work.clear()
                due = self.queue.next_time()
                # Not wait_for: in Python 3.11 it can swallow the cancellation that ends this loop.
                with suppress(TimeoutError):
                    async with asyncio.timeout(None if due is None else due - self._now()):
                        await self._work.wait()
                continue
            await self._cycle(entry)
            # The watches must be read between two cycles even where no extender is asked.
            await asyncio.sleep(0)

    async def _cycle(self, entry: Entry) -> None:
        pod = entry.pod
        if "deletionTimestamp" in pod["metadata"] or entry.uid in self._assumed:
            return
        self.counts["attempts"] += 1
        chosen = await self._choose(pod)
        if isinstance(chosen, Failure):
            self._fail(entry, chosen)
        elif entry.uid in self._pods:
            self._assumed[entry.uid] = chosen
            self._usage.add(pod, chosen)
            self._nominated.pop(entry.uid, None)
            self._spawn(self._bind(entry, chosen))

    async def _choose(self, pod: Manifest) -> str | Failure:
        """A node for the pod, or why there is none."""
        rows = self._usage.nodes()
        if not rows:
            return Failure("no nodes available to schedule pods", "Unschedulable")
        diagnosis = Diagnosis(len(rows))
        wanted = requests(pod)
        nominated = self._usage.rows.get(_nominated(pod))
        if nominated is not None and nominated.node is not None:
            # An error here is only logged by kube-scheduler; the full pass follows.
            found, _ = await self._feasible(pod, wanted, [nominated], diagnosis)
            if found:
                return found[0].name
            rows = self._usage.nodes()  # a node may have gone while the extenders were asked
        names = pinned(pod["spec"])
        if names is not None:
            rows = [row for row in rows if row.name in names]
            diagnosis.plugins.add("NodeAffinity")
            diagnosis.absent = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
        found, error = await self._feasible(pod, wanted, rows, diagnosis)
        if error:
            return Failure(error)
        if not found:
            node = await self._preempt(pod, wanted, diagnosis)
            plugins = frozenset(diagnosis.plugins)
            return Failure(diagnosis.message(), "Unschedulable", plugins, node)
        if len(found) == 1:
            return found[0].name
        return await self._best(pod, wanted, found)

    async def _feasible(
        self, pod: Manifest, wanted: Amounts, rows: Sequence[Row], diagnosis: Diagnosis
    ) -> tuple[list[Row], str]:
        """Rows that pass both in-tree filters and extenders; an extender's error ends it."""
        promised = self._promised(pod)
        found = []
        for row in rows:
            refused = refuse(pod, wanted, row, promised.get(row.name, {}))
            if refused is None:
                found.append(row)
            else:
                diagnosis.refused[row.name] = refused
                diagnosis.plugins.add(refused.plugin)
        for extender in self._entries:
            if not found or not extender.filter_verb or not extender.interested(pod):
                continue
            self.counts["filter"] += 1
            nodes = [row.node for row in found if row.node is not None]
            answer = await extenders.filter_nodes(self._extender_post(), extender, pod, nodes)
            if answer.error:
                if extender.ignorable:
                    continue
                return [], answer.error
            diagnosis.note(answer)
            passed = set(answer.passed)
            if len(passed) != len(found):
                diagnosis.plugins.add(EXTENDER)
            found = [row for row in found if row.name in passed]
        return found, ""

    async def _preempt(self, pod: Manifest, wanted: Amounts, diagnosis: Diagnosis) -> str:
        """The node on which pods go for this one; "" where it has to wait."""
        placed = [other for other in self._pods.values() if self._node_of(other)]
        if why := preemption.ineligible(pod, placed):
            diagnosis.preempted = why
            return ""
        on: dict[str, list[Manifest]] = {}
        for other in placed:
            on.setdefault(self._node_of(other), []).append(other)
        rows, promised = self._usage.nodes(), self._promised(pod)
        found = preemption.candidates(pod, wanted, rows, diagnosis.refused, promised, on)
        for extender in self._entries if found else ():
            if not extender.preempt_verb or not extender.interested(pod):
                continue
            self.counts["preempt"] += 1
            answer = await extenders.preempt(self._extender_post(), extender, pod, found)
            if isinstance(answer, str) and extender.ignorable:
                continue
            found = {} if isinstance(answer, str) else answer
            if not found:
                diagnosis.preempted = (
                    answer if isinstance(answer, str) else "no candidate node for preemption"
                )
        if not found:
            return ""
        diagnosis.preempted = ""
        node = preemption.choose(found)
        for victim in found[node]:
            self._spawn(self._writer.evict(victim, pod, node))
        return node

    def _node_of(self, pod: Manifest) -> str:
        return pod["spec"].get("nodeName") or self._assumed.get(pod["metadata"]["uid"], "")

    def _promised(self, pod: Manifest) -> dict[str, Amounts]:
        """By node, what other nominated pods of at least this pod's priority will take."""
        uid, priority = pod["metadata"]["uid"], pod["spec"].get("priority") or 0
        result: dict[str, Amounts] = {}
        for other, nominated in self._nominated.items():
            if other == uid or nominated.priority < priority:
                continue
            total = result.setdefault(nominated.node, {})
            for name, value in nominated.amounts.items():
                total[name] = total.get(name, Decimal(0)) + value
        return result

    async def _best(self, pod: Manifest, wanted: Amounts, found: list[Row]) -> str:
        """The node of the highest score: least allocated (0..100) plus the extenders'."""
        scores = {row.name: least_allocated(wanted, row) for row in found}
        for extender in self._entries:
            if not extender.prioritize_verb or not extender.interested(pod):
                continue
            self.counts["prioritize"] += 1
            nodes = [row.node for row in found if row.node is not None]
            given = await extenders.prioritize(self._extender_post(), extender, pod, nodes)
            for name, score in given.items():
                if name in scores:
                    # MaxNodeScore / MaxExtenderPriority
                    scores[name] += score * extender.weight * 10
        return min(scores, key=lambda name: (-scores[name], name))

    # --- beside the cycles

    async def _bind(self, entry: Entry, node: str) -> None:
        pod = entry.pod
        error = await self._ask_to_bind(pod, node)
        if not error:
            self.counts["bound"] += 1
            meta = pod["metadata"]
            text = f"Successfully assigned {meta['namespace']}/{meta['name']} to {node}"
            await self._writer.event(pod, "Normal", "Scheduled", text)
            return
        if self._assumed.get(entry.uid) == node:
            del self._assumed[entry.uid]
            self._usage.remove(entry.uid)
            self.queue.move(Wake.POD_DELETE, self._now())
        self._fail(entry, Failure(error))

    async def _ask_to_bind(self, pod: Manifest, node: str) -> str:
        for extender in self._entries:
            if not extender.bind_verb or not extender.interested(pod):
                continue
            self.counts["bind"] += 1
            error = await extenders.bind(self._extender_post(), extender, pod, node)
            if error and extender.ignorable:
                continue
            return error
        meta = pod["metadata"]
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta["name"], "uid": meta["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            await self._client.create(
                api.PODS, meta["namespace"], binding, name=meta["name"], subresource="binding"
            )
        except ApiError as error:
            return error.message
        return ""

    def _fail(self, entry: Entry, failure: Failure) -> None:
        """Back to the queue first, then tell: the patch below wakes the pod once more."""
        self.counts[failure.reason] += 1
        pod = self._pods.get(entry.uid)
        if pod is None or pod["spec"].get("nodeName"):
            return
        entry.pod = pod
        self.queue.failed(entry, failure.rejectors, self._now())
        self._work.set()
        self._spawn(self._writer.report(pod, failure))

    def _spawn(self, steps: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(steps)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)


def _nominated(pod: Manifest) -> str:
    return pod.get("status", {}).get("nominatedNodeName") or ""
