"""What kube-apiserver does to a pod on its way in: defaults at creation, limits on its updates.

Source: kubernetes ``pkg/apis/core/v1/defaults.go``, ``pkg/registry/core/pod/strategy.go``,
``pkg/apis/core/validation`` (ValidatePodUpdate), ``plugin/pkg/admission/defaulttolerationseconds``.
"""

from __future__ import annotations

from typing import Any

import orjson

from extender.core.objects import Manifest
from extender.jobs import podspec
from extender.jobs.wrong import DUPLICATE, FORBIDDEN, NOT_FOUND, REQUIRED, UNREADABLE, Wrong
from extender.sim import statuses

_UPDATABLE = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_NOT_READY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_TOLERATION_SECONDS = 300
_GATED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}


def default_pod(pod: Manifest, timestamp: str) -> None:
    """Fill what the server fills, in place; ``status`` starts afresh."""
    spec = pod.setdefault("spec", {})
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("securityContext", {})
    if not spec.get("schedulerName"):
        spec["schedulerName"] = "default-scheduler"
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        _default_container(container)
    _default_tolerations(spec)
    pod["status"] = {"phase": "Pending", "qosClass": _qos(spec)}
    if spec.get("schedulingGates"):
        condition = {"lastProbeTime": None, "lastTransitionTime": timestamp, **_GATED}
        pod["status"]["conditions"] = [condition]


def default_priority(spec: Manifest, classes: list[Manifest]) -> str | None:
    """Set ``priority`` and ``preemptionPolicy`` from the PriorityClass; the text of a refusal."""
    name = spec.get("priorityClassName") or ""
    if name:
        chosen = next((item for item in classes if item["metadata"]["name"] == name), None)
        if chosen is None:
            return f"no PriorityClass with name {name} was found"
    else:
        # Of several global defaults the lowest counts.
        defaults = [item for item in classes if item.get("globalDefault")]
        chosen = min(defaults, key=lambda item: int(item["value"]), default=None)
        if chosen is not None:
            spec["priorityClassName"] = chosen["metadata"]["name"]
    value = 0 if chosen is None else int(chosen["value"])
    if spec.get("priority") not in (None, value):
        return (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec;"
            f" priority admission controller computed {value} from the given PriorityClass name"
        )
    spec["priority"] = value
    policy = (chosen or {}).get("preemptionPolicy") or "PreemptLowerPriority"
    spec.setdefault("preemptionPolicy", policy)
    return None


def pod_problems(pod: Manifest) -> list[str]:
    """Why a new pod is invalid. Raises ApiError for one that cannot even be decoded."""
    problems = [*podspec.wrong_metadata(pod["metadata"]), *podspec.wrong(pod["spec"])]
    for each in problems:
        if each.type == UNREADABLE:
            raise statuses.bad_request(f"{each.field}: {_json(each.value)}: {each.allowed}")
    return [_cause(each) for each in problems]


def _cause(wrong: Wrong) -> str:
    """In the form of upstream's field errors."""
    field, type_, value, allowed = wrong
    if type_ == REQUIRED:
        return f"{field}: {type_}" + (f": {allowed}" if allowed else "")
    if type_ == FORBIDDEN:
        return f"{field}: {type_}: {allowed}"
    if type_ in (DUPLICATE, NOT_FOUND):
        return f"{field}: {type_}: {_json(value)}"
    return f"{field}: {type_}: {_json(value)}: {allowed}"


def update_problems(old: Manifest, new: Manifest) -> list[str]:
    """Why a pod's spec may not become ``new`` (both are specs)."""
    problems = _gate_problems(old, new) + _toleration_problems(old, new)
    rest = dict(new)
    for field in ("schedulingGates", "tolerations", "activeDeadlineSeconds"):
        _keep(rest, old, field)
    for field in ("containers", "initContainers"):
        _keep_images(rest, old, field)
    if old.get("schedulingGates"):
        problems += _selector_problems(old, rest)
        _keep(rest, old, "nodeSelector")
        problems += _affinity_problems(old, rest)
        rest["affinity"] = _with_node_affinity(rest.get("affinity"), old.get("affinity"))
    if _pruned(rest) != _pruned(old):
        problems.append(
            f"spec: Forbidden: pod updates may not change fields other than {_UPDATABLE}"
        )
    return problems


