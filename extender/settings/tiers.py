"""Actions, tiers, plugins and arguments as in Volcano's scheduler configuration, and the whole file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

import plugins
from extender.core.errors import ConfigError, brief
from extender.core.framework import Plugin
from extender.core.session import PROTOCOLS, PluginConf, Session
from extender.settings.sections import Muster, Name, Section

#: Actions that Muster takes; it always enqueues and allocates, and leaves pods of no gang to
#: kube-scheduler, which is what backfill is for.
ACTIONS = ("enqueue", "allocate", "backfill")

#: ``enableX`` switches of Volcano for functions that no plugin of Muster has: accepted, and moot.
#: Source: volcano pkg/scheduler/conf/scheduler_conf.go.
_MOOT = frozenset(
    {
        "Allocatable", "BestNode", "ClusterOrder", "Hierarchy", "HyperNodeOrder", "JobEnqueued",
        "JobPipelined", "JobStarving", "Overused", "Preemptive", "QueueOrder", "Reclaimable",
        "ReservedNodes", "SubJobOrder", "TargetJob", "TaskOrder", "Victim",
    }
)  # fmt: skip


class PluginOption(BaseModel):
    """One plugin of a tier: its name, its arguments, and ``enable<Function>: false`` switches."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    name: Name
    arguments: dict[str, str | int | float | bool] = {}

    @model_validator(mode="after")
    def _switches(self) -> Self:
        for key, value in (self.model_extra or {}).items():
            if _function(key) is None:
                switches = ", ".join(f"enable{name}" for name in PROTOCOLS)
                raise ValueError(f"no field {brief(key)}; allowed: name, arguments, {switches}")
            if not isinstance(value, bool):
                raise ValueError(  # noqa: TRY004 - pydantic reports ValueError
                    f"{key}: {brief(value)} is not allowed: true or false"
                )
        return self

    def conf(self) -> PluginConf:
        """As the core takes it."""
        off = {_function(key) for key, value in (self.model_extra or {}).items() if not value}
        return PluginConf(self.name, self.arguments, frozenset(PROTOCOLS.keys() & off))


class Tier(Section):
    """Plugins of equal precedence."""

    plugins: tuple[PluginOption, ...] = Field(strict=False)


#: Packing leaves whole nodes free for gangs, so spreading by least requested does not count.
_TIERS: tuple[dict[str, Any], ...] = (
    {"plugins": [{"name": "priority"}, {"name": "gang"}, {"name": "conformance"}]},
    {
        "plugins": [
            {"name": "predicates"},
            {"name": "nodeorder", "arguments": {"leastrequested.weight": 0}},
            {
                "name": "binpack",
                "arguments": {
                    "binpack.weight": 10,
                    "binpack.resources": "nvidia.com/gpu",
                    "binpack.resources.nvidia.com/gpu": 10,
                },
            },
        ]
    },
)


def _default_tiers() -> tuple[Tier, ...]:
    return tuple(Tier.model_validate(tier) for tier in _TIERS)


class Settings(Section):
    """The whole file."""

    actions: tuple[str, ...] = ("enqueue", "allocate")
    tiers: tuple[Tier, ...] = Field(default_factory=_default_tiers, min_length=1, strict=False)
    muster: Muster = Muster()

    @field_validator("actions", mode="before")
    @classmethod
    def _split(cls, text: Any) -> Any:
        if isinstance(text, tuple):
            return text  # the default
        if not isinstance(text, str):
            raise ValueError(  # noqa: TRY004 - pydantic reports ValueError
                f'{brief(text)} is not allowed: text, as in "enqueue, allocate"'
            )
        actions = tuple(word.strip() for word in text.split(","))
        for action in actions:
            if action not in ACTIONS:
                raise ValueError(f"no action {brief(action)}; allowed: {', '.join(ACTIONS)}")
        return actions

    def session(self, registry: Mapping[str, type[Plugin]] | None = None) -> Session:
        """The configured plugins. Raises ConfigError for an unknown plugin or argument."""
        confs = [[option.conf() for option in tier.plugins] for tier in self.tiers]
        if registry is None:
            registry = find_plugins(conf.name for tier in confs for conf in tier)
        return plugins.build_session(confs, registry)


def build_session(settings: Settings) -> Session:
    """The same as :meth:`Settings.session`, for whoever is handed functions."""
    return settings.session()


def find_plugins(names: Iterable[str]) -> dict[str, type[Plugin]]:
    """Muster's own plugins, and those of ``names`` that other distributions offer.

    A plugin of Muster cannot be replaced. Only what is named is imported. Raises ConfigError for
    an entry point that cannot be loaded, is no plugin, or is offered twice.
    """
    found = dict(plugins.BUILT_IN)
    wanted = sorted(set(names) - set(found))
    for name in wanted:
        offers = list(entry_points(group=plugins.ENTRY_POINTS, name=name))
        if not offers:
            continue
        if len(offers) > 1:
            raise ConfigError(
                f"plugin {name!r} is offered by {' and '.join(sorted(o.value for o in offers))}"
            )
        try:
            kind = offers[0].load()
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"plugin {name!r}: {offers[0].value} cannot be loaded: {error}"
            ) from error
        if not (isinstance(kind, type) and _is_plugin(kind)):
            raise ConfigError(
                f"plugin {name!r}: {offers[0].value} is not a class with `name` and `arguments`"
            )
        found[name] = kind
    return found


def _is_plugin(kind: type[Any]) -> bool:
    return isinstance(getattr(kind, "name", None), str) and isinstance(
        getattr(kind, "arguments", None), Mapping
    )


def _function(key: str) -> str | None:
    """``JobOrder`` of ``enableJobOrder`` or ``enabledJobOrder`` (Volcano mixes both)."""
    for prefix in ("enabled", "enable"):
        name = key.removeprefix(prefix)
        if name != key and (name in PROTOCOLS or name in _MOOT):
            return name
    return None
