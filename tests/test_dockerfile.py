"""Lints the Dockerfile without Docker: what it copies exists, what it installs is pinned."""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
#: Keywords of the Dockerfile reference; ADD is left out because COPY does what is needed here.
KEYWORDS = {
    "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "RUN",
    "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR",
}  # fmt: skip


class Instruction(NamedTuple):
    keyword: str
    value: str


def parse(text: str) -> list[Instruction]:
    logical, pending = [], ""
    for line in text.splitlines():
        if line.lstrip().startswith("#") or (not line.strip() and not pending):
            continue
        if line.endswith("\\"):
            pending += line[:-1] + " "
            continue
        logical.append(pending + line)
        pending = ""
    assert not pending, "the last line ends with a backslash"
    instructions = []
    for line in logical:
        keyword, _, value = line.strip().partition(" ")
        assert keyword in KEYWORDS, f"not allowed or unknown: {line!r}"
        assert value.strip(), f"{keyword} without a value"
        instructions.append(Instruction(keyword, " ".join(value.split())))
    return instructions


@pytest.fixture(scope="module")
def instructions() -> list[Instruction]:
    return parse((ROOT / "Dockerfile").read_text())


@pytest.fixture(scope="module")
def last_stage(instructions) -> list[Instruction]:
    start = max(i for i, one in enumerate(instructions) if one.keyword == "FROM")
    return instructions[start:]


def values(instructions: list[Instruction], keyword: str) -> list[str]:
    return [one.value for one in instructions if one.keyword == keyword]


def copied_sources(instructions: list[Instruction]) -> list[str]:
    """Paths of the build context that are copied; copies between stages are left out."""
    sources = []
    for value in values(instructions, "COPY"):
        words = shlex.split(value)
        if not any(word.startswith("--from=") for word in words):
            sources += [word for word in words if not word.startswith("--")][:-1]
    return sources


def ignored_by_docker(path: str) -> bool:
    ignored = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line and not line.startswith("#"):
            pattern = line.removeprefix("!")
            if fnmatch.fnmatch(path, pattern) or path.startswith(pattern + "/"):
                ignored = not line.startswith("!")
    return ignored


def test_an_unknown_instruction_is_refused():
    with pytest.raises(AssertionError, match="not allowed or unknown"):
        parse("FROM a\nADD https://example.org/x /x\n")


def test_starts_from_pinned_images(instructions):
    assert instructions[0].keyword == "FROM"
    stages: set[str] = set()
    for value in values(instructions, "FROM"):
        image, *rest = value.split()
        if image not in stages:
            assert re.fullmatch(r"[a-z0-9./-]+:\d+\.\d+[\w.-]*(@sha256:[0-9a-f]{64})?", image), (
                image
            )
        stages |= {name for word, name in pairwise(rest) if word == "AS"}


def test_copies_between_stages_name_a_stage(instructions):
    stages = {value.split()[-1] for value in values(instructions, "FROM") if " AS " in value}
    for value in values(instructions, "COPY"):
        for word in value.split():
            if word.startswith("--from="):
                assert word.removeprefix("--from=") in stages


def test_runs_as_a_numeric_user_that_is_not_root(last_stage):
    # Kubernetes' runAsNonRoot can only judge a number.
    user = values(last_stage, "USER")[-1]
    assert re.fullmatch(r"[1-9]\d*(:[1-9]\d*)?", user), user


def test_installs_only_what_is_hashed(instructions):
    installs = [
        command
        for value in values(instructions, "RUN")
        for command in re.split(r"&&|;", value)
        if re.search(r"\bpip3? install\b", command)
    ]
    assert installs
    for command in installs:
        local = "--no-deps" in command and "/tmp/dist/" in command
        assert local or "--require-hashes" in command, command


def test_what_is_copied_exists_and_is_sent_to_the_builder(instructions):
    sources = copied_sources(instructions)
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        inside = source + "/__init__.py" if (ROOT / source).is_dir() else source
        assert not ignored_by_docker(inside), f"{source} is in .dockerignore"


def test_nothing_else_is_sent_to_the_builder():
    for path in (".git/config", ".venv/bin/python", "tests/test_house.py", "README.md"):
        assert ignored_by_docker(path), path


def test_starts_the_service_without_a_shell(last_stage):
    assert json.loads(values(last_stage, "ENTRYPOINT")[0]) == ["muster"]
    command = json.loads(values(last_stage, "CMD")[0])
    assert command == ["serve", "--config", "/etc/muster/muster.yaml"]
    assert any(value.endswith(command[-1]) for value in values(last_stage, "COPY"))


def test_kernels_are_compiled_for_any_cpu(last_stage):
    environment = dict(
        word.split("=", 1) for value in values(last_stage, "ENV") for word in shlex.split(value)
    )
    assert environment["NUMBA_CPU_NAME"] == "generic"
    assert environment["NUMBA_CPU_FEATURES"] == ""
    assert environment["NUMBA_CACHE_DIR"].startswith("/tmp/")
