"""How much is kept, by where it is kept: the lengths of all containers that can be reached."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Set
from typing import Any

#: Kept up to a bound, so that they grow first: where, and the bound.
BOUNDED = {
    "cluster.nodes._vectors": 4096,
    "_shapes": 4096,
    "cluster.shapes._known": 4096,
}


def sizes(root: object, but: Iterable[object] = ()) -> dict[str, int]:
    """Lengths by path; the items of a container share theirs, so that a path says what, not whose.

    Only Muster's own objects and plain containers are entered; ``but`` these, and what they alone hold.
    """
    found: Counter[str] = Counter()
    seen: set[int] = {id(each) for each in but}
    todo: list[tuple[str, Any]] = [("", root)]
    while todo:
        path, value = todo.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        match value:
            case Mapping():
                found[path] += len(value)
                todo += [(f"{path}[]", each) for each in value.values()]
            case list() | Set() | deque():
                found[path] += len(value)
                todo += [(f"{path}[]", each) for each in value]
            case tuple():
                todo += [(f"{path}()", each) for each in value]
            case _ if type(value).__module__.partition(".")[0] in ("extender", "plugins"):
                todo += [(f"{path}.{name}".lstrip("."), each) for name, each in _fields(value)]
            case _:
                pass
    return {path: count for path, count in found.items() if count}


def grown(
    before: Mapping[str, int], after: Mapping[str, int], bounded: Mapping[str, int] = BOUNDED
) -> dict[str, tuple[int, int]]:
    """Paths that hold more than before, those with a bound only if they pass it."""
    return {
        path: (before.get(path, 0), count)
        for path, count in after.items()
        if count > max(before.get(path, 0), bounded.get(path, 0))
    }


def _fields(value: object) -> list[tuple[str, Any]]:
    names = set(getattr(value, "__dict__", ()))
    for base in type(value).__mro__:
        slots = base.__dict__.get("__slots__", ())
        names.update((slots,) if isinstance(slots, str) else slots)
    names.update(getattr(value, "__struct_fields__", ()))
    return [(name, getattr(value, name)) for name in sorted(names) if hasattr(value, name)]
