"""What users and faults do in a story, by name or at random."""

from __future__ import annotations

import random
from typing import Any

from extender.core import commands as c
from extender.core.api import GANG_PLANS, NODES, PODS, PYTORCH_JOBS, VOLCANO_GROUPS
from extender.core.gang import Gang
from extender.core.groups import ROLLBACK_ANNOTATION
from extender.core.identity import GroupKey
from tests.builders import GPU
from tests.core.machine import RULES, Machine, Replica
from tests.core.machine_api import Raw, ended

VOLCANO = "scheduling.k8s.io/group-name"


def node(m: Machine, name: str, gpus: int) -> None:
    """A node with so many GPUs."""
    allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110", GPU: str(gpus)}
    meta = {"name": name, "labels": {"kubernetes.io/hostname": name}}
    m.api.put(NODES, {"metadata": meta, "spec": {}, "status": {"allocatable": allocatable}})


def nodes(m: Machine, count: int, gpus: int = 1) -> None:
    """Nodes n0, n1, …"""
    for i in range(count):
        node(m, f"n{i}", gpus)


def group(m: Machine, name: str, least: int, *, delete: bool = False, **spec: Any) -> None:
    """A Volcano PodGroup."""
    marks = {ROLLBACK_ANNOTATION: "delete"} if delete else {}
    meta = {"name": name, "namespace": "default", "annotations": marks}
    m.api.put(VOLCANO_GROUPS, {"metadata": meta, "spec": {"minMember": least, **spec}})


def pod(m: Machine, name: str, of: str = "", *, gpus: int = 1, task: str = "", **more: Any) -> Raw:
    """A pod, of the Volcano group ``of`` if one is named. ``more`` goes into metadata and spec."""
    meta: Raw = {"name": name, "namespace": "default", "annotations": {}, "labels": {}}
    if of:
        meta["annotations"][VOLCANO] = of
    if task:
        meta["annotations"]["volcano.sh/task-spec"] = task
    for part in ("annotations", "labels"):
        meta[part] |= more.pop(part, {})
    box = {"name": "main", "resources": {"requests": {GPU: str(gpus)}}}
    spec = {"schedulerName": "muster", "containers": [box], **more}
    return m.api.put(PODS, {"metadata": meta, "spec": spec})


def gang(m: Machine, name: str, size: int, least: int = 0, *, gpus: int = 1, **spec: Any) -> None:
    """A Volcano PodGroup and its bare pods."""
    group(m, name, least or size, **spec)
    for i in range(size):
        pod(m, f"{name}-{i}", name, gpus=gpus)


def job(
    m: Machine, name: str, workers: int, *, gpus: int = 1, restart: str = "", **spec: Any
) -> None:
    """A PyTorchJob whose pods Muster makes; ``restart``: what is started again when one fails."""
    box = {"name": "pytorch", "image": "train", "resources": {"requests": {GPU: str(gpus)}}}
    role = {"replicas": workers, "template": {"spec": {"containers": [box]}}}
    roles = {"Worker": role} if workers < 2 else {"Master": {**role, "replicas": 1}}
    if workers >= 2:
        roles["Worker"] = {**role, "replicas": workers - 1}
    body = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
    marks = {"scheduling.muster.dev/restart": restart} if restart else {}
    meta = {"name": name, "namespace": "default", "annotations": marks}
    m.api.put(
        PYTORCH_JOBS, body | {"metadata": meta, "spec": {"pytorchReplicaSpecs": roles} | spec}
    )


def foreign(m: Machine, name: str, on: str, gpus: int = 1) -> None:
    """A pod that somebody else has bound."""
    m.excused.add(on)
    pod(m, name, gpus=gpus, schedulerName="other", nodeName=on)


def of(m: Machine, name: str) -> Gang:
    """What the leader knows of a Volcano group."""
    assert m.leader is not None
    return m.leader.state.gangs[GroupKey(VOLCANO_GROUPS, "default", name)]


def reason(m: Machine, name: str) -> str:
    """The headline of a gang's refusal."""
    refusal = of(m, name).refusal
    return "" if refusal is None else str(refusal.code)


