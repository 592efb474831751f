"""The shape of a pod: all that decides where it may go, as one hashable value.

Replicas of a role share a shape, so that what is computed for one is computed once for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from extender.core.alignment import Alignment, alignment_of
from extender.core.errors import Faults, InvalidObject
from extender.core.indexes import INDEX_LABELS, told_apart
from extender.core.objects import (
    Container,
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    PodSpec,
    PreferredNodeTerm,
    Requirement,
    Toleration,
    TopologySpreadConstraint,
)
from extender.core.quantity import count
from extender.core.resources import pod_requests
from extender.core.selectors import (
    IN,
    NODE_OPERATORS,
    NOT_IN,
    Selector,
    canonical,
    check_operators,
    ordered,
)
from extender.core.topology.kubelet_shares import ALIBABA, COUNT_ANNOTATION, MILLI_ANNOTATION
from extender.core.topology.limits import Wish

#: Kueue's annotations of a pod template: the label of a level (KEP-2724).
REQUIRED_TOPOLOGY = "kueue.x-k8s.io/podset-required-topology"
PREFERRED_TOPOLOGY = "kueue.x-k8s.io/podset-preferred-topology"
#: The same for slices of so many pods, by their ranks.
SLICE_TOPOLOGY = "kueue.x-k8s.io/podset-slice-required-topology"
SLICE_SIZE = "kueue.x-k8s.io/podset-slice-size"
#: All that a shape is made of.
ANNOTATIONS = (
    REQUIRED_TOPOLOGY,
    PREFERRED_TOPOLOGY,
    SLICE_TOPOLOGY,
    SLICE_SIZE,
    MILLI_ANNOTATION,
    COUNT_ANNOTATION,
)

#: The node field that matchFields can name.
NAME_FIELD = "metadata.name"

#: hostIP that conflicts with every other.
ANY_IP = "0.0.0.0"  # noqa: S104 - a value of the API, nothing is bound


@dataclass(frozen=True, slots=True, order=True)
class HostPort:
    """A port of the node that the pod takes."""

    port: int
    protocol: str
    ip: str

    def conflicts(self, other: HostPort) -> bool:
        """Whether both cannot be on one node (framework.HostPortInfo.CheckConflict)."""
        return (
            self.port == other.port
            and self.protocol == other.protocol
            and (self.ip == other.ip or ANY_IP in (self.ip, other.ip))
        )


@dataclass(frozen=True, slots=True)
class PodTerm:
    """A required pod (anti-)affinity term, its label keys resolved and own namespace filled in."""

    topology_key: str
    selector: Selector | None
    namespaces: tuple[str, ...]
    #: None selects no namespace beyond ``namespaces``.
    namespace_selector: Selector | None


@dataclass(frozen=True, slots=True)
class Spread:
    """A topology spread constraint with DoNotSchedule, its label keys resolved."""

    topology_key: str
    max_skew: int
    selector: Selector | None
    min_domains: int
    honor_affinity: bool
    honor_taints: bool


@dataclass(frozen=True, slots=True)
class PodShape:
    """What decides a pod's placement. Equal shapes may be exchanged for each other.

    ``requests`` are in column units (cpu milli, others whole, ``pods`` 1) sorted by name.
    """

    namespace: str = "default"
    labels: tuple[tuple[str, str], ...] = ()
    requests: tuple[tuple[str, int], ...] = (("pods", 1),)
    priority: int = 0
    node_name: str = ""
    node_selector: tuple[tuple[str, str], ...] = ()
    node_affinity: NodeSelector | None = None
    preferred_nodes: tuple[PreferredNodeTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    spread: tuple[Spread, ...] = ()
    claims: tuple[str, ...] = ()
    #: How near the members of its gang should be, as the pod says (Kueue's annotations).
    near: tuple[Wish, ...] = ()
    #: What a kubelet would align to NUMA nodes, container by container.
    aligned: Alignment = ()
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        """Keep the hash: shapes are dictionary keys everywhere."""
        values = (
            self.namespace, self.labels, self.requests, self.priority, self.node_name,
            self.node_selector, self.node_affinity, self.preferred_nodes, self.tolerations,
            self.host_ports, self.affinity, self.anti_affinity, self.spread, self.claims,
            self.near,
            self.aligned,
        )  # fmt: skip
        object.__setattr__(self, "_hash", hash(values))

    def __hash__(self) -> int:
        return self._hash

    @property
    def numbered(self) -> bool:
        """Whether it is of one replica alone, as its own terms name its index."""
        return any(key in INDEX_LABELS for key, _ in self.labels)

    @property
    def interacts(self) -> bool:
        """Whether a copy's place may depend on other pods beyond the resources they take."""
        return bool(self.host_ports or self.affinity or self.anti_affinity or self.spread)


