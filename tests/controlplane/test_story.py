"""Two stories are found equal where they differ by chance alone, and told apart where they do not."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import Any

import pytest

from extender.core import api
from extender.core.api import Resource
from extender.core.objects import Manifest
from tests.controlplane import story
from tests.controlplane.story import Story, differences

Seen = tuple[Resource, str, Manifest]

pytestmark = pytest.mark.looptime

WAITS = (
    "0/2 nodes are available: 1 Muster: gang {space}/train waits: {why}, 1 node(s) were unschedulable. "
    "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
)
NO_ROOM = "1 of 2 pods fit, room for 1"


def condition(type_: str, status: str, reason: str = "", message: str = "") -> Manifest:
    return {"type": type_, "status": status, "reason": reason, "message": message}


def member(
    space: str, uid: str, node: str = "", nominated: str = "", phase: str = "Pending", **is_: Any
) -> Manifest:
    status = {"phase": phase, "nominatedNodeName": nominated, "conditions": [is_["is_"]]}
    meta = {"name": "train-0", "namespace": space, "uid": uid}
    return {"metadata": meta, "spec": {"nodeName": node}, "status": status}


def group(*conditions: Manifest, phase: str = "Pending") -> Manifest:
    return {"metadata": {"name": "train"}, "status": {"phase": phase, "conditions": conditions}}


def event(space: str, type_: str, reason: str, message: str, on: str = "Pod") -> Manifest:
    name = "train-0" if on == "Pod" else "train"
    words = {"type": type_, "reason": reason, "message": message.replace("SPACE", space)}
    return {"metadata": {"name": "e"}, "involvedObject": {"kind": on, "name": name}, **words}


def waiting(space: str = "real", uid: str = "1", why: str = NO_ROOM) -> list[Seen]:
    """A member, and its group, that wait."""
    words = WAITS.format(space=space, why=why)
    refused = condition("PodScheduled", "False", "Unschedulable", words)
    unschedulable = condition("Unschedulable", "True", "NotEnoughResources", NO_ROOM)
    return [
        (api.PODS, "ADDED", member(space, uid, is_=refused)),
        (api.VOLCANO_GROUPS, "ADDED", group(unschedulable)),
        (api.EVENTS, "ADDED", event(space, "Warning", "FailedScheduling", words)),
        (api.EVENTS, "ADDED", event(space, "Warning", "Unschedulable", NO_ROOM, "PodGroup")),
    ]


def running(space: str = "real", uid: str = "1", node: str = "n1") -> list[Seen]:
    """How it goes on."""
    placed = condition("PodScheduled", "True")
    bound = f"Successfully assigned SPACE/train-0 to {node}"
    scheduled = condition("Scheduled", "True", "tasksReady", "tasks in gang are ready")
    return [
        (api.PODS, "MODIFIED", member(space, uid, nominated=node, is_=placed)),
        (api.PODS, "MODIFIED", member(space, uid, node, node, is_=placed)),
        (api.PODS, "MODIFIED", member(space, uid, node, node, "Running", is_=placed)),
        (api.VOLCANO_GROUPS, "MODIFIED", group(scheduled, phase="Running")),
        (api.EVENTS, "ADDED", event(space, "Normal", "Scheduled", bound)),
    ]


def told(first: list[Seen], then: list[Seen], space: str) -> tuple[Story, list[Seen]]:
    """A story of which only the first part is told yet."""
    made = Story(space)
    for each in first:
        made.see(*each)
    return made, then


async def compared(real: tuple[Story, list[Seen]], other: tuple[Story, list[Seen]]) -> list[str]:
    """The differences after the first part, or those at the end."""
    found = await differences(real[0], other[0], Story.present, 10.0)
    for who, rest in (real, other):
        for each in rest:
            who.see(*each)
    return found or await differences(real[0], other[0], Story.whole, 10.0)


async def test_what_is_chance_is_no_difference() -> None:
    """Namespace, uid, the reason that kube-scheduler was told last, reasons that did not last (or lasted
    on another pod), a nomination that the Binding has overtaken.
    """
    space, uid = "twin", "2"
    passing = "0 of 1 pods exist"
    another = event(space, "Warning", "FailedScheduling", WAITS.format(space=space, why=passing))
    another["involvedObject"]["name"] = "train-1"
    first: list[Seen] = [
        (api.EVENTS, "ADDED", event(space, "Warning", "Unschedulable", passing, "PodGroup")),
        (api.EVENTS, "ADDED", another),
        *waiting(space, uid, why="it is being planned"),
    ]
    then = running(space, uid)
    for _, _, pod in then[:3]:
        del pod["status"]["nominatedNodeName"]
    assert not await compared(told(waiting(), running(), "real"), told(first, then, space))


@pytest.mark.parametrize("held", [True, False])
async def test_a_refusal_after_musters_may_be_told_with_it(held: bool) -> None:
    full = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
    stands = member("real", "1", is_=condition("PodScheduled", "False", "Unschedulable", full))
    first: list[Seen] = [(api.PODS, "MODIFIED", stands)]
    telling = (api.EVENTS, "ADDED", event("real", "Warning", "FailedScheduling", full))
    refused = waiting()[2:3] if held else []  # as far as the other has heard
    found = await compared(
        told([*first, telling], [], "real"), told([*first, *refused], [], "real")
    )
    assert (not found) == held


Doctoring = Callable[[list[Seen], list[Seen]], object]


def _says(seen: Seen, message: str) -> None:
    seen[2]["status"]["conditions"][0]["message"] = message


DOCTORED: dict[str, Doctoring] = {
    "another node": lambda first, then: then.__setitem__(slice(None), running(node="n2")),
    "nominated elsewhere first": lambda first, then: then.insert(
        0, (api.PODS, "MODIFIED", running(node="n2")[0][2])
    ),
    "failed": lambda first, then: then[2][2]["status"].update(phase="Failed"),
    "failed before it ran": lambda first, then: then.insert(
        2, (api.PODS, "MODIFIED", member("real", "1", "n1", "n1", "Failed", is_={"type": "Ready"}))
    ),
    "another pod of its name": lambda first, then: then[2][2]["metadata"].update(uid="9"),
    "deleted": lambda first, then: then.append((api.PODS, "DELETED", then[2][2])),
    "a gate": lambda first, then: then[0][2]["spec"].update(schedulingGates=[{"name": "g"}]),
    "nodes counted wrongly": lambda first, then: _says(
        first[0], WAITS.format(space="real", why=NO_ROOM).replace("1 node(s)", "2 node(s)")
    ),
    "Muster's mark is missing": lambda first, then: _says(
        first[0], WAITS.format(space="real", why=NO_ROOM).replace("Muster: ", "")
    ),
    "another reason of the group": lambda first, then: _says(first[1], "2 of 2 pods fit"),
    "another phase of the group": lambda first, then: first[1][2]["status"].update(phase="Unknown"),
    "the reason stays": lambda first, then: then[3][2]["status"].update(
        conditions=[
            condition("Unschedulable", "True", "", "x"),
            *then[3][2]["status"]["conditions"],
        ]
    ),
    "no event of the reason": lambda first, then: first.pop(3),
    "no event of the refusal": lambda first, then: first.pop(2),
    "no event of the binding": lambda first, then: then.pop(),
    "an event of another binding": lambda first, then: then.append(
        (api.EVENTS, "ADDED", event("real", "Normal", "Scheduled", "Successfully assigned to n2"))
    ),
}


@pytest.mark.parametrize("name", DOCTORED)
async def test_a_doctored_story_is_told_apart(name: str) -> None:
    real = told(waiting(), running(), "real")
    first, then = copy.deepcopy((waiting(), running()))
    DOCTORED[name](first, then)
    found = await compared(real, told(first, then, "real"))
    assert [line for line in found if line[0] in "+-" and not line.startswith(("---", "+++"))]


async def test_who_is_late_is_waited_for() -> None:
    first, late = Story("real"), Story("real")
    for each in waiting():
        first.see(*each)

    def comes() -> None:
        for each in waiting():
            late.see(*each)

    asyncio.get_running_loop().call_later(20 * story.QUIET_SECONDS, comes)
    assert not await differences(first, late, Story.whole, 40.0)
