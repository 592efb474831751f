"""A document of a file, and a problem with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from extender.core.errors import InvalidObject, brief, unfit
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
    """Of a file, or of every YAML file in a folder and below, hidden folders left out. Raises as
    :func:`documents`.
    """
    if not Path(place).is_dir():
        yield from documents(place)
        return
    files = [
        file
        for file in sorted(Path(place).rglob("*"))
        if file.suffix in (".yaml", ".yml")
        and not any(part.startswith(".") for part in file.relative_to(place).parts)
    ]
    if not files:
        yield Problem(place, "", "", "warning", "holds no YAML file")
    for file in files:
        yield from documents(str(file))


def documents(file: str) -> Iterator[Document | Problem]:
    """The documents of a YAML file. Raises OSError or UnicodeDecodeError: it cannot be read."""
    yield from documents_of(Path(file).read_text(encoding="utf-8"), file)


def documents_of(text: str, file: str) -> Iterator[Document | Problem]:
    """The documents of YAML, or JSON, text; ``file`` names it to people."""
    repeated: list[tuple[int, str]] = []
    try:
        bodies = list(_bodies(text, repeated))
    except RecursionError:
        yield Problem(file, "", "", "error", "is nested too deeply")
        return
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date or number beyond Python's
        yield Problem(file, "", "", "error", f"is not YAML: {' '.join(str(error).split())}")
        return
    for line, key in repeated:
        message = f"{brief(key)} of line {line} stands in the same map before: the last one counts"
        yield Problem(file, "", "", "warning", message)
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


class _Loader(yaml.SafeLoader):
    """Keeps which keys a map has twice: the values before the last are lost, here as in kubectl."""

    def __init__(self, text: str, repeated: list[tuple[int, str]]) -> None:
        """``repeated``: what is found goes there, by line."""
        super().__init__(text)
        self._repeated = repeated

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """As it is, its keys looked at."""
        node = super().compose_mapping_node(anchor)
        known = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if (key.tag, key.value) in known:
                self._repeated.append((key.start_mark.line + 1, key.value))
            known.add((key.tag, key.value))
        return node


def _bodies(text: str, repeated: list[tuple[int, str]]) -> Iterator[Any]:
    loader = _Loader(text, repeated)
    try:
        while loader.check_data():  # type: ignore[no-untyped-call]
            yield loader.get_data()
    finally:
        loader.dispose()


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
