"""Label selectors, against the tables of apimachinery's labels package."""

from __future__ import annotations

import pytest

from extender.core import objects as o
from extender.core.errors import InvalidObject
from extender.core.selectors import canonical, holds, integer, matches


@pytest.mark.parametrize(
    ("operator", "values", "value", "want"),
    [
        ("In", ("a", "b"), "a", True),
        ("In", ("a",), None, False),
        ("NotIn", ("a",), "a", False),
        ("NotIn", ("a",), "b", True),
        ("NotIn", ("a",), None, True),
        ("Exists", (), "", True),
        ("Exists", (), None, False),
        ("DoesNotExist", (), None, True),
        ("DoesNotExist", (), "", False),
        ("Gt", ("5",), "6", True),
        ("Gt", ("5",), "5", False),
        ("Lt", ("5",), "-6", True),
        ("Lt", ("5",), None, False),
        ("Gt", ("5",), "six", False),
        ("Gt", ("five",), "6", False),
        ("Gt", ("1", "2"), "6", False),
        ("Near", ("1",), "1", False),
    ],
)
def test_one_requirement(operator, values, value, want):
    assert holds(o.Requirement("k", operator, values), value) is want


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("-1", -1), ("+1", 1), ("", None), ("1.0", None), ("²", None), ("-", None),
     (str(2**63), None), (str(-(2**63)), -(2**63)), ("9" * 99, None), (" 1", None)],
)  # fmt: skip
def test_integers_are_gos(text, value):
    assert integer(text) == value


def test_absent_matches_nothing_and_empty_everything():
    assert not matches(canonical(None, "f"), {"a": "b"})
    assert matches(canonical(o.LabelSelector(), "f"), {})


def test_the_same_selector_is_written_in_one_way():
    one = o.LabelSelector(
        match_labels={"x": "1", "a": "2"},
        match_expressions=(o.Requirement("k", "In", ("q", "p")), o.Requirement("x", "In", ("1",))),
    )
    two = o.LabelSelector(
        match_labels={"a": "2"},
        match_expressions=(o.Requirement("x", "In", ("1",)), o.Requirement("k", "In", ("p", "q"))),
    )
    assert canonical(one, "f") == canonical(two, "f")
    assert matches(canonical(one, "f"), {"x": "1", "a": "2", "k": "p"})
    assert not matches(canonical(one, "f"), {"x": "1", "a": "2"})


def test_an_unknown_operator_is_refused():
    selector = o.LabelSelector(match_expressions=(o.Requirement("k", "Gt", ("1",)),))
    with pytest.raises(InvalidObject, match=r"sel\.matchExpressions\[0\]\.operator"):
        canonical(selector, "sel")
