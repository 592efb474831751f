"""Fields of a KubeSchedulerConfiguration and of an extender entry: kube-scheduler does not start
with others.

Source: k8s.io/kube-scheduler config/v1 types.go.
"""

from __future__ import annotations

from extender.commands.checks.schema import Schema

_TOP = (
    "apiVersion", "kind", "parallelism", "leaderElection", "clientConnection", "enableProfiling",
    "enableContentionProfiling", "healthzBindAddress", "metricsBindAddress",
    "percentageOfNodesToScore", "podInitialBackoffSeconds", "podMaxBackoffSeconds", "profiles",
    "delayCacheUntilActive",
)  # fmt: skip
_ENTRY = (
    "urlPrefix", "filterVerb", "preemptVerb", "prioritizeVerb", "weight", "bindVerb", "enableHTTPS",
    "tlsConfig", "httpTimeout", "nodeCacheCapable", "managedResources", "ignorable",
)  # fmt: skip


def _of(names: tuple[str, ...]) -> Schema:
    properties: dict[str, Schema] = {name: {} for name in names}
    return {"type": "object", "properties": properties}


FIELDS = _of(_TOP)
FIELDS["properties"]["extenders"] = {"type": "array", "items": _of(_ENTRY)}
