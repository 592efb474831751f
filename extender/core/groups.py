"""Reading a group's record, of any of the three kinds, into its gang."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from extender.core import events as e
from extender.core import objects as o
from extender.core.api import MUSTER_GROUP, PODS, VOLCANO_GROUPS, Resource
from extender.core.errors import Faults, InvalidObject, QuantityError, brief
from extender.core.gang import Gang, Member
from extender.core.identity import GroupKey, Membership
from extender.core.podgroups import (
    NativeGroup,
    NetworkTopology,
    SigsGroup,
    VolcanoGroup,
    VolcanoGroupSpec,
)
from extender.core.quantity import COUNT_LIMIT, count, milli, whole
from extender.core.reasons import Code, Reason, Refusal, refuse
from extender.core.resources import CPU
from extender.core.selectors import canonical
from extender.core.state import State
from extender.core.subgroups import Minimum
from extender.core.times import seconds
from extender.core.topology.limits import Wish

TIMEOUT_ANNOTATION = f"{MUSTER_GROUP}/schedule-timeout-seconds"
#: "delete" lets Muster delete the group's bare pods when an attempt is rolled back.
ROLLBACK_ANNOTATION = f"{MUSTER_GROUP}/rollback"
#: On a record that Muster made for a group which only labels or annotations named.
MADE_FOR_ANNOTATION = f"{MUSTER_GROUP}/made-for"
#: Such a record's owners, at most.
MOST_OWNERS = 10


def group_seen(s: State, event: e.GroupSeen) -> None:
    """A group's record was added or changed."""
    group, meta = event.group, event.group.metadata
    key = GroupKey(event.resource, meta.namespace, meta.name)
    gang = s.gang(key)
    job = gang.job
    if gang.uid and gang.uid != meta.uid:
        forget_record(s, gang)
        gang = s.gang(key)
    gang.uid = meta.uid
    gang.created = seconds(meta.creation_timestamp)
    gang.may_delete = meta.annotations.get(ROLLBACK_ANNOTATION) == "delete"
    gang.timeout = _timeout(meta, group)
    gang.phase, gang.conditions = group.status.phase, group.status.conditions
    gang.counts = (group.status.running, group.status.succeeded, group.status.failed)
    # One that was there before its job is the job's too, although no owner says so, or a wrong one.
    named = _job(s, meta)
    gang.job = next((each for each in (named, job) if each in s.jobs), named)
    gang.fault = _refused(_read_spec(gang, group))
    resolve_priority(s, gang)
    gang.dirty = gang.maybe_loose = True


def group_gone(s: State, event: e.GroupGone) -> None:
    """A group's record was deleted: its members wait for one, or go their way."""
    gang = s.gangs.get(GroupKey(event.resource, event.namespace, event.name))
    if gang is not None and gang.uid == event.uid:
        if gang.job in s.jobs:
            # Its PodGroup is made again if it is still wanted.
            s.jobs[gang.job].dirty = True
        forget_record(s, gang)


def forget_record(s: State, gang: Gang) -> None:
    """The record is gone: what was planned for its unplaced members is void.

    But for those whose Binding is on its way: its result decides what they hold.
    """
    for slot in gang.unplaced():
        if slot.state == Member.BINDING:
            continue
        s.unassign(gang, slot)
        s.reject(slot, f"PodGroup {gang.key} was deleted")
        if slot.state not in (Member.WANTED, Member.CREATING):
            gang.move(slot, Member.HELD)
    fresh = Gang(
        gang.key,
        members=gang.members,
        foreign=gang.foreign,
        tally=gang.tally,
        by_state=gang.by_state,
    )
    fresh.running = gang.running
    fresh.claim, fresh.member_priority = gang.claim, gang.member_priority
    fresh.kept, fresh.kept_until = gang.kept, gang.kept_until
    s.gangs[gang.key] = fresh
    for slot in fresh.members.values():
        s.slots[gang.key.namespace, slot.name] = (fresh, slot)


def resolve_priority(s: State, gang: Gang) -> None:
    """The gang's own priority, where it names a class that exists."""
    if gang.priority_class:
        gang.own_priority = s.priority_classes.get(gang.priority_class, gang.own_priority)


