"""An object of a file, read as the service reads it from the API."""

from __future__ import annotations

import re
from typing import Any, Final, TypeVar

import msgspec

from extender.commands.checks.problem import Document, Problem

T = TypeVar("T")

#: msgspec's words, in those of people.
_MEANINGS: Final = {
    "int": "a whole number",
    "str": "text",
    "bool": "true or false",
    "object": "a map of fields",
    "array": "a list",
    "float": "a number",
}


def decoded(document: Document, body: Any, type_: type[T], under: str) -> T | Problem:
    """The object, read as from the API."""
    try:
        return msgspec.convert(without_nulls(body), type_)
    except msgspec.ValidationError as error:
        # "Expected `int`, got `str` - at `$.spec.minMember`"
        message, _, path = str(error).partition(" - at `$.")
        field = ".".join(part for part in (under, path.rstrip("`")) if part)
        message = message.replace("`", "")
        for word, meaning in _MEANINGS.items():
            message = re.sub(rf"\b{word}\b", meaning, message)
        return document.problem(field, message.replace(" | null", ""))


def without_nulls(value: Any) -> Any:
    """The API server drops them; and a key that is no text (``1: x``) is what JSON makes of it."""
    if isinstance(value, dict):
        return {str(k): without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [without_nulls(v) for v in value if v is not None]
    return value
