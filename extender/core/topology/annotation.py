"""The node annotation in which ``muster agent`` publishes what it found.

JSON of one version, compact: a list of words is written with its runs counted, ``NV18*27 NV17``.
A reader accepts exactly the fields of the version that it knows; anything else is refused with the
field's name, and the node's topology is then unknown: a guess would be worse.

``v`` 1; ``devices`` n; ``index`` the driver's numbers, where they are not 0 to n - 1; ``product``;
``links`` the pairs (0,1) (0,2) .. (1,2) ..; ``back`` the same the other way, where it differs;
``numa`` and ``cpus`` by device, ``-`` for unknown; ``nics`` names; ``nicLinks`` by device, then NIC.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar

import msgspec
import numpy as np
from msgspec import Struct

from extender.core.errors import InvalidObject
from extender.core.topology.model import (
    MOST_DEVICES,
    NO_ZONE,
    SELF,
    Topology,
    code_of,
    topology,
    word_of,
)

KEY = "scheduling.muster.dev/topology"
VERSION = 1
#: Bytes. Kubernetes keeps 256 KiB of annotations on an object, all together.
LIMIT = 64 * 1024
MOST_NICS = 256

_FIELD = f"metadata.annotations[{KEY}]"
_RUN = re.compile(r"([^ *]+)(?:\*([0-9]{1,6}))?")
CPUS = re.compile(r"-|[0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*")
_ZONE = re.compile(r"-|[0-9]{1,4}")
NAME = re.compile(r"[A-Za-z0-9][\w.\-]{0,62}")


class Versioned(Struct, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    """What every annotation of a node's devices begins with."""

    v: int
    devices: int


V = TypeVar("V", bound=Versioned)


class _V1(Versioned):
    links: str
    index: list[int] | None = None
    product: str = ""
    back: str = ""
    numa: str = ""
    cpus: str = ""
    nics: list[str] = []
    nic_links: str = ""


def encode(known: Topology) -> str:
    """The annotation's value. The same topology always gives the same text."""
    count = len(known)
    rows, columns = np.triu_indices(count, 1)
    there = [word_of(int(code)) for code in known.links[rows, columns]]
    back = [word_of(int(code)) for code in known.links[columns, rows]]
    value = _V1(
        v=VERSION,
        devices=count,
        links=runs(there),
        index=None if known.index == tuple(range(count)) else list(known.index),
        product=known.product,
        back="" if back == there else runs(back),
        numa=_unless_unknown(["-" if zone == NO_ZONE else str(zone) for zone in known.numa]),
        cpus=_unless_unknown([cpus or "-" for cpus in known.cpus]),
        nics=list(known.nics),
        nic_links=runs([word_of(int(code)) for code in known.nic_links.ravel()]),
    )
    return msgspec.json.encode(value).decode()


def decode_versioned(field: str, text: str, kind: type[V], version: int) -> V:
    """The value of an annotation at ``field``, of this version alone. Raises InvalidObject."""
    if len(text) > LIMIT:
        raise InvalidObject(field, text, f"at most {LIMIT} bytes")
    try:
        value = msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InvalidObject(field, text, f"JSON of version {version} ({error})") from error
    if value.v != version:
        raise InvalidObject(f"{field}.v", value.v, str(version))
    if not 1 <= value.devices <= MOST_DEVICES:
        raise InvalidObject(f"{field}.devices", value.devices, f"1 to {MOST_DEVICES}")
    return value


def decode(text: str) -> Topology:
    """The topology of an annotation's value.

    Raises InvalidObject, whose field begins with the annotation's place in the Node.
    """
    value = decode_versioned(_FIELD, text, _V1, VERSION)
    count = value.devices
    index = list(range(count)) if value.index is None else value.index
    if len(set(index)) != count or len(index) != count or min(index) < 0:
        raise InvalidObject(f"{_FIELD}.index", value.index, f"{count} different numbers")
    if len(value.nics) > MOST_NICS or not all(NAME.fullmatch(nic) for nic in value.nics):
        raise InvalidObject(f"{_FIELD}.nics", value.nics, f"at most {MOST_NICS} device names")
    pairs = count * (count - 1) // 2
    there = _codes("links", value.links, pairs)
    back = _codes("back", value.back, pairs) if value.back else there
    rows, columns = np.triu_indices(count, 1)
    links = np.full((count, count), SELF, dtype=np.uint8)
    links[rows, columns], links[columns, rows] = there, back
    cells = _codes("nicLinks", value.nic_links, count * len(value.nics))
    zones = (
        words(f"{_FIELD}.numa", value.numa, count, _ZONE, "a number or -")
        if value.numa
        else ["-"] * count
    )
    cpus = (
        words(f"{_FIELD}.cpus", value.cpus, count, CPUS, "a list of CPUs or -")
        if value.cpus
        else ["-"] * count
    )
    return topology(
        links,
        index=tuple(index),
        numa=np.array([NO_ZONE if z == "-" else int(z) for z in zones], dtype=np.int16),
        cpus=tuple("" if each == "-" else each for each in cpus),
        nics=tuple(value.nics),
        nic_links=np.array(cells, dtype=np.uint8).reshape(count, len(value.nics)),
        product=value.product,
    )


def runs(words: Sequence[str]) -> str:
    """A list of words as text, runs of equal ones counted: ``NV18*27 NV17``."""
    out: list[str] = []
    at = 0
    while at < len(words):
        end = at
        while end < len(words) and words[end] == words[at]:
            end += 1
        out.append(words[at] if end == at + 1 else f"{words[at]}*{end - at}")
        at = end
    return " ".join(out)


def _unless_unknown(words: list[str]) -> str:
    return "" if set(words) == {"-"} else runs(words)


def words(field: str, text: str, count: int, form: re.Pattern[str], allowed: str) -> list[str]:
    """The words of a list with counted runs; exactly ``count``, each of this form.

    Raises InvalidObject, naming ``field``.
    """
    out: list[str] = []
    for part in text.split(" ") if text else []:
        run = _RUN.fullmatch(part)
        if run is None or not form.fullmatch(run[1]):
            raise InvalidObject(field, part, f"{allowed}, or WORD*COUNT")
        times = int(run[2] or 1)
        if len(out) + times > count:
            raise InvalidObject(field, text, f"{count} words")
        out += [run[1]] * times
    if len(out) != count:
        raise InvalidObject(field, text, f"{count} words")
    return out


_LINK = re.compile(r"[?A-Z0-9]+")
_LINKS = "SYS NODE PHB PXB PIX PSB NVn XGMIn or ?"


def _codes(name: str, text: str, count: int) -> list[int]:
    out: list[int] = []
    for word in words(f"{_FIELD}.{name}", text, count, _LINK, _LINKS):
        code = code_of(word)
        if code is None or code == SELF:
            raise InvalidObject(f"{_FIELD}.{name}", word, _LINKS)
        out.append(code)
    return out
