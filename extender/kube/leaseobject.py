"""The Lease as an object of the API server: what it says, since when it has been seen to, and how it is
written. Who may take it, and for how long it holds, is decided by :mod:`extender.kube.lease`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
import orjson

from extender.core.api import LEASES
from extender.core.objects import ApiStruct, Manifest, Meta
from extender.kube.complaints import Complaints
from extender.kube.replies import MERGE_PATCH, Reply, Requests


class LeaseSpec(ApiStruct, frozen=True):
    """coordination.k8s.io/v1 LeaseSpec, what an election reads of it."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(ApiStruct, frozen=True):
    """coordination.k8s.io/v1 Lease."""

    metadata: Meta = Meta()
    spec: LeaseSpec = LeaseSpec()


class LeaseObject:
    """One Lease, by name."""

    def __init__(
        self,
        client: Requests,
        complaints: Complaints,
        *,
        namespace: str,
        name: str,
        duration: float,
        timeout: float,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        """``duration`` is written into it, for others; ``timeout`` is a request's. Both in seconds."""
        self._client = client
        self._complaints = complaints
        self._namespace = namespace
        self._name = name
        self._duration = duration
        self._timeout = timeout
        self._clock = clock
        self._wall = wall
        self._decoder = msgspec.json.Decoder(Lease)
        #: As last read or written, and when it was first seen like that.
        self.seen: Lease | None = None
        self.seen_at = 0.0

    @property
    def place(self) -> str:
        """Its namespace and name."""
        return f"{self._namespace}/{self._name}"

    @property
    def holder(self) -> str:
        """Who holds it, as last seen; empty where nobody does or it was never read."""
        return (self.seen.spec.holder_identity or "") if self.seen is not None else ""

    def forget(self) -> None:
        """It is not known any more what it says."""
        self.seen = None

    async def read(self) -> Reply:
        """See what it says; a 404 forgets it."""
        path = LEASES.path(self._namespace, self._name)
        reply = await self._client.send("GET", path, timeout=self._timeout)
        if reply.ok:
            return self._observe(reply)
        if reply.code == 404:
            self.forget()
        return reply

    async def create(self, holder: str, epoch: int) -> Reply:
        """Make it, held."""
        spec = self._spec(holder, epoch)
        spec["acquireTime"] = spec["renewTime"]
        body: Manifest = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": spec,
        }
        reply = await self._client.send(
            "POST",
            LEASES.path(self._namespace),
            body=orjson.dumps(body),
            timeout=self._timeout,
        )
        if reply.ok:
            return self._observe(reply)
        if reply.code != 409:
            missing = f"the Lease needs namespace {self._namespace}: kubectl create namespace"
            missing = f"{missing} {self._namespace}, or set leaderElection.namespace"
            do = missing if reply.code == 404 else ""
            self._complaints.wrong(f"create Lease {self.place}", reply.error(), do=do)
        return reply

    async def write(
        self,
        holder: str,
        lease: Lease,
        epoch: int,
        timeout: float | None = None,  # noqa: ASYNC109 (seconds of the request, as the client takes them)
    ) -> Reply:
        """Replace what ``lease`` says, if it still says so (resourceVersion)."""
        spec = self._spec(holder, epoch)
        if holder != lease.spec.holder_identity:
            spec["acquireTime"] = spec["renewTime"]
        body = {"metadata": {"resourceVersion": lease.metadata.resource_version}, "spec": spec}
        reply = await self._client.send(
            "PATCH",
            LEASES.path(self._namespace, self._name),
            body=orjson.dumps(body),
            content_type=MERGE_PATCH,
            timeout=timeout if timeout is not None else self._timeout,
        )
        return self._observe(reply) if reply.ok else reply

    def _spec(self, holder: str, epoch: int) -> Manifest:
        return {
            "holderIdentity": holder,
            "leaseDurationSeconds": max(1, round(self._duration)),
            # For people: nothing here compares it with a clock.
            "renewTime": datetime.fromtimestamp(self._wall(), UTC).strftime(
                "%Y-%m-%dT%H:%M:%S.%fZ"
            ),
            "leaseTransitions": epoch,
        }

    def _observe(self, reply: Reply) -> Reply:
        try:
            lease = self._decoder.decode(reply.body)
        except msgspec.DecodeError as error:
            return Reply(0, reason="Garbage", message=f"Lease: {error}")
        for what in ("read", "create", "renew"):
            self._complaints.right(f"{what} Lease {self.place}")
        if self.seen is None or lease.metadata != self.seen.metadata:
            self.seen_at = self._clock()
        self.seen = lease
        return reply
