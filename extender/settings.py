"""muster.yaml as frozen settings.

The top of the file is Volcano's scheduler configuration (actions, tiers, plugins, arguments), so
that a ``volcano-scheduler.conf`` can be given as it is; the ``muster`` section holds the rest.
Every mistake is a ConfigError that names file, field, value and what is allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import entry_points
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.alias_generators import to_camel

import plugins
from extender.core.capacity import SPOT_LABELS
from extender.core.errors import ConfigError, brief
from extender.core.framework import Plugin
from extender.core.session import PROTOCOLS, PluginConf, Session
from extender.core.topology.domains import DEFAULT_LEVELS, HOST, Level

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

#: A node label as the API server accepts it: a DNS subdomain and a slash, or neither, and a name.
LABEL_KEY = (
    r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
)

Seconds = Annotated[float, Field(gt=0, le=86_400)]
Name = Annotated[str, Field(min_length=1, max_length=253)]


class _Section(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, strict=True, validate_default=True
    )


class Tls(_Section):
    """Certificates of the extender's HTTP server; ``clientCAFile`` asks clients for one of its."""

    cert_file: Name
    key_file: Name
    client_ca_file: str | None = Field(default=None, alias="clientCAFile")


class Listen(_Section):
    """Where the extender answers."""

    host: Name = "127.0.0.1"
    port: int = Field(default=8900, ge=0, le=65_535)
    prefix: str = Field(default="/scheduler", pattern=r"^(/[A-Za-z0-9._~-]+)*$")
    #: Probes for everybody, metrics and debug pages for bearers of a token; https where tls is.
    admin_port: int | None = Field(default=None, ge=0, le=65_535)
    #: Something else (a mesh) stands before the port and lets nobody through but kube-scheduler.
    allow_plain_http: bool = Field(default=False, alias="allowPlainHTTP")

    @property
    def loopback(self) -> bool:
        """Whether only processes of this machine (or pod) reach it."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


class LeaderElection(_Section):
    """The Lease, with the same meaning and defaults as in client-go."""

    enabled: bool = True
    namespace: Name = "muster-system"
    name: Name = "muster"
    lease_duration_seconds: Seconds = 15
    renew_deadline_seconds: Seconds = 10
    retry_period_seconds: Seconds = 2

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        # client-go's own rule: a holder must have given up before others may take the lease.
        if not (
            self.lease_duration_seconds
            > self.renew_deadline_seconds
            > self.retry_period_seconds * 1.2
        ):
            raise ValueError(
                "leaseDurationSeconds > renewDeadlineSeconds > 1.2 x retryPeriodSeconds"
            )
        return self


class TopologyLevel(_Section):
    """One level of the network: a node label, or its name and what its uplinks carry besides."""

    label: str = Field(pattern=LABEL_KEY, max_length=317)
    #: What Volcano's highestTierName calls it.
    name: str = Field(default="", max_length=253)
    #: What the nodes of one domain can send, over what its uplinks carry.
    oversubscription: float = Field(default=1.0, ge=1, le=1_000)

    @model_validator(mode="before")
    @classmethod
    def _a_label_alone(cls, data: Any) -> Any:
        return {"label": data} if isinstance(data, str) else data


def _default_levels() -> tuple[TopologyLevel, ...]:
    return tuple(TopologyLevel(label=level.label) for level in DEFAULT_LEVELS)


class Topology(_Section):
    """The network above nodes."""

    #: Widest first, nearest last.
    levels: tuple[TopologyLevel, ...] = Field(
        default_factory=_default_levels, max_length=64, strict=False
    )

    def known(self) -> tuple[Level, ...]:
        """The levels as the core has them."""
        return tuple(Level(each.label, each.name, each.oversubscription) for each in self.levels)

    @field_validator("levels", mode="after")
    @classmethod
    def _distinct(cls, levels: tuple[TopologyLevel, ...]) -> tuple[TopologyLevel, ...]:
        names = [level.label for level in levels] + [level.name for level in levels if level.name]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{brief(twice[0])} stands there twice; allowed: each level once")
        if HOST in names:
            raise ValueError(f"{HOST} is not allowed: a node is always the nearest level")
        return levels


class Agent(_Section):
    """What ``muster agent`` does on each node."""

    read_every_seconds: Seconds = 15
    #: Least time between two writes of its Node.
    write_every_seconds: Seconds = 60
    #: Between two looks at whether somebody else changed what was written.
    compare_every_seconds: Seconds = 600
    pod_resources_socket: Name = "/var/lib/kubelet/pod-resources/kubelet.sock"
    sysfs: Name = "/sys"
    #: The kubelet's KubeletConfiguration, for the Topology Manager's policy; absent: it is not told.
    kubelet_config: Name | None = None
    #: Where the agent's own metrics are served, in plain HTTP; absent: nowhere.
    metrics_port: int | None = Field(default=None, ge=1, le=65_535)


class NodeLoss(_Section):
    """What is done about nodes that fail, fall silent or are about to go."""

    #: How long pods that Muster makes stay on a node that is not ready or not heard of.
    tolerate_seconds: int = Field(default=30, ge=0, le=86_400)
    #: Pods that should have ended on a node that is not heard of are removed so much later; null: never.
    force_delete_after_seconds: Seconds | None = 60
    #: A node on which so many gangs failed within so many seconds is avoided for a while.
    avoid_after_gangs: int = Field(default=3, ge=1, le=1_000)
    avoid_window_seconds: Seconds = 3600
    avoid_seconds: Seconds = 1800


class Termination(_Section):
    """How a node says that it will be gone soon, and how long its pods then have."""

    taints: tuple[Name, ...] = Field(
        default=(
            "aws-node-termination-handler/spot-itn",
            "aws-node-termination-handler/asg-lifecycle-termination",
            "aws-node-termination-handler/scheduled-maintenance",
            "cloud.google.com/impending-node-termination",
            "remediator.kubernetes.azure.com/unschedulable",
            "karpenter.sh/disrupted",
            "ToBeDeletedByClusterAutoscaler",
            "node.cloudprovider.kubernetes.io/shutdown",
        ),
        strict=False,
    )
    #: Types of conditions that are True; keys of annotations.
    conditions: tuple[Name, ...] = Field(default=(), strict=False)
    annotations: tuple[Name, ...] = Field(default=(), strict=False)
    #: Labels of spot nodes, of which one is enough; replica types that keep off them.
    spot_labels: dict[Name, str] = dict(SPOT_LABELS)
    on_demand_roles: tuple[Name, ...] = Field(default=(), strict=False)
    #: A cloud that gives 30 s takes some of them to tell.
    notice_seconds: int = Field(default=25, ge=1, le=86_400)


class Muster(_Section):
    """The section ``muster``: everything that Volcano's format has no place for."""

    #: Names of the schedulers whose KubeSchedulerConfiguration carries Muster's extender.
    scheduler_names: tuple[Name, ...] = Field(default=("muster",), min_length=1, strict=False)
    #: Given to pods that Muster makes where their template has none; the first one by default.
    scheduler_name: str = ""
    #: managedResources of the extender entries; empty when every pod is sent.
    managed_resources: tuple[Name, ...] = Field(default=(), strict=False)
    #: As in KubeSchedulerConfiguration: how long a refused pod may stay away.
    pod_max_backoff_seconds: Seconds = 2
    #: httpTimeout of the bind entry.
    bind_timeout_seconds: Seconds = 120
    #: How long a gang may stay partly bound before it is rolled back.
    plan_deadline_seconds: Seconds = 120
    #: How long a gang waits for capacity before its pods are made visible to autoscalers.
    visible_after_seconds: Seconds = 30
    listen: Listen = Listen()
    tls: Tls | None = None
    #: Bodies above this are refused: 64 MiB hold 5,000 whole nodes (nodeCacheCapable: false).
    body_limit_bytes: int = Field(default=64 << 20, ge=1 << 20, le=1 << 30)
    leader_election: LeaderElection = LeaderElection()
    topology: Topology = Topology()
    #: Writes to the API server that may be under way at once.
    concurrency: int = Field(default=64, ge=1, le=1_000)
    #: Absent: in-cluster configuration, else what kubectl would use.
    kubeconfig: str | None = None
    node_loss: NodeLoss = NodeLoss()
    termination: Termination = Termination()
    agent: Agent = Agent()

    @model_validator(mode="before")
    @classmethod
    def _first_by_default(cls, data: Any) -> Any:
        if isinstance(data, dict) and not data.get("schedulerName"):
            names = data.get("schedulerNames") or ("muster",)
            if isinstance(names, (list, tuple)) and isinstance(names[0], str):
                return {**data, "schedulerName": names[0]}
        return data

    @model_validator(mode="after")
    def _carries(self) -> Self:
        if self.scheduler_name not in self.scheduler_names:
            raise ValueError(
                f"schedulerName {brief(self.scheduler_name)} must be one of schedulerNames"
                f" ({', '.join(self.scheduler_names[:_SHOWN])})"
            )
        if self.bind_timeout_seconds <= 2 * self.pod_max_backoff_seconds:
            raise ValueError("bindTimeoutSeconds must be more than twice podMaxBackoffSeconds")
        listen = self.listen
        if self.tls is None and not listen.loopback and not listen.allow_plain_http:
            raise ValueError(
                f"listen.host: {listen.host!r} is not allowed without tls, as whoever reaches the"
                " port may bind pods: a loopback address, tls, or listen.allowPlainHTTP: true where"
                " something else lets nobody but kube-scheduler through"
            )
        return self

    def unguarded(self) -> str:
        """Why `muster serve` does not open the verbs with this; "" where it does.

        The defaults are a valid configuration, but who may bind pods has to be said by somebody.
        """
        if self.tls is None and "host" not in self.listen.model_fields_set:
            return (
                "muster.listen.host: is missing: without muster.tls every process that reaches the"
                " port may bind pods, so a loopback address has to be named (127.0.0.1)"
            )
        if self.tls is not None and self.tls.client_ca_file is None:
            return "muster.tls.clientCAFile: is missing: callers are told by their CA"
        return ""


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


