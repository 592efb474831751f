"""A large cluster in the in-memory API server, in a process of its own: what `restart` reads.

Objects are as large as production's: managedFields, conditions, container statuses. Half of the
pods are of DaemonSets and Deployments, half train: running gangs, PyTorchJobs, and finished pods
that nobody has cleaned up.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

from extender.core import api
from extender.core.api import Resource
from extender.core.objects import Manifest
from extender.sim import fleet
from extender.sim.apiserver import ApiServer, wall_store
from extender.sim.history import Key
from extender.sim.selectors import Selector
from extender.sim.store import Store

SINCE = "2026-11-01T08:00:00Z"
GPU = fleet.GPU
#: Shares of all pods, in percent; what is left are pods of Deployments.
DAEMONS, GANGS, JOBS, FINISHED = 40, 15, 10, 10
#: Pods of one Deployment, gang, PyTorchJob.
SIZE = {"deployment": 10, "gang": 20, "job": 50}


class Resting(Store):
    """A store that nobody writes to: a list is put in order once, not for each of its pages."""

    def __init__(self, like: Store) -> None:
        self.__dict__.update(like.__dict__)
        self._ordered: dict[Resource, list[Manifest]] = {}

    def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        selector: Selector | None = None,
        at: int | None = None,
    ) -> list[Manifest]:
        if namespace is not None or (selector is not None and (selector.labels or selector.fields)):
            return super().list(resource, namespace, selector, at)
        if resource not in self._ordered:
            self._ordered[resource] = super().list(resource)
        return self._ordered[resource]


def serve(nodes: int, pods: int, pipe: Connection[Any, Any]) -> None:
    """A process: sends its URL and what a mean pod takes (bytes), ends when anything is received."""
    asyncio.run(_serve(nodes, pods, pipe))


async def _serve(nodes: int, pods: int, pipe: Connection[Any, Any]) -> None:
    store = Resting(wall_store())
    for resource, obj in cluster(nodes, pods):
        meta = obj["metadata"]
        key: Key = (meta.get("namespace", ""), meta["name"])
        store._commit(resource, key, "ADDED", obj, None)
    store.history.forget()
    async with ApiServer(store) as server:
        pipe.send(server.url)
        await asyncio.to_thread(pipe.recv)


def cluster(nodes: int, pods: int) -> Iterator[tuple[Resource, Manifest]]:
    """Everything that is in it, each object with its resource."""
    names = [f"gpu-node-{at:05d}.example.internal" for at in range(nodes)]
    for at, name in enumerate(names):
        yield api.NODES, _node(name, at)
    for name in ("kube-system", "web", "team-a", "team-b"):
        yield api.NAMESPACES, _plain_object(api.NAMESPACES, "", name)
    daemons = pods * DAEMONS // 100 // nodes
    for kind in range(daemons):
        owner = ("apps/v1", "DaemonSet", f"daemon-{kind}")
        template = _template("kube-system", owner, {"cpu": "100m", "memory": "128Mi"})
        for at, name in enumerate(names):
            pin = {"key": "metadata.name", "operator": "In", "values": [name]}
            terms = [{"matchFields": [pin]}]
            required = {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
            }
            more = {"affinity": {"nodeAffinity": required}}
            yield api.PODS, _pod(template, f"daemon-{kind}-{_suffix(kind, at)}", name, spec=more)
    left = pods - daemons * nodes
    gangs, jobs, finished = (pods * share // 100 for share in (GANGS, JOBS, FINISHED))
    place = (names[at * 7 % nodes] for at in range(left))
    yield from _gangs(gangs // SIZE["gang"], place)
    yield from _jobs(jobs // SIZE["job"], place)
    yield from _finished(finished, place)
    yield from _deployments(left - gangs - jobs - finished, place)


def _gangs(count: int, place: Iterator[str]) -> Iterator[tuple[Resource, Manifest]]:
    """Volcano PodGroups whose members run."""
    for at in range(count):
        name = f"train-{at}"
        group = _plain_object(api.VOLCANO_GROUPS, "team-a", name)
        group["spec"] = {"minMember": SIZE["gang"], "queue": "default"}
        group["status"] = {"phase": "Running", "running": SIZE["gang"]}
        yield api.VOLCANO_GROUPS, group
        owner = ("batch.volcano.sh/v1alpha1", "Job", name)
        template = _template("team-a", owner, {"cpu": "1", "memory": "8Gi"})
        marks = {"scheduling.k8s.io/group-name": name, "volcano.sh/task-spec": "worker"}
        for index in range(SIZE["gang"]):
            yield api.PODS, _pod(
                template, f"{name}-worker-{index}", next(place), annotations=marks,
                spec={"schedulerName": "muster"},
            )  # fmt: skip


def _jobs(count: int, place: Iterator[str]) -> Iterator[tuple[Resource, Manifest]]:
    """PyTorchJobs that Muster runs, their Services, and their pods as Muster makes them."""
    for at in range(count):
        name = f"llm-{at}"
        owner = ("kubeflow.org/v1", "PyTorchJob", name)
        requests = {"cpu": "1", "memory": "8Gi"}
        template = _template("team-b", owner, requests)
        box = {"name": "pytorch", "image": "pytorch", "resources": {"requests": requests}}
        worker = {"replicas": SIZE["job"], "restartPolicy": "Never"}
        worker["template"] = {"spec": {"containers": [box]}}
        job = _plain_object(api.PYTORCH_JOBS, "team-b", name)
        job["spec"] = {"pytorchReplicaSpecs": {"Worker": worker}}
        yield api.PYTORCH_JOBS, job
        for index in range(SIZE["job"]):
            pod = f"{name}-worker-{index}"
            labels = {
                "training.kubeflow.org/job-name": name,
                "training.kubeflow.org/replica-type": "worker",
                "training.kubeflow.org/replica-index": str(index),
            }
            marks = {"scheduling.k8s.io/group-name": name}
            service = _plain_object(api.SERVICES, "team-b", pod)
            service["metadata"]["ownerReferences"] = template["metadata"]["ownerReferences"]
            yield api.SERVICES, service
            yield api.PODS, _pod(
                template, pod, next(place), annotations=marks, labels=labels,
                spec={"schedulerName": "muster"},
            )  # fmt: skip


def _finished(count: int, place: Iterator[str]) -> Iterator[tuple[Resource, Manifest]]:
    """Pods of batch Jobs that have ended and were not cleaned up."""
    for at in range(count):
        template = _template("team-a", ("batch/v1", "Job", f"prepare-{at}"), {"cpu": "1"})
        yield (
            api.PODS,
            _pod(template, f"prepare-{at}-{_suffix(at, 1)}", next(place), phase="Succeeded"),
        )


def _deployments(count: int, place: Iterator[str]) -> Iterator[tuple[Resource, Manifest]]:
    template: Manifest = {}
    for at in range(count):
        name = f"web-{at // SIZE['deployment']}"
        if at % SIZE["deployment"] == 0:
            owner = ("apps/v1", "ReplicaSet", f"{name}-{_suffix(at, 2)}")
            template = _template("web", owner, {"cpu": "250m", "memory": "512Mi"})
        yield api.PODS, _pod(template, f"{name}-{_suffix(at, 3)}", next(place))


# what is shared by the pods of a template, and what is a pod's own


def _template(namespace: str, owner: tuple[str, str, str], requests: dict[str, str]) -> Manifest:
    version, kind, name = owner
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/instance": name, "tier": "prod"}
    reference = {"apiVersion": version, "kind": kind, "name": name, "uid": uid(kind, name)}
    token = {
        "name": "kube-api-access",
        "projected": {
            "defaultMode": 420,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"items": [{"key": "ca.crt", "path": "ca.crt"}], "name": "kube-root"}},
                {"downwardAPI": {"items": [{"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}, "path": "namespace"}]}},
            ],
        },
    }  # fmt: skip
    probe = {"failureThreshold": 3, "httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}}
    box = {
        "name": "main",
        "image": f"registry.example.internal/team/{name}:v1.27.3",
        "imagePullPolicy": "IfNotPresent",
        "args": ["--config=/etc/app/config.yaml", "--log-level=info", "--shards=64"],
        "env": [{"name": f"SETTING_{at}", "value": f"value-of-{at}"} for at in range(8)],
        "resources": {"requests": requests, "limits": requests},
        "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
        "livenessProbe": probe,
        "readinessProbe": probe,
        "terminationMessagePath": "/dev/termination-log",
        "volumeMounts": [{"mountPath": "/var/run/secrets", "name": "kube-api-access"}],
    }
    tolerations = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in ("not-ready", "unreachable")
    ]  # fmt: skip
    return {
        "metadata": {
            "namespace": namespace,
            "labels": labels,
            "ownerReferences": [{**reference, "controller": True, "blockOwnerDeletion": True}],
            "managedFields": [_managed("kube-controller-manager", 28), _managed("kubelet", 22)],
        },
        "spec": {
            "containers": [box],
            "volumes": [token],
            "tolerations": tolerations,
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "priority": 0,
            "preemptionPolicy": "PreemptLowerPriority",
            "serviceAccountName": "default",
            "securityContext": {},
            "terminationGracePeriodSeconds": 30,
            "enableServiceLinks": True,
            "dnsPolicy": "ClusterFirst",
        },
    }


def _managed(manager: str, fields: int) -> Manifest:
    inner: Manifest = {f"f:field{at}": {"f:nested": {}, ".": {}} for at in range(fields)}
    return {
        "manager": manager, "operation": "Update", "apiVersion": "v1", "time": SINCE,
        "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": inner}, "f:spec": {}},
    }  # fmt: skip


def _pod(
    template: Manifest,
    name: str,
    node: str,
    *,
    phase: str = "Running",
    spec: Manifest | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> Manifest:
    shared = template["metadata"]
    own = uid("Pod", name)
    conditions = [
        {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": SINCE}
        for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]  # fmt: skip
    (box,) = template["spec"]["containers"]
    image = box["image"]
    digest = hashlib.sha256(name.encode()).hexdigest()
    status = {
        "name": "main", "image": image, "imageID": f"{image}@sha256:{digest}",
        "containerID": f"containerd://{digest}", "ready": True, "started": True, "restartCount": 0,
        "lastState": {}, "state": {"running": {"startedAt": SINCE}},
        # As kubelets report them since 1.33.
        "resources": box["resources"], "allocatedResources": box["resources"]["requests"],
    }  # fmt: skip
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **shared,
            "name": name,
            "generateName": name.rpartition("-")[0] + "-",
            "uid": own,
            "creationTimestamp": SINCE,
            "labels": {**shared["labels"], **(labels or {})},
            "annotations": {"checksum/config": digest, **(annotations or {})},
        },
        "spec": {**template["spec"], "nodeName": node, **(spec or {})},
        "status": {
            "phase": phase, "conditions": conditions, "containerStatuses": [status],
            "hostIP": "10.0.0.1", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}],
            "qosClass": "Guaranteed", "startTime": SINCE,
        },
    }  # fmt: skip


def _node(name: str, at: int) -> Manifest:
    """A node with the labels, images and conditions that a kubelet reports."""
    marks = {
        "topology.kubernetes.io/zone": f"zone-{at % 3}",
        "topology.kubernetes.io/region": "eu-1",
        "node.kubernetes.io/instance-type": "gpu.8xlarge",
        **{f"feature.node.kubernetes.io/cpu-cpuid.{each}": "true" for each in range(40)},
    }
    found = fleet.node(name, gpus=8, cpu="128", memory="1Ti", rack=f"rack-{at // 8}", labels=marks)
    images = [
        {"names": [f"registry.example.internal/image-{each}:v1"], "sizeBytes": 10**8 + each}
        for each in range(50)
    ]
    status = {**found["status"], "images": images, "nodeInfo": {"kubeletVersion": "v1.37.2"}}
    meta = {**found["metadata"], "uid": uid("Node", name), "creationTimestamp": SINCE}
    meta["managedFields"] = [_managed("kubelet", 60)]
    return {"apiVersion": "v1", "kind": "Node", **found, "metadata": meta, "status": status}


def _plain_object(resource: Resource, namespace: str, name: str) -> Manifest:
    meta: Manifest = {"name": name, "uid": uid(resource.kind, name), "creationTimestamp": SINCE}
    if namespace:
        meta["namespace"] = namespace
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta}


def uid(kind: str, name: str) -> str:
    """The same in every run."""
    text = hashlib.md5(f"{kind}/{name}".encode()).hexdigest()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _suffix(*parts: int) -> str:
    return hashlib.md5(repr(parts).encode()).hexdigest()[:5]
