"""A replica that finished is never made again, also where the job did not ask for it meanwhile."""

from __future__ import annotations

import pytest

from extender.core.framework import Replica
from tests.jobs.builders import KIND, NOW, job, merged, pod, role, settled, written

MASTER = pod("ddp-master-0")


@pytest.mark.parametrize("gone", [False, True], ids=["there", "gone"])
@pytest.mark.parametrize(
    ("phase", "deleting", "again"),
    [("Succeeded", False, False), ("Succeeded", True, True), ("Running", False, True)],
)
def test_what_became_of_a_replica_while_the_job_was_smaller(phase, deleting, again, gone):
    """It finished before anybody knew that the job is smaller (chaos seed 35215)."""
    manifest = settled(job({"Master": role(), "Worker": role(1)}), [MASTER, pod("ddp-worker-0")])
    manifest = scaled(manifest, 0)
    last = pod("ddp-worker-0", phase, deleting=deleting)
    there, ends = ([MASTER], [last]) if gone else ([MASTER, last], [])
    manifest = written(manifest, KIND.reconcile(manifest, there, frozenset(), NOW, ends))
    step = KIND.reconcile(manifest, there, frozenset(), NOW + 1, ends)
    assert step.delete_pods == (() if gone or deleting else (("ddp-worker-0", "uid-ddp-worker-0"),))
    larger = KIND.reconcile(scaled(manifest, 1), [MASTER], frozenset(), NOW + 2)
    assert larger.wanted == ((Replica("worker", 0, "ddp-worker-0"),) if again else ())


def scaled(manifest: dict, workers: int) -> dict:
    return merged(manifest, {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": workers}}}})
