"""Deadlines, time to live, suspension: what depends on the time and on passes before."""

from __future__ import annotations

import pytest

from extender.core.times import rfc3339
from tests.jobs.builders import KIND, NOW, alone, job, pod, role, run, settled, state, written

ALL = [pod("ddp-master-0"), pod("ddp-worker-0"), pod("ddp-worker-1")]


def at(seconds):
    return rfc3339(NOW + seconds)


def test_the_clock_starts_with_the_first_bound_pod():
    manifest = job(runPolicy={"activeDeadlineSeconds": 100})
    waiting = settled(manifest, [pod("ddp-master-0", "Pending", node="")])
    assert "startTime" not in waiting["status"]
    started = run(waiting, [pod("ddp-master-0", "Pending")], now=NOW + 500)
    assert started.status is not None
    assert started.status["startTime"] == at(500)
    assert started.wake_at == NOW + 600


def test_the_deadline_fails_the_job_and_stops_its_pods():
    manifest = settled(job(runPolicy={"activeDeadlineSeconds": 100}), ALL)
    before = run(manifest, ALL, now=NOW + 99)
    assert (before.status, before.wake_at) == (None, NOW + 100)
    failed = written(manifest, run(manifest, ALL, now=NOW + 100))
    assert state(failed) == {"Created": "True", "Running": "False", "Failed": "True"}
    assert failed["status"]["completionTime"] == at(100)
    # cleanPodPolicy is None, which otherwise keeps everything
    cleanup = run(failed, ALL, now=NOW + 101)
    assert [name for name, _ in cleanup.delete_pods] == [p.metadata.name for p in ALL]


def test_ttl():
    done = [pod("ddp-master-0", "Succeeded")]
    manifest = settled(job(runPolicy={"ttlSecondsAfterFinished": 60}), done)
    waiting = run(manifest, done, now=NOW + 59)
    assert (waiting.delete_job, waiting.wake_at) == (False, NOW + 60)
    assert run(manifest, done, now=NOW + 60).delete_job


def test_ttl_of_a_job_whose_completion_time_is_missing():
    done = [pod("ddp-master-0", "Succeeded")]
    manifest = settled(job(runPolicy={"ttlSecondsAfterFinished": 60}), done)
    del manifest["status"]["completionTime"]
    assert run(manifest, done, now=NOW + 60).delete_job


def test_ttl_waits_while_suspended():
    manifest = job(runPolicy={"ttlSecondsAfterFinished": 0, "suspend": True})
    assert not run(settled(manifest), now=NOW + 999).delete_job


def test_suspend_and_resume():
    manifest = settled(job(), ALL)
    manifest["spec"]["runPolicy"] = {"suspend": True}
    suspended = settled(manifest, ALL, now=NOW + 10)
    assert state(suspended) == {"Created": "True", "Running": "False", "Suspended": "True"}
    assert "startTime" not in suspended["status"]
    reasons = {c["type"]: c["reason"] for c in suspended["status"]["conditions"]}
    assert reasons["Running"] == reasons["Suspended"] == "PyTorchJobSuspended"

    suspended["spec"]["runPolicy"] = {"suspend": False}
    step = run(suspended, now=NOW + 20)
    assert len(step.wanted) == 3
    assert step.notices == (("Normal", "PyTorchJobResumed", "PyTorchJob ddp is resumed."),)
    resumed = settled(written(suspended, step), ALL, now=NOW + 30)
    assert state(resumed) == {"Created": "True", "Suspended": "False", "Running": "True"}
    assert resumed["status"]["startTime"] == at(30)


def test_restarts_are_remembered_when_their_pods_are_gone():
    manifest = alone(job({"Worker": role(2)}, runPolicy={"backoffLimit": 2}))
    other = pod("ddp-worker-0")
    for count in range(2):
        failed = pod("ddp-worker-1", "Failed", inherited=count, exit_code=1)
        # One failure counts once, however often it is looked at.
        manifest = settled(manifest, [other, failed])
        step = run(manifest, [other, failed])
        assert step.delete_pods == (("ddp-worker-1", "uid-ddp-worker-1"),)
        gone = run(manifest, [other])
        assert [replica.pod_name for replica in gone.wanted] == ["ddp-worker-1"]
    last = run(manifest, [other, pod("ddp-worker-1", "Failed", inherited=2, exit_code=1)])
    assert state(written(manifest, last))["Failed"] == "True"


def test_the_next_pod_of_a_replica_carries_its_restarts():
    manifest = alone(job({"Worker": role(2)}))
    failed = pod("ddp-worker-1", "Failed", restarts=2, exit_code=1)
    manifest = settled(manifest, [pod("ddp-worker-0"), failed])
    (wanted,) = run(manifest, [pod("ddp-worker-0")]).wanted
    body = KIND.pod(manifest, wanted)
    assert body["metadata"]["annotations"]["scheduling.muster.dev/restarts"] == "3"


def test_a_replica_that_finished_is_never_wanted_again():
    manifest = alone(job({"Worker": role(3)}))
    pods = [pod("ddp-worker-0"), pod("ddp-worker-1", "Succeeded"), pod("ddp-worker-2")]
    manifest = settled(manifest, pods)
    step = run(manifest, [pods[0]])
    assert [replica.pod_name for replica in step.wanted] == ["ddp-worker-2"]
    assert step.group is not None
    assert step.group["spec"]["minMember"] == 2
    assert step.status is not None
    assert step.status["replicaStatuses"]["Worker"]["succeeded"] == 1


def test_a_job_is_restarting_until_everybody_is_back():
    failed = pod("ddp-worker-1", "Failed", exit_code=137)
    manifest = settled(settled(alone(job()), ALL), [*ALL[:2], failed])
    assert state(manifest) == {"Created": "True", "Restarting": "True"}
    waiting = settled(manifest, [*ALL[:2], pod("ddp-worker-1", "Pending", inherited=1)])
    assert state(waiting) == {"Created": "True", "Restarting": "True"}
    back = settled(waiting, [*ALL[:2], pod("ddp-worker-1", inherited=1)])
    assert state(back) == {"Created": "True", "Running": "True"}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_nothing_is_wanted_and_no_status_written_after_the_end(phase):
    end = pod("ddp-master-0", phase, exit_code=1)
    manifest = settled(job({"Master": role(1, "Never"), "Worker": role(2)}), [end])
    assert state(manifest)[phase] == "True"
    for pods in ([], ALL, [pod("ddp-master-0", "Failed", exit_code=1)]):
        step = run(manifest, pods, now=NOW + 1e6)
        assert step.status is None
        assert step.wanted == ()
        assert step.group is None


def test_a_run_policy_that_is_spoilt_after_the_end_keeps_everything_and_is_said():
    done = [pod("ddp-master-0", "Succeeded"), *ALL[1:]]
    manifest = settled(job(runPolicy={"cleanPodPolicy": "All"}), done)
    manifest["spec"]["runPolicy"] = {"cleanPodPolicy": "Most"}
    step = run(manifest, done)
    assert step.delete_pods == ()
    assert [reason for _, reason, _ in step.notices] == ["InvalidRunPolicy"]


def test_a_start_time_that_cannot_be_read_limits_nothing():
    manifest = settled(job(runPolicy={"activeDeadlineSeconds": 1}), ALL)
    manifest["status"]["startTime"] = "yesterday"
    step = run(manifest, ALL, now=NOW + 100)
    assert step.wake_at == NOW + 101
