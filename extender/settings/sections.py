"""The section ``muster`` of the file: everything that Volcano's format has no place for."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic.alias_generators import to_camel

from extender.core.capacity import SPOT_LABELS
from extender.core.errors import brief
from extender.core.topology.domains import DEFAULT_LEVELS, HOST, Level

#: Names or problems that one sentence tells.
SHOWN = 10

#: A node label as the API server accepts it: a DNS subdomain and a slash, or neither, and a name.
LABEL_KEY = (
    r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
)

#: An extended resource's name, which is all that kube-scheduler takes as managed.
EXTENDED_RESOURCE = (
    r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
)

#: Seconds from podMaxBackoffSeconds to the shortest bindTimeoutSeconds: for so long the barrier waits for who
#: comes late (core.state.Rules.arrival_slack), and so much sooner /bind is answered (runtime.BIND_SLACK).
BIND_MORE = 10.0

Seconds = Annotated[float, Field(gt=0, le=86_400)]
Name = Annotated[str, Field(min_length=1, max_length=253)]
ExtendedResource = Annotated[str, Field(pattern=EXTENDED_RESOURCE, max_length=317)]


class Section(BaseModel):
    """A map of fields; what is not one of them is refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, strict=True, validate_default=True
    )


class Tls(Section):
    """Certificates of the extender's HTTP server; ``clientCAFile`` asks clients for one of its."""

    cert_file: Name
    key_file: Name
    client_ca_file: str | None = Field(default=None, alias="clientCAFile")


class Listen(Section):
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


class LeaderElection(Section):
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


class TopologyLevel(Section):
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


class Topology(Section):
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


class Agent(Section):
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


class NodeLoss(Section):
    """What is done about nodes that fail, fall silent or are about to go."""

    #: How long pods that Muster makes stay on a node that is not ready or not heard of.
    tolerate_seconds: int = Field(default=30, ge=0, le=86_400)
    #: Pods that should have ended on a node that is not heard of are removed so much later; null: never.
    force_delete_after_seconds: Seconds | None = 60
    #: A node is said to be not heard of so much later at most (kube-controller-manager's
    #: --node-monitor-grace-period and 5 s).
    noticed_after_seconds: int = Field(default=60, ge=0, le=86_400)
    #: A node that was deleted while it was well counts as lost so much later.
    deleted_after_seconds: int = Field(default=40, ge=0, le=86_400)
    #: A node on which so many gangs failed within so many seconds is avoided for a while.
    avoid_after_gangs: int = Field(default=3, ge=1, le=1_000)
    avoid_window_seconds: Seconds = 3600
    avoid_seconds: Seconds = 1800


class Termination(Section):
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


class Muster(Section):
    """The whole section."""

    #: Names of the schedulers whose KubeSchedulerConfiguration carries Muster's extender.
    scheduler_names: tuple[Name, ...] = Field(default=("muster",), min_length=1, strict=False)
    #: Given to pods that Muster makes where their template has none; the first one by default.
    scheduler_name: str = ""
    #: managedResources of the extender entries; empty when every pod is sent.
    managed_resources: tuple[ExtendedResource, ...] = Field(default=(), strict=False)
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
                f" ({', '.join(self.scheduler_names[:SHOWN])})"
            )
        least = self.pod_max_backoff_seconds + BIND_MORE
        if self.bind_timeout_seconds < least:
            raise ValueError(
                f"bindTimeoutSeconds: {self.bind_timeout_seconds:g} is not allowed: at least {least:g},"
                f" podMaxBackoffSeconds and {BIND_MORE:g} s more"
            )
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