def foreign(s: State, pod: str, scheduler: str) -> Refusal:
    """The pod is another scheduler's, which would bind it without its gang (S10b)."""
    allowed = ", ".join(s.rules.scheduler_names)
    return refuse(Code.FOREIGN_SCHEDULER, pod=pod, scheduler=scheduler, allowed=allowed)


def unknown_priority(s: State, gang: Gang) -> Refusal | None:
    """Refuse a class that does not exist; the two built-in ones always do."""
    name = gang.priority_class
    if not name or name in s.priority_classes or name.startswith("system-"):
        return None
    allowed = ", ".join(sorted(s.priority_classes)) or "none"
    return refuse(Code.UNKNOWN_PRIORITY, name=name, allowed=allowed)


def wanted_record(
    key: GroupKey, claim: Membership, owners: Sequence[o.Manifest] = ()
) -> o.Manifest | Refusal:
    """The record to make for a group that exists by label or annotation alone; see :func:`owners_of`."""
    text = claim.min_available or ""
    least = count(text)
    if not least:
        return refuse(
            Code.INVALID,
            field=claim.min_field,
            value=brief(text),
            allowed="a whole number of at least 1",
        )
    return {
        "apiVersion": VOLCANO_GROUPS.api_version,
        "kind": VOLCANO_GROUPS.kind,
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "annotations": {MADE_FOR_ANNOTATION: "labels"},
            "ownerReferences": list(owners),
        },
        "spec": {"minMember": least},
    }


def owners_of(gang: Gang) -> list[o.Manifest]:
    """Whose a record is that Muster makes: its pods' controllers', or the pods' own.

    Nobody else knows of it and would delete it; so it goes with the last of them. Volcano's
    PodGroups of plain pods do the same. At most MOST_OWNERS: made again if it goes too early.
    """
    owners: dict[str, o.Manifest] = {}
    for slot in sorted(gang.members.values(), key=lambda m: m.name):
        if not slot.uid or slot.deleting:
            continue
        whose = slot.owner or o.OwnerRef(PODS.kind, slot.name, slot.uid, PODS.api_version)
        owners[whose.uid] = {
            "apiVersion": whose.api_version,
            "kind": whose.kind,
            "name": whose.name,
            "uid": whose.uid,
        }
    return list(owners.values())[:MOST_OWNERS]


def _read_spec(gang: Gang, group: VolcanoGroup | SigsGroup | NativeGroup) -> Faults:
    """What is wrong with it; where something is, the gang has something valid, and is not placed."""
    faults = Faults()
    gang.min_task_member = {}
    gang.min_parts = ()
    gang.min_resources = {}
    gang.near = ()
    gang.own_priority = None
    if isinstance(group, NativeGroup):
        policy = group.spec.scheduling_policy
        gang.priority_class = group.spec.priority_class_name
        gang.own_priority = group.spec.priority or 0
        least = policy.gang.min_count if policy.gang else 1
        constraints = group.spec.scheduling_constraints.topology
        gang.near = tuple(
            Wish(True, f"spec.schedulingConstraints.topology[{at}].key", label=each.key)
            for at, each in enumerate(constraints)
            if each.key
        )
        _set_min(gang, "spec.schedulingPolicy.gang.minCount", least, faults)
        return faults
    for name, quantity in sorted(group.spec.min_resources.items()):
        with faults:
            _read_quantity(name, quantity)
    gang.min_resources = {} if len(faults) else dict(group.spec.min_resources)
    if isinstance(group, VolcanoGroup):
        gang.queue = group.spec.queue
        gang.priority_class = group.spec.priority_class_name
        gang.min_task_member = dict(group.spec.min_task_member)
        for task, least in sorted(gang.min_task_member.items()):
            with faults:
                if not 0 <= least <= COUNT_LIMIT:
                    gang.min_task_member = {}
                    raise InvalidObject(f"spec.minTaskMember[{task}]", least, f"0 to {COUNT_LIMIT}")
        _read_network(gang, group.spec, faults)
    minimum = group.spec.min_member
    _set_min(gang, "spec.minMember", 1 if minimum is None else minimum, faults)
    return faults


