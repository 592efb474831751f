"""The line of pods that wait for kube-scheduler, as far as Muster can tell.

kube-scheduler takes one pod at a time, by priority and then by age (PrioritySort). A thousand pods
that were let through together take seconds, so one that has not come is not lost for that: it is
late when kube-scheduler has come for one that stood behind it, or has asked about nobody for a
while, or when it has waited for as long as any call may last.

A pod's age is that of its last failed try, or of its coming into the queue (1.35.4, 1.36.3 and
1.37.2: scheduling_queue.go, QueuedPodInfo.Timestamp); a change that wakes it does not make it
younger. So a pod that was held before it was let through may stand before any that came later, and
that it was come for says nothing of those. Several schedulers have a line each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass(slots=True)
class Line:
    """Whom kube-scheduler has come for, of the pods that were let through. Times in seconds."""

    #: When any of them last asked about any pod.
    heard_at: float = -math.inf
    #: (Scheduler, priority) → the latest time at which one that it has come for entered the line.
    reached: dict[tuple[str, int], float] = field(default_factory=dict)

    def came(self, scheduler: str, priority: int, entered_at: float, now: float) -> None:
        """A scheduler came for a pod that entered its line then; -inf if that is not known."""
        self.heard_at = now
        place = (scheduler, priority)
        if entered_at > self.reached.get(place, -math.inf):
            self.reached[place] = entered_at

    def holds(
        self,
        scheduler: str,
        priority: int,
        released_at: float,
        now: float,
        *,
        patience: float,
        longest: float,
    ) -> bool:
        """Whether a pod that was let through then may still stand in line.

        ``patience``: how long a scheduler may leave a pod in back-off; ``longest``: how long a pod
        stands in line, whatever comes before it.
        """
        if now - self.heard_at >= patience or now - released_at >= longest:
            return False
        return not any(
            at > released_at + patience
            for (whose, behind), at in self.reached.items()
            if whose == scheduler and behind <= priority
        )
