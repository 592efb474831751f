"""Why the stand-in scheduler found no node for a pod, in kube-scheduler's own words."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from extender.sim.extenders import Filtered
from extender.sim.intree import Refused
from extender.sim.schedqueue import EXTENDER


class Diagnosis:
    """Why no node was left for one pod (framework.FitError)."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.refused: dict[str, Refused] = {}
        self.plugins: set[str] = set()
        #: What is said of nodes that were not looked at.
        self.absent = ""
        #: What preemption came to; "": it made room, None: it found no victims.
        self.preempted: str | None = None

    def note(self, answer: Filtered) -> None:
        """What an extender refused."""
        for name, text in answer.failed.items():
            self.refused[name] = Refused(EXTENDER, (text,), resolvable=True)
        for name, text in answer.unresolvable.items():
            self.refused[name] = Refused(EXTENDER, (text,))

    def message(self) -> str:
        reasons = Counter(reason for item in self.refused.values() for reason in item.reasons)
        if self.absent and len(self.refused) < self.nodes:
            reasons[self.absent] += self.nodes - len(self.refused)
        text = f"0/{self.nodes} nodes are available:"
        if reasons:
            text += f" {_histogram(reasons)}."
        if self.preempted is None:
            return f"{text} preemption: 0/{self.nodes} nodes are available: {self._preemption()}."
        return f"{text} preemption: {self.preempted}" if self.preempted else text

    def _preemption(self) -> str:
        hopeful = sum(item.resolvable for item in self.refused.values())
        reasons = Counter({
            "No preemption victims found for incoming pod": hopeful,
            "Preemption is not helpful for scheduling": self.nodes - hopeful,
        })  # fmt: skip
        return _histogram(reasons)


class Failure(Struct, frozen=True):
    """The end of a cycle without a node. No ``rejectors``: an error, not a refusal."""

    message: str
    reason: str = "SchedulerError"
    rejectors: frozenset[str] = frozenset()
    #: The node on which preemption makes room.
    nominated: str = ""


def _histogram(reasons: Counter[str]) -> str:
    return ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items() if count))
