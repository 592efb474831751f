"""What can be said of manifests/ without an API server: names agree and rights cover the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from extender.core import api
from extender.core.ingest import GATE, PLAN_ANNOTATION
from extender.kube.label import LEADER_LABEL
from extender.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "manifests"
FOLDERS = ("crds", "base", "admission", "scheduler")
FILES = sorted(
    path
    for path in MANIFESTS.rglob("*.yaml")
    if path.name != "kustomization.yaml" and path != MANIFESTS / "base/muster.yaml"
    # The second kube-scheduler: tests/manifests/test_scheduler.py; alerts: tests/monitoring.
    if path.parent.name not in ("scheduler", "monitoring")
)

RESOURCES = [value for value in vars(api).values() if isinstance(value, api.Resource)]
READ = {"get", "list", "watch"}
#: Beside reading: what Muster does to objects and to their subresources.
WRITES = {
    api.PODS: {"": {"create", "patch", "delete"}, "binding": {"create"}, "status": {"patch"}},
    api.SERVICES: {"": {"create", "delete"}},
    api.VOLCANO_GROUPS: {"": {"create", "patch"}, "status": {"patch"}},
    api.SIGS_GROUPS: {"": {"create", "patch"}, "status": {"patch"}},
    api.NATIVE_GROUPS: {"status": {"patch"}},
    api.GANG_PLANS: {"": {"create", "patch"}},
    api.PYTORCH_JOBS: {
        "": {"patch", "delete"},
        "status": {"patch"},
        "finalizers": {"update"},
    },
}


def documents(path: Path) -> list[dict]:
    return [d for d in yaml.safe_load_all(path.read_text()) if d is not None]


def of_kind(kind: str) -> list[dict]:
    return [d for path in FILES for d in documents(path) if d["kind"] == kind]


def granted(role_kind: str) -> dict[tuple[str, str], set[str]]:
    rights: dict[tuple[str, str], set[str]] = {}
    for role in of_kind(role_kind):
        for rule in role["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    rights.setdefault((group, resource), set()).update(rule["verbs"])
    return rights


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(MANIFESTS)))
def test_every_object_is_complete(path):
    found = documents(path)
    assert found
    for document in found:
        assert document["apiVersion"]
        assert document["kind"]
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", document["metadata"]["name"])


@pytest.mark.parametrize("folder", FOLDERS)
def test_kustomization_lists_every_file(folder):
    kustomization = yaml.safe_load((MANIFESTS / folder / "kustomization.yaml").read_text())
    there = {p.name for p in (MANIFESTS / folder).glob("*.yaml")} - {"kustomization.yaml"}
    generated = {
        name for one in kustomization.get("configMapGenerator", ()) for name in one["files"]
    }
    assert {*kustomization["resources"], *generated} == there


def test_rights_are_exactly_those_that_the_code_needs():
    needed: dict[tuple[str, str], set[str]] = {(api.EVENTS.group, "events"): {"create", "patch"}}
    for resource in RESOURCES:
        if resource in (api.EVENTS, api.LEASES):
            continue
        needed[resource.group, resource.plural] = set(READ)
        for subresource, verbs in WRITES.get(resource, {}).items():
            name = f"{resource.plural}/{subresource}" if subresource else resource.plural
            needed.setdefault((resource.group, name), set()).update(verbs)
    assert granted("ClusterRole") == needed


def test_the_lease_is_written_in_musters_namespace_only():
    leases = {(api.LEASES.group, "leases"): {"get", "create", "patch"}}
    assert granted("Role") == leases


def test_bindings_name_what_there_is():
    (account,) = of_kind("ServiceAccount")
    (deployment,) = of_kind("Deployment")
    name = account["metadata"]["name"]
    assert deployment["spec"]["template"]["spec"]["serviceAccountName"] == name
    roles = {
        (d["kind"], d["metadata"]["name"]) for k in ("Role", "ClusterRole") for d in of_kind(k)
    }
    (namespace,) = of_kind("Namespace")
    bindings = of_kind("RoleBinding") + of_kind("ClusterRoleBinding")
    assert len(bindings) == len(roles)
    for binding in bindings:
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) in roles
        (subject,) = binding["subjects"]
        assert subject["name"] == name
        assert subject["namespace"] == namespace["metadata"]["name"]


def test_service_selects_the_leader_among_the_deployments_pods():
    (service,), (deployment,) = of_kind("Service"), of_kind("Deployment")
    template = deployment["spec"]["template"]
    assert service["spec"]["selector"] == {**template["metadata"]["labels"], LEADER_LABEL: "true"}
    (port,) = service["spec"]["ports"]
    (container,) = template["spec"]["containers"]
    assert port["targetPort"] in {p["name"] for p in container["ports"]}
    (budget,) = of_kind("PodDisruptionBudget")
    assert budget["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
    assert budget["spec"]["minAvailable"] < deployment["spec"]["replicas"]


def test_deployment_may_run_where_pod_security_is_restricted():
    (deployment,) = of_kind("Deployment")
    spec = deployment["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {volume["name"] for volume in spec["volumes"]} == {
        mount["name"] for mount in container["volumeMounts"]
    }


def test_configuration_fits_the_deployment():
    settings = Settings.model_validate(
        yaml.safe_load((MANIFESTS / "base/muster.yaml").read_text())
    ).muster
    (deployment,), (namespace,) = of_kind("Deployment"), of_kind("Namespace")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert [port["containerPort"] for port in container["ports"]] == [settings.listen.port]
    assert settings.listen.host == "0.0.0.0"
    assert settings.leader_election.enabled
    assert settings.leader_election.namespace == namespace["metadata"]["name"]


def test_definitions_are_those_of_the_code():
    served = {r for r in RESOURCES if "." in r.group and not r.group.endswith(".k8s.io")}
    served |= {api.SIGS_GROUPS}
    definitions = {
        (d["spec"]["group"], v["name"], d["spec"]["names"]["plural"], d["spec"]["names"]["kind"])
        for d in of_kind("CustomResourceDefinition")
        for v in d["spec"]["versions"]
    }
    assert definitions == {(r.group, r.version, r.plural, r.kind) for r in served}


def test_the_gate_and_the_mark_are_those_of_the_code():
    (policy,) = of_kind("MutatingAdmissionPolicy")
    (mutation,) = policy["spec"]["mutations"]
    assert f'"{GATE}"' in mutation["applyConfiguration"]["expression"]
    conditions = {c["name"]: c["expression"] for c in policy["spec"]["matchConditions"]}
    assert f'"{PLAN_ANNOTATION}"' in conditions["not-planned-already"]
    assert f'"{GATE}"' in conditions["not-gated-already"]
    (binding,) = of_kind("MutatingAdmissionPolicyBinding")
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]
