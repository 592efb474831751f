"""What the tests of the command line share: files, and a log of their own."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml

from extender import cli

Write = Callable[[str, Any], str]
Check = Callable[..., tuple[int, list[str]]]


@pytest.fixture(autouse=True)
def log_of_its_own() -> Iterator[None]:
    """A command sets up the log of its process, to the stream that the test takes away."""
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    structlog.reset_defaults()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write one YAML document, or a list of them, to a file; its name."""

    def one(name: str, content: Any) -> str:
        file = tmp_path / name
        bodies = content if isinstance(content, list) else [content]
        file.write_text(content if isinstance(content, str) else yaml.safe_dump_all(bodies))
        return str(file)

    return one


def member(name: str, **annotations: str) -> dict[str, Any]:
    """A pod with one GPU."""
    limits = {"nvidia.com/gpu": "1"}
    return {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "schedulerName": "muster",
            "containers": [{"name": "main", "image": "none", "resources": {"limits": limits}}],
        },
    }


@pytest.fixture
def check(tmp_path: Path, capsys) -> Check:
    """Check documents given as one file; the exit code and ``field: severity: message``."""

    def one(*bodies: Any, beside: tuple[str, ...] = ()) -> tuple[int, list[str]]:
        file = tmp_path / "file.yaml"
        file.write_text(yaml.safe_dump_all(bodies))
        code = cli.main(["check", "--json", str(file), *beside])
        problems = json.loads(capsys.readouterr().out)["problems"]
        return code, [f"{p['field']}: {p['severity']}: {p['message']}" for p in problems]

    return one
