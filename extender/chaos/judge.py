"""The invariants, judged from the API server's history and from what went over the wire.

Nothing of Muster's state is read, and none of its decisions is made again with its own code. A
command is judged by what its sender had been shown when it sent it (design, "Invariants").
"""

from __future__ import annotations

from collections.abc import Callable

import orjson
from msgspec import Struct

from extender.chaos import claims, rooms, senders, vetoes
from extender.chaos.claims import Group
from extender.chaos.clock import later
from extender.chaos.endings import Endings
from extender.chaos.launchers import Launchers
from extender.chaos.network import Link
from extender.chaos.past import Past
from extender.chaos.pauses import Pauses
from extender.chaos.senders import Life, Sent
from extender.core import api
from extender.core.objects import Manifest
from extender.sim.history import Change
from extender.sim.rest import Request

#: Seconds after its last renewal in which a holder of the Lease may write.
RENEW_DEADLINE = 10.0
#: What a clock that goes wrong by as much as a bad quartz makes of that.
_DRIFT = 1.001
#: Long enough for all requests of one commit to be handed over, short enough for nothing else.
_COMMIT_SECONDS = 1e-6


class Violation(Struct, frozen=True):
    """What was wrong, and at which change of the store it was found."""

    step: int
    invariant: str
    message: str
    #: Virtual seconds.
    at: float = 0.0


