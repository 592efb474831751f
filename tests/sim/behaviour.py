"""What an API server answers, as a table: run against the in-memory one and against the real one.

Each step is a request and what must come of it; steps of a story depend on those before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
PODS = "/api/v1/namespaces/default/pods"


@dataclass(frozen=True)
class Step:
    method: str
    path: str
    body: Any = None
    code: int = 200
    message: str = ""  # a part of the Status message
    has: dict[str, Any] = field(default_factory=dict)  # "spec.nodeName": value; None for absent
    content_type: str = "application/json"
    query: dict[str, str] = field(default_factory=dict)
    keep: str = ""  # remember metadata.uid and resourceVersion as KEEP.uid, KEEP.rv


def pod(name: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "image", "resources": spec.pop("resources", {})}
    meta = {"name": name, **spec.pop("metadata", {})}
    body = {"containers": [container], "terminationGracePeriodSeconds": 30, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": body}


def binding(name: str, node: str, **meta: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **meta},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def patch(path: str, body: Any, **more: Any) -> Step:
    return Step("PATCH", path, body, content_type=MERGE, **more)


def pin(node: str) -> dict[str, Any]:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


GATE = [{"name": "muster.dev/hold"}]
OTHER_UID = "00000000-0000-0000-0000-000000000000"


def refuses(message: str, /, container: dict[str, Any] | None = None, **spec: Any) -> Step:
    """A pod that is refused for what this changes."""
    of_pod = spec.pop("resources_", None)
    body = pod("r", **spec)
    body["spec"]["containers"][0].update(container or {})
    if of_pod:
        body["spec"]["resources"] = of_pod
    return Step("POST", PODS, body, 422, message, query={"dryRun": "All"})


GPU = "nvidia.com/gpu"
STORIES: dict[str, list[Step]] = {
    "what containers may ask for": [
        Step("POST", PODS, pod("r", resources={"limits": {"cpu": "0.5", "memory": "1.5Gi", GPU: "2e0", "ephemeral-storage": "1Gi", "hugepages-2Mi": "4Mi", "kubernetes.io/odd": "0.5"}}), 201, query={"dryRun": "All"}),
        Step("POST", PODS, pod("r", resources={"limits": {GPU: 1}, "requests": {GPU: "1", "cpu": 1}}), 201, query={"dryRun": "All"}),
        *(
            Step("POST", PODS, pod("r", resources=resources), code, message, query={"dryRun": "All"})
            for code, message, resources in [
                (422, f"limits[{GPU}]: Invalid value", {"limits": {GPU: "500m"}}),
                (422, f"limits[{GPU}]: Invalid value", {"limits": {GPU: 0.5}}),
                (422, f"limits[{GPU}]: Invalid value", {"limits": {GPU: "1.0001"}}),
                (422, f"limits[{GPU}]: Invalid value", {"limits": {GPU: "-1"}}),
                (422, "requests[cpu]: Invalid value", {"requests": {"cpu": "-1"}}),
                (422, "resources.limits: Required value", {"requests": {GPU: "1"}}),
                (422, "resources.requests: Invalid value", {"requests": {GPU: "1"}, "limits": {GPU: "2"}}),
                (422, "resources.requests: Invalid value", {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
                (422, "limits[gpu]: Invalid value", {"limits": {"gpu": "1"}}),
                (422, "limits[requests.nvidia.com/gpu]: Invalid value", {"limits": {"requests.nvidia.com/gpu": "1"}}),
                (422, "limits[nvidia.com/a/b]: Invalid value", {"limits": {"nvidia.com/a/b": "1"}}),
                (422, "limits[pods]: Invalid value", {"limits": {"pods": "1"}}),
                (422, "resources: Forbidden", {"limits": {"hugepages-2Mi": "2Mi"}}),
                (422, "limits[hugepages-2Mi]: Invalid value", {"limits": {"hugepages-2Mi": "3Mi", "cpu": 1}}),
                (422, "limits[hugepages-two]: Invalid value", {"limits": {"hugepages-two": "2Mi", "cpu": 1}}),
                (422, "resources.requests: Invalid value", {"limits": {"hugepages-2Mi": "4Mi", "cpu": 1}, "requests": {"hugepages-2Mi": "2Mi"}}),
                (400, "", {"limits": {"cpu": "many"}}),
                (400, "", {"limits": {"memory": "1GB"}}),
            ]
        ),
        refuses("spec.resources.limits[nvidia.com/gpu]: Unsupported value", resources_={"limits": {GPU: "1"}}),
    ],
    "what pods may hold": [
        refuses("spec.containers[0].name: Invalid value", {"name": "Main"}),
        refuses("spec.containers[0].name: Required value", {"name": None}),
        refuses("spec.containers[0].image: Required value", {"image": ""}),
        refuses("spec.containers[1].name: Duplicate value", containers=[{"name": "a", "image": "i"}] * 2),
        refuses("spec.initContainers[0].name: Duplicate value", initContainers=[{"name": "main", "image": "i"}]),
        refuses("spec.initContainers[0].readinessProbe: Forbidden", initContainers=[{"name": "i", "image": "i", "readinessProbe": {"exec": {"command": ["a"]}}}]),
        refuses("spec.volumes[1].name: Duplicate value", volumes=[{"name": "v", "emptyDir": {}}] * 2),
        refuses("spec.volumes[0].name: Invalid value", volumes=[{"name": "V_", "emptyDir": {}}]),
        refuses("spec.containers[0].volumeMounts[0].name: Not found", {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}),
        refuses(
            "spec.containers[0].volumeMounts[1].mountPath: Invalid value",
            {"volumeMounts": [{"name": "v", "mountPath": "/v"}] * 2},
            volumes=[{"name": "v", "emptyDir": {}}],
        ),
        refuses("spec.containers[0].volumeMounts[0].mountPath: Required value", {"volumeMounts": [{"name": "v"}]}, volumes=[{"name": "v", "emptyDir": {}}]),
        refuses("spec.containers[0].ports[0].containerPort: Required value", {"ports": [{"name": "p"}]}),
        refuses("spec.containers[0].ports[0].containerPort: Invalid value", {"ports": [{"containerPort": 65536}]}),
        refuses("spec.containers[0].ports[0].name: Invalid value", {"ports": [{"name": "a-name-of-16-char", "containerPort": 1}]}),
        refuses("spec.containers[0].ports[0].name: Invalid value", {"ports": [{"name": "80", "containerPort": 1}]}),
        refuses("spec.containers[0].ports[0].name: Invalid value", {"ports": [{"name": "a--b", "containerPort": 1}]}),
        refuses("spec.containers[0].ports[1].name: Duplicate value", {"ports": [{"name": "p", "containerPort": 1}, {"name": "p", "containerPort": 2}]}),
        refuses("spec.containers[0].ports[1].hostPort: Duplicate value", {"ports": [{"containerPort": 1, "hostPort": 9}, {"containerPort": 2, "hostPort": 9}]}),
        refuses("spec.containers[0].ports[0].hostPort: Invalid value", {"ports": [{"containerPort": 1, "hostPort": 9}]}, hostNetwork=True),
        refuses("spec.containers[0].env[0].name: Required value", {"env": [{"value": "x"}]}),
        refuses("spec.containers[0].env[0].name: Invalid value", {"env": [{"name": "A=B"}]}),
        refuses("spec.containers[0].env[0].valueFrom: Invalid value", {"env": [{"name": "A", "valueFrom": {}}]}),
        refuses("spec.containers[0].env[0].valueFrom: Invalid value", {"env": [{"name": "A", "value": "x", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}),
        refuses("spec.nodeSelector: Invalid value", nodeSelector={"a": "b c"}),
        refuses("spec.nodeSelector: Invalid value", nodeSelector={"-a": "b"}),
        refuses("metadata.labels: Invalid value", metadata={"labels": {"a": "x" * 64}}),
        refuses("metadata.annotations: Invalid value", metadata={"annotations": {"a b": "x"}}),
        refuses("spec.tolerations[0].operator: Invalid value", tolerations=[{"effect": "NoSchedule"}]),
        refuses("spec.tolerations[0].operator: Invalid value", tolerations=[{"key": "a", "operator": "Exists", "value": "b"}]),
        refuses("spec.tolerations[0].effect: Invalid value", tolerations=[{"key": "a", "operator": "Exists", "tolerationSeconds": 1}]),
        Step(
            "POST",
            PODS,
            {
                **pod("r", volumes=[{"name": "v", "emptyDir": {}}], tolerations=[{"operator": "Exists"}], nodeSelector={"a.b/c": ""}),
                "spec": {
                    "containers": [
                        {
                            "name": "main",
                            "image": "i",
                            "env": [{"name": "a.b-c d", "value": ""}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
                            "ports": [{"containerPort": 1, "hostPort": 9}, {"containerPort": 2, "hostPort": 9, "protocol": "UDP"}],
                        }
                    ],
                    "initContainers": [{"name": "i", "image": "i", "restartPolicy": "Always", "startupProbe": {"exec": {"command": ["a"]}}}],
                },
            },
            201,
            query={"dryRun": "All"},
        ),
    ],
    "create get delete": [
        Step("POST", PODS, pod("a"), 201, keep="a", has={"status.phase": "Pending"}),
        Step("POST", PODS, pod("a"), 409, 'pods "a" already exists'),
        Step("GET", f"{PODS}/a"),
        Step("GET", f"{PODS}/nope", None, 404, 'pods "nope" not found'),
        Step("DELETE", f"{PODS}/a", {"preconditions": {"uid": OTHER_UID}}, 409, "the UID in the precondition"),
        Step("DELETE", f"{PODS}/a", {"preconditions": {"resourceVersion": "1"}}, 409, "the ResourceVersion in the precondition"),
        Step("DELETE", f"{PODS}/a", {"preconditions": {"uid": "a.uid"}}, has={"metadata.name": "a"}),
        Step("GET", f"{PODS}/a", None, 404),
        Step("DELETE", f"{PODS}/a", None, 404),
    ],
    "defaults": [
        Step(
            "POST",
            PODS,
            pod("d", resources={"limits": {"cpu": "2", "nvidia.com/gpu": 1}, "requests": {"cpu": "1"}}),
            201,
            has={
                "spec.schedulerName": "default-scheduler",
                "spec.restartPolicy": "Always",
                "spec.priority": 0,
                "spec.preemptionPolicy": "PreemptLowerPriority",
                "spec.containers.0.resources.requests": {"cpu": "1", "nvidia.com/gpu": "1"},
                "spec.tolerations.0.key": "node.kubernetes.io/not-ready",
                "spec.tolerations.1.tolerationSeconds": 300,
                "status.qosClass": "Burstable",
                "metadata.generation": 1,
                "metadata.namespace": "default",
            },
        ),
        Step("POST", PODS, pod("q", priorityClassName="nope"), 403, "no PriorityClass with name nope"),
        Step(
            "POST",
            PODS,
            pod("s", priorityClassName="system-node-critical"),
            201,
            has={"spec.priority": 2000001000},
        ),
        Step("POST", PODS, pod("w", priority=5), 403, "integer value of priority (5)"),
        Step("DELETE", f"{PODS}/d"),
        Step("DELETE", f"{PODS}/s"),
    ],
    "refused creations": [
        Step("POST", PODS, pod("UPPER"), 422, 'metadata.name: Invalid value: "UPPER"'),
        Step("POST", PODS, {**pod("x"), "kind": "Node"}, 400),
        Step("POST", PODS, {**pod("x"), "spec": {}}, 422, "spec.containers: Required value"),
        Step("POST", "/api/v1/namespaces/nope/pods", pod("x"), 404, 'namespaces "nope" not found'),
        Step("POST", PODS, pod("x", metadata={"namespace": "other"}), 400, "namespace"),
        Step("POST", PODS, pod("x", metadata={"annotations": {"a": "y" * 262145}}), 422, "Too long"),
        Step("GET", "/apis/nope.example.org/v1/things", None, 404),
        Step("GET", "/api/v1/things", None, 404),
        Step("PUT", PODS, pod("x"), 405),
    ],
    "dry run": [
        Step("POST", PODS, pod("y"), 201, query={"dryRun": "All"}, has={"spec.priority": 0}),
        Step("GET", f"{PODS}/y", None, 404),
        Step("POST", PODS, pod("y"), 201),
        patch(f"{PODS}/y", {"metadata": {"labels": {"a": "b"}}}, query={"dryRun": "All"}),
        Step("GET", f"{PODS}/y", has={"metadata.labels": None}),
        Step("DELETE", f"{PODS}/y", query={"dryRun": "All"}),
        Step("GET", f"{PODS}/y"),
        Step("POST", PODS, pod("z"), 422, query={"dryRun": "Some"}),
        Step("DELETE", f"{PODS}/y"),
    ],
    "binding": [
        Step("POST", PODS, pod("b"), 201, keep="b"),
        patch(f"{PODS}/b/status", {"status": {"nominatedNodeName": "n1"}}, keep="c"),
        Step("POST", f"{PODS}/b/binding", binding("b", "n1", uid=OTHER_UID), 409, "Precondition failed: UID"),
        Step(
            "POST",
            f"{PODS}/b/binding",
            binding("b", "n1", resourceVersion="b.rv"),
            409,
            "Precondition failed: ResourceVersion",
        ),
        Step("POST", f"{PODS}/b/binding", binding("other", "n1"), 400, "name in URL does not match"),
        Step("POST", f"{PODS}/b/binding", binding("b", ""), 500, "target.name: Required value"),
        Step("POST", f"{PODS}/none/binding", binding("none", "n1"), 404),
        Step(
            "POST",
            f"{PODS}/b/binding",
            binding("b", "n1", uid="b.uid", resourceVersion="c.rv"),
            201,
            has={"kind": "Status", "status": "Success"},
        ),
        Step(
            "GET",
            f"{PODS}/b",
            has={
                "spec.nodeName": "n1",
                "status.nominatedNodeName": None,
                "status.conditions.0.type": "PodScheduled",
                "status.conditions.0.status": "True",
            },
        ),
        Step(
            "POST",
            f"{PODS}/b/binding",
            binding("b", "n1"),
            409,
            'Operation cannot be fulfilled on pods/binding "b": pod b is already assigned to node "n1"',
        ),
        Step("DELETE", f"{PODS}/b", has={"metadata.deletionGracePeriodSeconds": 30}),
        Step("POST", f"{PODS}/b/binding", binding("b", "n1"), 409, "is being deleted"),
        Step("DELETE", f"{PODS}/b", {"gracePeriodSeconds": 5}, has={"metadata.deletionGracePeriodSeconds": 5}),
        Step("DELETE", f"{PODS}/b", {"gracePeriodSeconds": 9}, has={"metadata.deletionGracePeriodSeconds": 5}),
        Step("DELETE", f"{PODS}/b", {"gracePeriodSeconds": 0}),
        Step("GET", f"{PODS}/b", None, 404),
    ],
    "gates": [
        Step(
            "POST",
            PODS,
            pod("g", schedulingGates=GATE),
            201,
            has={"status.conditions.0.reason": "SchedulingGated"},
        ),
        Step("POST", f"{PODS}/g/binding", binding("g", "n1"), 409, "has non-empty .spec.schedulingGates"),
        patch(f"{PODS}/g", {"spec": {"schedulingGates": [*GATE, {"name": "x.io/y"}]}}, code=422, message="only deletion is allowed"),
        patch(f"{PODS}/g", {"spec": {"nodeSelector": {"a": "b"}}}, has={"metadata.generation": 2}),
        patch(f"{PODS}/g", {"spec": {"nodeSelector": {"a": "c"}}}, code=422, message="only additions to spec.nodeSelector"),
        patch(f"{PODS}/g", {"spec": {"schedulingGates": None, "affinity": pin("n1")}}),
        Step("GET", f"{PODS}/g", has={"spec.schedulingGates": None, "spec.affinity": pin("n1")}),
        patch(f"{PODS}/g", {"spec": {"affinity": pin("n2")}}, code=422, message="spec: Forbidden: pod updates may not change fields"),
        patch(f"{PODS}/g", {"spec": {"schedulingGates": GATE}}, code=422, message="only deletion is allowed"),
        Step("DELETE", f"{PODS}/g"),
        Step("POST", PODS, pod("h", schedulingGates=GATE, affinity=pin("n1")), 201),
        patch(f"{PODS}/h", {"spec": {"affinity": pin("n2")}}, code=422, message="only additions are allowed"),
        Step("DELETE", f"{PODS}/h"),
    ],
    "updates": [
        Step("POST", PODS, pod("u", metadata={"labels": {"a": "1"}}), 201, keep="u"),
        patch(f"{PODS}/u", {"metadata": {"labels": {"a": "1"}}}, has={"metadata.resourceVersion": "u.rv"}),
        patch(f"{PODS}/u", {"metadata": {"labels": {"a": None, "b": "2"}}}, has={"metadata.labels": {"b": "2"}}),
        patch(f"{PODS}/u", {"metadata": {"resourceVersion": "u.rv", "labels": {"c": "3"}}}, code=409, message="the object has been modified"),
        patch(f"{PODS}/u", {"metadata": {"uid": OTHER_UID, "labels": {"c": "3"}}}, code=422, message="field is immutable"),
        patch(f"{PODS}/u/status", {"metadata": {"uid": OTHER_UID}, "status": {"reason": "Wrong"}}, code=422, message="field is immutable"),
        Step("PUT", f"{PODS}/u", pod("u", metadata={"uid": OTHER_UID}), 409, "Precondition failed: UID"),
        patch(f"{PODS}/u/status", {"metadata": {"resourceVersion": "u.rv"}, "status": {"reason": "Old"}}, code=409, message="the object has been modified"),
        patch(f"{PODS}/u", {"status": {"phase": "Running"}}, has={"status.phase": "Pending"}),
        patch(f"{PODS}/u/status", {"spec": {"nodeName": "n9"}, "status": {"reason": "Because"}}, has={"spec.nodeName": None, "status.reason": "Because"}),
        patch(f"{PODS}/u/status", {"metadata": {"annotations": {"n": "1"}}}, has={"metadata.annotations": {"n": "1"}}),
        patch(f"{PODS}/u", {"spec": {"schedulerName": "other"}}, code=422, message="may not change fields"),
        Step("PATCH", f"{PODS}/u", [{"op": "add", "path": "/metadata/labels/d", "value": "4"}], content_type=JSON_PATCH, has={"metadata.labels.d": "4"}),
        Step("PATCH", f"{PODS}/u", [{"op": "test", "path": "/metadata/labels/d", "value": "5"}], 422, content_type=JSON_PATCH),
        Step("PATCH", f"{PODS}/u", {}, 415, content_type="text/plain"),
        Step("PUT", f"{PODS}/u", pod("v"), 400, "does not match the name on the URL"),
        Step("PATCH", f"{PODS}/none", {}, 404, content_type=MERGE),
        Step("DELETE", f"{PODS}/u"),
    ],
    "finalizers": [
        Step("POST", PODS, pod("f", metadata={"finalizers": ["muster.dev/test"]}), 201),
        Step("DELETE", f"{PODS}/f", has={"metadata.deletionGracePeriodSeconds": 0}),
        Step("GET", f"{PODS}/f", has={"metadata.finalizers": ["muster.dev/test"]}),
        patch(f"{PODS}/f", {"metadata": {"finalizers": None}}),
        Step("GET", f"{PODS}/f", None, 404),
    ],
    "finished pods go at once": [
        Step("POST", PODS, pod("e"), 201),
        Step("POST", f"{PODS}/e/binding", binding("e", "n1"), 201),
        patch(f"{PODS}/e/status", {"status": {"phase": "Succeeded"}}),
        Step("DELETE", f"{PODS}/e"),
        Step("GET", f"{PODS}/e", None, 404),
    ],
    "lists": [
        *[Step("POST", PODS, pod(f"l{i}", metadata={"labels": {"n": str(i)}}), 201) for i in range(4)],
        Step("POST", f"{PODS}/l1/binding", binding("l1", "n1"), 201),
        Step("GET", PODS, query={"labelSelector": "n in (0,2)"}, has={"items.#": 2}),
        Step("GET", PODS, query={"labelSelector": "n notin (0,2),n"}, has={"items.#": 2}),
        Step("GET", PODS, query={"labelSelector": "n!=1,n"}, has={"items.#": 3}),
        Step("GET", PODS, query={"labelSelector": "!n"}, has={"items.#": 0}),
        Step("GET", PODS, query={"fieldSelector": "spec.nodeName=n1"}, has={"items.#": 1}),
        Step("GET", PODS, query={"fieldSelector": "spec.nodeName="}, has={"items.#": 3}),
        Step("GET", PODS, query={"fieldSelector": "metadata.name=l2"}, has={"items.0.metadata.name": "l2"}),
        Step("GET", PODS, query={"fieldSelector": "spec.nope=1"}, code=400, message="field label not supported"),
        Step("GET", PODS, query={"limit": "3"}, has={"items.#": 3, "metadata.remainingItemCount": 1}),
        Step("GET", PODS, query={"resourceVersion": "99999999"}, code=504, message="Too large resource version"),
        Step("GET", PODS, query={"continue": "nonsense"}, code=400),
        Step("DELETE", f"{PODS}/l1", {"gracePeriodSeconds": 0}),
        Step("DELETE", PODS, query={"labelSelector": "n"}),
        Step("GET", PODS, has={"items.#": 0}),
    ],
    "eviction": [
        Step("POST", PODS, pod("v"), 201),
        Step("POST", f"{PODS}/v/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "v"}}, 201, has={"status": "Success"}),
        Step("GET", f"{PODS}/v", None, 404),
    ],
    "namespaces": [
        Step("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}}, 201, has={"status.phase": "Active", "metadata.labels": {"kubernetes.io/metadata.name": "team"}}),
        Step("POST", "/api/v1/namespaces/team/pods", pod("p"), 201, has={"metadata.namespace": "team"}),
        Step("GET", "/api/v1/pods", query={"fieldSelector": "metadata.namespace=team"}, has={"items.#": 1}),
        patch("/api/v1/namespaces/team", {"metadata": {"labels": {"a": "b"}}}, has={"metadata.labels.a": "b"}),
        Step("DELETE", "/api/v1/namespaces/team/pods/p"),
    ],
    "events": [
        Step("POST", "/api/v1/namespaces/default/events", {"metadata": {"generateName": "a."}, "involvedObject": {"kind": "Pod", "namespace": "default", "name": "a"}, "reason": "Why", "type": "Normal"}, 201),
        Step("GET", "/api/v1/namespaces/default/events", query={"fieldSelector": "involvedObject.name=a,reason=Why"}, has={"items.#": 1}),
    ],
    "nodes": [
        Step(
            "POST",
            "/api/v1/nodes",
            {"metadata": {"name": "m"}, "status": {"capacity": {"cpu": "4"}}},
            201,
            has={
                "status.allocatable": {"cpu": "4"},
                "spec.taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}],
            },
        ),
        patch("/api/v1/nodes/m", {"spec": {"taints": None}}, has={"spec.taints": None}),
        patch("/api/v1/nodes/m/status", {"status": {"allocatable": {"cpu": "2"}}}, has={"status.capacity": {"cpu": "4"}}),
        Step("DELETE", "/api/v1/nodes/m", has={"status": "Success", "details.name": "m"}),
    ],
    "leases": [
        Step("POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases", {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}}, 201, keep="l"),
        Step("PUT", "/apis/coordination.k8s.io/v1/namespaces/default/leases/l", {"metadata": {"name": "l", "resourceVersion": "l.rv"}, "spec": {"holderIdentity": "b"}}),
        Step("PUT", "/apis/coordination.k8s.io/v1/namespaces/default/leases/l", {"metadata": {"name": "l", "resourceVersion": "l.rv"}, "spec": {"holderIdentity": "c"}}, 409, "the object has been modified"),
        Step("PUT", "/apis/coordination.k8s.io/v1/namespaces/default/leases/l", {"metadata": {"name": "l"}, "spec": {"holderIdentity": "d"}}, 422, "must be specified for an update"),
        Step("DELETE", "/apis/coordination.k8s.io/v1/namespaces/default/leases/l"),
    ],
}  # fmt: skip


def fill(value: Any, kept: dict[str, str]) -> Any:
    """Put remembered uids and resourceVersions where the table names them."""
    if isinstance(value, dict):
        return {key: fill(item, kept) for key, item in value.items()}
    return kept.get(value, value) if isinstance(value, str) else value


def look(obj: Any, path: str) -> Any:
    for part in path.split("."):
        if part == "#":
            return len(obj)
        if isinstance(obj, list):
            obj = obj[int(part)]
        else:
            obj = obj.get(part) if isinstance(obj, dict) else None
    return obj


def normal(message: str) -> str:
    """Without uids, versions and Go's renderings of values, which differ between servers."""
    message = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID", message)
    message = re.sub(r"Key: \S+,", "Key: KEY,", message)
    message = re.sub(r"Invalid value: [{\[].*[}\]]:", "Invalid value: VALUE:", message)
    return re.sub(r"\b\d+\b", "N", message).split("\n")[0]
