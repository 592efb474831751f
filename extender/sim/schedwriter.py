"""What the stand-in scheduler writes: conditions, nominations, Events and evictions."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

from extender.core import api
from extender.core.errors import ApiError
from extender.core.objects import Manifest
from extender.sim.client import Client
from extender.sim.diagnosis import Failure
from extender.sim.intake import set_condition, timestamp
from extender.sim.patches import copy_json


class Writer:
    """Writes through ``client``; what the server refuses is counted in ``counts`` and let be."""

    def __init__(self, client: Client, now: Callable[[], float], counts: Counter[str]) -> None:
        self._client, self._now, self._counts = client, now, counts
        #: By uid of a pod, how often each Event was recorded that counts as one, and its name.
        self._series: dict[str, dict[tuple[str, str], tuple[int, str]]] = {}
        self._numbers = itertools.count(1)

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        self._series.pop(uid, None)

    async def report(self, pod: Manifest, failure: Failure) -> None:
        """The FailedScheduling event, the PodScheduled condition, and the nomination's end."""
        await self.event(pod, "Warning", "FailedScheduling", failure.message)
        status = copy_json(pod.get("status") or {})
        changed = set_condition(
            status,
            "PodScheduled",
            "False",
            timestamp(self._now()),
            failure.reason,
            failure.message,
        )
        patch: Manifest = {"conditions": status["conditions"]} if changed else {}
        if (status.get("nominatedNodeName") or "") != failure.nominated:
            patch["nominatedNodeName"] = failure.nominated or None
        if not patch:
            return
        meta = pod["metadata"]
        body = {"metadata": {"uid": meta["uid"]}, "status": patch}
        try:
            await self._client.patch(api.PODS, meta["namespace"], meta["name"], body, "status")
        except ApiError:
            # kube-scheduler logs it and goes on: the pod is gone, or is tried again anyway.
            self._counts["patch failed"] += 1

    async def event(self, pod: Manifest, kind: str, reason: str, message: str) -> None:
        """Record an Event. Those of one reason and one version of the pod are one, with the first's message.

        The second makes a series of it, later ones are only counted. Source: client-go
        ``tools/events/event_broadcaster.go``.
        """
        meta, now = pod["metadata"], timestamp(self._now())
        recorded = self._series.setdefault(meta["uid"], {})
        key = (reason, meta["resourceVersion"])
        count, name = recorded.get(key, (0, f"{meta['name']}.{next(self._numbers):016x}"))
        recorded[key] = (count + 1, name)
        try:
            if not count:
                body = _event_body(pod, name, kind, reason, message, now)
                await self._client.create(api.EVENTS, meta["namespace"], body)
            elif count == 1:
                series = {"series": {"count": 2, "lastObservedTime": now}}
                await self._client.patch(api.EVENTS, meta["namespace"], name, series)
        except ApiError:
            self._counts["event failed"] += 1

    async def evict(self, victim: Manifest, preemptor: Manifest, node: str) -> None:
        """Say why a pod goes, and delete it."""
        meta = victim["metadata"]
        name = preemptor["spec"]["schedulerName"]
        why = f"{name}: preempting to accommodate a higher priority pod"
        status = copy_json(victim.get("status") or {})
        now = timestamp(self._now())
        set_condition(status, "DisruptionTarget", "True", now, "PreemptionByScheduler", why)
        body = {"metadata": {"uid": meta["uid"]}, "status": {"conditions": status["conditions"]}}
        try:
            await self._client.patch(api.PODS, meta["namespace"], meta["name"], body, "status")
            await self._client.delete(api.PODS, meta["namespace"], meta["name"], uid=meta["uid"])
        except ApiError:
            # The preemptor comes again, and finds it gone or tries again.
            self._counts["eviction failed"] += 1
            return
        self._counts["evicted"] += 1
        text = f"Preempted by pod {preemptor['metadata']['uid']} on node {node}"
        await self.event(victim, "Normal", "Preempted", text)


def _event_body(
    pod: Manifest, name: str, kind: str, reason: str, message: str, now: str
) -> Manifest:
    """What events.k8s.io/v1 shows as a core/v1 Event."""
    meta, source = pod["metadata"], pod["spec"].get("schedulerName", "")
    return {
        "metadata": {"name": name},
        "involvedObject": {
            "kind": "Pod",
            "apiVersion": "v1",
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
        },
        "type": kind,
        "reason": reason,
        "message": message[:1024],
        "source": {},
        "eventTime": now,
        "reportingComponent": source,
        "reportingInstance": source,
        "firstTimestamp": None,
        "lastTimestamp": None,
    }
