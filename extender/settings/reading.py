"""From the file to settings, or to a ConfigError that names every mistake."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from extender.core.errors import ConfigError, brief
from extender.settings.sections import EXTENDED_RESOURCE, LABEL_KEY, SHOWN
from extender.settings.tiers import Settings

#: What pydantic adds to the place of a value for which several types are allowed.
_UNION_BRANCHES = frozenset({"str", "int", "float", "bool"})
#: What a pattern asks for, in words.
_PATTERNS = {
    LABEL_KEY: "the key of a node label",
    EXTENDED_RESOURCE: "an extended resource, as in nvidia.com/gpu",
}


def load(path: str | Path) -> Settings:
    """Read a file. Raises ConfigError if it, or a plugin it names, cannot be used."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    return parse_text(text, str(path))


def parse_text(text: bytes, source: str) -> Settings:
    """Settings from a file's bytes; ``source`` stands in front of every ConfigError."""
    try:
        document = yaml.safe_load(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source}: cannot be read: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"{source}: is nested too deeply") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date or number beyond Python's
        raise ConfigError(f"{source}: is not YAML: {' '.join(str(error).split())}") from error
    return parse(document if document is not None else {}, source)


def parse(document: Any, source: str) -> Settings:
    """Settings from what the YAML holds; ``source`` stands in front of every ConfigError."""
    if isinstance(document, dict) and document.get("kind"):
        kind = str(document["kind"])[:80]
        raise ConfigError(
            f"{source}: is a {kind}, not a muster.yaml (config/muster.yaml shows one)"
        )
    try:
        settings = Settings.model_validate(document)
    except ValidationError as error:
        problems = [_sentence(problem) for problem in _faults(error)]
        shown = problems[:SHOWN]
        if len(problems) > SHOWN:
            shown.append(f"and {len(problems) - SHOWN} more")
        raise ConfigError(f"{source}: {'; '.join(shown)}", problems) from error
    try:
        settings.session()
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}", error.each) from error
    return settings


def _faults(error: ValidationError) -> list[dict[str, Any]]:
    """What pydantic found, but for lists that it calls too short as it has dropped a wrong element of theirs."""
    found: list[dict[str, Any]] = [dict(problem) for problem in error.errors()]
    places = [problem["loc"] for problem in found]
    return [
        problem
        for problem, loc in zip(found, places, strict=True)
        if problem["type"] != "too_short"
        or not any(other[: len(loc)] == loc and other != loc for other in places)
    ]


def _sentence(problem: dict[str, Any]) -> str:
    """One pydantic problem as ``field: value is not allowed: what is``."""
    location = [part for part in problem["loc"] if part not in _UNION_BRANCHES]
    field = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in location).lstrip(".")
    value = problem.get("input")
    match problem["type"]:
        case "extra_forbidden":
            allowed = ", ".join(_fields(location[:-1]))
            return f"{field}: no such field; allowed: {allowed}"
        case "missing":
            return f"{field}: is missing"
        case "value_error":
            text = str(problem["ctx"]["error"])
            return f"{field}: {text}" if field else text
        case _:
            return f"{field or 'file'}: {brief(value)} is not allowed: {_allowed(field, problem)}"


def _allowed(field: str, problem: dict[str, Any]) -> str:
    """What may stand there, in words that do not need Python."""
    limits = problem.get("ctx", {})
    match problem["type"]:
        case "tuple_type" | "list_type":
            return f"a list, as in [{str(problem['input'])[:80]}]"
        case "float_type" | "float_parsing":
            return "seconds, a number" if field.endswith("Seconds") else "a number"
        case "int_type" | "int_parsing" | "int_from_float":
            return "a whole number"
        case "string_type":
            return "text (in quotes, where it looks like something else)"
        case "bool_type" | "bool_parsing":
            return "true or false"
        case "model_type" | "model_attributes_type" | "dict_type":
            return "a map of fields"
        case "string_pattern_mismatch" if limits.get("pattern") in _PATTERNS:
            return _PATTERNS[limits["pattern"]]
        case "greater_than":
            return f"more than {limits['gt']:g}"
        case "greater_than_equal":
            return f"at least {limits['ge']:g}"
        case "less_than_equal":
            return f"at most {limits['le']:g}"
        case "too_short" | "string_too_short":
            return f"at least {limits['min_length']}"
        case _:
            return str(problem["msg"])


def _fields(location: Sequence[str | int]) -> list[str]:
    """Names that are allowed in the section at ``location``."""
    section: type[BaseModel] = Settings
    for part in location:
        if isinstance(part, str):
            section = _sections(section)[part]
    return sorted(field.alias or name for name, field in section.model_fields.items())


def _sections(section: type[BaseModel]) -> Mapping[str, type[BaseModel]]:
    """By the name of its field each section that stands in this one, alone or in a list."""
    return {
        field.alias or name: inner
        for name, field in section.model_fields.items()
        for inner in _models(field.annotation)
    }


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models in ``T``, ``T | None`` and ``tuple[T, ...]``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)
