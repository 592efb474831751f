"""The rules of the house that no linter knows: locks, pins, what may not be committed."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = (
    "requirements.lock",
    "requirements-dev.lock",
    "requirements-build.lock",
    "requirements-sdk.lock",
    "requirements-training.lock",
)
REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)(?:; .+)?$")

# Pieces, so that this file does not contain what it looks for.
FORBIDDEN = {
    "an address of a package index": re.compile(
        "|".join(
            re.escape(host)
            for host in (
                "pypi" + ".org",
                "files.python" + "hosted.org",
                "registry.npm" + "js.org",
                "proxy.gol" + "ang.org",
                "crates" + ".io/api",
                "rubygems" + ".org",
            )
        )
        + "|--(extra-)?index"
        + "-url|--find"
        + "-links"
    ),
    "a path of somebody's machine": re.compile(
        # The one exception is where MPI Operator mounts its keys in a container unless told otherwise.
        r"(?<![\w.$}/-])/(?:ro" + r"ot(?!/\.ssh\b)|wo" + r"rk|home/[a-z]+|Use" + r"rs/[a-z]+)/[\w.]"
    ),
}
# What is written by others is taken as it is.
FOREIGN = ("LICENSE", "third_party/", "manifests/crds/")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(requirements: list) -> dict[str, str]:
    found = {}
    for requirement in requirements:
        if isinstance(requirement, str):
            match = REQUIREMENT.match(requirement)
            assert match, f"{requirement!r} is not pinned with =="
            found[normal(match[1])] = match[2]
    return found


def lock_entries(lock: str) -> dict[str, list[str]]:
    """Requirement line of each entry to the lines that follow it."""
    entries: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in (ROOT / lock).read_text().splitlines():
        if line.startswith((" ", "#")):
            lines.append(line.strip())
        else:
            lines = entries.setdefault(line.rstrip(" \\"), [])
    return entries


def lock_versions(lock: str) -> dict[str, str]:
    matches = (re.match(r"([^=\s]+)==(\S+)", entry) for entry in lock_entries(lock))
    return {normal(m[1]): m[2] for m in matches if m}


def tracked_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode:
        pytest.fail(f"git ls-files: {listed.stderr}")
    paths = (ROOT / name for name in listed.stdout.split("\0") if name)
    return [path for path in paths if path.is_file()]


def test_every_requirement_says_why():
    text = (ROOT / "pyproject.toml").read_text()
    requirement_lines = re.findall(r'^ *"[A-Za-z0-9._-]+==[^"]+",?.*$', text, re.MULTILINE)
    assert len(requirement_lines) == sum(
        len(pinned(group))
        for group in (
            PROJECT["project"]["dependencies"],
            *PROJECT["dependency-groups"].values(),
        )
    )
    silent = [line for line in requirement_lines if not re.search(r"# \S+ \S+", line)]
    assert silent == []


def test_every_ruff_exception_says_why():
    text = (ROOT / "pyproject.toml").read_text()
    block = text[text.index("\nignore = [") : text.index("[tool.ruff.lint.mccabe]")]
    rules = [line for line in block.splitlines() if re.match(r' +"[A-Z]+\d*"', line)]
    assert rules
    assert [line for line in rules if "#" not in line] == []


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_has_hashes_and_no_address(lock):
    entries = lock_entries(lock)
    assert entries
    for entry, rest in entries.items():
        assert "==" in entry, entry
        assert any(line.startswith("--hash=sha256:") for line in rest), f"{entry} has no hash"
    assert "://" not in (ROOT / lock).read_text()


@pytest.mark.parametrize(
    ("lock", "groups"),
    [
        ("requirements.lock", []),
        ("requirements-dev.lock", ["dev", "build"]),
        ("requirements-build.lock", ["build"]),
        ("requirements-sdk.lock", ["sdk"]),
        ("requirements-training.lock", ["training"]),
    ],
)
def test_lock_follows_pyproject(lock, groups):
    whole = lock in ("requirements.lock", "requirements-dev.lock")
    wanted = pinned(PROJECT["project"]["dependencies"]) if whole else {}
    for group in groups:
        wanted |= pinned(PROJECT["dependency-groups"][group])
    locked = lock_versions(lock)
    assert {name: locked.get(name) for name in wanted} == wanted, "run scripts/lock"


def test_what_is_tested_is_what_is_shipped():
    dev = lock_versions("requirements-dev.lock")
    for lock in ("requirements.lock", "requirements-build.lock"):
        for name, version in lock_versions(lock).items():
            assert dev[name] == version, f"{name} differs between {lock} and requirements-dev.lock"


def test_the_build_backend_is_locked():
    (backend,) = PROJECT["build-system"]["requires"]
    assert pinned([backend]).items() <= lock_versions("requirements-build.lock").items()


def test_nothing_of_a_machine_is_committed():
    found = []
    for path in tracked_files():
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(FOREIGN):
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for what, pattern in FORBIDDEN.items():
            found += [
                f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {what}: {match[0]}"
                for match in pattern.finditer(text)
            ]
    assert found == []


def test_scripts_are_executable_and_strict():
    for path in tracked_files():
        name = path.relative_to(ROOT).as_posix()
        if not (re.fullmatch(r"scripts/[a-z]+", name) or name == ".ci/run"):
            continue
        text = path.read_text()
        assert path.stat().st_mode & 0o111, f"{name} is not executable"
        assert text.startswith("#!/usr/bin/env "), name
        if "bash" in text.splitlines()[0]:
            assert re.search(r"^set -(eu|euo pipefail)$", text, re.MULTILINE), name


def test_importing_the_package_imports_nothing():
    before_and_after = (
        "import sys; before = set(sys.modules); import extender; "
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", before_and_after], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout.split() == ["extender"], done.stderr


def test_setting_up_again_is_silent():
    setup = ROOT / "scripts/setup"
    subprocess.run([setup], check=True, timeout=110)
    again = subprocess.run([setup], capture_output=True, text=True, timeout=10)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")


def test_the_changelog_knows_this_version():
    version = PROJECT["project"]["version"]
    headings = re.findall(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] in {"Unreleased", version}
