"""The stand-ins are true: one table of scenarios shows the same on them and on the real programs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.core import api
from extender.core.gang import Gang
from extender.core.identity import GroupKey
from extender.core.ingest import GATE
from extender.core.objects import Manifest
from extender.core.state import State
from tests.controlplane import twin
from tests.controlplane.gangs import nominated
from tests.controlplane.story import Story, differences
from tests.controlplane.test_s10_jobs import job
from tests.controlplane.test_s11b_admission import QUOTAS
from tests.controlplane.twin import Twin
from tests.controlplane.world import PATIENCE, World, pod

ROOT = Path(__file__).parents[2]
CASES = yaml.safe_load((ROOT / "tests/cases/twin.yaml").read_text())
KINDS = {
    "volcano": api.VOLCANO_GROUPS,
    "sigs": api.SIGS_GROUPS,
    "native": api.NATIVE_GROUPS,
    "job": api.PYTORCH_JOBS,
}


async def nodes(t: Twin, names: list[str], **options: Any) -> None:
    await t.world.nodes(*names, **options)
    taints = {each["key"] for each in options.get("taints", ())}

    def there(state: State) -> bool:
        rows = [state.cluster.row_of(name) for name in names]
        known = [state.cluster.nodes.taints[row] for row in rows if row is not None]
        return len(known) == len(names) and all({t.key for t in each} == taints for each in known)

    await t.read(there, f"nodes {names}")


async def priority(t: Twin, **classes: int) -> None:
    for name, value in classes.items():
        await t.world.priority_class(name, value)
    await t.read(lambda state: classes.keys() <= state.priority_classes.keys(), f"{classes}")


async def group(t: Twin, name: str, kind: str = "volcano", **spec: Any) -> None:
    least = spec.pop("min")
    body: Manifest = {"metadata": {"name": name}, "spec": {"minMember": least, **spec}}
    if kind == "native":
        body["spec"] = {"schedulingPolicy": {"gang": {"minCount": least}}}
    await t.world.client.create(KINDS[kind], t.world.namespace, body)
    await t.read(lambda state: _record(t, state, name).uid, f"group {name}")


async def minimum(t: Twin, name: str, to: int) -> None:
    body = {"spec": {"minMember": to}}
    await t.world.client.patch(api.VOLCANO_GROUPS, t.world.namespace, name, body)
    await t.read(lambda state: _record(t, state, name).min_member == to, f"{to} of {name}")


def _record(t: Twin, state: State, name: str) -> Gang:
    """The group of this name as Muster knows it; an empty one where it knows none."""
    namespace = t.world.namespace
    keys = [key for key in state.gangs if (key.namespace, key.name) == (namespace, name)]
    return state.gangs[keys[0]] if keys else Gang(GroupKey(api.VOLCANO_GROUPS, namespace, name))


async def gang(
    t: Twin,
    name: str,
    count: int,
    first: int = 0,
    kind: str = "volcano",
    *,
    gated: bool = False,
    told: bool = True,
    **options: Any,
) -> None:
    """Members one after the other, so that each is met in the same state of the others."""
    for number in range(first, first + count):
        if kind == "sigs":
            options["labels"] = {"scheduling.x-k8s.io/pod-group": name}
        elif kind == "native":
            options["schedulingGroup"] = {"podGroupName": name}
        else:
            options["annotations"] = {"scheduling.k8s.io/group-name": name}
        if gated:
            options["schedulingGates"] = [{"name": GATE}]
        await plain(t, f"{name}-{number}", told=told, **options)


async def plain(t: Twin, name: str, *, told: bool = True, **options: Any) -> None:
    """A pod; where nothing keeps its Binding waiting its first condition is there when this ends."""
    await t.world.create([pod(name, **options)])
    await t.read(lambda state: _known(t, state, name), f"pod {name}")
    if told:
        await t.world.until(lambda: _told(t.world, name), f"a condition or node of {name}")


def _told(world: World, name: str) -> bool:
    found = world.pods.get((world.namespace, name), {})
    return bool((found.get("status") or {}).get("conditions"))


def _known(t: Twin, state: State, name: str) -> bool:
    """Muster has read of a pod, be it a member, one that waits, or one that has its node."""
    pod = t.world.pods.get((t.world.namespace, name))
    uid = pod["metadata"]["uid"] if pod else ""
    return uid in state.uids or uid in state.plain or state.cluster.row_of_pod(uid) is not None


async def training(t: Twin, name: str, workers: int, **more: Any) -> None:
    """A job whose pods run until one is told to end."""
    body = job(name, workers)
    for replicas in body["spec"]["pytorchReplicaSpecs"].values():
        notes = replicas["template"]["metadata"]["annotations"]
        notes.pop("sim.muster.dev/run-seconds")
        replicas["restartPolicy"] = more.get("restart", "OnFailure")
        notes["note"] = "x" * more.get("note", 0)
        if "priority" in more:
            replicas["template"]["spec"]["priorityClassName"] = more["priority"]
    await t.world.client.create(api.PYTORCH_JOBS, t.world.namespace, body)


async def ends(t: Twin, pod: str, code: int) -> None:
    await t.world.end(pod, code)


async def quota(t: Twin, pods: int) -> None:
    """The namespace may have so many pods; nothing but 0 is known to the stand-in."""
    if t.server is not None:
        twin.no_more_pods(t.server)
        return
    hard = {"pods": str(pods)}
    body = {"metadata": {"name": "quota"}, "spec": {"hard": hard}}
    await t.world.client.create(QUOTAS, t.world.namespace, body)
    status = {"status": {"hard": hard, "used": {"pods": "0"}}}
    await t.world.client.patch(QUOTAS, t.world.namespace, "quota", status, "status")


async def suspend(t: Twin, job: str, *, to: bool) -> None:
    body = {"spec": {"runPolicy": {"suspend": to}}}
    await t.world.client.patch(api.PYTORCH_JOBS, t.world.namespace, job, body)


async def delete(t: Twin, pod: str) -> None:
    await t.world.delete_pod(pod)
    await t.world.until(lambda: (t.world.namespace, pod) not in t.world.pods, f"the end of {pod}")
    await t.read(lambda state: (t.world.namespace, pod) not in state.slots, f"the end of {pod}")


async def cordon(t: Twin, node: str = "", planned: str = "", *, to: bool = True) -> None:
    """Cordon a node, or the one that a pod is planned on, before its Binding is sent."""
    if planned:
        await t.world.until(lambda: planned in nominated(t.world), f"a plan for {planned}")
        node = nominated(t.world)[planned]
    await t.world.client.patch(api.NODES, None, node, {"spec": {"unschedulable": to or None}})

    def cordoned(state: State) -> bool:
        row = state.cluster.row_of(node)
        return row is not None and bool(state.cluster.nodes.unschedulable[row]) == to

    await t.read(cordoned, f"{node}'s cordon")


async def nomination(t: Twin, pod: str) -> None:
    """Somebody takes the nomination away."""
    body = {"status": {"nominatedNodeName": None}}
    await t.world.client.patch(api.PODS, t.world.namespace, pod, body, "status")
    place = (t.world.namespace, pod)
    await t.read(lambda state: not state.slots[place][1].nominated, f"the loss of {pod}")


async def extender(t: Twin, *, up: bool) -> None:
    await (t.relay.up() if up else t.relay.down())


async def binding(t: Twin, *, held: bool) -> None:
    """Keep calls of /bind waiting, or let them go."""
    (t.relay.bind.clear if held else t.relay.bind.set)()


async def arrived(t: Twin, count: int) -> None:
    """Wait until kube-scheduler has called /bind for so many pods."""
    async with asyncio.timeout(PATIENCE), t.relay.news:
        await t.relay.news.wait_for(lambda: len(t.relay.binding) >= count)


async def says(t: Twin, pods: str, words: str) -> None:
    """PodScheduled of all these pods has the words."""
    await t.world.until(lambda: _say(t.world, pods, words), f"{words!r} on pods {pods}")


async def phases(t: Twin, pods: str, **counts: int) -> None:
    """So many of these pods are in each phase, and none in another."""
    wanted = sorted(phase for phase, count in counts.items() for _ in range(count))
    await t.world.until(lambda: t.world.phases(pods) == wanted, f"{counts} of pods {pods}")


async def shows(t: Twin, of: str, words: str, kind: str = "volcano") -> None:
    """A condition of this group or job has the words, written TYPE=STATUS MESSAGE."""

    def says(obj: Manifest) -> bool:
        conditions = (obj.get("status") or {}).get("conditions") or ()
        return any(words in f"{c['type']}={c['status']} {c.get('message', '')}" for c in conditions)

    await t.world.until_object(KINDS[kind], of, says, words)


async def event(t: Twin, of: str, words: str) -> None:
    await t.world.until_event(of, words)


def _say(world: World, prefix: str, words: str) -> bool:
    names = [name for space, name in world.pods if space == world.namespace]
    names = [name for name in names if name.startswith(prefix)]
    return bool(names) and all(words in world.scheduled_message(name) for name in names)


STEPS: dict[str, Callable[..., Awaitable[None]]] = {
    each.__name__: each
    for each in (
        nodes, priority, group, minimum, gang, plain, training, ends, quota, suspend, delete, cordon, nomination,
        extender, binding, arrived, says, phases, shows, event,
    )
}  # fmt: skip


async def play(real: Twin, other: Twin, steps: list[dict[str, dict[str, Any]]]) -> list[str]:
    """Do each step in both worlds before the next; how they differ where they first do."""

    async def compared(told: Callable[[Story], list[str]]) -> list[str]:
        return await differences(real.story, other.story, told, PATIENCE)

    for number, step in enumerate(steps, 1):
        ((word, arguments),) = step.items()
        await asyncio.gather(*(STEPS[word](t, **arguments) for t in (real, other)))
        if word in ("says", "shows") and (found := await compared(Story.present)):
            return [f"after step {number}, {word} {arguments}", *found]
    return await compared(Story.present) or await compared(Story.whole)


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in CASES])
async def test_both_worlds_show_the_same(
    world: World, extender_port: int, case: dict[str, Any]
) -> None:
    async with twin.real(world, extender_port) as real, twin.embedded() as other:
        found = await play(real, other, case["steps"])
    assert not found, "\n".join(found)
