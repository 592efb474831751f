"""A pod's spec as kube-apiserver judges it, as far as pods of jobs come to it.

Source: kubernetes v1.37, pkg/apis/core/validation (ValidatePodSpec). Anything may stand in it; what is of a wrong
type is left to who knows the types.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from extender.core.objects import Manifest
from extender.jobs.advice.subject import listed, mapping
from extender.jobs.names import (
    DNS_LABEL,
    LABEL_KEY,
    LABEL_VALUE,
    is_dns_label,
    is_label_value,
    is_qualified,
)
from extender.jobs.requirements import requirements
from extender.jobs.wrong import DUPLICATE, FORBIDDEN, INVALID, NOT_FOUND, REQUIRED, Wrong

_PORTS: Final = 65_535
_PORT_NAME: Final = re.compile(r"(?=.*[a-z])(?!.*--)[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?")
#: Printable ASCII without "=".
_VARIABLE: Final = re.compile(r"[ -<>-~]+")
_TWICE: Final = "one that no other has"


def wrong(spec: Any, path: str = "spec", claims: Iterable[str] = ()) -> Iterator[Wrong]:
    """What is wrong with the spec of a new pod, in upstream's order. ``claims``: volumes that the pod gets
    beside those that it names.
    """
    pod, volumes = mapping(spec), set(claims)
    for index, volume in listed(pod.get("volumes")):
        field = f"{path}.volumes[{index}].name"
        yield from _named(volume.get("name"), field, volumes)
    if not pod.get("containers"):
        yield Wrong(f"{path}.containers", REQUIRED, None, "at least one")
    yield from _containers(pod, "containers", path, volumes, set())
    names = {name for _, each in listed(pod.get("containers")) if (name := _text(each, "name"))}
    yield from _containers(pod, "initContainers", path, volumes, names)
    if "resources" in pod:
        yield from requirements(pod["resources"], f"{path}.resources", of_pod=True)
    yield from _labels(pod.get("nodeSelector"), f"{path}.nodeSelector")
    yield from _tolerations(pod, path)


def wrong_metadata(metadata: Any, path: str = "metadata") -> Iterator[Wrong]:
    """Of the labels and annotations of a pod or its template."""
    meta = mapping(metadata)
    yield from _labels(meta.get("labels"), f"{path}.labels")
    for key in mapping(meta.get("annotations")):
        if not is_qualified(str(key).lower()):
            yield Wrong(f"{path}.annotations", INVALID, key, LABEL_KEY)


def _labels(labels: Any, path: str) -> Iterator[Wrong]:
    for key, value in mapping(labels).items():
        if not is_qualified(str(key)):
            yield Wrong(path, INVALID, key, LABEL_KEY)
        if isinstance(value, str) and not is_label_value(value):
            yield Wrong(path, INVALID, value, f"{key}: {LABEL_VALUE}")


def _named(name: Any, field: str, names: set[str]) -> Iterator[Wrong]:
    """The name of one of several things, put among those of the others."""
    if not isinstance(name, str) or not name:
        yield Wrong(field, REQUIRED, None, "")
        return
    if not is_dns_label(name):
        yield Wrong(field, INVALID, name, DNS_LABEL)
    if name in names:
        yield Wrong(field, DUPLICATE, name, _TWICE)
    names.add(name)


def _containers(
    pod: Manifest, kind: str, path: str, volumes: set[str], names: set[str]
) -> Iterator[Wrong]:
    host_ports = set[tuple[Any, ...]]()
    for index, container in listed(pod.get(kind)):
        at = f"{path}.{kind}[{index}]"
        yield from _named(container.get("name"), f"{at}.name", names)
        if not _text(container, "image"):
            yield Wrong(f"{at}.image", REQUIRED, None, "the name of an image")
        if kind == "initContainers":
            host_ports = set()  # they run one after the other
        on_host = pod.get("hostNetwork") is True and kind == "containers"
        yield from _ports(container, f"{at}.ports", host_ports, on_host=on_host)
        yield from _env(container, f"{at}.env")
        yield from _mounts(container, f"{at}.volumeMounts", volumes)
        yield from requirements(container.get("resources"), f"{at}.resources")
        if kind == "initContainers" and container.get("restartPolicy") != "Always":
            for probe in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
                if container.get(probe) is not None:
                    yield Wrong(f"{at}.{probe}", FORBIDDEN, probe, "only with restartPolicy Always")


def _ports(
    container: Manifest, path: str, host_ports: set[tuple[Any, ...]], *, on_host: bool
) -> Iterator[Wrong]:
    names = set[str]()
    for index, port in listed(container.get("ports")):
        at = f"{path}[{index}]"
        if name := _text(port, "name"):
            if _PORT_NAME.fullmatch(name) is None:
                allowed = (
                    "at most 15 lower case letters, digits and single '-', one letter at least"
                )
                yield Wrong(f"{at}.name", INVALID, name, allowed)
            elif name in names:
                yield Wrong(f"{at}.name", DUPLICATE, name, _TWICE)
            names.add(name)
        number, host = port.get("containerPort"), port.get("hostPort")
        if not number:
            yield Wrong(f"{at}.containerPort", REQUIRED, None, "the number of a port")
        for field, value in (("containerPort", number), ("hostPort", host)):
            if value and isinstance(value, int) and not 0 < value <= _PORTS:
                yield Wrong(f"{at}.{field}", INVALID, value, f"1 to {_PORTS}")
        if on_host and host and host != number:
            yield Wrong(f"{at}.hostPort", INVALID, host, f"{number}, as with hostNetwork it is one")
        if host:
            key = (_text(port, "protocol") or "TCP", _text(port, "hostIP"), str(host))
            if key in host_ports:
                yield Wrong(f"{at}.hostPort", DUPLICATE, host, _TWICE)
            host_ports.add(key)


def _env(container: Manifest, path: str) -> Iterator[Wrong]:
    for index, variable in listed(container.get("env")):
        name, source = _text(variable, "name"), variable.get("valueFrom")
        if not name:
            yield Wrong(f"{path}[{index}].name", REQUIRED, None, "")
        elif _VARIABLE.fullmatch(name) is None:
            yield Wrong(f"{path}[{index}].name", INVALID, name, "printable ASCII without '='")
        if not isinstance(source, dict):
            continue
        given = sum(each is not None for each in source.values())
        if given != 1 or variable.get("value"):
            allowed = "one source, and no value beside it"
            yield Wrong(f"{path}[{index}].valueFrom", INVALID, sorted(map(str, source)), allowed)


def _mounts(container: Manifest, path: str, volumes: set[str]) -> Iterator[Wrong]:
    places = set[str]()
    for index, mount in listed(container.get("volumeMounts")):
        at, name, place = f"{path}[{index}]", _text(mount, "name"), _text(mount, "mountPath")
        if not name:
            yield Wrong(f"{at}.name", REQUIRED, None, "")
        elif name not in volumes:
            yield Wrong(f"{at}.name", NOT_FOUND, name, _one_of(volumes, "volume of the pod"))
        if not place:
            yield Wrong(f"{at}.mountPath", REQUIRED, None, "")
        elif place in places:
            yield Wrong(f"{at}.mountPath", INVALID, place, _TWICE)
        places.add(place)


def _tolerations(pod: Manifest, path: str) -> Iterator[Wrong]:
    for index, each in listed(pod.get("tolerations")):
        at = f"{path}.tolerations[{index}]"
        key, operator = _text(each, "key"), each.get("operator")
        if key and not is_qualified(key):
            yield Wrong(f"{at}.key", INVALID, key, LABEL_KEY)
        if not key and operator != "Exists":
            yield Wrong(f"{at}.operator", INVALID, operator or "", "Exists, where there is no key")
        if each.get("tolerationSeconds") is not None and each.get("effect") != "NoExecute":
            allowed = "NoExecute, where tolerationSeconds is set"
            yield Wrong(f"{at}.effect", INVALID, each.get("effect") or "", allowed)
        if operator == "Exists" and each.get("value"):
            allowed = "no value, where the operator is Exists"
            yield Wrong(f"{at}.operator", INVALID, each["value"], allowed)


def _text(parent: Manifest, key: str) -> str:
    value = parent.get(key)
    return value if isinstance(value, str) else ""


def _one_of(names: Iterable[str], what: str) -> str:
    return f"a {what} ({', '.join(sorted(names)) or 'there is none'})"