def _read_quantity(name: str, quantity: o.Quantity) -> None:
    try:
        milli(quantity) if name == CPU else whole(quantity)
    except QuantityError as error:  # it knows the value; this is where the field is known
        raise QuantityError(f"spec.minResources[{name}]", error.value, error.allowed) from error


def _read_network(gang: Gang, spec: VolcanoGroupSpec, faults: Faults) -> None:
    """Volcano's networkTopology, and its subGroups: selected pods, as many parts as their labels have
    values, which may be asked for near each other, or whole.
    """
    wish = faults.keep(None, _wish, spec.network_topology, "spec.networkTopology")
    wishes = [] if wish is None else [wish]
    minima = []
    for at, policy in enumerate(spec.sub_group_policy):
        where = f"spec.subGroupPolicy[{at}]"
        wish = faults.keep(None, _wish, policy.network_topology, f"{where}.networkTopology")
        size, least, keys = policy.sub_group_size, policy.min_sub_groups, policy.match_label_keys
        with faults:
            if size < 1:
                raise InvalidObject(f"{where}.subGroupSize", size, "at least 1")
        with faults:
            if not 0 <= least <= COUNT_LIMIT:
                raise InvalidObject(f"{where}.minSubGroups", least, f"0 to {COUNT_LIMIT}")
        with faults:
            given = policy.label_selector or o.LabelSelector()
            selector = canonical(given, f"{where}.labelSelector")
            if wish is not None:
                wishes.append(replace(wish, size=size, selector=selector, keys=keys))
            if least:
                minima.append(Minimum(policy.name, size, least, selector, keys))
    gang.near, gang.min_parts = ((), ()) if len(faults) else (tuple(wishes), tuple(minima))


def _wish(network: NetworkTopology | None, where: str) -> Wish | None:
    """Without a tier there is nothing to keep to: near is better anyway. Raises InvalidObject."""
    if network is None:
        return None
    if network.mode not in ("", "hard", "soft"):
        raise InvalidObject(f"{where}.mode", network.mode, "hard or soft")
    hard, tier, name = (
        network.mode != "soft",
        network.highest_tier_allowed,
        network.highest_tier_name,
    )
    if tier is not None and name:
        raise InvalidObject(f"{where}.highestTierName", name, "either it or highestTierAllowed")
    if tier is not None:
        return Wish(hard, f"{where}.highestTierAllowed", tier=tier)
    return Wish(hard, f"{where}.highestTierName", tier_name=name) if name else None


def _set_min(gang: Gang, field: str, least: int, faults: Faults) -> None:
    gang.min_member = min(max(1, least), COUNT_LIMIT)
    with faults:
        if least < 1:
            raise InvalidObject(field, least, "at least 1")
        if least > COUNT_LIMIT:
            raise InvalidObject(field, least, f"at most {COUNT_LIMIT}")


def _refused(faults: Faults) -> Refusal | None:
    found = [
        Reason.of(Code.INVALID, field=each.field, value=brief(each.value), allowed=each.allowed)
        for each in faults.found
    ]
    if more := len(faults) - len(found):
        found.append(Reason.of(Code.MORE_INVALID, count=more))
    return Refusal(tuple(found)) if found else None


def _timeout(meta: o.Meta, group: VolcanoGroup | SigsGroup | NativeGroup) -> float | None:
    if isinstance(group, SigsGroup) and group.spec.schedule_timeout_seconds:
        return float(group.spec.schedule_timeout_seconds)
    text = meta.annotations.get(TIMEOUT_ANNOTATION, "")
    return float(count(text) or 0) or None


def _job(s: State, meta: o.Meta) -> tuple[Resource, str, str] | None:
    """Whose it says it is: a job's has the job's name."""
    for owner in meta.owner_references:
        if owner.name != meta.name:
            continue
        for resource in s.kinds:
            if owner.kind == resource.kind and owner.api_version == resource.api_version:
                return (resource, meta.namespace, owner.name)
    return None
