"""The node annotation that says how a node's devices are and who holds them.

It stands beside :mod:`extender.core.topology.annotation`, in the same order of devices, because it
changes with every pod while the links do not: what was computed for a shape of node is kept by the
text of the other. JSON of one version; lists of words have their runs counted.

``v`` 1; ``devices`` n; ``ids`` the driver's UUIDs; ``health`` ``ok``, ``?`` or the gravest of
``lost reset xidN remap ecc withheld``; ``pods`` ``namespace/name``; ``held`` by device, numbers of
``pods`` joined by ``+``, ``-`` for nobody, ``?`` for unknown; ``memory`` quarters in use, 0 to 4;
``clique`` the NVLink fabric, as GFD's label ``nvidia.com/gpu.clique`` has it; ``policy`` and
``scope`` those of the kubelet's Topology Manager.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec
from msgspec import field

from extender.core.errors import InvalidObject
from extender.core.topology.annotation import Versioned, decode_versioned, runs, words
from extender.core.topology.nrt import POLICIES, SCOPES

KEY = "scheduling.muster.dev/devices"
VERSION = 1

#: What a device's health can be, the gravest first; ``xid`` is followed by its number.
#: The driver no longer reaches it.
LOST = "lost"
#: It must be reset before it works again.
RESET = "reset"
#: The driver reported an Xid that is not an application's doing.
XID = "xid"
#: A row of its memory could not be replaced.
REMAP = "remap"
#: Memory errors that could not be corrected since the driver was loaded.
ECC = "ecc"
#: The device plugin offers its sisters, but not this one.
WITHHELD = "withheld"
OK = "ok"
UNKNOWN = "?"

_FIELD = f"metadata.annotations[{KEY}]"
_HEALTH = re.compile(r"ok|\?|lost|reset|xid[0-9]{1,6}|remap|ecc|withheld")
_HEALTHS = "ok lost reset xidN remap ecc withheld or ?"
_HELD = re.compile(r"-|\?|[0-9]{1,5}(?:\+[0-9]{1,5})*")
_QUARTERS = re.compile(r"\?|[0-4]")
_POD = re.compile(r"[a-z0-9][a-z0-9\-]{0,62}/[a-z0-9][a-z0-9.\-]{0,252}")
_WORD = re.compile(r"[\w.\-:/]{0,128}")
MOST_PODS = 4096


@dataclass(frozen=True, slots=True)
class Devices:
    """n devices in the order of the node's Topology, as columns."""

    #: The driver's UUIDs, "" where not known.
    ids: tuple[str, ...]
    #: ``OK``, ``UNKNOWN`` or what is wrong.
    health: tuple[str, ...]
    #: ``namespace/name`` of the pods that hold each, sorted; None where that is not known.
    held: tuple[tuple[str, ...] | None, ...]
    #: Quarters of its memory that are in use, rounded up; None where not known.
    memory: tuple[int | None, ...]
    #: ``<cluster UUID>.<clique>`` where all devices are of one NVLink fabric, else "".
    clique: str = ""
    #: Of the kubelet's Topology Manager; "" where not known.
    policy: str = ""
    scope: str = ""

    def __len__(self) -> int:
        """How many devices there are."""
        return len(self.ids)


class _V1(Versioned):
    health: str
    ids: list[str] = field(default_factory=list)
    pods: list[str] = field(default_factory=list)
    held: str = ""
    memory: str = ""
    clique: str = ""
    policy: str = ""
    scope: str = ""


def encode(known: Devices) -> str:
    """The annotation's value. The same devices always give the same text."""
    pods = sorted({pod for holders in known.held for pod in holders or ()})
    number = {pod: str(i) for i, pod in enumerate(pods)}
    held = [
        UNKNOWN if holders is None else "+".join(number[pod] for pod in holders) or "-"
        for holders in known.held
    ]
    memory = [UNKNOWN if quarters is None else str(quarters) for quarters in known.memory]
    value = _V1(
        v=VERSION,
        devices=len(known),
        health=runs(known.health),
        ids=list(known.ids) if any(known.ids) else [],
        pods=pods,
        held="" if set(held) == {UNKNOWN} else runs(held),
        memory="" if set(memory) == {UNKNOWN} else runs(memory),
        clique=known.clique,
        policy=known.policy,
        scope=known.scope,
    )
    return msgspec.json.encode(value).decode()


def decode(text: str) -> Devices:
    """The devices of an annotation's value.

    Raises InvalidObject, whose field begins with the annotation's place in the Node.
    """
    value = decode_versioned(_FIELD, text, _V1, VERSION)
    count = value.devices
    if not all(_WORD.fullmatch(each) for each in [*value.ids, value.clique]):
        raise InvalidObject(f"{_FIELD}.ids", value.ids, "UUIDs, and a clique, of 128 letters")
    if value.ids and len(value.ids) != count:
        raise InvalidObject(f"{_FIELD}.ids", value.ids, f"{count} words")
    if len(value.pods) > MOST_PODS or not all(_POD.fullmatch(pod) for pod in value.pods):
        raise InvalidObject(f"{_FIELD}.pods", value.pods, f"at most {MOST_PODS} namespace/name")
    for name, word, allowed in (
        ("policy", value.policy, POLICIES),
        ("scope", value.scope, SCOPES),
    ):
        if word and word not in allowed:
            raise InvalidObject(f"{_FIELD}.{name}", word, " ".join(allowed))
    held = _column("held", value.held, count, _HELD, "numbers of pods, - or ?")
    memory = _column("memory", value.memory, count, _QUARTERS, "0 to 4 or ?")
    return Devices(
        ids=tuple(value.ids) or ("",) * count,
        health=tuple(words(f"{_FIELD}.health", value.health, count, _HEALTH, _HEALTHS)),
        held=tuple(_holders(word, value.pods) for word in held),
        memory=tuple(None if word == UNKNOWN else int(word) for word in memory),
        clique=value.clique,
        policy=value.policy,
        scope=value.scope,
    )


def _column(name: str, text: str, count: int, form: re.Pattern[str], allowed: str) -> list[str]:
    return words(f"{_FIELD}.{name}", text, count, form, allowed) if text else [UNKNOWN] * count


def _holders(word: str, pods: list[str]) -> tuple[str, ...] | None:
    if word == UNKNOWN:
        return None
    numbers = [] if word == "-" else [int(each) for each in word.split("+")]
    if any(number >= len(pods) for number in numbers):
        raise InvalidObject(f"{_FIELD}.held", word, f"numbers below {len(pods)}")
    return tuple(sorted({pods[number] for number in numbers}))
