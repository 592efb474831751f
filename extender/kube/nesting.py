"""JSON values of any depth, looked at without a stack that grows with them."""

from __future__ import annotations

import re
from typing import Any

_STRINGS_AND_BRACKETS = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{}]', re.DOTALL)


def without_nulls(value: Any) -> Any:
    """The JSON value without members that are null; nulls in lists go as well.

    Raises RecursionError for what is nested too deeply: this one makes a copy.
    """
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [without_nulls(v) for v in value if v is not None]
    return value


def nested(value: Any, most: int) -> bool:
    """Whether a JSON value holds anything below its ``most`` levels; looks level by level."""
    level = [value]
    for _ in range(most):
        level = [
            child
            for each in level
            if isinstance(each, (dict, list))
            for child in (each.values() if isinstance(each, dict) else each)
        ]
    return any(isinstance(each, (dict, list)) for each in level)


def cut_off(body: bytes, most: int) -> bytes:
    """The JSON with ``null`` for every map and list below its ``most`` levels; never recurses."""
    kept: list[bytes] = []
    depth = begin = 0
    for token in _STRINGS_AND_BRACKETS.finditer(body):
        match token[0]:
            case b"{" | b"[":
                depth += 1
                if depth == most + 1:
                    kept += (body[begin : token.start()], b"null")
            case b"}" | b"]":
                if depth == most + 1:
                    begin = token.end()
                depth -= 1
            case _:
                pass  # a string, whatever brackets it holds
    if depth <= most:  # else it ends within what was cut off
        kept.append(body[begin:])
    return b"".join(kept)
