"""``muster check``: fields that do not exist, kinds that are not run, files that do not agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender import cli
from extender.commands.checks import schema
from extender.jobs import KINDS
from tests.cli.conftest import Check

ROOT = Path(__file__).resolve().parents[2]
VOLCANO = "scheduling.volcano.sh/v1beta1"
NAMED = "scheduling.k8s.io/group-name"


def group(name: str = "g", api_version: str = VOLCANO, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": api_version,
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": spec,
    }


def pod(
    of: str = "", key: str = NAMED, container: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "annotations": {key: of} if of else {}},
        "spec": {
            "schedulerName": "muster",
            "containers": [{"name": "pytorch", "image": "i", **(container or {})}],
            **spec,
        },
    }


def role(**changes: Any) -> dict[str, Any]:
    return {"replicas": 1, "template": {"spec": pod()["spec"]}, **changes}


def job(api_version: str = "kubeflow.org/v1", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": api_version,
        "kind": "PyTorchJob",
        "metadata": {"name": "j"},
        "spec": {"pytorchReplicaSpecs": {"Master": role()}, **spec},
    }


def of_master(**changes: Any) -> dict[str, Any]:
    return job(pytorchReplicaSpecs={"Master": role(**changes)})


RUNS = ", ".join(dict.fromkeys(kind.resource.kind for kind in KINDS))
NO_FIELD = "error: no such field; did you mean"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (of_master(replica=3), f"spec.pytorchReplicaSpecs.Master.replica: {NO_FIELD} replicas?"),
        (
            job(runPolicy={"backofLimit": 3}),
            f"spec.runPolicy.backofLimit: {NO_FIELD} backoffLimit?",
        ),
        (
            {**job(), "spec": {"pytorchReplicaSpec": {"Master": role()}}},
            f"spec.pytorchReplicaSpec: {NO_FIELD} pytorchReplicaSpecs?",
        ),
        (
            of_master(template={"spec": pod(container={"resource": {}})["spec"]}),
            (
                "spec.pytorchReplicaSpecs.Master.template.spec.containers[0].resource:"
                f" {NO_FIELD} resources?"
            ),
        ),
        (
            of_master(template={"spec": pod(restartPolicy="Onfail")["spec"]}),
            (
                "spec.pytorchReplicaSpecs.Master.template.spec.restartPolicy: error: 'Onfail' is not"
                " allowed: one of Always, OnFailure, Never; did you mean OnFailure?"
            ),
        ),
        (
            job(pytorchReplicaSpecs={"Master": role(), "worker": role()}),
            (
                "spec.pytorchReplicaSpecs.worker: warning: is read as Worker; write it so:"
                " kubectl scale knows no other"
            ),
        ),
        (
            job(api_version="kubeflow.org/v2"),
            "apiVersion: error: 'kubeflow.org/v2' is not allowed: kubeflow.org/v1, as Muster reads it",
        ),
        (
            {**job(), "kind": "PytorchJob"},
            "kind: error: 'PytorchJob' is not allowed; did you mean PyTorchJob?",
        ),
        (group(minMembers=4), f"spec.minMembers: {NO_FIELD} minMember?"),
        (group(minMember="four"), "spec.minMember: error: 'four' is not allowed: a whole number"),
        (
            group(api_version="scheduling.k8s.io/v1beta1", schedulingPolicy={"gangs": {}}),
            f"spec.schedulingPolicy.gangs: {NO_FIELD} gang?",
        ),
        (pod(priorityClass="high"), f"spec.priorityClass: {NO_FIELD} priorityClassName?"),
        (
            pod(container={"env": [{"name": "A", "value": 1}]}),
            (
                "spec.containers[0].env[0].value: error: 1 is not allowed:"
                " text (in quotes, where it looks like a number)"
            ),
        ),
        (
            pod("g", "scheduling.k8s.io/groupname"),
            (
                "metadata.annotations[scheduling.k8s.io/groupname]: warning: names no group;"
                " did you mean scheduling.k8s.io/group-name?"
            ),
        ),
        (
            pod("g", "scheduling.x-k8s.io/pod-group"),
            (
                "metadata.annotations[scheduling.x-k8s.io/pod-group]: warning: names no group here:"
                " it is read as label only"
            ),
        ),
        (
            {
                **job(),
                "metadata": {
                    "name": "j",
                    "annotations": {"scheduling.muster.dev/restart": "gangs"},
                },
            },
            (
                "metadata.annotations[scheduling.muster.dev/restart]: error: 'gangs' is not allowed:"
                " one of gang, pod"
            ),
        ),
        (
            job(runPolicy={"managedBy": "me"}),
            (
                "spec.runPolicy.managedBy: error: 'me' is not allowed:"
                " kubeflow.org/training-operator or kueue.x-k8s.io/multikueue"
            ),
        ),
        (
            {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"},
            f": warning: Muster does not run this kind (it runs {RUNS}); only advice is given",
        ),
    ],
)
def test_one_slip_is_one_problem_that_says_what_was_meant(check: Check, body, problem) -> None:
    code, problems = check(body)
    assert problems == [problem]
    assert code == (": error: " in problem)


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (
            job(
                runPolicy={"backoffLimit": -1, "managedBy": "me", "cleanPodPolicy": "None"},
                elasticPolicy={"rdzvPort": 0, "minReplicas": 3, "maxReplicas": 2},
                pytorchReplicaSpecs={"Master": role(replicas=2), "Worker": role()},
            ),
            [
                "spec.runPolicy.managedBy",
                "spec.runPolicy.backoffLimit",
                "spec.pytorchReplicaSpecs.Master.replicas",
                "spec.elasticPolicy.rdzvPort",
                "spec.elasticPolicy.minReplicas",
            ],
        ),
        (
            group(
                minMember=0,
                minResources={"cpu": "many", "nvidia.com/gpu": "-1"},
                minTaskMember={"worker": -1},
                networkTopology={"mode": "hard", "highestTierAllowed": 1, "highestTierName": "x"},
                subGroupPolicy=[{"name": "a", "subGroupSize": 0, "minSubGroups": -1}],
            ),
            [
                "spec.minResources[cpu]",
                "spec.minResources[nvidia.com/gpu]",
                "spec.minTaskMember[worker]",
                "spec.networkTopology.highestTierName",
                "spec.subGroupPolicy[0].subGroupSize",
                "spec.subGroupPolicy[0].minSubGroups",
                "spec.minMember",
            ],
        ),
    ],
    ids=["job", "group"],
)
def test_every_wrong_value_of_an_object_is_a_problem(check: Check, body, fields) -> None:
    code, problems = check(body)
    assert [each.partition(": error: ")[0] for each in problems] == fields
    assert code == 1


MASTER = "spec.pytorchReplicaSpecs.Master.template"
ASKS = {"limits": {"nvidia.com/gpu": "0.5", "gpu": 1}, "requests": {"amd.com/gpu": 1}}
OF_ASKS = ["limits[gpu]", "limits[nvidia.com/gpu]", "limits"]


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (
            pod(container={"resources": ASKS}),
            [f"spec.containers[0].resources.{each}" for each in OF_ASKS],
        ),
        (
            of_master(template={"spec": pod(container={"resources": ASKS})["spec"]}),
            [f"{MASTER}.spec.containers[0].resources.{each}" for each in OF_ASKS],
        ),
        # What the kind asks for, too, is told once.
        (
            of_master(template={"spec": pod(container={"image": "", "ports": [{}]})["spec"]}),
            [
                f"{MASTER}.spec.containers[0].image",
                f"{MASTER}.spec.containers[0].ports[0].containerPort",
            ],
        ),
        (
            of_master(template={"metadata": {"labels": {"a": "b c"}}, **role()["template"]}),
            [f"{MASTER}.metadata.labels"],
        ),
        (
            pod(container={"volumeMounts": [{"name": "data", "mountPath": "/data"}]}),
            ["spec.containers[0].volumeMounts[0].name"],
        ),
        (
            pod(container={"resources": {"requests": {"cpu": "many"}}}),
            ["spec.containers[0].resources.requests[cpu]"],
        ),
    ],
)
def test_what_the_api_server_refuses_of_pods_is_an_error_here_too(check: Check, body, fields):
    code, problems = check(body)
    assert [each.partition(": error: ")[0] for each in problems] == fields
    assert code == 1


def test_pods_of_a_stateful_set_have_its_claims_as_volumes(check: Check) -> None:
    spec = pod(container={"volumeMounts": [{"name": "data", "mountPath": "/data"}]})["spec"]
    body: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "s"},
        "spec": {
            "selector": {},
            "template": {"spec": spec},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}}],
        },
    }
    assert check(body) == (0, [])


def test_no_advice_is_given_on_what_the_api_server_refuses(check: Check) -> None:
    """It says itself that a request for devices has no limit."""
    spec = pod(container={"resources": {"requests": {"nvidia.com/gpu": 1}}})["spec"]
    (problem,) = check(of_master(template={"spec": spec}))[1]
    assert problem == (
        f"{MASTER}.spec.containers[0].resources.limits: error: is missing: nvidia.com/gpu: 1, as it"
        " is requested"
    )


def test_of_very_many_the_first_are_told_and_the_rest_counted(check: Check) -> None:
    tasks = {f"task{number:02}": -1 for number in range(23)}
    _, problems = check(group(minMember=1, minTaskMember=tasks))
    assert len(problems) == 21
    assert problems[-1] == ": error: 3 more values are not allowed"


@pytest.mark.parametrize(
    "kind", ["Service", "ConfigMap", "PersistentVolumeClaim", "Namespace", "PodTemplate", "PodList"]
)
def test_what_no_gang_is_made_of_is_fine(check: Check, kind: str) -> None:
    assert check({"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}}) == (0, [])


@pytest.mark.parametrize(
    ("value", "kind"), [("1Gi", "sizeLimit"), (1, "sizeLimit"), (1.5, "sizeLimit")]
)
def test_a_quantity_may_be_a_number(check: Check, value, kind) -> None:
    volume = {"name": "v", "emptyDir": {kind: value}}
    resources = {"limits": {"cpu": 1, "memory": "1Gi", "nvidia.com/gpu": 1}}
    assert check(pod(volumes=[volume], container={"resources": resources})) == (0, [])


def test_a_group_with_fewer_pods_than_its_minimum_would_wait(check: Check) -> None:
    few = "spec.minMember: warning: 5 is more than the 4 pods of this group in the files: it would wait"
    assert check(group(minMember=5), *[pod("g")] * 4) == (0, [few])
    assert check(group(minMember=4), *[pod("g")] * 4) == (0, [])
    deployment: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"replicas": 5, "selector": {}, "template": pod("g")},
    }
    del deployment["spec"]["template"]["apiVersion"]
    del deployment["spec"]["template"]["kind"]
    assert check(group(minMember=5), deployment) == (0, [])


def test_a_group_without_its_pods_in_the_files_is_fine(check: Check) -> None:
    assert check(group(minMember=5)) == (0, [])
    assert check(pod("elsewhere")) == (0, [])


def test_a_pod_that_nearly_names_its_group_is_asked(check: Check) -> None:
    code, problems = check(group("quartet", minMember=2), pod("quartett"), pod("quartett"))
    assert code == 0
    assert problems == [
        (
            "metadata: warning: names PodGroup quartett, which is not in these files;"
            " did you mean quartet?"
        )
    ]


def test_a_group_of_another_namespace_is_another_group(check: Check) -> None:
    there = group(minMember=1)
    there["metadata"]["namespace"] = "ml"
    assert check(there, pod("g")) == (
        0,
        [
            "metadata: warning: names PodGroup g in default; in these files it is in ml",
        ],
    )


def test_a_field_that_is_not_there_is_missing(check: Check) -> None:
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "j"}}
    says = "is missing: at least one replica type of Master, Worker"
    for spec in (dict[str, Any](), None):
        _, problems = check(job | {"spec": spec})
        assert f"spec.pytorchReplicaSpecs: error: {says}" in problems


def test_an_empty_file_and_an_empty_folder_hold_nothing(tmp_path: Path, capsys) -> None:
    (tmp_path / "none" / ".venv").mkdir(parents=True)
    (tmp_path / "none" / ".venv" / "port.yaml").write_text("what: others brought\n")
    empty = tmp_path / "empty.yaml"
    empty.write_text("# nothing\n---\n")
    assert cli.main(["check", str(empty), str(tmp_path / "none")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{empty}: warning: holds nothing",
        f"{tmp_path / 'none'}: warning: holds no YAML file",
        "0 objects, 2 problems",
    ]


def test_a_folder_is_walked(capsys) -> None:
    assert cli.main(["check", str(ROOT / "manifests")]) == 0
    assert capsys.readouterr().out.endswith(" objects, 0 problems\n")


def test_several_alternatives_are_compared_one_by_one_and_that_is_said(capsys) -> None:
    assert cli.main(["check", str(ROOT / "config")]) == 1
    said = capsys.readouterr().err
    assert "3 KubeSchedulerConfigurations are given, and each is compared with" in said


def test_without_the_definitions_it_says_so(tmp_path: Path, monkeypatch, check: Check, capsys):
    monkeypatch.setattr(schema, "_PLACES", (tmp_path / "none",))
    schema._definitions.cache_clear()
    try:
        file = tmp_path / "group.yaml"
        file.write_text(yaml.safe_dump(group(minMembers=4)))
        assert cli.main(["check", str(file)]) == 0
        assert "manifests/crds is not found" in capsys.readouterr().err
    finally:
        schema._definitions.cache_clear()


def test_advice_looks_at_claims_and_namespaces_of_all_files(check: Check) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"]},
    }
    elsewhere = {**claim, "metadata": {"name": "data", "namespace": "other"}}
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    mounts = [{"name": "data", "mountPath": "/data"}]
    spec = pod(container={"volumeMounts": mounts}, volumes=volumes)["spec"]
    body = of_master(template={"spec": spec})
    body["spec"]["pytorchReplicaSpecs"]["Worker"] = role(replicas=2, template={"spec": spec})
    assert check(elsewhere, body) == (0, [])
    code, problems = check(body, claim)
    assert code == 0
    at = (
        "template.spec.volumes[0].persistentVolumeClaim.claimName: warning: is 'data': the claim is"
    )
    assert [each.partition(" Read")[0] for each in problems] == [
        f"spec.pytorchReplicaSpecs.{type_}.{at}" for type_ in ("Master", "Worker")
    ]
    space = {"metadata": {"name": "default", "labels": {"istio-injection": "enabled"}}}
    _, problems = check(of_master(), {"apiVersion": "v1", "kind": "Namespace", **space})
    (problem,) = problems
    assert "the namespace asks for it" in problem


def test_advice_has_its_code(tmp_path: Path, capsys) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        yaml.safe_dump(
            job(
                nprocPerNode="gpu",
                pytorchReplicaSpecs={
                    "Master": role(
                        template={
                            "spec": pod(container={"command": ["torchrun", "train.py"]})["spec"]
                        }
                    )
                },
            )
        )
    )
    assert cli.main(["check", "--json", str(file)]) == 0
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert (problem["advice"], problem["field"]) == ("NoGPU", "spec.nprocPerNode")
    assert cli.main(["check", str(file)]) == 0
    assert "warning: is 'gpu': torchrun fails at once" in (said := capsys.readouterr().out)
    assert "[NoGPU]" in said


def test_advice_on_volcano_s_job(check: Check) -> None:
    task = {
        "name": "worker",
        "replicas": 2,
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "w",
                        "image": "i",
                        "command": ["torchrun", "--nproc_per_node=1", "train.py"],
                    }
                ]
            }
        },
    }
    kind = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "v"}}
    code, problems = check({**kind, "spec": {"tasks": [task]}})
    assert code == 0
    assert [each.partition(":")[0] for each in problems[1:]] == [
        "spec.tasks[0].template.spec.containers[0].command[0]"
    ] * 2
    assert "--master_addr" in problems[2]
    odd: list[Any] = [None, [], {"tasks": {}}, {"tasks": [{"template": 3, "replicas": "x"}]}]
    for spec in odd:
        assert len(check({**kind, "spec": spec})[1]) == 1
