"""What could not be read: said when it begins and when it is over, counted once each time."""

from __future__ import annotations

from extender.obs.log import logger
from extender.obs.metrics import Metrics

SOURCES = ("nvml", "sysfs", "podresources", "kubelet", "annotation")

_log = logger("agent")


class Lacks:
    """What is missing in the reading that is being made, and what was in the one before."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        for source in SOURCES:
            metrics.agent_lacks.labels(source)
        self._before: frozenset[tuple[str, str]] = frozenset()
        self._now: dict[tuple[str, str], str] = {}

    def add(self, source: str, field: str, why: object) -> None:
        """``field`` of ``source`` (one of ``SOURCES``) is missing."""
        self._now.setdefault((source, field), " ".join(str(why).split()))

    def listed(self) -> list[dict[str, str]]:
        """What this reading lacks so far."""
        return [{"source": s, "field": f, "why": why} for (s, f), why in sorted(self._now.items())]

    def end(self) -> None:
        """The reading is complete: say what is new, and what is no longer missing."""
        for source, field in sorted(self._now.keys() - self._before):
            self._metrics.agent_lacks.labels(source).inc()
            _log.warning("not known", source=source, field=field, error=self._now[source, field])
        for source, field in sorted(self._before - self._now.keys()):
            _log.info("known again", source=source, field=field)
        self._before = frozenset(self._now)
        self._now = {}
