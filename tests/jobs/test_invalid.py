"""Jobs that cannot be used as they stand: said by field, value and what is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from extender.core.errors import MOST_FAULTS, InvalidObject
from tests.jobs.builders import KIND, NOW, job, merged, pod, role, run, state, written

SPECS = "spec.pytorchReplicaSpecs"
WORKER = f"{SPECS}.Worker"

BAD = [
    ({"pytorchReplicaSpecs": None}, SPECS, "at least one replica type of Master, Worker"),
    ({"pytorchReplicaSpecs": []}, SPECS, "a map of fields"),
    ({"pytorchReplicaSpecs": {"PS": role()}}, SPECS, "only the replica types Master, Worker"),
    ({"pytorchReplicaSpecs": {"worker": role()}}, SPECS, "replica type Worker only once"),
    (
        {"pytorchReplicaSpecs": {"Master": {"replicas": 0}, "Worker": {"replicas": 0}}},
        SPECS,
        "at least one replica",
    ),
    ({"pytorchReplicaSpecs": {"Master": {"replicas": 2}}}, f"{SPECS}.Master.replicas", "exactly 1"),
    ({"pytorchReplicaSpecs": {"Worker": {"replicas": -1}}}, f"{WORKER}.replicas", "at least 0"),
    ({"pytorchReplicaSpecs": {"Worker": {"replicas": "2"}}}, f"{WORKER}.replicas", "whole number"),
    (
        {"pytorchReplicaSpecs": {"Worker": {"restartPolicy": "Sometimes"}}},
        f"{WORKER}.restartPolicy",
        "one of Always, OnFailure, Never, ExitCode",
    ),
    (
        {"pytorchReplicaSpecs": {"Worker": {"template": {"spec": {"containers": None}}}}},
        f"{WORKER}.template.spec.containers",
        "one container has to be named pytorch",
    ),
    (
        {
            "pytorchReplicaSpecs": {
                "Worker": {"template": {"spec": {"containers": [{"name": "torch", "image": "i"}]}}}
            }
        },
        f"{WORKER}.template.spec.containers",
        "one container has to be named pytorch",
    ),
    (
        {
            "pytorchReplicaSpecs": {
                "Worker": {"template": {"spec": {"containers": [{"name": "pytorch"}]}}}
            }
        },
        f"{WORKER}.template.spec.containers[0].image",
        "the name of an image",
    ),
    ({"runPolicy": {"cleanPodPolicy": "Some"}}, "spec.runPolicy.cleanPodPolicy", "None, Running"),
    ({"cleanPodPolicy": "Some"}, "spec.cleanPodPolicy", "one of None, Running, All"),
    ({"runPolicy": {"backoffLimit": -1}}, "spec.runPolicy.backoffLimit", "at least 0"),
    ({"runPolicy": {"suspend": "yes"}}, "spec.runPolicy.suspend", "true or false"),
    ({"runPolicy": ["a"]}, "spec.runPolicy", "a map of fields"),
    (
        {"runPolicy": {"schedulingPolicy": {"minAvailable": 4}}},
        "spec.runPolicy.schedulingPolicy.minAvailable",
        "at most the number of replicas (3)",
    ),
    (
        {"runPolicy": {"schedulingPolicy": {"minAvailable": 0}}},
        "spec.runPolicy.schedulingPolicy.minAvailable",
        "at least 1",
    ),
    ({"nprocPerNode": 1.5}, "spec.nprocPerNode", "a number, auto, cpu or gpu"),
    (
        {"elasticPolicy": {"minReplicas": 3, "maxReplicas": 2}},
        "spec.elasticPolicy.minReplicas",
        "at most maxReplicas (2)",
    ),
    (
        {"elasticPolicy": {"rdzvBackend": "mpi"}},
        "spec.elasticPolicy.rdzvBackend",
        "one of c10d, etcd, etcd-v2",
    ),
    (
        {"elasticPolicy": {"minReplicas": 1}, "pytorchReplicaSpecs": {"Worker": None}},
        SPECS,
        "an elastic job has Worker",
    ),
]


@pytest.mark.parametrize(("change", "field", "allowed"), BAD)
def test_said_and_not_started(change, field, allowed):
    manifest = merged(job(), {"spec": change})
    step = run(manifest)
    assert step.wanted == ()
    assert step.group is None
    assert step.services == ()
    ((level, reason, message),) = step.notices
    assert (level, reason) == ("Warning", "PyTorchJobInvalid")
    assert message.startswith(f"{field}: ")
    assert allowed in message
    after = written(manifest, step)
    assert state(after) == {"Created": "True", "Invalid": "True"}
    again = run(after, now=NOW + 60)
    assert (again.status, again.notices) == (None, ())


def _worker(**changes: Any) -> dict[str, Any]:
    return {"pytorchReplicaSpecs": {"Worker": changes}}


def _containers(*containers: Any) -> dict[str, Any]:
    return _worker(template={"spec": {"containers": list(containers)}})


OK = {"name": "pytorch", "image": "i"}
IN_WORKER = f"{WORKER}.template.spec.containers"
#: Changes of a valid job, and the fields that are told, in this order.
MANY: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "policy, role and kind": (
        [
            {"runPolicy": {"suspend": "yes", "backoffLimit": -1}, "nprocPerNode": 1.5},
            _worker(restartPolicy="Sometimes"),
        ],
        [
            "spec.runPolicy.backoffLimit",
            "spec.runPolicy.suspend",
            f"{WORKER}.restartPolicy",
            "spec.nprocPerNode",
        ],
    ),
    "every container, and the kind": (
        [
            _containers(OK | {"ports": [{"containerPort": 0}]}, {"name": "a"}, {"name": "b"}),
            {"elasticPolicy": {"rdzvBackend": "mpi", "rdzvPort": 0, "rdzvConf": [{}, {"key": 1}]}},
        ],
        [
            f"{IN_WORKER}[1].image",
            f"{IN_WORKER}[2].image",
            f"{IN_WORKER}[0].ports[0].containerPort",
            "spec.elasticPolicy.rdzvPort",
            "spec.elasticPolicy.rdzvBackend",
            "spec.elasticPolicy.rdzvConf",
            "spec.elasticPolicy.rdzvConf",
        ],
    ),
    # Five of four replicas, and an elastic job without workers, would be told of what is not known.
    "what follows of a wrong number is not told": (
        [
            _worker(replicas="2"),
            {"runPolicy": {"schedulingPolicy": {"minAvailable": 3}}, "elasticPolicy": {"a": 1}},
            {"pytorchReplicaSpecs": {"Wroker": role(), "Master": {"replicas": 2.0}}},
        ],
        [f"{SPECS}.Master.replicas", f"{WORKER}.replicas", SPECS],
    ),
    "a part of the policy": (
        [{"runPolicy": {"schedulingPolicy": ["a"], "ttlSecondsAfterFinished": "1h"}}],
        ["spec.runPolicy.schedulingPolicy", "spec.runPolicy.ttlSecondsAfterFinished"],
    ),
}


@pytest.mark.parametrize(("changes", "told"), MANY.values(), ids=MANY)
def test_every_wrong_field_is_said_at_once(changes, told):
    manifest = job()
    for change in changes:
        manifest = merged(manifest, {"spec": change})
    with pytest.raises(InvalidObject) as error:
        KIND.replicas(manifest)
    assert [each.field for each in error.value.each] == told
    ((_, reason, message),) = run(manifest).notices
    assert reason == "PyTorchJobInvalid"
    assert message == "; ".join(map(str, error.value.each))


def test_of_very_many_wrong_fields_the_first_are_said_and_the_rest_counted():
    nameless = _containers(OK, *({"name": f"c{number:02}"} for number in range(MOST_FAULTS + 3)))
    with pytest.raises(InvalidObject) as error:
        KIND.replicas(merged(job(), {"spec": nameless}))
    first = [f"{IN_WORKER}[{number}].image" for number in range(1, MOST_FAULTS + 1)]
    assert [each.field for each in error.value.each] == first
    assert error.value.more == 3
    assert str(error.value).endswith("; and 3 more")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (None, "spec.pytorchReplicaSpecs: is missing: at least one replica type"),
        ({}, "spec.pytorchReplicaSpecs: is missing: at least one replica type"),
        ([], "spec: [] is not allowed: a map of fields"),
        ("x", "spec: 'x' is not allowed: a map of fields"),
    ],
)
def test_an_empty_spec_names_the_field(spec, said):
    ((_, _, message),) = run({**job(), "spec": spec}).notices
    assert message.startswith(said)


def test_an_edit_makes_it_valid_again():
    bad = job(runPolicy={"backoffLimit": -1})
    bad = written(bad, run(bad))
    good = {**bad, "spec": job()["spec"]}
    step = run(good)
    assert len(step.wanted) == 3
    assert state(written(good, step)) == {"Created": "True"}


def test_another_fault_is_said_anew():
    bad = job(runPolicy={"backoffLimit": -1})
    bad = written(bad, run(bad))
    bad["spec"]["runPolicy"] = {"ttlSecondsAfterFinished": -1}
    ((_, _, message),) = run(bad).notices
    assert message.startswith("spec.runPolicy.ttlSecondsAfterFinished")


def test_an_edit_that_spoils_a_running_job_stops_nothing():
    bad = job(runPolicy={"backoffLimit": -1})
    step = run(bad, [pod("ddp-master-0"), pod("ddp-worker-0"), pod("ddp-worker-1")])
    assert step.delete_pods == ()
    assert step.delete_services == ()


@pytest.mark.parametrize("name", ["9lives", "Upper", "a.b", "x" * 55])
def test_names_that_no_service_may_have(name):
    ((_, _, message),) = run(job(name=name)).notices
    assert message.startswith("metadata.name: ")


def test_a_history_that_somebody_edited_is_said():
    manifest = job()
    manifest["metadata"]["annotations"] = {"scheduling.muster.dev/replica-history": '{"worker":7}'}
    ((_, _, message),) = run(manifest).notices
    assert message.startswith("metadata.annotations[scheduling.muster.dev/replica-history]")


def test_what_is_accepted_but_not_as_written_is_said_once():
    manifest = job(cleanPodPolicy="None")
    template = manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    template["spec"]["restartPolicy"] = "Never"
    step = run(manifest)
    assert [reason for _, reason, _ in step.notices] == [
        "MisplacedField",
        "SetPodTemplateRestartPolicy",
    ]
    assert run(written(manifest, step)).notices == ()
