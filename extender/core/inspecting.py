"""The state as JSON, for ``/debug/*`` and ``muster explain``. The same values as everywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

from msgspec import json, to_builtins

from extender.core.gang import Gang, Member, Stage
from extender.core.groups import foreign
from extender.core.job import Job
from extender.core.objects import Manifest
from extender.core.places import Place
from extender.core.reasons import Refusal
from extender.core.resources import render
from extender.core.state import State
from extender.core.taken import links_of
from extender.core.times import rfc3339
from extender.core.topology.catalogue import COUNT_LABEL, PRODUCT_LABEL
from extender.core.topology.equipment import GPU, Equipment
from extender.core.topology.parts import Rooms
from extender.core.zoned import free_by_zone


def state(s: State) -> Manifest:
    """Leader, epoch, counts and counters."""
    return {
        "leading": s.leading,
        "epoch": s.epoch,
        "synced": s.synced,
        "nodes": int(s.cluster.alive.sum()),
        "pods": len(s.cluster.pods.slots),
        "gangs": len(s.gangs),
        "jobs": len(s.jobs),
        "reservations": len(s.cluster.reserved_keys),
        "evidence": len(s.evidence),
        "openBinds": len(s.binds) + len(s.tokens),
        "capacityGeneration": s.cluster.capacity_generation,
        "overCommitted": [each.render() for each in s.cluster.over_committed()],
        "notServed": sorted(
            f"{kind.plural}.{kind.version}.{kind.group}"  # as kubectl takes it
            for kind, served in s.served.items()
            if not served
        ),
        "counters": dict(sorted(s.counters.items())),
    }


def phases(s: State) -> dict[str, int]:
    """How many gangs are in each phase, those that none is in included."""
    told = Counter(phase(gang) for gang in s.gangs.values())
    return {each: told[each] for each in PHASES}


def waiting(s: State) -> tuple[dict[str, int], float]:
    """Gangs that wait by the code of their reason, and since when the first does (0: none)."""
    found = [gang for gang in s.gangs.values() if gang.waiting_since is not None]
    codes = Counter(str(gang.refusal.code) for gang in found if gang.refusal is not None)
    return dict(codes), min((gang.waiting_since or 0.0 for gang in found), default=0.0)


def reasons(refusal: Refusal | None) -> list[Manifest]:
    """Code, words and node count of each reason, the headline first."""
    if refusal is None:
        return []
    return [
        {"code": str(each.code), "message": each.render(), "nodes": each.nodes}
        for each in refusal.reasons
    ]


def gang(s: State, gang: Gang) -> Manifest:
    """A gang: what ``muster explain`` prints."""
    members = [gang.members[name] for name in sorted(gang.members)]
    told = gang.told()
    if gang.foreign and not gang.members:
        # Others' pods alone: nothing is written on their record, and who asks here is told.
        told = foreign(s, *min(gang.foreign.items()))
    return {
        "group": str(gang.key),
        "kind": gang.key.resource.api_version,
        "phase": phase(gang),
        "stage": stage(gang),
        "attempt": gang.attempt,
        "minMember": gang.min_member,
        "queue": gang.queue,
        "priority": gang.priority,
        "members": {str(each): gang.count(each) for each in Member if gang.count(each)},
        "reasons": reasons(told),
        "message": told.render() if told else "",
        "plan": plan(gang),
        "pods": [
            {"name": m.name, "state": str(m.state), "node": m.node, "task": m.task} for m in members
        ],
    }


def gangless(job: Job) -> str:
    """What a job without a gang says of itself."""
    status = job.raw.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    told = [
        f": {each.get('type')}: {each.get('message')}"
        for each in (conditions if isinstance(conditions, list) else ())
        if isinstance(each, dict) and each.get("status") == "True"
    ]
    return f"{job.resource.kind} {job.name} has none{told[-1] if told else ''}"


def stage(gang: Gang) -> str | None:
    """Where the attempt stands; None where there is nothing to attempt."""
    if gang.stage == Stage.WAITING and gang.satisfied():
        return None
    return gang.stage.name.capitalize()


#: What :func:`phase` says.
PHASES = ("Waiting", "Placing", "Partial", "Placed", "Running", "Completed")


def phase(gang: Gang) -> str:
    """One of :data:`PHASES`, for people; Placed until as many pods run as the gang needs."""
    if gang.satisfied():
        alive = gang.count(Member.BOUND, Member.RELEASED, Member.ARRIVED, Member.BINDING)
        ended = gang.count(Member.FINISHED)
        if ended and not alive:
            return "Completed"
        return "Running" if len(gang.running) + ended >= gang.min_member else "Placed"
    if gang.partial:
        return "Partial"
    return "Waiting" if gang.stage == Stage.WAITING else "Placing"


def plan(gang: Gang) -> Manifest | None:
    """Planned nodes by member; None without a plan."""
    nodes = {m.name: m.node for m in gang.members.values() if m.node}
    if not nodes:
        return None
    return {
        "attempt": gang.attempt,
        "nodes": sorted(set(nodes.values())),
        "members": dict(sorted(nodes.items())),
    }


def plans(s: State) -> list[Manifest]:
    """Every gang that is being placed."""
    return [
        {"group": str(key), "stage": gang.stage.name.capitalize(), "plan": plan(gang)}
        for key, gang in sorted(s.gangs.items())
        if gang.stage != Stage.WAITING
    ]


def nodes(s: State) -> list[Manifest]:
    """Each node's resources: allocatable, used, reserved, in the units people write."""
    cluster = s.cluster
    columns = list(cluster.resources.items())
    found: list[Manifest] = []
    for name in sorted(n for n in cluster.names if n):
        row = cluster.row_of(name)
        if row is None:
            continue
        tables = (cluster.allocatable, cluster.used, cluster.reserved)
        allocatable, used, reserved = (
            {r: render(r, int(t[row, c])) for r, c in columns if t[row, c]} for t in tables
        )
        found.append({"name": name, "allocatable": allocatable, "used": used, "reserved": reserved})
        if (avoided := s.health.avoiding.get(name)) is not None:
            found[-1]["avoided"] = {"gangsFailed": avoided.gangs, "until": rfc3339(avoided.until)}
        news = s.health.news
        for word, said in (("lost", news.lost), ("silent", news.silent), ("leaving", news.leaving)):
            if name in said:
                found[-1][word] = said[name]
        place = cluster.zones.place(name)
        if place is not None:
            found[-1]["zones"] = {
                "policy": place.kubelet.policy,
                "scope": place.kubelet.scope,
                "free": free_by_zone(place),
                "assumedPods": cluster.zones.assumed(name),
                "podsNotShown": cluster.zones.unshown(name),
            }
        if (told := _topology(cluster.nodes.labels[row], place)) is not None:
            found[-1]["topology"] = told
        equipment = cluster.nodes.equipment[row]
        if equipment.told:
            found[-1]["devices"] = _devices(s, name, equipment)
        if place is not None and place.parts is not None:
            found[-1]["parts"] = _parts(place.parts)
    return found