def shape_of(pod: Pod, *, ignore_pin: bool = False, ignore_node: bool = False) -> PodShape:
    """The shape of a pod.

    ``ignore_pin`` leaves out the pin that Muster adds (see :func:`pinned_node`), ``ignore_node``
    leaves out spec.nodeName, which every bound pod has.
    Raises InvalidObject (QuantityError for a quantity) naming the fields.
    """
    spec, meta = pod.spec, pod.metadata
    faults = Faults()
    keep = faults.keep
    labels = meta.labels
    namespace = meta.namespace or "default"
    affinity = spec.affinity
    node_affinity = affinity.node_affinity if affinity else None
    required = affinity.pod_affinity.required if affinity and affinity.pod_affinity else ()
    together = keep((), _terms, required, namespace, labels, "podAffinity")
    required = (
        affinity.pod_anti_affinity.required if affinity and affinity.pod_anti_affinity else ()
    )
    apart = keep((), _terms, required, namespace, labels, "podAntiAffinity")
    spread = keep((), _spreads, spec.topology_spread_constraints, labels)
    named = [each.selector for each in (*together, *apart)] + [each.selector for each in spread]
    requests, aligned = keep(({}, ()), _asked, pod)
    on_nodes = keep(None, required_nodes, spec, ignore_pin=ignore_pin)
    near = keep((), _near, meta.annotations)
    faults.end()
    return PodShape(
        namespace=namespace,
        labels=_pairs(told_apart(labels, named)),
        requests=tuple(sorted((requests | _annotated(aligned)).items())),
        priority=spec.priority or 0,
        node_name="" if ignore_node else spec.node_name,
        node_selector=_pairs(spec.node_selector),
        node_affinity=on_nodes,
        preferred_nodes=node_affinity.preferred if node_affinity else (),
        tolerations=spec.tolerations,
        host_ports=_host_ports(spec),
        affinity=together,
        anti_affinity=apart,
        spread=spread,
        claims=_claims(spec),
        near=near,
        aligned=aligned,
    )


def _asked(pod: Pod) -> tuple[dict[str, int], Alignment]:
    """What it asks for, in all and of the zones of a node: both read the same quantities."""
    requests = pod_requests(pod.spec, pod.status)
    return requests, alignment_of(pod.spec, pod.metadata.annotations)


def _annotated(aligned: Alignment) -> dict[str, int]:
    """What a pod asks for by annotation alone, as a resource of nodes that count it."""
    asked = [each.share for each in aligned if each.share is not None]
    milli = sum(each.devices * each.milli for each in asked if each.convention == ALIBABA)
    return {MILLI_ANNOTATION: milli} if milli else {}


def _near(annotations: Mapping[str, str]) -> tuple[Wish, ...]:
    """Kueue's podset annotations (KEP-2724); unconstrained asks for nothing that is not done.

    Raises InvalidObject: slices without a level, or of a size that is no number.
    """
    wishes = []
    for key in (REQUIRED_TOPOLOGY, PREFERRED_TOPOLOGY):
        if key in annotations:
            hard = key == REQUIRED_TOPOLOGY
            wishes.append(Wish(hard, f"metadata.annotations[{key}]", label=annotations[key]))
    if SLICE_TOPOLOGY in annotations or SLICE_SIZE in annotations:
        label, size = annotations.get(SLICE_TOPOLOGY, ""), count(annotations.get(SLICE_SIZE, ""))
        if not label:
            raise InvalidObject(f"metadata.annotations[{SLICE_TOPOLOGY}]", label, "a level's label")
        if not size:
            given = annotations.get(SLICE_SIZE, "")
            field = f"metadata.annotations[{SLICE_SIZE}]"
            raise InvalidObject(field, given, "a whole number of at least 1")
        field = f"metadata.annotations[{SLICE_TOPOLOGY}]"
        wishes.append(Wish(True, field, label=label, size=size))
    return tuple(wishes)


def pinned_node(spec: PodSpec) -> str | None:
    """The node to which required node affinity pins the pod by name in every term, if it does."""
    required = _required(spec)
    if required is None or not required.node_selector_terms:
        return None
    pins = {term.match_fields for term in required.node_selector_terms}
    if len(pins) != 1:
        return None
    match next(iter(pins)):
        case (Requirement(key=key, operator=operator, values=(name,)),):
            return name if (key, operator) == (NAME_FIELD, IN) else None
        case _:
            return None


def _required(spec: PodSpec) -> NodeSelector | None:
    if spec.affinity is None or spec.affinity.node_affinity is None:
        return None
    return spec.affinity.node_affinity.required


