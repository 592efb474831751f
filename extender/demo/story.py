"""The story: a job that waits whole and lands whole, then two gangs that want the same GPUs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from extender.core import api
from extender.core.objects import Manifest
from extender.demo.chronicle import Chronicle, Gang
from extender.demo.engine import SCHEDULER, Cluster
from extender.sim import fleet
from extender.sim.client import Client
from extender.sim.fleet import GPU
from extender.sim.kubelet import RUN_SECONDS

NAMESPACE = "demo"
GPUS_PER_NODE = 4
#: Seconds after which something that should have happened counts as not happening.
PATIENCE = 30.0
#: Seconds that the containers of the first job, and of the two gangs, run.
TRAIN_SECONDS, SHORT_SECONDS = 3.0, 2.0


class Teller(Protocol):
    """Shows the story."""

    def say(self, text: str) -> None:
        """A sentence of the narration."""

    def show(self) -> None:
        """The cluster as it is now."""


def cast() -> list[Gang]:
    """Who takes part."""
    return [Gang("llama", 4, 4), Gang("bert", 3, 4), Gang("vit", 3, 4)]


class Story:
    """Acts on the cluster, and waits for what should be seen."""

    def __init__(
        self, cluster: Cluster, chronicle: Chronicle, teller: Teller, *, hold: float
    ) -> None:
        """``hold``: seconds for which a waiting gang is watched before something happens."""
        self._cluster = cluster
        self._client = cluster.client
        self._seen = chronicle
        self._teller = teller
        self._hold = hold

    async def tell(self) -> None:
        """From the first node to the last pod. Raises TimeoutError: something was not seen."""
        await fleet.add_namespace(self._client, NAMESPACE)
        for number in (1, 2, 3):
            await self._add_node(f"node-{number}")
        self._teller.say(f"Three nodes with {GPUS_PER_NODE} free GPUs each.")
        self._teller.show()
        await self._one_job()
        await self._two_gangs()

    async def _one_job(self) -> None:
        llama = self._seen.gangs["llama"]
        self._teller.say(
            f"kubectl apply: PyTorchJob llama, 1 master + 3 workers, {llama.gpus} GPUs each."
        )
        await self._client.create(api.PYTORCH_JOBS, NAMESPACE, _job("llama", 3, TRAIN_SECONDS))
        await self._until(lambda: bool(llama.waited_for), "why llama waits")
        await self._watch_it_wait()
        self._teller.say(
            f"llama waits with {llama.count()} of {llama.size} pods bound: {llama.waited_for}."
        )
        self._teller.show()

        self._teller.say("A fourth node joins.")
        added = time.monotonic()
        await self._add_node("node-4")
        await self._until(llama.whole, "all of llama bound")
        assert llama.whole_at is not None
        self._teller.say(
            f"All {llama.count()} pods bound {llama.whole_at - added:.2f} s later,"
            f" on {', '.join(sorted(llama.nodes))}."
        )
        await self._until(lambda: "Running" in llama.states, "llama running")
        self._teller.show()

    async def _two_gangs(self) -> None:
        llama, bert, vit = self._seen.gangs.values()
        self._teller.say(
            f"Meanwhile two gangs of {bert.size} arrive at once, {bert.gpus} GPUs a pod: bert, plain"
            " pods with a Volcano PodGroup, and vit, a PyTorchJob."
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_apply_pods(self._client, bert, SHORT_SECONDS))
            job = _job("vit", vit.size - 1, SHORT_SECONDS)
            tasks.create_task(self._client.create(api.PYTORCH_JOBS, NAMESPACE, job))
        await self._until(lambda: bool(bert.waited_for and vit.waited_for), "why bert and vit wait")
        self._teller.show()
        await self._until(lambda: "Succeeded" in llama.states, "llama succeeded")
        self._teller.say(f"llama: {' → '.join(llama.states)}. There is room for one of the two.")
        await self._until(lambda: bert.whole() or vit.whole(), "bert or vit bound")
        first, second = (bert, vit) if bert.whole() else (vit, bert)
        self._teller.say(
            f"{first.name} is whole ({first.count()} of {first.size} bound);"
            f" {second.name} waits with {second.count()} of {second.size}."
        )
        self._teller.show()
        await self._until(second.whole, f"all of {second.name} bound")
        self._teller.say(f"{first.name} has ended and {second.name} is whole.")
        self._teller.show()
        await self._until(
            lambda: (
                all(gang.ended() for gang in self._seen.gangs.values())
                and "Succeeded" in vit.states
            ),
            "everything ended",
        )
        self._teller.say("All three have run to their end.")
        self._teller.show()

    async def _add_node(self, name: str) -> None:
        self._seen.announced[name] = GPUS_PER_NODE
        await fleet.add_node(self._client, fleet.node(name, gpus=GPUS_PER_NODE, rack="rack-1"))
        await self._until(lambda: name in self._seen.nodes, f"node {name}")

    async def _watch_it_wait(self) -> None:
        # A fault would bind something now; the chronicle counts it.
        await asyncio.sleep(self._hold)

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        await self._seen.until(condition, what, PATIENCE)


def verdict(chronicle: Chronicle, faults: int) -> Iterator[str]:
    """What was seen and should not have been; nothing when all went well."""
    for gang in chronicle.gangs.values():
        if gang.members != gang.size or gang.bound != gang.size:
            yield f"{gang.name}: {gang.bound} of {gang.members} members bound, {gang.size} asked"
        if gang.max_bound_while_waiting:
            yield f"{gang.name}: {gang.max_bound_while_waiting} bound while it waited"
        if not gang.waited_for:
            yield f"{gang.name}: no reason was given while it waited"
        if gang.states and gang.states != ["Created", "Running", "Succeeded"]:
            yield f"{gang.name}: its job went {' → '.join(gang.states)}"
    for node in sorted(set(chronicle.over_committed)):
        yield f"{node}: more GPUs given than it has"
    if faults:
        yield f"{faults} faults in the service"


def report(cluster: Cluster, chronicle: Chronicle, ok: bool) -> dict[str, Any]:
    """The JSON answer."""
    gangs = [
        {
            "name": gang.name,
            "members": gang.members,
            "bound": gang.bound,
            "max_bound_while_waiting": gang.max_bound_while_waiting,
            "waited_for": gang.waited_for or None,
            "nodes": sorted(gang.nodes),
            # There is no model of the links between GPUs yet.
            "bandwidth_gbs": None,
            "states": gang.states,
        }
        for gang in chronicle.gangs.values()
    ]
    return {"engine": cluster.engine, "ok": ok, "gangs": gangs}


def _job(name: str, workers: int, seconds: float) -> Manifest:
    def role(replicas: int) -> Manifest:
        template = {
            "metadata": {"annotations": {RUN_SECONDS: str(seconds)}},
            "spec": {"containers": [_container("pytorch")]},
        }
        return {"replicas": replicas, "restartPolicy": "OnFailure", "template": template}

    specs = {"Master": role(1), "Worker": role(workers)}
    return {"metadata": {"name": name}, "spec": {"pytorchReplicaSpecs": specs}}


async def _apply_pods(client: Client, gang: Gang, seconds: float) -> None:
    group = {"metadata": {"name": gang.name}, "spec": {"minMember": gang.size}}
    await client.create(api.VOLCANO_GROUPS, NAMESPACE, group)
    for index in range(gang.size):
        annotations = {"scheduling.k8s.io/group-name": gang.name, RUN_SECONDS: str(seconds)}
        pod = {
            "metadata": {"name": f"{gang.name}-{index}", "annotations": annotations},
            "spec": {
                "schedulerName": SCHEDULER,
                "restartPolicy": "Never",
                "containers": [_container("main")],
            },
        }
        await client.create(api.PODS, NAMESPACE, pod)


def _container(name: str) -> Manifest:
    limits = {GPU: str(GPUS_PER_NODE)}
    return {"name": name, "image": "example.com/train:1", "resources": {"limits": limits}}