class Judge:
    """Keeps the past, and says what of it must not be."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.violations: list[Violation] = []
        self.step = 0
        self.past = Past(clock)
        self.version = 0
        #: Uids of group records that were whole at some time, and of pods that a Muster has bound.
        self.whole: set[str] = set()
        self.bound: set[str] = set()
        self._clock = clock
        self._lives: dict[Link, Life] = {}
        self._launchers = Launchers(self.violated)
        self._endings = Endings(self.violated, self._leads_since, self._launchers)
        self.pauses = Pauses(clock)

    def violated(self, invariant: str, message: str) -> None:
        self.violations.append(Violation(self.step, invariant, message, self._clock()))

    def started(self, link: Link, identity: str) -> None:
        """A replica begins a life."""
        self._lives[link] = Life(identity)

    def leader_of(self, epoch: int) -> Link | None:
        """The way to the server of whoever took the Lease for this epoch."""
        return next((link for link, life in self._lives.items() if life.epoch == epoch), None)

    def _leads_since(self, version: int, seconds: float) -> bool:
        """Whether a leader has known for so long what was true of a pod from a version on."""
        at = self.past.time_of(version)
        return at is not None and any(
            life.led_since is not None
            and max(life.led_since, at) + seconds <= self._clock()
            and not (link.process.dead or link.process.paused or link.mute or link.deaf)
            and link.shown[api.PODS].covers(version, None)
            for link, life in self._lives.items()
        )

    def bind_opened(self, link: Link, uid: str) -> None:
        """kube-scheduler's call of /bind has reached a replica."""
        life = self._lives[link]
        life.open[uid] = life.open.get(uid, 0) + 1

    def bind_closed(self, link: Link, uid: str) -> None:
        """It was answered, or its caller has left."""
        self._lives[link].open[uid] -= 1

    def preempt_answered(self, link: Link, asked: bytes, answer: bytes) -> None:
        """A replica has said which pods may be evicted."""
        life = self._lives[link]
        own = {
            group: {uid: place for uid, place in sent.items() if uid in life.bound}
            for group, sent in life.sent_for.items()
        }
        for message in vetoes.broken(self.past, link, own, asked, answer):
            self.violated("I1", f"{life.identity}: {message}")

    # --- what is handed over

    def sent(self, link: Link, request: Request) -> None:
        """Judge a write by the moment at which its sender lets go of it."""
        life = self._lives.get(link)
        if life is None or request.method == "GET":
            return
        if "/leases" in request.path:
            life.lease_sent = self._clock()
            return
        if "/namespaces/muster-system/pods/" in request.path:
            return  # the label of a replica's own pod, which is no command
        self._leads(life, request)
        record = Sent(
            self._clock(),
            life.epoch,
            link.shown[api.PODS].version,
            link.shown[api.NODES].version,
            {resource: link.shown[resource].version for resource in claims.JOBS},
            {resource: link.shown[resource].version for resource in claims.GROUPS},
            link.shown[api.PODS].now(),
            any(link.shown[each].listing for each in (api.PODS, api.NODES, *claims.GROUPS)),
        )
        binds = request.path.endswith("/binding")
        makes = request.method == "POST" and request.path.endswith("/pods") and not request.query
        if binds or makes or ("/podgroups/" in request.path and request.path.endswith("/status")):
            life.sent[id(request)] = request, record
        if binds:
            self._bind_sent(link, life, request, record)

    def _leads(self, life: Life, request: Request) -> None:
        """Nobody writes without the Lease, and never two."""
        now = self._clock()
        what = f"{life.identity} sends {request.method} {request.path}"
        if life.renewed is None or now >= life.renewed + RENEW_DEADLINE * _DRIFT:
            self.violated("lease", f"{what} without the Lease")
        for link, other in self._lives.items():
            if other is life or link.process.dead or other.renewed is None:
                continue
            if now < other.renewed + RENEW_DEADLINE:
                self.violated("lease", f"{what} while {other.identity} holds the Lease")

    def _bind_sent(self, link: Link, life: Life, request: Request, record: Sent) -> None:
        body = orjson.loads(request.body)
        meta, node = body["metadata"], body["target"]["name"]
        key = (meta.get("uid", ""), node, meta.get("resourceVersion", ""))
        if not meta.get("uid"):
            self.violated("I1", f"a Binding of {meta['name']} without uid")
        if key in life.binds:
            return  # the executor tries again what may have taken effect
        again = any(uid == key[0] for uid, _, _ in life.binds)
        life.binds.add(key)
        place = (meta["namespace"], meta["name"])
        born = self.past.born(api.PODS, place, key[0])
        if born is None:
            return
        if not again and life.open.get(key[0], 0) < 1:
            self.violated("I1", f"a Binding of {meta['name']} that no open /bind asks for")
        group = claims.group_of(born[1])
        if group is None:
            return
        life.sent_for.setdefault(group, {})[key[0]] = place
        if not again:
            self._written(life, group, record, (place[1], node))
            later(_COMMIT_SECONDS, self._commit, link, life, group, record)

    def _written(self, life: Life, group: Group, record: Sent, planned: tuple[str, str]) -> None:
        """A gang that is not whole has its plan in the API before any of it is bound."""
        resource, namespace, name = group
        seen = self.past.at(resource, (namespace, name), record.groups[resource])
        if seen is None or len(senders.placed(self.past, life, group, record)) >= claims.minimum(
            resource, seen
        ):
            return
        for plan in self.past.every(api.GANG_PLANS):
            spec, ref = plan["spec"], plan["spec"]["groupRef"]
            if (ref["name"], ref["apiVersion"]) != (name, resource.api_version):
                continue
            nodes = [spec["nodes"][index] for index in spec["node"]]
            if spec["epoch"] == record.epoch and planned in zip(
                spec["members"], nodes, strict=True
            ):
                return
        self.violated("plan", f"{life.identity} binds {planned} and no plan says so")

    def _commit(self, link: Link, life: Life, group: Group, record: Sent) -> None:
        """I1: with those bound already and those of the same commit, minMember is reached."""
        if link.process.dead or link.process.paused:
            return  # the rest of the commit may have been cut off
        if record.listing:
            return  # it may have read as much as it needs
        resource, namespace, name = group
        seen = self.past.at(resource, (namespace, name), record.groups[resource])
        if seen is None:
            return
        sent = life.sent_for[group].items()
        uids = {uid for uid, place in sent if senders.stays(self.past, place, uid, record.pods)}
        uids |= senders.shown_placed(self.past, group, record)
        least = claims.minimum(resource, seen)
        if len(uids) < least:
            self.violated(
                "I1", f"{life.identity} binds {len(uids)} of {least} of {namespace}/{name}"
            )

    # --- what takes effect

    def changed(self, change: Change, author: Link | None, request: Request | None) -> None:
        """Judge a change of the store by whoever made it, and what it knew when it asked for it."""
        self.version = change.version
        self.past.add(change)
        life = self._lives.get(author) if author is not None else None
        if change.resource == api.LEASES:
            self._lease(change, life)
        elif change.resource in claims.JOBS:
            self._endings.job(change)
            self.pauses.job(change)
        elif change.resource in (api.CONFIG_MAPS, api.SECRETS):
            self._launchers.belonging(change)
        elif change.resource == api.PODS:
            sent = life.sent.get(id(request)) if life is not None else None
            self._pod(change, life, sent[1] if sent is not None else None)
        elif change.resource in claims.GROUPS and change.kind != "DELETED":
            # It may be made, or ask for less, when its members are bound already.
            group = (change.resource, *change.key)
            self._note_whole(group)
            sent = life.sent.get(id(request)) if life is not None else None
            if life is not None and sent is not None:
                self._note_whole_for(life, group, sent[1])

    def _lease(self, change: Change, life: Life | None) -> None:
        if life is None or change.kind == "DELETED":
            return
        spec = change.object["spec"]
        if spec.get("holderIdentity") == life.identity:
            epoch = spec.get("leaseTransitions") or 0
            if life.led_since is None or epoch != life.epoch:
                life.led_since = self._clock()
            life.renewed, life.epoch = life.lease_sent, epoch
            for other in self._lives.values():
                if other is not life:
                    other.led_since = None
        else:
            life.renewed = life.led_since = None

    def _pod(self, change: Change, life: Life | None, sent: Sent | None) -> None:
        pod = change.object
        if change.kind == "ADDED" and sent is not None and claims.owner_uid(pod):
            self._endings.created(pod, sent.shown, sent.jobs)
            self._launchers.created(pod)
        self._endings.pod(change)
        self._launchers.pod(change)
        was = claims.node_of(change.previous) if change.previous is not None else ""
        if life is not None and claims.node_of(pod) and not was:
            self._landed(pod, life, sent)
        group = claims.group_of(pod)
        if group is not None and claims.node_of(pod):
            self._note_whole(group)

    def _landed(self, pod: Manifest, life: Life, record: Sent | None) -> None:
        meta, node = pod["metadata"], claims.node_of(pod)
        uid = meta["uid"]
        life.bound.add(uid)
        self.bound.add(uid)
        if record is None:
            self.violated("I1", f"{meta['name']} is bound and no Binding of it was sent")
            return
        if not record.listing:
            for message in rooms.overfull(self.past, self.version, life, record, pod):
                self.violated("I2", message)
        reference = claims.owner(pod)
        for kind in claims.LAUNCHED:
            job = self.past.at(
                kind, (meta["namespace"], reference.get("name", "")), record.jobs[kind]
            )
            if job is not None and job["metadata"]["uid"] == reference["uid"]:
                self._launchers.bound(pod, kind, job)
        group = claims.group_of(pod)
        if group is not None:
            self._note_whole_for(life, group, record)
        for _, plan in self.past.all(api.GANG_PLANS, self.version):
            spec = plan["spec"]
            if spec["epoch"] <= record.epoch or spec["state"] != "Planned":
                continue
            planned = dict(zip(spec["uids"], spec["node"], strict=True))
            if uid in planned and spec["nodes"][planned[uid]] != node:
                where = spec["nodes"][planned[uid]]
                self.violated(
                    "epoch",
                    f"{meta['name']} is bound to {node} by epoch {record.epoch} after epoch"
                    f" {spec['epoch']} has planned it on {where}",
                )

    def _note_whole(self, group: Group) -> None:
        resource, namespace, name = group
        record = self.past.at(resource, (namespace, name), self.version)
        if record is None:
            return
        # A kubelet may have refused one before the last was bound: the commit was whole.
        count = sum(
            claims.group_of(pod) == group and bool(claims.node_of(pod))
            for _, pod in self.past.all(api.PODS, self.version)
        )
        if count >= claims.minimum(resource, record):
            self.whole.add(record["metadata"]["uid"])

    def _note_whole_for(self, life: Life, group: Group, record: Sent) -> None:
        """It was whole for who bound the last of it, or writes its status, who may not have been told
        that its minimum was raised since, or that others are gone.
        """
        resource, namespace, name = group
        seen = self.past.at(resource, (namespace, name), record.groups[resource])
        known = senders.placed(self.past, life, group, record)
        if seen is not None and len(known) >= claims.minimum(resource, seen):
            self.whole.add(seen["metadata"]["uid"])