def required_nodes(spec: PodSpec, *, ignore_pin: bool) -> NodeSelector | None:
    """Required node affinity, with or without Muster's pin. Raises InvalidObject."""
    required = _required(spec)
    if required is None:
        return None
    where = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    for index, term in enumerate(required.node_selector_terms):
        at = f"{where}.nodeSelectorTerms[{index}]"
        check_operators(term.match_expressions, NODE_OPERATORS, f"{at}.matchExpressions")
        check_operators(term.match_fields, (IN, NOT_IN), f"{at}.matchFields")
        for place, each in enumerate(term.match_fields):
            if each.key != NAME_FIELD:
                raise InvalidObject(f"{at}.matchFields[{place}].key", each.key, NAME_FIELD)
    if not ignore_pin or pinned_node(spec) is None:
        return required
    terms = tuple(
        NodeSelectorTerm(match_expressions=term.match_expressions)
        for term in required.node_selector_terms
    )
    # a term that was nothing but the pin allows every node once the pin is gone
    return NodeSelector(terms) if all(term.match_expressions for term in terms) else None


def _host_ports(spec: PodSpec) -> tuple[HostPort, ...]:
    sidecars = (each for each in spec.init_containers if each.restart_policy == "Always")
    ports: set[HostPort] = set()
    for container in (*spec.containers, *sidecars):
        ports.update(_container_ports(container, host_network=spec.host_network))
    return tuple(sorted(ports))


def _container_ports(container: Container, *, host_network: bool) -> list[HostPort]:
    """The API server gives a hostNetwork container host ports equal to its container ports."""
    ports = []
    for port in container.ports:
        number = port.host_port or (port.container_port if host_network else 0)
        if number > 0:
            ports.append(HostPort(number, port.protocol or "TCP", port.host_ip or ANY_IP))
    return ports


def _terms(
    terms: tuple[PodAffinityTerm, ...], namespace: str, labels: dict[str, str], kind: str
) -> tuple[PodTerm, ...]:
    where = f"spec.affinity.{kind}.requiredDuringSchedulingIgnoredDuringExecution"
    return tuple(
        _term(term, namespace, labels, f"{where}[{index}]") for index, term in enumerate(terms)
    )


def _term(term: PodAffinityTerm, namespace: str, labels: dict[str, str], where: str) -> PodTerm:
    if not term.topology_key:
        raise InvalidObject(f"{where}.topologyKey", "", "a node label's key")
    own = not term.namespaces and term.namespace_selector is None
    return PodTerm(
        topology_key=term.topology_key,
        selector=_resolved(
            term.label_selector,
            labels,
            term.match_label_keys,
            term.mismatch_label_keys,
            f"{where}.labelSelector",
        ),
        namespaces=(namespace,) if own else tuple(sorted(set(term.namespaces))),
        namespace_selector=canonical(term.namespace_selector, f"{where}.namespaceSelector"),
    )


def _spreads(
    constraints: tuple[TopologySpreadConstraint, ...], labels: dict[str, str]
) -> tuple[Spread, ...]:
    """The hard constraints; ScheduleAnyway never refuses a node."""
    spreads = []
    for index, each in enumerate(constraints):
        where = f"spec.topologySpreadConstraints[{index}]"
        if each.when_unsatisfiable not in ("DoNotSchedule", "ScheduleAnyway"):
            allowed = "DoNotSchedule ScheduleAnyway"
            raise InvalidObject(f"{where}.whenUnsatisfiable", each.when_unsatisfiable, allowed)
        if each.max_skew < 1:
            raise InvalidObject(f"{where}.maxSkew", each.max_skew, "at least 1")
        if each.when_unsatisfiable == "ScheduleAnyway":
            continue
        spreads.append(
            Spread(
                topology_key=each.topology_key,
                max_skew=each.max_skew,
                selector=_resolved(
                    each.label_selector, labels, each.match_label_keys, (), f"{where}.labelSelector"
                ),
                min_domains=each.min_domains or 1,
                honor_affinity=each.node_affinity_policy != "Ignore",
                honor_taints=each.node_taints_policy == "Honor",
            )
        )
    return tuple(spreads)


def _resolved(
    selector: LabelSelector | None,
    labels: dict[str, str],
    match: tuple[str, ...],
    mismatch: tuple[str, ...],
    where: str,
) -> Selector | None:
    """The selector with the pod's own values of the named label keys; absent keys are ignored."""
    base = canonical(selector, where)
    if base is None:
        return None
    same = [Requirement(key, IN, (labels[key],)) for key in match if key in labels]
    other = [Requirement(key, NOT_IN, (labels[key],)) for key in mismatch if key in labels]
    return ordered((*base, *same, *other))


def _claims(spec: PodSpec) -> tuple[str, ...]:
    """Named claims. A generic ephemeral volume's claim is made after the pod: not known here."""
    sources = (volume.persistent_volume_claim for volume in spec.volumes)
    return tuple(sorted({each.claim_name for each in sources if each is not None}))


def _pairs(labels: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))
