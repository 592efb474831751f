"""What an observer of an API server saw, and how the stories of two servers are compared.

Nothing is compared but what must come to be the same however fast or slow the programs are: what stands when
nothing happens any more, and the ways of pods. What is left out besides is named here, each with its reason.
"""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from extender.core import api
from extender.core.objects import Manifest

#: Seconds without an event after which two stories are compared. Nothing rests on its length: stories that
#: differ are compared again after the next event, or fail when patience ends.
QUIET_SECONDS = 1.3
#: Fields of a condition that are compared.
CONDITION = ("type", "status", "reason", "message")
#: A reason to wait that is over: whether it was told before is chance.
_OVER = ("Unschedulable", "False")


@dataclass
class Story:
    """What an observer of the API server saw.

    How kube-scheduler and Muster meet is chance: one may ask before the other has read. So conditions count
    as they stand when nothing happens any more, and Warnings if their words were ever among those of an object
    of this name (a job and its group share one). Where a pod went, and how it fared there, counts in full.
    """

    namespace: str
    #: When a watch last had an event, in the loop's time.
    heard_at: float = 0.0
    #: Phase and conditions of each object as they are.
    now: dict[str, Any] = field(default_factory=dict)
    bound: dict[str, str] = field(default_factory=dict)
    #: By pod and aspect, the values one after the other.
    ways: dict[str, dict[str, list[Any]]] = field(default_factory=dict)
    events: set[tuple[str, ...]] = field(default_factory=set)
    #: Names with every message that stood on such an object when the stories were found equal.
    stood: set[tuple[str, str]] = field(default_factory=set)
    #: Pods that were told to be refused by Muster, in either story.
    refused: set[str] = field(default_factory=set)
    _lives: dict[str, list[str]] = field(default_factory=dict)

    def see(self, resource: api.Resource, kind: str, obj: Manifest) -> None:
        """One event of a watch."""
        self.heard_at = asyncio.get_running_loop().time()
        if resource == api.PODS:
            self._see_pod(kind, obj)
            return
        meta, status = obj["metadata"], obj.get("status") or {}
        if resource != api.EVENTS:
            shown = (str(status.get("phase")), self._conditions(status))
            self._now(f"{resource.kind} {meta['name']}", kind, shown)
        elif kind != "DELETED":
            on = obj["involvedObject"]
            what = (f"{on['kind']} {on['name']}", obj["type"], obj["reason"], obj["message"])
            self.events.add(self._normal(what))
            if _held(*what[2:]):
                self.refused.add(what[0])

    def present(self) -> list[str]:
        """How things stand, a line for each."""
        shown = [f"{name} {value}" for name, value in sorted(self.now.items())]
        return [f"bound {sorted(self.bound.items())}", *shown]

    def whole(self) -> list[str]:
        """How things stand, and how they came to."""
        lines = self.present()
        for name, aspects in sorted(self.ways.items()):
            # The Binding may overtake the nomination to the same node: kube-scheduler comes when it likes.
            elsewhere = [node for node in aspects["nominated"] if node not in aspects["node"]]
            shown = aspects | {"nominated": elsewhere}
            lines += [f"{name} {aspect}: {values}" for aspect, values in shown.items()]
        for on, kind, reason, message in sorted(self.events):
            # kube-scheduler tells all refusals of one version of a pod in one Event, with the first's words. One
            # that Muster refuses is looked at again once that is written; refused otherwise, it may not be.
            if reason == "FailedScheduling" and on in self.refused and not _held(reason, message):
                continue
            if kind == "Normal" or (on.split()[1], message) in self.stood:
                lines.append(f"event on {on}: {kind} {reason} {message}")
        return lines

    def stand(self) -> None:
        """From now on Events with these words count."""
        for name, (_, conditions) in self.now.items():
            self.stood |= {(name.split()[1], condition[3]) for condition in conditions}

    def _see_pod(self, kind: str, pod: Manifest) -> None:
        meta, status = pod["metadata"], pod.get("status") or {}
        lives = self._lives.setdefault(meta["name"], [])
        if meta["uid"] not in lives:
            lives.append(meta["uid"])
        name = f"pod {meta['name']} life {lives.index(meta['uid']) + 1}"
        node = pod["spec"].get("nodeName")
        aspects = {
            "node": node,
            "nominated": status.get("nominatedNodeName"),
            "gates": [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()],
            "phase": "gone" if kind == "DELETED" else status.get("phase"),
        }
        seen = self.ways.setdefault(name, {aspect: [] for aspect in aspects})
        for aspect, value in aspects.items():
            if value and seen[aspect][-1:] != [value]:
                seen[aspect].append(value)
        self.bound.pop(meta["name"], None)
        if node and kind != "DELETED":
            self.bound[meta["name"]] = node
        self._now(name, kind, ("", self._conditions(status, "PodScheduled")))

    def _now(self, name: str, kind: str, shown: tuple[str, list[tuple[str, ...]]]) -> None:
        self.now[name] = ("gone", []) if kind == "DELETED" else shown

    def _conditions(self, status: Manifest, only: str = "") -> list[tuple[str, ...]]:
        return sorted(
            self._normal(tuple(str(each.get(key, "")) for key in CONDITION))
            for each in status.get("conditions") or ()
            if (not only or each["type"] == only) and (each["type"], each["status"]) != _OVER
        )

    def _normal(self, texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(normal(text.replace(self.namespace, "NAMESPACE")) for text in texts)


def _held(reason: str, message: str) -> bool:
    return reason == "FailedScheduling" and "Muster: " in message


#: What is chance in a text: a pattern, what stands for it, and why.
_CHANCE = (
    # The gang is told to be whole at any number from its minimum on.
    (r"\d+ (of at least \d+ pods bound)", r"SOME \1"),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID"),
    # A pod has Muster's reason as it was when kube-scheduler asked last, which is not when it last changed.
    (r"(Muster: gang \S+ waits: ).*?(?=(, \d+ (?!asked)|\. )[a-zA-Z(]+)", r"\1WHY"),
    # Other tests leave PriorityClasses on the real control plane.
    (r"(does not exist; allowed: ).*", r"\1CLASSES"),
    (r"127\.0\.0\.1:\d+", "HOST"),
    (r"\d+(\.\d+)? ?(ms|s)\b", "SECONDS"),
)


def normal(text: str) -> str:
    """A text without what is chance in it."""
    for pattern, instead in _CHANCE:
        text = re.sub(pattern, instead, text)
    return text


async def differences(
    real: Story, other: Story, told: Callable[[Story], list[str]], patience: float
) -> list[str]:
    """How two stories differ when nothing happens any more; none as soon as they are found equal.

    A program that is late makes the comparison wait, never fail; ``patience`` in seconds.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + patience
    while True:
        await _quiet(real, other, end)
        real.refused |= other.refused
        other.refused |= real.refused
        lines = difflib.unified_diff(told(real), told(other), "real", "stand-in", n=1, lineterm="")
        if not (found := list(lines)):
            real.stand()
            other.stand()
            return []
        if loop.time() >= end:
            return found


async def _quiet(real: Story, other: Story, end: float) -> None:
    """Wait until neither story has had an event for QUIET_SECONDS, or time is up."""
    loop = asyncio.get_running_loop()
    begun = loop.time()

    def rest() -> float:
        quiet = max(begun, real.heard_at, other.heard_at) + QUIET_SECONDS
        return min(end, quiet) - loop.time()

    while (seconds := rest()) > 0:  # noqa: ASYNC110 - silence is nobody's event
        await asyncio.sleep(max(seconds, 0.01))  # a clock of coarse steps must go on
