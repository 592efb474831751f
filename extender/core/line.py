"""The line of pods that wait for kube-scheduler, as far as Muster can tell.

kube-scheduler takes one pod at a time, by priority and then by age (PrioritySort). A thousand pods
that were let through together take seconds, so one that has not come is not lost for that: it is
late when kube-scheduler has come for one that stood behind it, or has come for nobody for a while.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass(slots=True)
class Line:
    """Whom kube-scheduler has come for, of the pods that were let through. Times in seconds."""

    #: When it last came for any of them.
    heard_at: float = -math.inf
    #: Priority → the latest time of release of those it has come for.
    reached: dict[int, float] = field(default_factory=dict)

    def came(self, priority: int, released_at: float, now: float) -> None:
        """kube-scheduler came for a pod that was let through then, for the first time."""
        self.heard_at = now
        if released_at > self.reached.get(priority, -math.inf):
            self.reached[priority] = released_at

    def holds(self, priority: int, released_at: float, now: float, patience: float) -> bool:
        """Whether a pod that was let through then may still stand in line.

        ``patience``: how long kube-scheduler may leave a pod in back-off, at most.
        """
        if now - self.heard_at >= patience:
            return False
        return not any(
            at > released_at + patience for behind, at in self.reached.items() if behind <= priority
        )
