"""muster.yaml as frozen settings.

The top of the file is Volcano's scheduler configuration (actions, tiers, plugins, arguments), so
that a ``volcano-scheduler.conf`` can be given as it is; the ``muster`` section holds the rest.
Every mistake is a ConfigError that names file, field, value and what is allowed.
"""

from extender.settings.reading import load, parse, parse_text
from extender.settings.sections import (
    Agent,
    LeaderElection,
    Listen,
    Muster,
    NodeLoss,
    Termination,
    Tls,
    Topology,
    TopologyLevel,
)
from extender.settings.tiers import (
    ACTIONS,
    PluginOption,
    Settings,
    Tier,
    build_session,
    find_plugins,
)

__all__ = [
    "ACTIONS",
    "Agent",
    "LeaderElection",
    "Listen",
    "Muster",
    "NodeLoss",
    "PluginOption",
    "Settings",
    "Termination",
    "Tier",
    "Tls",
    "Topology",
    "TopologyLevel",
    "build_session",
    "find_plugins",
    "load",
    "parse",
    "parse_text",
]
