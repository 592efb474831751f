"""What the judge takes for the end of a replica."""

from __future__ import annotations

import pytest

from extender.chaos.endings import Endings
from extender.chaos.launchers import Launchers
from extender.chaos.network import Shown
from extender.core.api import PODS
from extender.sim.history import Change

OWNER = {"uid": "job", "kind": "PyTorchJob", "name": "j", "controller": True}


def change(version, kind, phase, *, deleted):
    meta = {"name": "j-worker-0", "namespace": "x", "uid": "pod", "ownerReferences": [OWNER]}
    if deleted:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    body = {"metadata": meta, "spec": {}, "status": {"phase": phase}}
    return Change(version, PODS, ("x", "j-worker-0"), kind, body, None)


@pytest.mark.parametrize(
    ("life", "violations"),
    [
        pytest.param(
            [("Running", False), ("Succeeded", False)], 1, id="it ended of its own accord"
        ),
        pytest.param(
            [("Succeeded", False), ("Succeeded", True)], 1, id="and was removed afterwards"
        ),
        # Chaos seed 7023: rolled back, and the container ended with 0 on SIGTERM.
        pytest.param([("Running", True), ("Succeeded", True)], 0, id="it was stopped before"),
    ],
)
def test_a_replica_that_was_stopped_has_not_finished(life, violations):
    said = []

    def violated(invariant, message):
        said.append(message)

    endings = Endings(violated, lambda since, seconds: True, Launchers(violated))
    for version, (phase, deleted) in enumerate(life, start=1):
        endings.pod(change(version, "MODIFIED", phase, deleted=deleted))
    endings.pod(change(9, "DELETED", *life[-1][:1], deleted=life[-1][1]))
    endings.created(change(10, "ADDED", "Pending", deleted=False).object, Shown(), {})
    assert len(said) == violations
