"""Makes a KubeSchedulerConfiguration usable on loopback: its kubeconfig, and defaults where it is silent."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: kube-scheduler's own 50 and 100 requests a second would be the bottleneck of every measurement; its own
#: leaderElect true delays the first decision by seconds.
_DEFAULTS: dict[str, dict[str, object]] = {
    "clientConnection": {"qps": 5000, "burst": 10000},
    "leaderElection": {"leaderElect": False},
}


def complete(config: str | Mapping[str, Any], kubeconfig: Path) -> str:
    """The configuration as text for --config, with this kubeconfig whatever it named before.

    A mapping (or JSON) comes back as JSON. YAML is edited line by line, as the standard library has no
    YAML: the two sections must be in block style, as every sample has them.
    """
    if isinstance(config, str):
        if not config.lstrip().startswith("{"):
            return _complete_yaml(config, kubeconfig)
        config = json.loads(config)
        assert isinstance(config, dict), "it starts with a brace"
    result = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        **config,
    }
    for section, defaults in _DEFAULTS.items():
        result[section] = {**defaults, **result.get(section, {})}
    result["clientConnection"]["kubeconfig"] = str(kubeconfig)
    return json.dumps(result, indent=2) + "\n"


def _complete_yaml(text: str, kubeconfig: Path) -> str:
    for section, defaults in _DEFAULTS.items():
        forced = {"kubeconfig": str(kubeconfig)} if section == "clientConnection" else {}
        text = _complete_section(text.rstrip() + "\n", section, defaults, forced)
    return text


def _complete_section(
    text: str, section: str, defaults: Mapping[str, object], forced: Mapping[str, object]
) -> str:
    heading = re.search(rf"(?m)^{section}:[ \t]*(.*)\n", text)
    if heading is None:
        lines = [f"  {key}: {json.dumps(value)}" for key, value in {**defaults, **forced}.items()]
        return text + "\n".join([f"{section}:", *lines, ""])
    if heading[1] and not heading[1].startswith("#"):
        raise ValueError(
            f"write {section} in block style, one key a line, not {heading[0].strip()!r}"
        )
    body = re.compile(r"(?:[ \t]+.*\n|[ \t]*#.*\n|[ \t]*\n)*").match(text, heading.end())
    assert body is not None, "it matches nothing too"
    inner = body[0]
    indent = re.search(r"(?m)^([ \t]+)\w", inner)
    margin = indent[1] if indent else "  "
    added = ""
    for key, value in {**defaults, **forced}.items():
        line = re.compile(rf"(?m)^{margin}{key}:.*\n")
        if line.search(inner) is None:
            added += f"{margin}{key}: {json.dumps(value)}\n"
        elif key in forced:
            inner = line.sub(lambda _: f"{margin}{key}: {json.dumps(value)}\n", inner)  # noqa: B023 - used at once
    return text[: heading.end()] + added + inner + text[body.end() :]