class Chaos:
    """A random story. ``faulty``: commands fail, leaders change, nodes and pods go away."""

    def __init__(self, seed: int, *, faulty: bool = True) -> None:
        self.rng = random.Random(seed)
        self.m = Machine(RULES, replicas=2 if faulty else 1)
        self.faulty = faulty
        self.made = 0
        nodes(self.m, self.rng.randint(3, 5), self.rng.choice((1, 2, 4)))

    def run(self, steps: int) -> Machine:
        """So many random steps, then rest, then judge."""
        usual = [self.deliver] * 30 + [self.carry_out] * 30 + [self.reply] * 20 + [self.call] * 20
        usual += [self.cycle] * 25 + [self.wait] * 6 + [self.arrive] * 4 + [self.end] * 2
        usual += [self.kubelet] * 2
        rare = [self.remove_pod, self.cordon, self.lose_node, self.outsider, self.regroup]
        rare += [self.fail_over, self.hide, self.break_call, self.shrink, self.touch]
        actions = usual + rare if self.faulty else usual
        for _ in range(steps):
            self.rng.choice(actions)()
            if self.m.leader is None and self.rng.random() < 0.1:
                self.fail_over()
        if self.m.leader is None:
            self.m.gain(self.m.replicas[0])
        self.m.rest()
        self.m.finish()
        return self.m

    # -- what is under way

    def _replica(self, *, has: str) -> Replica | None:
        """A replica that has something of this kind."""
        found = [replica for replica in self.m.replicas if getattr(replica, has)]
        return self.rng.choice(found) if found else None

    def deliver(self) -> None:
        if replica := self._replica(has="backlog"):
            place = self.rng.choice(sorted(replica.backlog, key=str))
            replica.deliver(place, self.rng.randint(1, 3))

    def carry_out(self) -> None:
        for replica in self.m.replicas:
            if replica.chains:
                keys = sorted(replica.chains, key=str)
                key = self.rng.choice(keys)
                replica.carry_out(key, self._outcome(replica.chains[key][0]))

    def _outcome(self, command: c.Command) -> str:
        if not self.faulty or self.rng.random() < 0.9:
            return "ok"
        if isinstance(command, c.Delete):
            return self.rng.choice(("lost", "unsent", "500"))
        return self.rng.choice(("lost", "unsent", "409", "403", "422", "404", "500"))

    def reply(self) -> None:
        if replica := self._replica(has="replies"):
            replica.turn(replica.replies.pop(self.rng.randrange(len(replica.replies))))

    def call(self) -> None:
        if replica := self._replica(has="inbox"):
            replica.turn(replica.inbox.popleft())

    def cycle(self) -> None:
        scheduler = self.m.scheduler
        if ready := scheduler.ready():
            scheduler.cycle(self.rng.choice(ready))

    def wait(self) -> None:
        self.m.advance(self.rng.choice((0.1, 0.5, 1.0, 3.0)))

    def kubelet(self) -> None:
        self.m.kubelet()

    # -- what users do

    def arrive(self) -> None:
        if self.made >= 8:
            return
        self.made += 1
        name, size, gpus = f"g{self.made}", self.rng.randint(1, 4), self.rng.choice((1, 1, 2))
        kind = self.rng.randrange(6)
        if kind == 0:
            pod(self.m, name, gpus=gpus)
        elif kind == 1:
            job(self.m, name, size, gpus=gpus)
        elif kind == 2:
            pods = self.rng.randint(size, size + 2)
            gang(self.m, name, pods, size, gpus=gpus)
        else:
            gang(self.m, name, size, gpus=gpus, delete=self.rng.random() < 0.5)

    def end(self) -> None:
        pods = [p for p in self.m.api.pods() if p["spec"].get("nodeName") and not ended(p)]
        if pods:
            name = self.rng.choice(pods)["metadata"]["name"]
            phase = "Failed" if self.faulty and self.rng.random() < 0.3 else "Succeeded"
            self.m.api.change((PODS, "default", name), status={"phase": phase})

    # -- what goes wrong

    def remove_pod(self) -> None:
        pods = [p for p in self.m.api.pods() if not p["metadata"].get("ownerReferences")]
        if not pods:
            return
        raw = self.rng.choice(pods)
        meta = raw["metadata"]
        place = (PODS, "default", meta["name"])
        self.m.api.delete(place)
        again = self.rng.random() < 0.7 and place not in self.m.api.objects
        if again and raw["spec"]["schedulerName"] == "muster":
            group_ = meta["annotations"].get(VOLCANO, "")
            asked = raw["spec"]["containers"][0]["resources"]["requests"][GPU]
            pod(self.m, meta["name"], group_, gpus=int(asked))

    def _node(self) -> str:
        names = sorted(place[2] for place in self.m.api.objects if place[0] == NODES)
        return self.rng.choice(names) if names else ""

    def cordon(self) -> None:
        place = (NODES, "", self._node())
        self.m.api.change(place, spec={"unschedulable": self.rng.random() < 0.4})

    def shrink(self) -> None:
        name = self._node()
        self.m.excused.add(name)
        count = str(self.rng.choice((0, 1, 2, 4)))
        self.m.api.change((NODES, "", name), status={"allocatable": {GPU: count}})

    def lose_node(self) -> None:
        name = self._node()
        if name and self.rng.random() < 0.5:
            self.m.excused.add(name)
            self.m.api.delete((NODES, "", name))
        else:
            self.made += 1
            node(self.m, f"m{self.made}", self.rng.choice((1, 2, 4)))

    def outsider(self) -> None:
        name = self._node()
        if name:
            self.made += 1
            foreign(self.m, f"x{self.made}", name)

    def regroup(self) -> None:
        groups = sorted((p for p, raw in self.m.api.objects.items() if _own(p, raw)), key=str)
        if groups:
            place = self.rng.choice(groups)
            least = self.m.api.objects[place]["spec"]["minMember"]
            self.m.api.delete(place)
            group(self.m, place[2], least)

    def fail_over(self) -> None:
        if self.m.leader is not None:
            self.m.lose()
        else:
            self.m.gain(self.rng.choice(self.m.replicas))

    def hide(self) -> None:
        if self.rng.random() < 0.3:
            self.m.scheduler.hidden.add((self.rng.choice((1, 2)), self._node()))

    def touch(self) -> None:
        """Somebody changes a pod, so that its version is another."""
        if pods := self.m.api.pods():
            name = self.rng.choice(pods)["metadata"]["name"]
            labels = {"touched": str(self.rng.randrange(1_000_000))}
            self.m.api.change((PODS, "default", name), metadata={"annotations": labels})

    def break_call(self) -> None:
        if self.m.scheduler.open:
            self.m.scheduler.abandon(self.rng.choice(sorted(self.m.scheduler.open)))


def _own(place: tuple[Any, str, str], raw: Raw) -> bool:
    """A group that a user made."""
    return place[0] == VOLCANO_GROUPS and not raw["metadata"].get("ownerReferences")


def plan_of(m: Machine, name: str) -> Raw:
    """The GangPlan of a group, as the API server holds it."""
    found = [
        raw
        for (resource, _, _), raw in m.api.objects.items()
        if resource == GANG_PLANS and raw["spec"]["groupRef"]["name"] == name
    ]
    assert len(found) == 1
    return found[0]
