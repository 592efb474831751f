"""What a replica's pod, its Service and the gang's PodGroup look like."""

from __future__ import annotations

from copy import deepcopy

import pytest

from extender.core.framework import Replica
from tests.jobs.builders import KIND, job, pod, role, run


def made(manifest, role_name="worker", index=0):
    name = manifest["metadata"]["name"]
    return KIND.pod(manifest, Replica(role_name, index, f"{name}-{role_name}-{index}"))


def env_of(body, container=0):
    return {e["name"]: e["value"] for e in body["spec"]["containers"][container]["env"]}


def test_env_with_a_master():
    manifest = job(nprocPerNode="2")
    common = {
        "PYTHONUNBUFFERED": "1",
        "MASTER_PORT": "23456",
        "PET_MASTER_PORT": "23456",
        "MASTER_ADDR": "ddp-master-0",
        "PET_MASTER_ADDR": "ddp-master-0",
        "WORLD_SIZE": "6",
        "PET_NPROC_PER_NODE": "2",
        "PET_NNODES": "3",
    }
    assert env_of(made(manifest, "master")) == {**common, "RANK": "0", "PET_NODE_RANK": "0"}
    assert env_of(made(manifest, "worker", 1)) == {**common, "RANK": "2", "PET_NODE_RANK": "2"}


def test_env_without_a_master_leaves_ranks_to_torchrun():
    manifest = job({"Worker": role(2)})
    assert env_of(made(manifest)) == {
        "PYTHONUNBUFFERED": "1",
        "PET_NPROC_PER_NODE": "auto",
        "PET_NNODES": "2",
    }


def test_env_of_an_elastic_job():
    # shared with the example "elastic-training" that clusters run: etcd rendezvous, 2 to 8 workers
    elastic = {
        "rdzvBackend": "etcd",
        "rdzvHost": "etcd-service",
        "rdzvPort": 2379,
        "minReplicas": 2,
        "maxReplicas": 8,
        "maxRestarts": 0,
        "rdzvConf": [{"key": "timeout", "value": "60"}, {"key": "a", "value": "b"}],
    }
    assert env_of(made(job({"Worker": role(4)}, elasticPolicy=elastic))) == {
        "PYTHONUNBUFFERED": "1",
        "PET_NPROC_PER_NODE": "auto",
        "PET_NNODES": "2:8",
        "PET_RDZV_ENDPOINT": "etcd-service:2379",
        "PET_RDZV_BACKEND": "etcd",
        "PET_MAX_RESTARTS": "0",
        "PET_RDZV_CONF": "timeout=60,a=b",
    }


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        ({"rdzvBackend": "c10d"}, "3:3"),
        ({"minReplicas": 2}, "2:2"),
        ({"maxReplicas": 5}, "5:5"),
    ],
)
def test_a_missing_bound_is_as_the_other(bounds, said):
    values = env_of(made(job({"Worker": role(3)}, elasticPolicy=bounds)))
    assert values["PET_NNODES"] == said
    assert values["PET_RDZV_ENDPOINT"] == "ddp-worker-0:23456"


def test_env_goes_after_the_users_own_into_every_container_but_no_init_container():
    manifest = job({"Worker": role(1, env=[{"name": "NCCL_DEBUG", "value": "INFO"}])})
    spec = manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    spec["containers"].append({"name": "sidecar", "image": "s"})
    spec["initContainers"] = [{"name": "fetch", "image": "f"}]
    before = deepcopy(manifest)
    body = made(manifest)
    first = body["spec"]["containers"][0]["env"]
    assert first[0] == {"name": "NCCL_DEBUG", "value": "INFO"}
    assert body["spec"]["containers"][1]["env"] == first[1:]
    assert body["spec"]["initContainers"] == [{"name": "fetch", "image": "f"}]
    assert manifest == before


