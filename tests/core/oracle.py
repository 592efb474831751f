"""Whether a pod fits on a node, told the slow way: from the API objects, one pair at a time.

It shares no code with the core but the quantity parser: labels are looked up in dicts, every count
is a sum over all pods. Written after kube-scheduler's Filter functions, which look at it the same
way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from extender.core import objects as o
from extender.core.quantity import parse

HARD = ("NoSchedule", "NoExecute")


class World:
    """Nodes, the pods bound to them, and the labels of namespaces."""

    def __init__(
        self,
        nodes: Sequence[o.Node],
        pods: Sequence[o.Pod],
        namespaces: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.nodes = {node.metadata.name: node for node in nodes}
        self.pods = [
            pod
            for pod in pods
            if pod.spec.node_name in self.nodes and pod.status.phase not in ("Succeeded", "Failed")
        ]
        self.namespaces = namespaces or {}

    def on(self, node: o.Node) -> list[o.Pod]:
        return [pod for pod in self.pods if pod.spec.node_name == node.metadata.name]

    def fits(self, pod: o.Pod, node: o.Node) -> bool:
        return (
            not_cordoned(pod, node)
            and taints_tolerated(pod, node)
            and node_selected(pod, node)
            and self.resources_fit(pod, node)
            and self.ports_fit(pod, node)
            and self.affinity_fits(pod, node)
            and self.nobody_repels(pod, node)
            and self.spread_fits(pod, node)
        )

    def resources_fit(self, pod: o.Pod, node: o.Node) -> bool:
        here = self.on(node)
        if len(here) + 1 > parse(node.status.allocatable["pods"]):
            return False
        for name, asked in requests(pod).items():
            has = amount(name, node.status.allocatable.get(name, 0))
            if asked and asked + sum(requests(p).get(name, 0) for p in here) > has:
                return False
        return True

    def ports_fit(self, pod: o.Pod, node: o.Node) -> bool:
        held = [port for other in self.on(node) for port in host_ports(other)]
        return not any(clash(a, b) for a in host_ports(pod) for b in held)

    def affinity_fits(self, pod: o.Pod, node: o.Node) -> bool:
        labels = node.metadata.labels
        together, apart = terms(pod, "pod_affinity"), terms(pod, "pod_anti_affinity")
        for term in apart:
            value = labels.get(term.topology_key)
            if value is not None and self.selected_in(term.topology_key, value, [term], pod):
                return False
        if any(term.topology_key not in labels for term in together):
            return False
        if all(
            self.selected_in(t.topology_key, labels[t.topology_key], together, pod)
            for t in together
        ):
            return True
        anywhere = any(
            self.selected_in(t.topology_key, n.metadata.labels[t.topology_key], together, pod)
            for t in together
            for n in self.nodes.values()
            if t.topology_key in n.metadata.labels
        )
        return not anywhere and all(self.speaks_of(t, pod, pod) for t in together)

    def nobody_repels(self, pod: o.Pod, node: o.Node) -> bool:
        for other in self.pods:
            theirs = self.nodes[other.spec.node_name].metadata.labels
            for term in terms(other, "pod_anti_affinity"):
                key = term.topology_key
                same = key in theirs and theirs[key] == node.metadata.labels.get(key)
                if same and self.speaks_of(term, other, pod):
                    return False
        return True

    def selected_in(
        self, key: str, value: str, all_of: Sequence[o.PodAffinityTerm], owner: o.Pod
    ) -> bool:
        """Whether the domain has a pod of which every one of the owner's terms speaks."""
        return any(
            self.nodes[other.spec.node_name].metadata.labels.get(key) == value
            and all(self.speaks_of(term, owner, other) for term in all_of)
            for other in self.pods
        )

    def speaks_of(self, term: o.PodAffinityTerm, owner: o.Pod, other: o.Pod) -> bool:
        named = set(term.namespaces)
        if not named and term.namespace_selector is None:
            named = {owner.metadata.namespace}
        labels = self.namespaces.get(other.metadata.namespace, {})
        if other.metadata.namespace not in named and not selector(term.namespace_selector, labels):
            return False
        mine = owner.metadata.labels
        theirs = other.metadata.labels
        return (
            selector(term.label_selector, theirs)
            and all(theirs.get(k) == mine[k] for k in term.match_label_keys if k in mine)
            and all(theirs.get(k) != mine[k] for k in term.mismatch_label_keys if k in mine)
        )

    def spread_fits(self, pod: o.Pod, node: o.Node) -> bool:
        hard = [
            each
            for each in pod.spec.topology_spread_constraints
            if each.when_unsatisfiable == "DoNotSchedule"
        ]
        keys = [each.topology_key for each in hard]
        for each in hard:
            if each.topology_key not in node.metadata.labels:
                return False
            domains: dict[str, int] = {}
            for other in self.nodes.values():
                if not all(key in other.metadata.labels for key in keys):
                    continue
                if each.node_affinity_policy == "Honor" and not node_selected(pod, other):
                    continue
                if each.node_taints_policy == "Honor" and not taints_tolerated(pod, other):
                    continue
                value = other.metadata.labels[each.topology_key]
                domains[value] = domains.get(value, 0) + self.spread_count(each, pod, other)
            least = min(domains.values(), default=10**9)
            if each.min_domains is not None and len(domains) < each.min_domains:
                least = 0
            here = domains.get(node.metadata.labels[each.topology_key], 0)
            own = spread_selects(each, pod, pod)
            if here + own - least > each.max_skew:
                return False
        return True

    def spread_count(self, each: o.TopologySpreadConstraint, pod: o.Pod, node: o.Node) -> int:
        chosen = each.label_selector
        resolved = any(key in pod.metadata.labels for key in each.match_label_keys)
        if chosen == o.LabelSelector() and not resolved:
            return 0  # an empty selector counts nobody
        return sum(
            other.metadata.namespace == pod.metadata.namespace
            and other.metadata.deletion_timestamp is None
            and spread_selects(each, pod, other)
            for other in self.on(node)
        )


