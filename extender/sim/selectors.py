"""Label and field selectors, as text in a list or watch request.

Source: apimachinery ``pkg/labels`` and ``pkg/fields``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from extender.core.objects import Manifest
from extender.sim.statuses import bad_request

_SET = re.compile(r"^(?P<key>\S+)\s+(?P<op>in|notin)\s+\((?P<values>[^)]*)\)$")
_EQUAL = re.compile(r"^(?P<key>[^=!\s]+)\s*(?P<op>==|=|!=)\s*(?P<value>[^=\s]*)$")
_EXISTS = re.compile(r"^(?P<not>!?)\s*(?P<key>[A-Za-z0-9][A-Za-z0-9._/-]*)$")


class Clause(Struct, frozen=True):
    """One requirement; ``values`` of None asks for presence alone."""

    key: str
    positive: bool
    values: frozenset[str] | None = None

    def holds(self, value: str | None) -> bool:
        """A negative clause holds for an absent key."""
        inside = value is not None and (self.values is None or value in self.values)
        return inside == self.positive


class Selector(Struct, frozen=True):
    """Both selectors of one request; without clauses it takes everything."""

    labels: tuple[Clause, ...] = ()
    fields: tuple[Clause, ...] = ()

    def matches(self, obj: Manifest) -> bool:
        labels: Mapping[str, str] = obj["metadata"].get("labels") or {}
        return all(clause.holds(labels.get(clause.key)) for clause in self.labels) and all(
            clause.holds(_field(obj, clause.key)) for clause in self.fields
        )


def parse(labels: str, fields: str, allowed: tuple[str, ...]) -> Selector:
    """Read both texts; what cannot be read, or a field not ``allowed``, is a 400."""
    by_field = tuple(_equality(part) for part in fields.split(",") if part.strip())
    for clause in by_field:
        if clause.key not in ("metadata.name", "metadata.namespace", *allowed):
            raise bad_request(f"field label not supported: {clause.key}")
    return Selector(tuple(_requirement(part) for part in _split(labels)), by_field)


def _split(text: str) -> list[str]:
    # Commas inside the parentheses of a set belong to the set.
    return [part.strip() for part in re.split(r",(?![^(]*\))", text) if part.strip()]


def _requirement(text: str) -> Clause:
    if match := _SET.match(text):
        values = frozenset(value.strip() for value in match["values"].split(","))
        return Clause(match["key"], match["op"] == "in", values)
    if _EQUAL.match(text):
        return _equality(text)
    if match := _EXISTS.match(text):
        return Clause(match["key"], not match["not"])
    raise bad_request(f"unable to parse requirement: {text}")


def _equality(text: str) -> Clause:
    match = _EQUAL.match(text.strip())
    if match is None:
        raise bad_request(f"invalid selector: {text}; can't understand it")
    return Clause(match["key"], match["op"] != "!=", frozenset({match["value"]}))


def _field(obj: Any, path: str) -> str:
    for part in path.split("."):
        obj = obj.get(part) if isinstance(obj, dict) else None
    if isinstance(obj, bool):
        return str(obj).lower()
    return "" if obj is None else str(obj)
