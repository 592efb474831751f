"""Kubernetes quantities as exact integers.

Source: k8s.io/apimachinery/pkg/api/resource (suffixes, rounding up to the unit that is asked for,
at most 2**63-1, nothing finer than a nano).
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from extender.core.errors import QuantityError
from extender.core.objects import Quantity

#: The largest value that the API keeps.
LIMIT = 2**63 - 1
NANO = 10**9
#: The largest int32: what the API's own counts and seconds can be.
COUNT_LIMIT = 2**31 - 1
#: Longer text is not even read: int() itself refuses thousands of digits.
_COUNT_DIGITS = 64

ALLOWED = "a number with one of the suffixes n u m k M G T P E Ki Mi Gi Ti Pi Ei, or an exponent"
_FORM = re.compile(
    r"([+-]?)(\d{1,64}(?:\.\d{0,64})?|\.\d{1,64})"
    r"(?:[eE]([+-]?\d{1,3})|([numkMGTPE]|[KMGTPE]i)?)",
    re.ASCII,
)
_SUFFIX: dict[str, Fraction] = {
    **{unit: Fraction(10) ** (3 * (power - 3)) for power, unit in enumerate("num")},
    **{unit: Fraction(10) ** (3 * power) for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Fraction(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
}


@lru_cache(maxsize=65_536, typed=True)
def parse(text: Quantity) -> Fraction:
    """The exact value, 0 .. 2**63-1.

    Raises QuantityError (field ``quantity``) for what cannot be read, is negative or too large.
    """
    form = _FORM.fullmatch(str(text)) if not isinstance(text, bool) else None
    if form is None:
        raise QuantityError("quantity", text, ALLOWED)
    sign, number, exponent, suffix = form.groups()
    value = Fraction(number if number[-1] != "." else number[:-1])
    if exponent:
        value *= Fraction(10) ** int(exponent)
    elif suffix:
        value *= _SUFFIX[suffix]
    if sign == "-" and value:
        raise QuantityError("quantity", text, "a value of at least 0")
    if value > LIMIT:
        raise QuantityError("quantity", text, f"a value of at most {LIMIT}")
    return value


@lru_cache(maxsize=65_536, typed=True)
def nano(text: Quantity) -> int:
    """The value in units of 1e-9, rounded up: the finest that the API keeps, so sums are exact."""
    return _round_up(parse(text) * NANO)


def milli(text: Quantity) -> int:
    """The value in thousandths, rounded up (Quantity.MilliValue)."""
    value = _round_up(parse(text) * 1000)
    if value > LIMIT:
        raise QuantityError("quantity", text, f"a value of at most {LIMIT // 1000}")
    return value


def whole(text: Quantity) -> int:
    """The value in whole units, rounded up (Quantity.Value)."""
    return _round_up(parse(text))


def count(text: str) -> int | None:
    """A whole number that people wrote as text, where a field of type int32 could hold it."""
    digits = text if text.isascii() and text.isdigit() and len(text) <= _COUNT_DIGITS else ""
    value = int(digits) if digits else COUNT_LIMIT + 1
    return value if value <= COUNT_LIMIT else None


def _round_up(value: Fraction) -> int:
    return -(-value.numerator // value.denominator)
