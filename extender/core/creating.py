"""Making the pods of a job that Muster runs: pinned once they are planned, or only to be seen."""

from __future__ import annotations

from collections import Counter
from typing import Any

from extender.core import attempts, telling
from extender.core import commands as c
from extender.core.api import PODS
from extender.core.capacity import CAPACITY, CAPACITY_TYPES, ON_DEMAND, confine
from extender.core.errors import InvalidObject
from extender.core.events import Done
from extender.core.gang import PLACED, Gang, Member, Slot, Stage
from extender.core.health import NOT_READY, UNREACHABLE
from extender.core.identity import TASK_ANNOTATION
from extender.core.ingest import GATE, PLAN_ANNOTATION, version
from extender.core.reasons import Code, Refusal, refuse
from extender.core.state import State


def make_visible(s: State, gang: Gang, now: float) -> None:
    """Create a waiting job's pods without a plan, so that autoscalers see the demand."""
    for slot in gang.unplaced():
        if slot.state == Member.WANTED:
            create(s, gang, slot, "", now)


def create(s: State, gang: Gang, slot: Slot, node: str, now: float) -> None:
    """Create a job's pod, pinned to its planned node (O(1) for kube-scheduler)."""
    job = s.jobs.get(gang.job) if gang.job else None
    if job is None or slot.replica is None:
        return
    kind = s.kinds[job.resource]
    try:
        made = kind.pod(job.raw, slot.replica)
    except InvalidObject as error:
        # The job was edited since it was planned; reconciling it says so on the job.
        s.count("invalid_replicas")
        slot.fault = refuse(
            Code.INVALID, field=error.field, value=repr(error.value), allowed=error.allowed
        )
        s.unassign(gang, slot)
        gang.dirty = True
        return
    body = dress(s, gang, made, node)
    slot.gated = s.unmanaged(slot.shape)
    if slot.gated:
        body["spec"]["schedulingGates"] = [{"name": GATE}]
    gang.move(slot, Member.CREATING)
    slot.doomed = slot.unwanted = False
    slot.released_at, slot.tries, slot.passed = now, 0, False
    # Nothing was said of it before.
    slot.told, slot.scheduled_message = 0, ""

    def then(done: Done, now: float) -> None:
        _created(s, gang, slot, node, done, now)

    id_ = s.next_id(then)
    s.send(c.Create(id_, c.Lane.JOB, PODS, gang.key.namespace, body))


def stands(s: State, command: c.Create) -> bool:
    """Whether a pod is still to be created: its job wants it (I6), and its attempt is not over."""
    known = s.slots.get((command.namespace, command.body["metadata"]["name"]))
    if known is None:
        return False
    slot = known[1]
    return slot.state == Member.CREATING and not (slot.unwanted or slot.doomed)


def _created(s: State, gang: Gang, slot: Slot, node: str, done: Done, now: float) -> None:
    gang = s.gangs.get(gang.key, gang)
    gang.dirty = True
    gang.progress_at = max(gang.progress_at, now)
    if gang.members.get(slot.name) is not slot or slot.state != Member.CREATING:
        return
    made = done.object["metadata"] if done.ok and done.object is not None else None
    # The watch, or a list, has come past it since, and its replica is still to be made: it is gone again.
    told = max(s.pods_listed, s.pods_shown)
    if made is not None and version(made["resourceVersion"]) > told:
        slot.uid, slot.resource_version = made["uid"], made["resourceVersion"]
        slot.pinned, slot.released_at = node, now
        s.uids[slot.uid] = (gang.key.namespace, slot.name)
        # One that comes later may have been given its place while it was made to be seen.
        through = slot.node and slot.name not in gang.later
        gang.move(slot, telling.on_way(s, slot) if through else Member.HELD)
        if slot.doomed:
            s.delete_pod(gang, slot)
        return
    gang.move(slot, Member.WANTED)
    if slot.unwanted:
        s.discharge(gang, slot, "the job wants it no more")
        return
    if slot.doomed:
        return  # its attempt has failed already
    refusal = refuse(Code.ADMISSION, pod=slot.name, message=done.message)
    if gang.satisfied() or _spare(gang, slot):
        # The gang runs, or starts, without it: asked again after a pause.
        attempts.withdraw(s, gang, slot, "", now)
        gang.move(slot, Member.WANTED)
        if made is None:
            _tell_job(s, gang, refusal)
    elif made is not None:
        # Who deletes what Muster makes, at once and again, is met after longer and longer pauses.
        gang.attempt += gang.stage == Stage.WAITING
        attempts.abort(s, gang, f"{slot.name} was deleted as soon as it was made", now)
    elif done.code == 409:
        # Its own, of a create whose answer was lost: the watch will show it. Or a namesake that is
        # not the job's: asked again after a pause, until it is gone. One that was made only to be seen
        # is no attempt, but is asked for less and less often, too.
        gang.attempt += gang.stage == Stage.WAITING
        attempts.abort(s, gang, f"a pod {slot.name} exists already", now)
    elif gang.stage != Stage.WAITING or not node:
        attempts.fail(s, gang, refusal, now)


