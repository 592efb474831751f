"""How pods ended that are gone before the job says so."""

from __future__ import annotations

import pytest

from tests.jobs.builders import KIND, NOW, alone, job, pod, role, settled


def worker(policy: str) -> dict:
    return settled(alone(job({"Worker": role(2, policy)})))


def conditions(step) -> set[str]:
    return {c["type"] for c in (step.status or {}).get("conditions", ()) if c["status"] == "True"}


def test_a_replica_that_succeeded_is_remembered_and_not_wanted():
    present = [pod("ddp-worker-1")]
    gone = [pod("ddp-worker-0", "Succeeded")]
    step = KIND.reconcile(worker("Never"), present, frozenset(), NOW, gone)
    assert step.annotations is not None
    assert step.wanted == ()


@pytest.mark.parametrize(
    ("policy", "code", "fails"),
    [
        ("Never", 137, True),
        ("ExitCode", 1, True),
        ("ExitCode", 137, False),
        ("OnFailure", 1, False),
    ],
)
def test_a_failure_for_good_stays_one_when_its_pod_goes(policy, code, fails):
    gone = [pod("ddp-worker-0", "Failed", exit_code=code)]
    step = KIND.reconcile(worker(policy), [pod("ddp-worker-1")], frozenset(), NOW, gone)
    assert ("Failed" in conditions(step)) == fails
    assert step.keep_ends == fails
    assert (step.annotations is not None) == (not fails)


def test_a_namesake_s_end_is_not_the_job_s():
    gone = [pod("ddp-worker-0", "Succeeded", owner="job-0")]
    step = KIND.reconcile(worker("Never"), [pod("ddp-worker-1")], frozenset(), NOW, gone)
    assert [replica.pod_name for replica in step.wanted] == ["ddp-worker-0"]


def test_a_job_that_cannot_be_read_has_written_nothing_down():
    broken = job({"Worker": {"replicas": 2}})
    step = KIND.reconcile(broken, [], frozenset(), NOW, [pod("ddp-worker-0", "Succeeded")])
    assert step.keep_ends
