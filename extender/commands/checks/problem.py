"""A document of a file, and a problem with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from extender.core.errors import InvalidObject, unfit
from extender.core.reasons import Code, Refusal

Severity = Literal["error", "warning"]

#: Values and levels of one document. Aliases make a short file long without end, or let a map hold
#: itself; what reads documents recurses.
MOST_VALUES, MOST_NESTED = 1_000_000, 100


@dataclass(frozen=True)
class Document:
    """One YAML document, a list's items taken apart."""

    file: str
    body: Any

    @property
    def kind(self) -> tuple[str, str]:
        """Its apiVersion and kind; empty where there is none."""
        if not isinstance(self.body, dict):
            return "", ""
        return str(self.body.get("apiVersion") or ""), str(self.body.get("kind") or "")

    @property
    def title(self) -> str:
        """``Kind namespace/name``, as far as the document says."""
        body = self.body if isinstance(self.body, dict) else {}
        meta = body.get("metadata")
        meta = meta if isinstance(meta, dict) else {}
        name = str(meta.get("name") or meta.get("generateName") or "")
        if meta.get("namespace"):
            name = f"{meta['namespace']}/{name}"
        return " ".join(part for part in (self.kind[1], name) if part)

    def problem(
        self, field: str, message: str, severity: Severity = "error", advice: str = ""
    ) -> Problem:
        """A problem with this document. ``advice`` is the code of docs/advice.md, if it is one."""
        return Problem(self.file, self.title, field, severity, message, advice)

    def invalid(self, error: InvalidObject, under: str = "") -> Iterator[Problem]:
        """The same for each field that was refused."""
        for each in error.each:
            field = f"{under}.{each.field}" if under else each.field
            yield self.problem(field, f"{unfit(each.value)}: {each.allowed}")
        if error.more:
            yield self.problem(under, f"{error.more} more values are not allowed")

    def refused(self, refusal: Refusal, field: str = "metadata") -> Iterator[Problem]:
        """The same for a refusal; the fields it names, else ``field``."""
        if refusal.code != Code.INVALID:
            yield self.problem(field, refusal.render())
            return
        for reason in refusal.reasons:
            if reason.code != Code.INVALID:
                yield self.problem("", reason.render())
                continue
            values = dict(reason.params)
            message = f"{values['value']} is not allowed: {values['allowed']}"
            yield self.problem(str(values["field"]), message)


@dataclass(frozen=True)
class Problem:
    """Something wrong, and where."""

    file: str
    object: str
    field: str
    severity: Severity
    message: str
    advice: str = ""

    def json(self) -> dict[str, str]:
        """As in the answer."""
        return asdict(self)

    def __str__(self) -> str:
        where = ": ".join(part for part in (self.file, self.object, self.field) if part)
        code = f" [{self.advice}]" if self.advice else ""
        return f"{where}: {self.severity}: {self.message}{code}"


def documents_below(place: str) -> Iterator[Document | Problem]:
    """Of a file, or of every YAML file in a folder and below. Raises as :func:`documents`."""
    if not Path(place).is_dir():
        yield from documents(place)
        return
    files = sorted(file for file in Path(place).rglob("*") if file.suffix in (".yaml", ".yml"))
    if not files:
        yield Problem(place, "", "", "warning", "holds no YAML file")
    for file in files:
        yield from documents(str(file))


def documents(file: str) -> Iterator[Document | Problem]:
    """The documents of a YAML file. Raises OSError or UnicodeDecodeError: it cannot be read."""
    yield from documents_of(Path(file).read_text(encoding="utf-8"), file)


def documents_of(text: str, file: str) -> Iterator[Document | Problem]:
    """The documents of YAML, or JSON, text; ``file`` names it to people."""
    try:
        bodies = list(yaml.safe_load_all(text))
    except RecursionError:
        yield Problem(file, "", "", "error", "is nested too deeply")
        return
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date or number beyond Python's
        yield Problem(file, "", "", "error", f"is not YAML: {' '.join(str(error).split())}")
        return
    if all(body is None for body in bodies):
        yield Problem(file, "", "", "warning", "holds nothing")
    for body in bodies:
        if body is None:
            continue
        if fault := _too_much(body):
            yield Problem(file, "", "", "error", fault)
            continue
        items = body.get("items") if isinstance(body, dict) else None
        if isinstance(items, list) and str(body.get("kind", "")).endswith("List"):
            for item in items:
                yield Document(file, item)
        else:
            yield Document(file, body)


def _too_much(body: Any) -> str:
    """Why a document is not read on, if it is not."""
    values, level = 0, [body]
    for _ in range(MOST_NESTED):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict | list):
                below += value.values() if isinstance(value, dict) else value
                if values + len(below) > MOST_VALUES:
                    return f"holds more than {MOST_VALUES} values, each alias counted in full"
        if not below:
            return ""
        values, level = values + len(below), below
    return f"is nested more than {MOST_NESTED} levels deep; does an alias hold itself?"
