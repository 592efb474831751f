"""Muster's own account: the rights of manifests/base, and where MPIJobs run theirs; no others anywhere."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from extender.kube import credentials
from extender.kube.credentials import Credentials
from extender.sim.realplane import RealPlane

MANIFESTS = Path(__file__).parents[2] / "manifests"
BASE = MANIFESTS / "base"
NAMESPACE = "muster-system"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:muster"
GROUPS = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}")
#: What a cluster may have on: an owner reference that blocks deletion then needs a right of its own.
ADMISSION = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"


def grant(plane: RealPlane) -> None:
    """Give the account what manifests/base gives it."""
    plane.kubectl("apply", "-f", str(BASE / "namespace.yaml"))
    plane.kubectl("apply", "-n", NAMESPACE, "-f", str(BASE / "rbac.yaml"))


@contextlib.contextmanager
def beside(plane: RealPlane, folder: str) -> Iterator[None]:
    """Give it a role of another folder of manifests/ as well, and take that back."""
    where = str(MANIFESTS / folder)
    plane.kubectl("apply", "-k", where)
    try:
        yield
    finally:
        plane.kubectl("delete", "-k", where)


def account(plane: RealPlane) -> Credentials:
    """Its credentials."""
    return credentials.from_kubeconfig(str(plane.kubeconfig_of(ACCOUNT)))


def forbidden(audit: Path) -> set[str]:
    """What the API server refused to the account because no role grants it.

    One that has just started refuses everything for a moment: what it grants at other times does
    not count.
    """
    asked: dict[str, set[str]] = {"forbid": set(), "allow": set()}
    for line in audit.read_text().splitlines():
        entry = json.loads(line)
        of = entry.get("objectRef", {})
        what = "/".join(of.get(key, "") for key in ("apiGroup", "resource", "subresource"))
        decision = entry.get("annotations", {}).get("authorization.k8s.io/decision", "allow")
        asked[decision].add(f"{entry['verb']} {what or entry['requestURI']}")
    return asked["forbid"] - asked["allow"]
