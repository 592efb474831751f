"""Quantities, against the rules of apimachinery's resource package."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.core import quantity
from extender.core.errors import QuantityError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-0", 0),
        ("+5", 5),
        ("1.", 1),
        (".5", Fraction(1, 2)),
        ("100n", Fraction(1, 10**7)),
        ("7u", Fraction(7, 10**6)),
        ("250m", Fraction(1, 4)),
        ("1k", 1000),
        ("2M", 2 * 10**6),
        ("3G", 3 * 10**9),
        ("4T", 4 * 10**12),
        ("5P", 5 * 10**15),
        ("6E", 6 * 10**18),
        ("1Ki", 1024),
        ("1.5Mi", 1024 * 1536),
        ("1Gi", 2**30),
        ("1Ti", 2**40),
        ("1Pi", 2**50),
        ("7Ei", 7 * 2**60),
        ("1e3", 1000),
        ("1E3", 1000),
        ("12e-1", Fraction(6, 5)),
        ("1e+2", 100),
        ("9223372036854775807", 2**63 - 1),
        ("0e999", 0),
        (2, 2),
        (0.5, Fraction(1, 2)),
        (1e-7, Fraction(1, 10**7)),
    ],
)
def test_parse_is_exact(text, value):
    assert quantity.parse(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "", " 1", "1 ", "one", "1K", "1ki", "1mi", "1KiB", "0x10", "1_000", "1e", "1e1.5", "e3", ".",
        "--1", "-1", "-1n", "9223372036854775808", "8Ei", "1e99", "1e999", "\u0661", True, float("nan"),
        float("inf"), -2, "1" * 65,
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_said(text):
    with pytest.raises(QuantityError) as error:
        quantity.parse(text)
    assert error.value.value is text
    assert error.value.allowed


def test_rounding_is_up():
    assert quantity.milli("1") == 1000
    assert quantity.milli("0.1m") == 1
    assert quantity.milli("1n") == 1
    assert quantity.whole("1m") == 1
    assert quantity.whole("1.5Ki") == 1536
    assert quantity.nano("0.1n") == 1


def test_milli_must_fit_too():
    with pytest.raises(QuantityError):
        quantity.milli("9223372036854775807")


@given(st.integers(0, 2**63 - 1))
def test_integers_stay_themselves(value):
    assert quantity.whole(str(value)) == quantity.whole(value) == value


@given(st.integers(0, 10**6), st.sampled_from(["Ki", "Mi", "Gi", "Ti", "k", "M", "G", "T"]))
def test_suffixes_multiply(value, suffix):
    assert quantity.parse(f"{value}{suffix}") == value * quantity.parse(f"1{suffix}")


@given(st.text("0123456789.eE+-numkMGTPiK ", max_size=12))
def test_anything_is_read_or_refused(text):
    try:
        value = quantity.parse(text)
    except QuantityError:
        return
    assert 0 <= value <= quantity.LIMIT