def test_names_labels_and_owner():
    manifest = job()
    template = manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]
    template["metadata"] = {"name": "ignored", "labels": {"app": "x"}, "annotations": {"a": "b"}}
    metadata = made(manifest, "master")["metadata"]
    assert metadata["name"] == "ddp-master-0"
    assert metadata["labels"] == {
        "app": "x",
        "training.kubeflow.org/job-name": "ddp",
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/replica-type": "master",
        "training.kubeflow.org/replica-index": "0",
        "training.kubeflow.org/job-role": "master",
    }
    assert metadata["annotations"] == {
        "a": "b",
        "scheduling.k8s.io/group-name": "ddp",
        "volcano.sh/task-spec": "master",
    }
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "name": "ddp",
            "uid": "job-1",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def test_worker_0_leads_where_there_is_no_master():
    manifest = job({"Worker": role(2)})
    leads = "training.kubeflow.org/job-role"
    assert made(manifest, "worker", 0)["metadata"]["labels"][leads] == "master"
    assert leads not in made(manifest, "worker", 1)["metadata"]["labels"]


@pytest.mark.parametrize(
    ("policy", "of_pod"),
    [("Always", "Always"), ("Never", "Never"), ("ExitCode", "Never"), (None, "OnFailure")],
)
def test_restart_policy_of_the_pod(policy, of_pod):
    manifest = job({"Worker": role(1, policy)})
    spec = manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    spec["restartPolicy"] = "Always"
    assert made(manifest)["spec"]["restartPolicy"] == of_pod


def test_ports_are_defaulted_and_a_port_of_the_users_is_the_masters_port():
    ports = [{"name": "pytorchjob-port", "containerPort": 1234}]
    manifest = job({"Master": role(ports=ports), "Worker": role(1)})
    worker = made(manifest)
    assert env_of(worker)["MASTER_PORT"] == "1234"
    assert made(manifest, "master")["spec"]["containers"][0]["ports"] == ports
    assert worker["spec"]["containers"][0]["ports"] == [
        {"name": "pytorchjob-port", "containerPort": 23456}
    ]


def test_service_of_a_replica():
    step = run(job(), [pod("ddp-worker-1")])
    assert step.services == ()
    (replica,) = step.spare_services
    service = KIND.service(job(), replica)
    labels = {
        "training.kubeflow.org/job-name": "ddp",
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "1",
    }
    assert service["metadata"]["labels"] == labels
    assert service["spec"] == {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": labels,
        "ports": [{"name": "pytorchjob-port", "port": 23456, "targetPort": 23456}],
    }
    assert run(job(), [pod("ddp-worker-1")], services=("ddp-worker-1",)).spare_services == ()


def test_the_service_that_others_dial_is_not_spare():
    step = run(job(), [pod("ddp-master-0"), pod("ddp-worker-0")])
    assert [each.pod_name for each in step.services] == ["ddp-master-0"]
    assert [each.pod_name for each in step.spare_services] == ["ddp-worker-0"]


def test_group():
    manifest = job()
    manifest["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "research"}
    manifest["metadata"]["annotations"] = {
        "team": "a",
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
    }
    worker = manifest["spec"]["pytorchReplicaSpecs"]["Worker"]
    worker["template"]["spec"]["priorityClassName"] = "high"
    group = run(manifest).group
    assert group is not None
    assert group["metadata"]["name"] == "ddp"
    assert group["metadata"]["annotations"] == {"team": "a"}
    assert group["metadata"]["ownerReferences"][0]["uid"] == "job-1"
    assert group["spec"] == {
        "minMember": 3,
        "queue": "research",
        "priorityClassName": "high",
    }


def test_schedule_timeout_is_an_annotation_of_the_group():
    policy = {"schedulingPolicy": {"scheduleTimeoutSeconds": 90}}
    group = run(job(runPolicy=policy)).group
    assert group is not None
    key = "scheduling.muster.dev/schedule-timeout-seconds"
    assert group["metadata"]["annotations"] == {key: "90"}