class Tier(_Section):
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


class Settings(_Section):
    """The whole file."""

    actions: tuple[str, ...] = ("enqueue", "allocate")
    tiers: tuple[Tier, ...] = Field(default_factory=_default_tiers, min_length=1, strict=False)
    muster: Muster = Muster()

    @field_validator("actions", mode="before")
    @classmethod
    def _split(cls, text: Any) -> Any:
        if not isinstance(text, str):
            return text
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


def load(path: str | Path) -> Settings:
    """Read a file. Raises ConfigError if it, or a plugin it names, cannot be used."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    return parse_text(text, str(path))


def parse_text(text: bytes, source: str) -> Settings:
    """Settings from a file's bytes; ``source`` stands in front of every ConfigError."""
    try:
        document = yaml.safe_load(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source}: cannot be read: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"{source}: is nested too deeply") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date or number beyond Python's
        raise ConfigError(f"{source}: is not YAML: {' '.join(str(error).split())}") from error
    return parse(document if document is not None else {}, source)


def parse(document: Any, source: str) -> Settings:
    """Settings from what the YAML holds; ``source`` stands in front of every ConfigError."""
    if isinstance(document, dict) and document.get("kind"):
        kind = str(document["kind"])[:80]
        raise ConfigError(
            f"{source}: is a {kind}, not a muster.yaml (config/muster.yaml shows one)"
        )
    try:
        settings = Settings.model_validate(document)
    except ValidationError as error:
        problems = [_sentence(dict(problem)) for problem in error.errors()]
        shown = problems[:_SHOWN]
        if len(problems) > _SHOWN:
            shown.append(f"and {len(problems) - _SHOWN} more")
        raise ConfigError(f"{source}: {'; '.join(shown)}", problems) from error
    try:
        settings.session()
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}", error.each) from error
    return settings


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


