"""Gangs in every convention, ways to stand between plan and bind, and judgements of a history."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from extender.core import api
from extender.core.api import Resource
from extender.core.objects import Manifest
from extender.runtime import Service
from tests.controlplane.world import PATIENCE, World, pod


@dataclass(frozen=True)
class Convention:
    """One way to say that pods belong together. ``{group}`` and ``{minimum}`` are filled in."""

    name: str
    resource: Resource
    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    #: Whether users make the record; else Muster makes one of Volcano's kind.
    recorded: bool = True

    def record(self, group: str, minimum: int) -> Manifest:
        """The PodGroup that users write."""
        spec: Manifest = {"minMember": minimum}
        if self.resource == api.NATIVE_GROUPS:
            spec = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
        return {"metadata": {"name": group}, "spec": spec}

    def pods(self, group: str, count: int, minimum: int, **options: Any) -> list[Manifest]:
        """Members ``group-0`` and on."""

        def filled(marks: tuple[tuple[str, str], ...]) -> dict[str, str]:
            return {key: text.format(group=group, minimum=minimum) for key, text in marks}

        if self.resource == api.NATIVE_GROUPS:
            options["schedulingGroup"] = {"podGroupName": group}
        return [
            pod(
                f"{group}-{i}",
                labels=filled(self.labels),
                annotations=filled(self.annotations),
                **options,
            )
            for i in range(count)
        ]


CONVENTIONS = (
    Convention(
        "volcano-k8s",
        api.VOLCANO_GROUPS,
        annotations=(("scheduling.k8s.io/group-name", "{group}"),),
    ),
    Convention(
        "volcano-own",
        api.VOLCANO_GROUPS,
        annotations=(("scheduling.volcano.sh/group-name", "{group}"),),
    ),
    Convention(
        "coscheduling",
        api.SIGS_GROUPS,
        labels=(("scheduling.x-k8s.io/pod-group", "{group}"),),
    ),
    Convention("native", api.NATIVE_GROUPS),
    Convention(
        "ack",
        api.VOLCANO_GROUPS,
        labels=(
            ("pod-group.scheduling.sigs.k8s.io/name", "{group}"),
            ("pod-group.scheduling.sigs.k8s.io/min-available", "{minimum}"),
        ),
        recorded=False,
    ),
    Convention(
        "koordinator",
        api.VOLCANO_GROUPS,
        annotations=(
            ("gang.scheduling.koordinator.sh/name", "{group}"),
            ("gang.scheduling.koordinator.sh/min-available", "{minimum}"),
        ),
        recorded=False,
    ),
)


@contextmanager
def scheduler_stopped(world: World, name: str = "muster") -> Iterator[None]:
    """kube-scheduler stands still: what is planned meanwhile is not bound."""
    world.plane.kill_scheduler(name, signal.SIGSTOP)
    try:
        yield
    finally:
        world.plane.kill_scheduler(name, signal.SIGCONT)


def nominated(world: World, prefix: str = "") -> dict[str, str]:
    """Unbound pods that are released, with the node each is told to go to."""
    return {
        name: pod["status"]["nominatedNodeName"]
        for (namespace, name), pod in world.pods.items()
        if namespace == world.namespace
        and name.startswith(prefix)
        and pod["status"].get("nominatedNodeName")
        and not pod["spec"].get("nodeName")
    }


async def until_planned(world: World, prefix: str, count: int) -> dict[str, str]:
    """Wait until all members are released; returns their planned nodes."""
    await world.until(lambda: len(nominated(world, prefix)) == count, f"{count} released pods")
    return nominated(world, prefix)


def condition(group: Manifest, kind: str = "Unschedulable") -> Manifest:
    """One condition of a group's status; empty when it is not there."""
    found = group.get("status", {}).get("conditions") or ()
    return next((each for each in found if each["type"] == kind), {})


async def until_refused(
    world: World, name: str, *words: str, resource: Resource = api.VOLCANO_GROUPS
) -> Manifest:
    """Wait until the group's condition says why it waits, in these words; returns the condition."""

    def says(group: Manifest) -> bool:
        kind = "PodGroupInitiallyScheduled" if resource == api.NATIVE_GROUPS else "Unschedulable"
        found = condition(group, kind)
        return bool(found) and all(word in found["message"] for word in words)

    group = await world.until_object(resource, name, says, f"a refusal with {words}")
    return condition(group) or condition(group, "PodGroupInitiallyScheduled")


async def read(condition: Callable[[], Any], what: str) -> None:
    """Wait until Muster has read something that the API server has. One watch keeps its order; of two
    kinds of objects the later may be read first.
    """
    try:
        async with asyncio.timeout(PATIENCE):
            while not condition():  # noqa: ASYNC110 - the state has no event to wait for
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"Muster has not read {what}") from None


async def read_nodes(service: Service, *names: str) -> None:
    """Wait until Muster has read of these nodes, and that admission's not-ready taint is off them."""
    state = service.loop.coordinator.state

    def there(name: str) -> bool:
        return state.cluster.row_of(name) is not None and not state.health.silent(name)

    await read(lambda: all(map(there, names)), f"that {names} are ready")


async def describe(world: World, kind: str, name: str) -> str:
    """What ``kubectl describe`` prints."""
    shown = await asyncio.to_thread(
        world.plane.kubectl, "describe", kind, name, "--namespace", world.namespace
    )
    return shown.stdout


def bound_over_time(
    world: World, prefix: str, over: Container[str] = ("Succeeded", "Failed")
) -> list[dict[str, str]]:
    """After each event of the test's namespace: pods that hold a node, and are not ``over``."""
    alive: dict[str, str] = {}
    story = []
    for each in world.seen:
        if each.namespace != world.namespace or not each.name.startswith(prefix):
            continue
        ended = each.kind == "DELETED" or each.phase in over
        if each.node and not ended:
            alive[each.name] = each.node
        else:
            alive.pop(each.name, None)
        story.append(dict(alive))
    return story


def check_landed_whole(world: World, prefix: str, minimum: int) -> None:
    """Once the first member was bound nothing was lost before the gang was whole.

    One that has done its work before the last was shown to be bound is not lost.
    """
    sizes = [len(alive) for alive in bound_over_time(world, prefix, over=("Failed",))]
    rise = sizes[: sizes.index(minimum) + 1] if minimum in sizes else sizes
    assert rise == sorted(rise), f"members were lost on the way: {sizes}"
    assert rise[-1:] == [minimum], f"never whole: {sizes}"


async def gone(world: World, *prefixes: str) -> None:
    """Delete the pods of some gangs, and wait until the API server has forgotten them."""
    names = [
        name
        for namespace, name in list(world.pods)
        if namespace == world.namespace and name.startswith(prefixes)
    ]
    for name in names:
        await world.delete_pod(name)
    await world.until(
        lambda: not any((world.namespace, name) in world.pods for name in names),
        f"the end of {names}",
        PATIENCE,
    )
