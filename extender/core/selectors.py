"""Label selectors in one canonical, hashable form, and whether labels satisfy them.

Source: k8s.io/apimachinery/pkg/labels/selector.go, metav1.LabelSelectorAsSelector.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from extender.core.errors import InvalidObject
from extender.core.objects import LabelSelector, Requirement

#: Requirements that must all hold, in a stable order, matchLabels among them. The empty selector
#: matches everything; None (an absent one) matches nothing.
Selector = tuple[Requirement, ...]

IN = "In"
NOT_IN = "NotIn"
EXISTS = "Exists"
NOT_EXISTS = "DoesNotExist"
GREATER = "Gt"
LESS = "Lt"

LABEL_OPERATORS = (IN, NOT_IN, EXISTS, NOT_EXISTS)
NODE_OPERATORS = (*LABEL_OPERATORS, GREATER, LESS)


def canonical(selector: LabelSelector | None, where: str) -> Selector | None:
    """The canonical form. Raises InvalidObject for an operator that label selectors do not have."""
    if selector is None:
        return None
    check_operators(selector.match_expressions, LABEL_OPERATORS, f"{where}.matchExpressions")
    equal = (Requirement(key, IN, (value,)) for key, value in selector.match_labels.items())
    return ordered((*equal, *selector.match_expressions))


def ordered(requirements: Iterable[Requirement]) -> Selector:
    """The same requirements without duplicates, in a stable order."""
    unique = {(each.key, each.operator, tuple(sorted(set(each.values)))) for each in requirements}
    return tuple(Requirement(*each) for each in sorted(unique))


def check_operators(
    requirements: Iterable[Requirement], allowed: tuple[str, ...], where: str
) -> None:
    """Raises InvalidObject for the first operator that is not allowed."""
    for index, requirement in enumerate(requirements):
        if requirement.operator not in allowed:
            raise InvalidObject(
                f"{where}[{index}].operator", requirement.operator, " ".join(allowed)
            )


def matches(selector: Selector | None, labels: Mapping[str, str]) -> bool:
    """Whether the labels satisfy every requirement."""
    return selector is not None and all(holds(each, labels.get(each.key)) for each in selector)


def holds(requirement: Requirement, value: str | None) -> bool:
    """Whether one requirement holds for a label's value; None: the label is absent."""
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(requirement, value)
        case _:
            return False


def integer(text: str) -> int | None:
    """A 64-bit decimal integer as Go's strconv reads it, or None."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 64):
        return None
    value = int(text)
    return value if -(2**63) <= value < 2**63 else None


def _compares(requirement: Requirement, value: str | None) -> bool:
    if value is None or len(requirement.values) != 1:
        return False
    have, bound = integer(value), integer(requirement.values[0])
    if have is None or bound is None:
        return False
    return have > bound if requirement.operator == GREATER else have < bound