def _sentence(problem: dict[str, Any]) -> str:
    """One pydantic problem as ``field: value is not allowed: what is``."""
    location = [part for part in problem["loc"] if part not in _UNION_BRANCHES]
    field = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in location).lstrip(".")
    value = problem.get("input")
    match problem["type"]:
        case "extra_forbidden":
            allowed = ", ".join(_fields(location[:-1]))
            return f"{field}: no such field; allowed: {allowed}"
        case "missing":
            return f"{field}: is missing"
        case "value_error":
            text = str(problem["ctx"]["error"])
            return f"{field}: {text}" if field else text
        case _:
            return f"{field or 'file'}: {brief(value)} is not allowed: {_allowed(field, problem)}"


def _allowed(field: str, problem: dict[str, Any]) -> str:
    """What may stand there, in words that do not need Python."""
    limits = problem.get("ctx", {})
    match problem["type"]:
        case "tuple_type" | "list_type":
            return f"a list, as in [{str(problem['input'])[:80]}]"
        case "float_type" | "float_parsing":
            return "seconds, a number" if field.endswith("Seconds") else "a number"
        case "int_type" | "int_parsing" | "int_from_float":
            return "a whole number"
        case "string_type":
            return "text (in quotes, where it looks like something else)"
        case "bool_type" | "bool_parsing":
            return "true or false"
        case "model_type" | "model_attributes_type" | "dict_type":
            return "a map of fields"
        case "string_pattern_mismatch" if limits.get("pattern") == LABEL_KEY:
            return "the key of a node label"
        case "greater_than":
            return f"more than {limits['gt']:g}"
        case "greater_than_equal":
            return f"at least {limits['ge']:g}"
        case "less_than_equal":
            return f"at most {limits['le']:g}"
        case "too_short" | "string_too_short":
            return f"at least {limits['min_length']}"
        case _:
            return str(problem["msg"])


#: Problems of one file that are told at once.
_SHOWN = 10

#: What pydantic adds to the place of a value for which several types are allowed.
_UNION_BRANCHES = frozenset({"str", "int", "float", "bool"})


def _fields(location: Sequence[str | int]) -> list[str]:
    """Names that are allowed in the section at ``location``."""
    section: type[BaseModel] = Settings
    for part in location:
        if isinstance(part, int):
            continue
        section = _SECTIONS[part]
    return sorted(field.alias or name for name, field in section.model_fields.items())


_SECTIONS: Mapping[str, type[BaseModel]] = {
    "muster": Muster,
    "listen": Listen,
    "tls": Tls,
    "leaderElection": LeaderElection,
    "agent": Agent,
    "topology": Topology,
    "levels": TopologyLevel,
    "tiers": Tier,
    "plugins": PluginOption,
}
