"""Labels that number the replicas of one template, and pods whose own terms name them.

Such labels are no part of a shape, or each replica would be a shape of its own: of a pod that no term
of its own asks about them, they decide nothing. Where a term does (``matchLabelKeys`` with an index:
each replica is then a group of its own) they are kept, as kube-scheduler compares them. What is not
seen is a term that singles out replicas of *another* template, whose pods have no such term.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import TypeVar

from msgspec.structs import replace

from extender.core.objects import (
    Affinity,
    Labels,
    LabelSelector,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    Requirement,
    TopologySpreadConstraint,
)
from extender.core.selectors import IN, NOT_IN, Selector

Term = TypeVar("Term", PodAffinityTerm, TopologySpreadConstraint)

INDEX_LABELS = frozenset(
    {
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/job-completion-index",
        "leaderworkerset.sigs.k8s.io/worker-index",
        "statefulset.kubernetes.io/pod-name",
        "training.kubeflow.org/replica-index",
        "volcano.sh/task-index",
    }
)


def told_apart(labels: Labels, selectors: Iterable[Selector | None]) -> Labels:
    """The labels that decide where a pod fits that has these ``selectors`` in its own terms."""
    if INDEX_LABELS.isdisjoint(labels):
        return labels
    named = {each.key for each in chain.from_iterable(s for s in selectors if s is not None)}
    return {key: labels[key] for key in labels if key not in INDEX_LABELS or key in named}


def renumbered(pod: Pod, labels: Mapping[str, str]) -> Pod:
    """An admitted pod as another replica of its template would be admitted, of which these are the
    ``labels``: with its indexes, also where the API server has written one's own into a selector, as it
    does with matchLabelKeys and mismatchLabelKeys (since 1.29, of spread since 1.34).
    """
    before = pod.metadata.labels
    news = {key: labels[key] for key in INDEX_LABELS & before.keys() & labels.keys()}
    old = {key: before[key] for key, value in news.items() if before[key] != value}
    if not old:
        return pod
    spec = replace(
        pod.spec,
        affinity=_affinity(pod.spec.affinity, old),
        topology_spread_constraints=tuple(
            _unmerged(each, old, each.match_label_keys, ())
            for each in pod.spec.topology_spread_constraints
        ),
    )
    return replace(pod, metadata=replace(pod.metadata, labels={**before, **news}), spec=spec)


def _affinity(affinity: Affinity | None, old: Labels) -> Affinity | None:
    if affinity is None:
        return None
    together, apart = affinity.pod_affinity, affinity.pod_anti_affinity
    return replace(
        affinity, pod_affinity=_terms(together, old), pod_anti_affinity=_terms(apart, old)
    )


def _terms(affinity: PodAffinity | None, old: Labels) -> PodAffinity | None:
    if affinity is None:
        return None
    required = tuple(
        _unmerged(each, old, each.match_label_keys, each.mismatch_label_keys)
        for each in affinity.required
    )
    return replace(affinity, required=required)


def _unmerged(term: Term, old: Labels, match: tuple[str, ...], mismatch: tuple[str, ...]) -> Term:
    """The term without what was written into its selector for the ``old`` values."""
    merged = {Requirement(key, IN, (old[key],)) for key in match if key in old}
    merged |= {Requirement(key, NOT_IN, (old[key],)) for key in mismatch if key in old}
    chosen = term.label_selector
    if chosen is None or not merged:
        return term
    rest = tuple(each for each in chosen.match_expressions if each not in merged)
    return replace(term, label_selector=LabelSelector(chosen.match_labels, rest))
