"""Jobs with a launcher: made after what tells it where its workers are, and ended by it alone."""

from __future__ import annotations

from collections.abc import Callable

from extender.chaos import claims
from extender.core.api import Resource
from extender.core.objects import Manifest
from extender.sim.history import Change


class Launchers:
    """What such jobs have had, by uid of the job."""

    def __init__(self, violated: Callable[[str, str], None]) -> None:
        self._violated = violated
        #: Kinds of objects that it has owned.
        self._owned: set[tuple[str, Resource]] = set()
        #: Pods of it that have been in a phase at some time: name and phase.
        self._been: set[tuple[str, str, str]] = set()

    def belonging(self, change: Change) -> None:
        """An object has changed of a kind that such jobs own."""
        self._owned.add((claims.owner_uid(change.object), change.resource))

    def pod(self, change: Change) -> None:
        """A pod has changed."""
        name, phase = change.object["metadata"]["name"], claims.phase(change.object)
        self._been.add((claims.owner_uid(change.object), name, phase))

    def ended(self, job: Manifest, verdict: str) -> None:
        """A job has said how it ended."""
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        if verdict == "Succeeded" and (uid, claims.launcher_of(job), verdict) not in self._been:
            self._violated("I6", f"job {name} has succeeded, and not its launcher")

    def created(self, pod: Manifest) -> None:
        """A pod was created for an owner, which may be such a job."""
        name, reference = pod["metadata"]["name"], claims.owner(pod)
        for kind in claims.LAUNCHED:
            if (kind.api_version, kind.kind) != (reference["apiVersion"], reference["kind"]):
                continue
            for resource, place in claims.belongings(kind, reference["name"]):
                if (reference["uid"], resource) not in self._owned:
                    self._violated("I6", f"{name} is created before {place}")

    def bound(self, pod: Manifest, kind: Resource, job: Manifest) -> None:
        """A pod was bound by who had been shown the job like this."""
        launcher, uid = claims.launcher_of(job), job["metadata"]["uid"]
        if pod["metadata"]["name"] != launcher or not claims.launcher_waits(job):
            return
        workers = [name for name in claims.replicas(kind, job) if name != launcher]
        ran = sum((uid, name, "Running") in self._been for name in workers)
        least = claims.least_workers(kind, job)
        if ran < least:
            self._violated("I6", f"{launcher} is bound, and {ran} of {least} workers have run")