def _spare(gang: Gang, slot: Slot) -> bool:
    """Whether the attempt reaches the gang's minimum without this member."""
    if gang.stage == Stage.WAITING:
        return False
    rest = [m for m in gang.members.values() if m is not slot and (m.state in PLACED or m.node)]
    tasks = Counter(m.task for m in rest)
    return len(rest) >= gang.min_member and all(
        tasks[task] >= least for task, least in gang.min_task_member.items()
    )


def _tell_job(s: State, gang: Gang, refusal: Refusal) -> None:
    job = s.jobs.get(gang.job) if gang.job else None
    if job is not None:
        reason, words = str(refusal.code), refusal.render()
        s.notice(job.resource, job.namespace, job.name, job.uid, "Warning", reason, words)


def _patience(s: State, spec: dict[str, Any]) -> list[dict[str, Any]]:
    """How long the pod stays on a node that is not ready or not heard of, where it does not say: the
    API server would give it 300 s, for which its whole gang would wait.
    """
    return [
        {
            "key": key,
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": s.rules.node_loss,
        }
        for key in (NOT_READY, UNREACHABLE)
        if not any(_tolerates(each, key) for each in spec.get("tolerations") or ())
    ]


def _tolerates(toleration: dict[str, Any], key: str) -> bool:
    effect = toleration.get("effect") or "NoExecute"
    return effect == "NoExecute" and (toleration.get("key") or key) == key


def dress(s: State, gang: Gang, body: dict[str, Any], node: str) -> dict[str, Any]:
    """Add what Muster adds to a pod it makes: scheduler name, marks, and the pin."""
    spec, meta = body["spec"], body["metadata"]
    if not spec.get("schedulerName"):
        spec["schedulerName"] = s.rules.scheduler_name
    meta.setdefault("annotations", {})[PLAN_ANNOTATION] = str(gang.attempt)
    task = meta["annotations"].get(TASK_ANNOTATION, "")
    wish = meta["annotations"].get(CAPACITY)
    if wish not in CAPACITY_TYPES:  # a template may have been copied with anything
        wish = ON_DEMAND if task in s.rules.on_demand_roles else ""
    confine(spec, wish, s.rules.spot_labels)
    spec["tolerations"] = [*(spec.get("tolerations") or ()), *_patience(s, spec)]
    if node:
        pin = {"key": "metadata.name", "operator": "In", "values": [node]}
        affinity = spec["affinity"] = dict(spec.get("affinity") or {})
        node_affinity = affinity["nodeAffinity"] = dict(affinity.get("nodeAffinity") or {})
        key = "requiredDuringSchedulingIgnoredDuringExecution"
        terms = (node_affinity.get(key) or {}).get("nodeSelectorTerms") or [{}]
        node_affinity[key] = {
            "nodeSelectorTerms": [
                {**term, "matchFields": [*(term.get("matchFields") or []), pin]} for term in terms
            ]
        }
    return body