def spread_selects(each: o.TopologySpreadConstraint, owner: o.Pod, other: o.Pod) -> bool:
    mine, theirs = owner.metadata.labels, other.metadata.labels
    return selector(each.label_selector, theirs) and all(
        theirs.get(key) == mine[key] for key in each.match_label_keys if key in mine
    )


def requests(pod: o.Pod) -> dict[str, int]:
    """Sums of plain containers: cpu in milli; the generated pods have nothing else."""
    total: dict[str, int] = {}
    for container in pod.spec.containers:
        for name, text in container.resources.requests.items():
            total[name] = total.get(name, 0) + amount(name, text)
    return total


def amount(name: str, text: o.Quantity) -> int:
    return int(parse(text) * (1000 if name == "cpu" else 1))


def not_cordoned(pod: o.Pod, node: o.Node) -> bool:
    cordon = o.Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
    return not node.spec.unschedulable or any(tolerates(t, cordon) for t in pod.spec.tolerations)


def taints_tolerated(pod: o.Pod, node: o.Node) -> bool:
    return all(
        any(tolerates(toleration, taint) for toleration in pod.spec.tolerations)
        for taint in node.spec.taints
        if taint.effect in HARD
    )


def tolerates(toleration: o.Toleration, taint: o.Taint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value


def node_selected(pod: o.Pod, node: o.Node) -> bool:
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    if not affinity or affinity.required is None:
        return True
    return any(node_term(term, node) for term in affinity.required.node_selector_terms)


def node_term(term: o.NodeSelectorTerm, node: o.Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    return all(requirement(r, node.metadata.labels) for r in term.match_expressions) and all(
        requirement(r, {"metadata.name": node.metadata.name}) for r in term.match_fields
    )


def selector(chosen: o.LabelSelector | None, labels: Mapping[str, str]) -> bool:
    if chosen is None:
        return False
    return all(labels.get(k) == v for k, v in chosen.match_labels.items()) and all(
        requirement(r, labels) for r in chosen.match_expressions
    )


def requirement(r: o.Requirement, labels: Mapping[str, str]) -> bool:
    have = labels.get(r.key)
    if r.operator == "In":
        return have in r.values
    if r.operator == "NotIn":
        return have not in r.values
    if r.operator == "Exists":
        return have is not None
    if r.operator == "DoesNotExist":
        return have is None
    try:
        number, bound = int(have or "no"), int(r.values[0])
    except ValueError:
        return False
    return number > bound if r.operator == "Gt" else number < bound


def terms(pod: o.Pod, kind: str) -> tuple[o.PodAffinityTerm, ...]:
    part: o.PodAffinity | None = getattr(pod.spec.affinity, kind, None)
    return part.required if part else ()


def host_ports(pod: o.Pod) -> list[o.ContainerPort]:
    return [port for each in pod.spec.containers for port in each.ports if port.host_port]


def clash(a: o.ContainerPort, b: o.ContainerPort) -> bool:
    ips = {a.host_ip or "0.0.0.0", b.host_ip or "0.0.0.0"}
    return (a.host_port, a.protocol) == (b.host_port, b.protocol) and (
        len(ips) == 1 or "0.0.0.0" in ips
    )
