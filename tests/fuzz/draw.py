"""Bytes of a fuzzer into spoilt JSON: a good object in which a few things are replaced.

Everything is a function of the bytes alone, so that a corpus entry is the same object for ever on
every fuzzer; bytes that have run out are zeros.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

Path = tuple[str | int, ...]

#: Numbers that no float or int64 holds.
_NUMBERS = ("1e999", "-1e999", "1e308", "-0", "0.1e-400", "18446744073709551616")
#: How deep values are nested that no reader's stack may depend on.
_DEPTHS = (50, 150, 500, 1200, 20_000)
#: What stands in a spoilt value for text that Python's own encoder would not write.
_LITERALS = {
    **{number: number for number in _NUMBERS},
    "9…": "9" * 400,
    **{f"lists {depth}": "[" * depth + "]" * depth for depth in _DEPTHS},
    **{f"maps {depth}": '{"a":' * depth + "1" + "}" * depth for depth in _DEPTHS},
}
#: An annotation of 40 kB that a decoder of unknown fields recurses into.
TEXT_OF_LISTS = '{"worker":{"x":' + "[" * 20_000 + "]" * 20_000 + "}}"
#: Put behind a key that is to be there twice.
_TWICE = "@twice"

#: What people, other programs and attackers write where something else belongs.
HOSTILE: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 0.5, -0.5, 1e300, 2**31 - 1, 2**31, 2**53, 2**63 - 1, 2**63, -(2**63),
    2**64, 10**30, "", " ", "0", "1", "-1", "+1", "0.5", "1e99", "1e-99", "1e999", "-1e3", "1Ei", "9Ei", "1.5Gi",
    "1e1.5", "0x10", "1_000", "\u0663", "\u2167", "9" * 30, "9" * 5000, "NaN", "Infinity", "\x00", "\n", "..", "a/b",
    "a" * 300, "A_b", "-", "odd", "odd-0", "odd-1", "odd-master-0", "odd-worker-0", "n0", "u-0", "u-job", "u-group", "Always",
    "Exists", "Lt", "In", "DoesNotExist", "Succeeded", "Failed", "Running", "True", "False", "other-scheduler",
    "0000-01-01T00:00:00Z", "0001-01-01T00:00:00", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59Z", "9999-12-31T23:59:59.999999-14:00", "2026-01-01", "2026-W01", "2026-13-45T99:99:99Z",
    "{}", "[]", '{"worker":{"finished":"0-999999,0-999999"}}', '{"worker":{"finished":"-"}}',
    '{"worker":{"restarts":{"0":99999999999999999999}}}', '{"worker":{"restarts":{"-1":-1}}}', TEXT_OF_LISTS, {}, [], [None], [[]], [{}], {"": None}, {"a": {"b": []}}, {"key": "app", "operator": "In"},
    *(f"@{literal}@" for literal in _LITERALS),
)  # fmt: skip


class Draw:
    """Reads choices from bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def more(self) -> bool:
        """Whether there is a byte left."""
        return self._at < len(self._data)

    def below(self, count: int) -> int:
        """A number from 0 to ``count`` - 1, out of one byte, or two where one is not enough."""
        size = 1 if count <= 256 else 2
        part = self._data[self._at : self._at + size]
        self._at += size
        return int.from_bytes(part, "little") % count

    def text(self) -> str:
        """Up to 31 bytes as text."""
        size = self.below(32)
        part = self._data[self._at : self._at + size]
        self._at += size
        return part.decode("utf-8", "replace")

    def rest(self) -> bytes:
        """All that is left."""
        part = self._data[self._at :]
        self._at = len(self._data)
        return part


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """The path of every value of a JSON document, the document's own among them."""
    yield path
    children: Any = ()
    if isinstance(value, dict):
        children = value.items()
    elif isinstance(value, list):
        children = enumerate(value)
    for key, child in children:
        yield from paths(child, (*path, key))


def spoilt(good: Any, draw: Draw, *, under: Path = (), edits: int = 4) -> Any:
    """A copy of ``good`` with one to ``edits`` changes below the path ``under``."""
    value = deepcopy(good)
    for _ in range(1 + draw.below(edits)):
        places = [path for path in paths(value) if len(path) > len(under) and _begins(path, under)]
        if not places:
            return value
        _edit(value, places[draw.below(len(places))], draw)
        if not draw.more:
            break
    return value


def written(value: Any) -> bytes:
    """The JSON of a spoilt value, keys that are there twice and unreadable literals included."""
    text = json.dumps(value, ensure_ascii=False).replace(f'{_TWICE}": ', '": ')
    if '"@' in text:
        for name, literal in _LITERALS.items():
            text = text.replace(f'"@{name}@"', literal)
    return text.encode()


def _begins(path: Path, under: Path) -> bool:
    return path[: len(under)] == under


def _edit(value: Any, path: Path, draw: Draw) -> None:
    parent, key = at(value, path[:-1]), path[-1]
    old = parent[key]
    match draw.below(7):
        case 0 | 1:
            parent[key] = deepcopy(HOSTILE[draw.below(len(HOSTILE))])
        case 2:
            parent[key] = draw.text()
        case 3:
            del parent[key]
        case 4 if isinstance(parent, list):
            parent.extend(deepcopy(old) for _ in range((1, 2, 20, 200)[draw.below(4)]))
        case 5:
            places = list(paths(value))
            parent[key] = deepcopy(at(value, places[draw.below(len(places))]))
        case 6 if isinstance(parent, dict):
            parent[f"{key}{_TWICE}"] = deepcopy(HOSTILE[draw.below(len(HOSTILE))])
        case _ if isinstance(parent, dict):
            parent[draw.text()] = parent.pop(key)
        case _:
            parent.insert(int(key), deepcopy(HOSTILE[draw.below(len(HOSTILE))]))


def replaced(value: Any, path: Path, new: Any) -> None:
    """Put a value in place of another; as text where it stands for text that nests."""
    at(value, path[:-1])[path[-1]] = TEXT_OF_LISTS if new == "@text of lists@" else new


def at(value: Any, path: Path) -> Any:
    """The value at a path."""
    for key in path:
        value = value[key]
    return value
