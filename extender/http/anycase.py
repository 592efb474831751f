"""JSON into structs as Go's encoding/json reads it, several times slower than msgspec does.

Keys match in any case, the exact one first; null is the zero value. Only what has to be looked
into is: a field of type Raw keeps its bytes.
"""

from __future__ import annotations

from contextlib import suppress
from types import NoneType
from typing import Any, TypeGuard, get_args, get_origin

import msgspec
from msgspec import Raw, Struct, ValidationError

from extender.core.errors import InvalidObject

_MEMBERS = msgspec.json.Decoder(dict[str, Raw])
_ITEMS = msgspec.json.Decoder(list[Raw])


def read(raw: bytes | Raw, kind: Any, where: str = "") -> Any:
    """Decode ``raw`` as ``kind`` with keys in any case and null as absent.

    ``where`` is the path of ``raw``, for the error. Raises :class:`InvalidObject` that names the
    first wrong field, and msgspec's DecodeError for what is not JSON.
    """
    options = [option for option in get_args(kind) if option is not NoneType]
    if NoneType in get_args(kind) and len(options) == 1:
        kind = options[0]  # null was dropped by the caller
    if _is_struct(kind):
        return _read_struct(raw, kind, where)
    items = [item for item in get_args(kind) if item is not Ellipsis]
    if items and not _is_struct(items[-1]):
        with suppress(ValidationError):  # below, element by element, the one to blame is found
            return msgspec.json.decode(raw, type=kind)
    if get_origin(kind) in (tuple, list):
        rows = _typed(_ITEMS, raw, kind, where)
        values = [read(row, items[0], f"{where}[{at}]") for at, row in enumerate(rows)]
        return get_origin(kind)(values)
    if get_origin(kind) is dict:
        members = _typed(_MEMBERS, raw, kind, where)
        return {key: read(value, items[1], f"{where}.{key}") for key, value in members.items()}
    return _typed(msgspec.json.Decoder(kind), raw, kind, where)


def _is_struct(kind: Any) -> TypeGuard[type[Struct]]:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _read_struct(raw: bytes | Raw, kind: type[Struct], where: str) -> Struct:
    if bytes(raw) == b"null":
        raw = b"{}"  # as Go: a null element of a list or map is its zero value
    fields = {one.encode_name.lower(): one for one in msgspec.structs.fields(kind)}
    values: dict[str, Any] = {}
    for key, value in _typed(_MEMBERS, raw, kind, where).items():
        one = fields.get(key.lower())
        if one is None or bytes(value) == b"null":
            continue
        if key == one.encode_name or one.name not in values:
            path = f"{where}.{one.encode_name}" if where else one.encode_name
            values[one.name] = read(value, one.type, path)
    for one in fields.values():
        if one.required and one.name not in values:
            raise InvalidObject(one.encode_name, None, _words(one.type))
    return kind(**values)


def _typed(decoder: msgspec.json.Decoder[Any], raw: bytes | Raw, kind: Any, where: str) -> Any:
    try:
        return decoder.decode(raw)
    except ValidationError as error:
        raise InvalidObject(where or "the body", _value(raw), _words(kind)) from error


def _value(raw: bytes | Raw) -> object:
    try:
        return msgspec.json.decode(raw)
    except ValidationError:  # a number that no float holds
        return bytes(raw).decode()


_WORDS = {
    str: "a string",
    int: "an integer",
    bool: "true or false",
    tuple: "a list",
    list: "a list",
}


def _words(kind: Any) -> str:
    """What people call a type: ``a string or an integer``."""
    base = get_origin(kind) or kind
    if base in _WORDS:
        return _WORDS[base]
    options = [_words(option) for option in get_args(kind) if option is not NoneType]
    if options and base is not dict:
        return " or ".join(options)
    return "a number" if base is float else "an object"
