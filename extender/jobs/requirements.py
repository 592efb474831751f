"""What containers may ask for, as kube-apiserver judges it.

Source: kubernetes v1.37, pkg/apis/core/validation (validateResourceRequirements) and
pkg/apis/core/helper: what is in no domain or in kubernetes.io is Kubernetes' own; anything else is an extended
resource, which is counted in whole units, and never asked for without the same limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final

from extender.core import quantity
from extender.core.errors import QuantityError
from extender.jobs.advice.subject import mapping
from extender.jobs.names import is_qualified
from extender.jobs.wrong import FORBIDDEN, INVALID, REQUIRED, UNREADABLE, UNSUPPORTED, Wrong

_HUGE: Final = "hugepages-"
_OF_CONTAINERS: Final = ("cpu", "memory", "ephemeral-storage")
#: spec.resources, since 1.32.
_OF_PODS: Final = ("cpu", "memory")
#: A quota's name of a resource, which no container asks for.
_QUOTA: Final = "requests."


def requirements(given: Any, path: str, *, of_pod: bool = False) -> Iterator[Wrong]:
    """What is wrong with the ``resources`` at ``path``, of a container or of a whole pod."""
    own = _OF_PODS if of_pod else _OF_CONTAINERS
    read: dict[str, dict[str, Fraction]] = {}
    for kind in ("limits", "requests"):
        read[kind] = {}
        for name, value in mapping(mapping(given).get(kind)).items():
            field = f"{path}.{kind}[{name}]"
            if why := _no_name(str(name), own, of_pod=of_pod):
                yield Wrong(field, UNSUPPORTED if of_pod else INVALID, name, why)
            if not isinstance(value, str | int | float):
                yield Wrong(field, UNREADABLE, value, quantity.ALLOWED)
                continue
            try:
                read[kind][name] = quantity.parse(value)
            except QuantityError as error:
                kind_ = UNREADABLE if error.allowed == quantity.ALLOWED else INVALID
                yield Wrong(field, kind_, value, error.allowed)
                continue
            yield from _value(str(name), value, field)
    yield from _together(read["limits"], read["requests"], mapping(given), path)


def _no_name(name: str, own: tuple[str, ...], *, of_pod: bool) -> str:
    """Why a resource cannot be called so; empty if it can."""
    known = f"{', '.join(own)} and {_HUGE}SIZE"
    if "/" not in name or of_pod:
        others = "" if of_pod else ", or a name with its domain, as in nvidia.com/gpu"
        return "" if name in own or name.startswith(_HUGE) else f"one of {known}{others}"
    if is_qualified(name) and (_is_native(name) or _is_extended(name)):
        return ""
    return "DOMAIN/NAME, with a DNS name, and at most 63 letters, digits, '-', '_' and '.'"


def _value(name: str, value: Any, field: str) -> Iterator[Wrong]:
    """A value that can be read, of at least 0."""
    if _is_extended(name) and quantity.milli(value) % 1000:
        yield Wrong(field, INVALID, value, "a whole number: of this resource there are no parts")
    if name.startswith(_HUGE):
        size = name.removeprefix(_HUGE)
        try:
            page = quantity.parse(size)
        except QuantityError:
            page = Fraction(0)
        if page <= 0 or page.denominator != 1 or quantity.whole(value) % page.numerator:
            yield Wrong(field, INVALID, value, f"a multiple of {size}, the size of its pages")


def _together(
    limits: dict[str, Fraction], requests: dict[str, Fraction], given: Any, path: str
) -> Iterator[Wrong]:
    for name, asked in requests.items():
        said, most = given["requests"][name], mapping(given.get("limits")).get(name)
        whole = _is_extended(name) or name.startswith(_HUGE)
        if most is None and whole:
            yield Wrong(f"{path}.limits", REQUIRED, None, f"{name}: {said}, as it is requested")
        elif name in limits and asked != limits[name] and whole:
            why = f"as much {name} as its limit ({most}), of which nothing is lent"
            yield Wrong(f"{path}.requests", INVALID, said, why)
        elif name in limits and asked > limits[name]:
            why = f"at most as much {name} as its limit ({most})"
            yield Wrong(f"{path}.requests", INVALID, said, why)
    names = limits.keys() | requests.keys()
    huge = sorted(name for name in names if name.startswith(_HUGE))
    if huge and not names & {"cpu", "memory"}:
        yield Wrong(path, FORBIDDEN, huge[0], "only beside cpu or memory")


def _is_native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


def _is_extended(name: str) -> bool:
    return not _is_native(name) and not name.startswith(_QUOTA) and is_qualified(_QUOTA + name)
