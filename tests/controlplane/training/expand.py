"""What the kubelet makes of a container: its environment, its command, and what is mounted.

Source: kubernetes ``third_party/forked/golang/expansion`` and ``pkg/kubelet/kubelet_pods.go``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from extender.core.objects import Manifest

_REFERENCE = re.compile(r"\$(\$|\(([^()]+)\))")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def environment(pod: Manifest, container: Manifest, address: str) -> dict[str, str]:
    """Variables by name; a reference sees those before it."""
    values = {"PATH": PATH, "HOME": "/root", "HOSTNAME": host_name(pod)}
    for each in container.get("env") or ():
        if "value" in each:
            values[each["name"]] = expanded(each["value"], values)
        elif "valueFrom" in each:
            values[each["name"]] = _field(pod, each["valueFrom"], address)
    return values


def command(container: Manifest, env: Mapping[str, str]) -> list[str]:
    """What is run: there is no image to take an entry point from."""
    parts = [*(container.get("command") or ()), *(container.get("args") or ())]
    return [expanded(part, env) for part in parts]


def expanded(text: str, env: Mapping[str, str]) -> str:
    """``$(NAME)`` becomes the value, ``$$`` a dollar; what is not known stays as it is."""

    def put(found: re.Match[str]) -> str:
        return "$" if found[1] == "$" else env.get(found[2], found[0])

    return _REFERENCE.sub(put, text)


def host_name(pod: Manifest) -> str:
    name: str = pod["spec"].get("hostname") or pod["metadata"]["name"]
    return name[:63]


def _field(pod: Manifest, source: Manifest, address: str) -> str:
    path = source["fieldRef"]["fieldPath"]
    if path in ("status.podIP", "status.hostIP"):
        return address
    found = re.fullmatch(r"metadata\.(labels|annotations)\['(.*)'\]", path)
    value: Any = pod["metadata"].get(found[1], {}).get(found[2], "") if found else pod
    if not found:
        for key in path.split("."):
            value = value[key]
    return str(value)
