"""Reading fields that a user wrote: the value, or an error that names field, value and allowed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from extender.core.errors import InvalidObject
from extender.core.objects import Manifest
from extender.core.quantity import COUNT_LIMIT


def mapping(parent: Manifest, key: str, path: str) -> Manifest:
    """``parent[key]`` as a map; absent and null are an empty one."""
    value = parent.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidObject(_at(path, key), value, "a map of fields")
    return value


def items(parent: Manifest, key: str, path: str) -> list[Manifest]:
    """``parent[key]`` as a list of maps; absent and null are an empty one."""
    value = parent.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise InvalidObject(_at(path, key), value, "a list of maps")
    return value


def whole(parent: Manifest, key: str, path: str, least: int = 0) -> int | None:
    """``parent[key]`` as a whole number from ``least`` to 2**31-1; None if it is absent."""
    value = parent.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidObject(_at(path, key), value, f"a whole number of at least {least}")
    if value > COUNT_LIMIT:
        raise InvalidObject(_at(path, key), value, f"a whole number of at most {COUNT_LIMIT}")
    return value


def text(parent: Manifest, key: str, path: str) -> str:
    """``parent[key]`` as text; absent and null are empty."""
    value = parent.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidObject(_at(path, key), value, "text")
    return value


def flag(parent: Manifest, key: str, path: str) -> bool:
    """``parent[key]`` as true or false; absent and null are false."""
    value = parent.get(key)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise InvalidObject(_at(path, key), value, "true or false")
    return value


def choice(parent: Manifest, key: str, path: str, allowed: Sequence[str], default: str) -> str:
    """``parent[key]`` as one of ``allowed``; absent, null and empty are ``default``."""
    value = text(parent, key, path) or default
    if value not in allowed:
        raise InvalidObject(_at(path, key), value, "one of " + ", ".join(allowed))
    return value


def dig(value: Any, *keys: str) -> Any:
    """The value under nested keys, or None where one is missing or is no map."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _at(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
