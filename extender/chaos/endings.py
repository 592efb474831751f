"""I6: a terminal condition never changes; a finished replica is never created again.

A replica is finished for a Muster once that Muster was shown a pod of it that had succeeded, and for
every Muster once a leader was shown it and has led for long enough to write it down. A pod that
succeeded and was removed while no Muster watched left nothing in the API that would say so
(:class:`extender.chaos.network.Shown`); it is made again, as upstream's operator makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from extender.chaos import claims
from extender.chaos.launchers import Launchers
from extender.chaos.network import Shown
from extender.core.api import Resource
from extender.core.objects import Manifest
from extender.sim.history import Change

#: Virtual seconds in which a leader writes down what it was shown, whatever the weather.
WRITTEN_SECONDS = 60.0

#: Controller's uid and pod's name: the same in all lives of a replica.
_Replica = tuple[str, str]


class Endings:
    """How jobs and replicas have ended."""

    def __init__(
        self,
        violated: Callable[[str, str], None],
        leads: Callable[[int, float], bool],
        launchers: Launchers,
    ) -> None:
        """``leads``: whether a leader was shown a pod's state as of a version, and leads since so
        many seconds.
        """
        self._violated, self._leads, self._launchers = violated, leads, launchers
        #: Replicas that every Muster has to know for finished.
        self._written: set[_Replica] = set()
        #: By job's uid: its verdict, from which version on, and its kind.
        self._verdicts: dict[str, tuple[str, int, Resource]] = {}
        #: By replica and pod's uid: the versions from which to before which the store said so.
        self._succeeded: dict[_Replica, dict[str, tuple[int, int | None]]] = {}

    def job(self, change: Change) -> None:
        """A job has changed."""
        meta = change.object["metadata"]
        now = claims.verdict(change.object)
        before = self._verdicts[meta["uid"]][0] if meta["uid"] in self._verdicts else ""
        if before and now != before and change.kind != "DELETED":
            self._violated("I6", f"job {meta['name']} was {before} and is {now or 'neither'}")
        if now and not before:
            if change.resource in claims.LAUNCHED:
                self._launchers.ended(change.object, now)
            self._verdicts[meta["uid"]] = (now, change.version, change.resource)

    def pod(self, change: Change) -> None:
        """A pod has changed."""
        meta = change.object["metadata"]
        if claims.phase(change.object) != "Succeeded":
            return
        spans = self._succeeded.setdefault((claims.owner_uid(change.object), meta["name"]), {})
        if meta["uid"] not in spans and meta.get("deletionTimestamp"):
            # It was stopped, and ended well for that: its work is not done.
            return
        since, _ = spans.get(meta["uid"], (change.version, None))
        if change.kind != "DELETED":
            spans[meta["uid"]] = (since, None)
        elif meta["uid"] in spans:
            spans[meta["uid"]] = (since, change.version)
            if self._leads(since, WRITTEN_SECONDS):
                self._written.add((claims.owner_uid(change.object), meta["name"]))

    def created(self, pod: Manifest, pods: Shown, jobs: Mapping[Resource, int]) -> None:
        """A replica was created by who had been shown these ``pods``, and the kinds of jobs up to
        these versions.
        """
        owner, name = claims.owner_uid(pod), pod["metadata"]["name"]
        spans = self._succeeded.get((owner, name), {}).values()
        if (owner, name) in self._written or any(pods.covers(*span) for span in spans):
            self._violated("I6", f"{name} had succeeded and is created again")
        if owner in self._verdicts:
            verdict, since, kind = self._verdicts[owner]
            if since <= jobs[kind]:
                self._violated("I6", f"{name} is created for a job that has {verdict}")
