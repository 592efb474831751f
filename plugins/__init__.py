"""Scheduling plugins, one file each, under the names that Volcano gives them.

A new plugin is one file and one line in :data:`BUILT_IN`. Others come from installed distributions
by an entry point in the group :data:`ENTRY_POINTS` (:mod:`extender.settings` loads those that the
configuration names).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from extender.core.errors import ConfigError
from extender.core.framework import Plugin
from extender.core.session import Enabled, PluginConf, Session
from plugins.binpack import Binpack
from plugins.conformance import Conformance
from plugins.fragmentation import Fragmentation
from plugins.gang import Gang
from plugins.nodeorder import NodeOrder
from plugins.numaaware import NumaAware
from plugins.predicates import Predicates
from plugins.priority import Priority

ENTRY_POINTS = "muster.plugins"

Scalar = str | int | float | bool

BUILT_IN: Mapping[str, type[Plugin]] = {
    "binpack": Binpack,
    "conformance": Conformance,
    "fragmentation": Fragmentation,
    "gang": Gang,
    "nodeorder": NodeOrder,
    "numaaware": NumaAware,
    "predicates": Predicates,
    "priority": Priority,
}


def build_session(
    tiers: Sequence[Sequence[PluginConf]], registry: Mapping[str, type[Plugin]] = BUILT_IN
) -> Session:
    """Make every plugin of the configuration.

    Raises ConfigError that names all plugins that ``registry`` lacks, or the first wrong argument.
    """
    places = [
        (f"tiers[{t}].plugins[{p}]", conf)
        for t, tier in enumerate(tiers)
        for p, conf in enumerate(tier)
    ]
    allowed = ", ".join(sorted(registry))
    unknown = [
        f"{place}.name: no plugin {conf.name!r}{_volcano(conf.name)}; allowed: {allowed}"
        for place, conf in places
        if conf.name not in registry
    ]
    if unknown:
        raise ConfigError("; ".join(unknown), unknown)
    made = iter(
        [Enabled(_make(conf, registry[conf.name], place), conf.off) for place, conf in places]
    )
    return Session([[next(made) for _ in tier] for tier in tiers])


#: Plugins of Volcano's that Muster has no equal of, and what they are for.
#: Source: volcano pkg/scheduler/plugins/factory.go.
VOLCANO: Mapping[str, str] = {
    "capacity": "queues' capacities",
    "deviceshare": "shared GPUs",
    "drf": "fair share",
    "extender": "HTTP extenders",
    "network-topology-aware": "network topology",
    "nodegroup": "node groups of queues",
    "overcommit": "admission beyond the cluster's size",
    "pdb": "disruption budgets",
    "proportion": "queues' shares",
    "rescheduling": "moving running pods",
    "resource-strategy-fit": "strategies by resource",
    "resourcequota": "namespaces' quotas",
    "sla": "longest waiting times",
    "task-topology": "affinity between tasks",
    "tdm": "nodes shared by time",
    "usage": "measured load",
}


def _volcano(name: str) -> str:
    """Why a plugin of Volcano's is not there, and what to do with its line."""
    what = VOLCANO.get(name)
    return f" (Volcano's {what}; Muster has none yet): remove the line" if what else ""


def _make(conf: PluginConf, kind: type[Plugin], place: str) -> Plugin:
    return kind(complete(kind.arguments, conf.arguments, f"{place}.arguments"))


def complete(
    defaults: Mapping[str, Scalar], given: Mapping[str, Any], field: str
) -> dict[str, Scalar]:
    """Check arguments against their defaults and add those that are absent.

    A default's key that ends in ``*`` allows any key with that beginning (binpack names resources
    in its keys) and adds nothing by itself. Numbers and booleans may be written as text, as
    Volcano takes them; no number may be negative.
    """
    result = {key: value for key, value in defaults.items() if not key.endswith("*")}
    for key, value in given.items():
        pattern = key if key in result else _pattern(defaults, key)
        if pattern is None:
            allowed = ", ".join(sorted(defaults)) or "none (this plugin takes no arguments)"
            raise ConfigError(f"{field}: no argument {key!r}; allowed: {allowed}")
        result[key] = _convert(value, defaults[pattern], f"{field}[{key}]")
    return result


def _pattern(defaults: Mapping[str, Scalar], key: str) -> str | None:
    wildcards = sorted(p for p in defaults if p.endswith("*") and key.startswith(p[:-1]))
    return wildcards[-1] if wildcards and key not in wildcards else None


def _convert(value: Any, default: Scalar, field: str) -> Scalar:
    if isinstance(default, bool):
        word = str(value).lower()
        if word in {"true", "false"}:
            return word == "true"
        raise ConfigError(f"{field}: {value!r} is not allowed: true or false")
    if isinstance(default, str):
        if isinstance(value, str):
            return value
        raise ConfigError(f"{field}: {value!r} is not allowed: text")
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise ConfigError(f"{field}: {value!r} is not allowed: a number of 0 or more")
    return int(number) if isinstance(default, int) and number.is_integer() else number
