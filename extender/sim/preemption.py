"""The stand-in scheduler's preemption: which pods would have to go for one that fits nowhere. Pure.

Not there: disruption budgets, and the choice of nodes by chance where there are many (all are
looked at, in the order of their names).

Source: kubernetes ``pkg/scheduler/framework/preemption/preemption.go`` and
``plugins/defaultpreemption/default_preemption.go`` (1.37).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from extender.core.objects import Manifest
from extender.sim.intree import Refused, refuse
from extender.sim.podfit import Amounts, Row, Usage

#: Victims by node, the most important first.
Victims = dict[str, list[Manifest]]


def ineligible(pod: Manifest, pods: Iterable[Manifest]) -> str:
    """Why this pod may not preempt anybody now; "" if it may. ``pods`` are those with a node."""
    if pod["spec"].get("preemptionPolicy") == "Never":
        return "not eligible due to preemptionPolicy=Never."
    nominated = (pod.get("status") or {}).get("nominatedNodeName")
    if nominated and any(
        other["spec"].get("nodeName") == nominated
        and "deletionTimestamp" in other["metadata"]
        and priority(other) < priority(pod)
        for other in pods
    ):
        return "not eligible due to a terminating pod on the nominated node."
    return ""


def candidates(
    pod: Manifest,
    wanted: Amounts,
    rows: Iterable[Row],
    refused: Mapping[str, Refused],
    promised: Mapping[str, Amounts],
    on: Mapping[str, list[Manifest]],
) -> Victims:
    """Nodes that would take the pod without some of the pods ``on`` them, and those pods.

    Only nodes that were refused for a reason that evictions may change are looked at.
    """
    found: Victims = {}
    for row in rows:
        why = refused.get(row.name)
        if row.node is None or why is None or not why.resolvable:
            continue
        victims = _victims(pod, wanted, row, promised.get(row.name, {}), on.get(row.name, []))
        if victims:
            found[row.name] = victims
    return found


def choose(found: Victims) -> str:
    """The node where preemption does the least harm; ``found`` is not empty."""

    def harm(node: str) -> tuple[int, int, int, str, str]:
        victims = found[node]
        total = sum(priority(victim) + 2**31 for victim in victims)
        highest = max(map(priority, victims))
        # Of equal ones, that whose most important victims started last.
        first = min(_started(victim) for victim in victims if priority(victim) == highest)
        return highest, total, len(victims), _inverted(first), node

    return min(sorted(found), key=harm)


def priority(pod: Manifest) -> int:
    return int(pod["spec"].get("priority") or 0)


def _victims(
    pod: Manifest, wanted: Amounts, row: Row, promised: Amounts, there: list[Manifest]
) -> list[Manifest]:
    """None where the pod does not fit without all that are less important; else the fewest."""
    lesser = [other for other in there if priority(other) < priority(pod)]
    usage = Usage()
    usage.set_node(row.name, row.node)
    for other in there:
        if priority(other) >= priority(pod):
            usage.add(other, row.name)
    bare = usage.rows[row.name]
    if refuse(pod, wanted, bare, promised) is not None:
        return []
    victims = []
    for other in sorted(lesser, key=lambda each: (-priority(each), _started(each))):
        usage.add(other, row.name)
        if refuse(pod, wanted, bare, promised) is not None:
            usage.remove(other["metadata"]["uid"])
            victims.append(other)
    return victims


def _started(pod: Manifest) -> str:
    """RFC 3339; a pod that has not started counts as starting now."""
    return str((pod.get("status") or {}).get("startTime") or "9999")


def _inverted(text: str) -> str:
    """Sorts the other way round."""
    return "".join(chr(255 - ord(letter)) for letter in text)
