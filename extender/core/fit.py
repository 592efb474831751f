"""In-tree filters that look at one node alone: its name, taints, labels and free resources.

What they say of a row does not change when pods are placed, resources apart. Each function gives
True where the filter lets the pod pass, shape (rows,).

Source: kube-scheduler's nodename, nodeunschedulable, tainttoleration, nodeaffinity and
noderesources plugins; k8s.io/component-helpers/scheduling/corev1.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from extender.core.framework import BoolArray
from extender.core.nodes import NodeView
from extender.core.objects import NodeSelector, NodeSelectorTerm, Requirement, Taint, Toleration
from extender.core.selectors import IN, holds, integer
from extender.core.shape import PodShape

#: Effects that keep a pod from being scheduled (PreferNoSchedule does not).
_HARD = ("NoSchedule", "NoExecute")
_CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def named(view: NodeView, shape: PodShape) -> BoolArray:
    """NodeName: a pod that names its node goes nowhere else."""
    if not shape.node_name:
        return np.ones(view.rows, np.bool_)
    return _rows_named(view, (shape.node_name,))


def schedulable(view: NodeView, shape: PodShape) -> BoolArray:
    """NodeUnschedulable: a cordoned node takes only pods that tolerate the cordon's taint."""
    if tolerated(shape.tolerations, _CORDON):
        return np.ones(view.rows, np.bool_)
    return ~view.unschedulable


def untainted(view: NodeView, shape: PodShape) -> BoolArray:
    """TaintToleration: every NoSchedule and NoExecute taint is tolerated."""
    codes, sets = view.taint_sets()
    passes = [first_untolerated(shape.tolerations, taints) is None for taints in sets]
    return np.array(passes, np.bool_)[codes]


def selected(view: NodeView, shape: PodShape) -> BoolArray:
    """NodeAffinity: every pair of nodeSelector, and one term of the required affinity."""
    mask = np.ones(view.rows, np.bool_)
    for key, value in shape.node_selector:
        mask &= _label_holds(view, Requirement(key, IN, (value,)))
    if shape.node_affinity is not None:
        mask &= any_term(view, shape.node_affinity)
    return mask


def any_term(view: NodeView, selector: NodeSelector) -> BoolArray:
    """Rows for which one of the terms holds; none if there are no terms."""
    mask = np.zeros(view.rows, np.bool_)
    for term in selector.node_selector_terms:
        mask |= term_holds(view, term)
    return mask


def term_holds(view: NodeView, term: NodeSelectorTerm) -> BoolArray:
    """Rows for which every requirement of the term holds; an empty term holds nowhere."""
    if not term.match_expressions and not term.match_fields:
        return np.zeros(view.rows, np.bool_)
    mask = np.ones(view.rows, np.bool_)
    for each in term.match_expressions:
        mask &= _label_holds(view, each)
    for each in term.match_fields:  # metadata.name is the only field there is
        listed = _rows_named(view, each.values)
        mask &= listed if each.operator == IN else ~listed
    return mask


def tolerated(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Whether one of the tolerations matches the taint."""
    return any(_tolerates(each, taint) for each in tolerations)


def first_untolerated(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> Taint | None:
    """The first NoSchedule or NoExecute taint that no toleration matches."""
    hard = (taint for taint in taints if taint.effect in _HARD)
    return next((taint for taint in hard if not tolerated(tolerations, taint)), None)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator or "Equal":
        case "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Lt" | "Gt" as operator:
            have, bound = _decimal(taint.value), _decimal(toleration.value)
            if have is None or bound is None:
                return False
            return have < bound if operator == "Lt" else have > bound
        case _:
            return False


def _decimal(text: str) -> int | None:
    """An integer as people write it: no leading zeros, no plus (content.IsDecimalInteger)."""
    value = integer(text)
    return value if str(value) == text else None


def _label_holds(view: NodeView, requirement: Requirement) -> BoolArray:
    """One requirement over all rows: decided once per distinct value."""
    column = view.column(requirement.key)
    verdicts = [holds(requirement, value) for value in column.values]
    verdicts.append(holds(requirement, None))  # code -1 is the last
    return np.array(verdicts, np.bool_)[column.codes]


def _rows_named(view: NodeView, names: Iterable[str]) -> BoolArray:
    mask = np.zeros(view.rows, np.bool_)
    for name in names:
        row = view.row_of.get(name)
        if row is not None:
            mask[row] = True
    return mask
