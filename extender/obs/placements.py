"""A line in the log for each gang that was placed, and for each attempt that was given up.

The core says neither: it writes a plan's record before the first member is released, and that
tells which gangs to look at until they are whole or wait again.
"""

from __future__ import annotations

from extender.core.api import GANG_PLANS, NATIVE_GROUPS, SIGS_GROUPS, VOLCANO_GROUPS
from extender.core.commands import Command, Create, Patch
from extender.core.gang import Gang, Stage
from extender.core.identity import GroupKey
from extender.core.record import PLANNED
from extender.core.state import State
from extender.obs.log import logger
from extender.obs.metrics import Metrics

_KINDS = {each.api_version: each for each in (VOLCANO_GROUPS, SIGS_GROUPS, NATIVE_GROUPS)}

_log = logger("placements")


class Placements:
    """The gangs under way: by their key, the attempt and when it began (seconds)."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._under_way: dict[GroupKey, tuple[int, float]] = {}

    def sent(self, command: Command, now: float) -> None:
        """Notice a plan's record among the commands."""
        if not isinstance(command, Create | Patch) or command.resource != GANG_PLANS:
            return
        spec = command.body.get("spec", {})
        if spec.get("state") != PLANNED:
            return
        group = spec["groupRef"]
        key = GroupKey(_KINDS[group["apiVersion"]], command.namespace, group["name"])
        known = self._under_way.get(key)
        if known is None or known[0] != spec["attempt"]:
            self._under_way[key] = (spec["attempt"], now)

    def look(self, state: State, now: float) -> None:
        """Say what has become of them, after a step."""
        if not state.leading:
            self._under_way.clear()
            return
        for key, (attempt, began) in list(self._under_way.items()):
            gang = state.gangs.get(key)
            if gang is not None and gang.stage != Stage.WAITING:
                continue
            del self._under_way[key]
            if gang is not None and gang.satisfied():
                self._metrics.placement_seconds.observe(max(0.0, now - began))
            if gang is not None:
                _tell(gang, attempt, now - began)


def _tell(gang: Gang, attempt: int, seconds: float) -> None:
    if gang.satisfied():
        nodes = {member.node for member in gang.members.values() if member.node}
        _log.info(
            "placed",
            gang=str(gang.key),
            members=gang.placed(),
            nodes=len(nodes),
            seconds=round(seconds, 3),
        )
        return
    why = gang.refusal.render() if gang.refusal is not None else "its members are planned anew"
    _log.info("rolled back", gang=str(gang.key), attempt=attempt, why=why)
