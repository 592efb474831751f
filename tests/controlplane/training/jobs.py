"""Jobs whose pods are programs of this folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from extender.core.objects import Manifest

PROGRAMS = Path(__file__).parent / "programs"


def template(container: str, command: list[str], shared: Path | None = None) -> Manifest:
    """A pod of one CPU that sees the programs, and a folder that all pods share."""
    folders = {"programs": PROGRAMS} | ({"shared": shared} if shared else {})
    box = {
        "name": container,
        "image": "none",
        "command": command,
        "volumeMounts": [{"name": name, "mountPath": f"/{name}"} for name in folders],
        "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
        "resources": {"requests": {"cpu": "1"}},
    }
    volumes = [{"name": name, "hostPath": {"path": str(at)}} for name, at in folders.items()]
    grace = {"terminationGracePeriodSeconds": 2}
    return {"spec": {"containers": [box], "volumes": volumes, **grace}}


def job(name: str, key: str, roles: dict[str, tuple[int, Manifest]], **more: object) -> Manifest:
    """``roles``: replicas and template of each replica type, which restarts on failure."""
    specs = {
        role: {"replicas": replicas, "restartPolicy": "OnFailure", "template": pod}
        for role, (replicas, pod) in roles.items()
    }
    return {"metadata": {"name": name}, "spec": {key: specs, **more}}


def holds(kind: str) -> Callable[[Manifest], bool]:
    """Whether a condition of the job is true; a job that fails is no use to wait for."""

    def condition(found: Manifest) -> bool:
        rows = (found.get("status") or {}).get("conditions") or ()
        true = {row["type"]: row for row in rows if row["status"] == "True"}
        assert kind == "Failed" or "Failed" not in true, true
        return kind in true

    return condition