def _topology(labels: Mapping[str, str], place: Place | None) -> Manifest | None:
    """What joins its GPUs, as Muster's annotation has it, and who says so; None: that is not known."""
    links = links_of(place, labels.get(PRODUCT_LABEL, ""), labels.get(COUNT_LABEL, ""))
    if not links:
        return None
    source = "agent" if place is not None and place.links else "labels"
    return {"source": source, "annotation": _read(links)}


#: Once for all nodes that look the same.
_read = lru_cache(maxsize=256)(json.decode)


def _parts(left: Rooms) -> list[Manifest]:
    """What each device has left of which parts are given away, in no order of theirs."""
    return [
        {"pods": r.pods, "freeSlots": r.slots, "freeMiB": r.memory, "freeMilli": r.milli}
        for r in left.rooms
    ]


def _devices(s: State, node: str, equipment: Equipment) -> Manifest:
    """What a node's agent tells, one entry a device; what the kubelet is thought to have left of
    them; and the last prediction that was wrong.
    """
    known, model = equipment.devices, equipment.model
    count = len(known) if known is not None else len(model.topology) if model else 0
    place = s.cluster.zones.place(node)
    free = dict(place.stock.devices).get(GPU) if place is not None else None
    surprise = s.cluster.zones.surprise(node)
    every = [
        {
            "index": model.topology.index[at] if model else at,
            "health": known.health[at] if known is not None else "?",
            "pods": list(known.held[at] or ()) if known is not None else [],
            "free": None if free is None else bool(free.free >> at & 1),
        }
        for at in range(count)
    ]
    return {
        "each": every,
        "usable": equipment.well,
        "product": model.topology.product if model else "",
        "bandwidthGbs": float(model.bandwidth[-1]) if model else None,
        "surprise": None if surprise is None else to_builtins(surprise),
    }