def _default_container(container: Manifest) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    image = str(container.get("image", ""))
    latest = ":" not in image.rsplit("/", 1)[-1] or image.endswith(":latest")
    container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    resources = container.setdefault("resources", {})
    for kind in ("limits", "requests"):
        if resources.get(kind):
            resources[kind] = {name: str(value) for name, value in resources[kind].items()}
    if limits := resources.get("limits"):
        resources["requests"] = {**limits, **(resources.get("requests") or {})}


def _default_tolerations(spec: Manifest) -> None:
    tolerations = list(spec.get("tolerations") or ())
    for key in _NOT_READY:
        if any(
            item.get("key", "") in ("", key) and item.get("effect", "") in ("", "NoExecute")
            for item in tolerations
        ):
            continue
        tolerations.append(
            {
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": _TOLERATION_SECONDS,
            }
        )
    spec["tolerations"] = tolerations


def _qos(spec: Manifest) -> str:
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    wanted = [container["resources"] for container in containers]
    named = {
        name
        for resources in wanted
        for kind in ("requests", "limits")
        for name in resources.get(kind) or {}
        if name in ("cpu", "memory")
    }
    if not named:
        return "BestEffort"
    guaranteed = all(
        {"cpu", "memory"} <= set(resources.get("limits") or {})
        and all(
            resources["limits"][name] == resources["requests"][name] for name in ("cpu", "memory")
        )
        for resources in wanted
    )
    return "Guaranteed" if guaranteed else "Burstable"


def _gate_problems(old: Manifest, new: Manifest) -> list[str]:
    had = {gate["name"] for gate in old.get("schedulingGates") or ()}
    return [
        f"spec.schedulingGates[{index}].name: Forbidden: only deletion is allowed, but found new"
        f" scheduling gate '{gate['name']}'"
        for index, gate in enumerate(new.get("schedulingGates") or ())
        if gate["name"] not in had
    ]


def _toleration_problems(old: Manifest, new: Manifest) -> list[str]:
    kept = new.get("tolerations") or []
    if all(item in kept for item in old.get("tolerations") or ()):
        return []
    return [
        "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"
    ]


def _selector_problems(old: Manifest, new: Manifest) -> list[str]:
    have, want = old.get("nodeSelector") or {}, new.get("nodeSelector") or {}
    if have.items() <= want.items():
        return []
    why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
    return [f"spec.nodeSelector: Invalid value: {_json(want)}: {why}"]


def _affinity_problems(old: Manifest, new: Manifest) -> list[str]:
    before, after = _required_terms(old), _required_terms(new)
    path = (
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
        ".nodeSelectorTerms"
    )
    if not before:
        return []
    if len(before) != len(after):
        why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        return [f"{path}: Invalid value: {_json(after)}: {why}"]
    return [
        f"{path}[{index}]: Invalid value: {_json(after[index])}: only additions are allowed (no mutations"
        " or deletions)"
        for index, term in enumerate(before)
        if not all(
            item in (after[index].get(field) or ())
            for field in ("matchExpressions", "matchFields")
            for item in term.get(field) or ()
        )
    ]


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


def _required_terms(spec: Manifest) -> list[Manifest]:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return list(required.get("nodeSelectorTerms") or ())


def _with_node_affinity(new: Manifest | None, old: Manifest | None) -> Manifest:
    rest = {key: value for key, value in (new or {}).items() if key != "nodeAffinity"}
    kept = (old or {}).get("nodeAffinity")
    return {**rest, "nodeAffinity": kept} if kept else rest


def _keep(new: Manifest, old: Manifest, field: str) -> None:
    new.pop(field, None)
    if field in old:
        new[field] = old[field]


def _keep_images(new: Manifest, old: Manifest, field: str) -> None:
    before, after = old.get(field) or [], new.get(field) or []
    if len(before) == len(after):
        new[field] = [
            {**container, "image": was.get("image")}
            for container, was in zip(after, before, strict=True)
        ]


def _pruned(value: Any) -> Any:
    """Without empty and absent members, which are equal to the API server."""
    if isinstance(value, dict):
        members = {key: _pruned(item) for key, item in value.items()}
        return {key: item for key, item in members.items() if item not in (None, {}, [], "")}
    if isinstance(value, list):
        return [_pruned(item) for item in value]
    return value
