"""How much planning one step may do, and whose gangs get it.

kube-scheduler and the lease wait while a step runs, so a step does a bounded amount of planning and
the next one goes on, in the session's order: the first gang that fits is placed (I7). Gangs that
cannot fit are tried again whenever capacity grows, and whoever has thousands of them would never let
a later gang have its turn. So a gang that was passed over for long gets one out of that order, one
namespace after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from extender.core.gang import Gang
from extender.core.identity import GroupKey

#: What a search for places costs, in units of looking at a gang of so many members.
SEARCH, MEMBERS = 16, 16
#: Units a step: some 60 searches, which take 0.07 s at 1,000 nodes and 0.13 s at 5,000.
STEP = 1024
#: Members that one gang may have to place: its plan has to stay below what the API server stores.
MOST_MEMBERS = 10_000
#: Steps for which a gang is passed over before its namespace has a turn; and such turns a step.
PATIENCE, LATE = 16, 8


def looked(gang: Gang) -> int:
    """What it costs to look at a gang."""
    return 1 + len(gang.members) // MEMBERS


def overdue(waiting: Sequence[Gang]) -> frozenset[GroupKey]:
    """Of the gangs (in order), those whose turn comes although others are before them.

    The longest passed over first; the namespaces take turns.
    """
    late = [gang for gang in waiting if gang.passed_over >= PATIENCE]
    if not late:
        return frozenset()
    late.sort(key=lambda gang: -gang.passed_over)
    seen: Counter[str] = Counter()
    ranked = []
    for gang in late:
        ranked.append((seen[gang.key.namespace], gang.key))
        seen[gang.key.namespace] += 1
    ranked.sort(key=lambda pair: pair[0])
    return frozenset(key for _, key in ranked[:LATE])
