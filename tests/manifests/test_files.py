"""What can be said of manifests/ without an API server: names agree and rights cover the code."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

from extender.core import api
from extender.core.ingest import GATE, PLAN_ANNOTATION
from extender.http import admin
from extender.http.access import OPEN
from extender.kube.label import LEADER_LABEL
from extender.kube.reviews import ACCESS_REVIEWS, TOKEN_REVIEWS
from extender.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "manifests"
#: Roles beside base's, for kinds of jobs that need more.
BESIDE = ("mpijob", "mpijob-v1")
FOLDERS = ("crds", "base", "admission", "scheduler", "agent", *BESIDE)
FILES = sorted(
    path
    for path in MANIFESTS.rglob("*.yaml")
    if path.name != "kustomization.yaml" and path != MANIFESTS / "base/muster.yaml"
    # The second kube-scheduler: tests/manifests/test_scheduler.py; alerts: tests/monitoring; the
    # node agent: tests/agent; MPIJobs: below.
    if path.parent.name not in ("scheduler", "monitoring", "agent", *BESIDE)
)

RESOURCES = [value for value in vars(api).values() if isinstance(value, api.Resource)]
READ = {"list", "watch"}
#: What only MPIJobs need. Not watched: there are thousands, which are nobody's business.
OF_MPI = (
    api.CONFIG_MAPS,
    api.SECRETS,
    api.BATCH_JOBS,
    api.SERVICE_ACCOUNTS,
    api.ROLES,
    api.ROLE_BINDINGS,
)
#: Beside reading: what Muster does to objects and to their subresources.
WRITES = {
    api.PODS: {
        "": {"get", "create", "patch", "delete"},
        "binding": {"create"},
        "status": {"patch"},
    },
    api.SERVICES: {"": {"get", "create", "delete"}},
    api.VOLCANO_GROUPS: {"": {"create", "patch"}, "status": {"patch"}},
    api.SIGS_GROUPS: {"": {"patch"}, "status": {"patch"}},
    api.NATIVE_GROUPS: {"status": {"patch"}},
    # A plan whose group was made anew has another owner; who changes that must be allowed to delete.
    api.GANG_PLANS: {"": {"create", "patch", "delete"}},
    **{
        resource: {"": {"patch", "delete"}, "status": {"patch"}, "finalizers": {"update"}}
        for resource in api.JOBS
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
            for group in rule.get("apiGroups", ()):
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
    needed: dict[tuple[str, str], set[str]] = {
        (api.EVENTS.group, "events"): {"create", "patch"},
        (api.AUTOSCALERS.group, api.AUTOSCALERS.plural): {"create", "patch", "delete"},
        (TOKEN_REVIEWS.group, TOKEN_REVIEWS.plural): {"create"},
        (ACCESS_REVIEWS.group, ACCESS_REVIEWS.plural): {"create"},
    }
    for resource in RESOURCES:
        if resource in (api.EVENTS, api.LEASES, api.AUTOSCALERS, *OF_MPI):
            continue
        needed[resource.group, resource.plural] = set(READ)
        for subresource, verbs in WRITES.get(resource, {}).items():
            name = f"{resource.plural}/{subresource}" if subresource else resource.plural
            needed.setdefault((resource.group, name), set()).update(verbs)
    assert granted("ClusterRole") == needed


_HOSTS = {("", "configmaps"): ["create", "get", "patch"]}


@pytest.mark.parametrize(
    ("folder", "wanted"),
    [
        (
            "mpijob",
            _HOSTS
            | {
                ("", "secrets"): ["create", "get"],
                ("batch", "jobs"): ["create", "get"],
                ("batch", "jobs/status"): ["patch"],
            },
        ),
        (
            "mpijob-v1",
            _HOSTS
            | {
                ("", "serviceaccounts"): ["create", "get"],
                (api.ROLES.group, "roles"): ["create", "get", "patch"],
                (api.ROLES.group, "rolebindings"): ["create", "get"],
                ("", "pods/exec"): ["create"],
            },
        ),
    ],
)
def test_mpijobs_have_rights_of_their_own(folder, wanted):
    role, binding = documents(MANIFESTS / folder / "rbac.yaml")
    rights = {
        (g, r): rule["verbs"]
        for rule in role["rules"]
        for g in rule["apiGroups"]
        for r in rule["resources"]
    }
    assert rights == wanted
    (account,), (namespace,) = of_kind("ServiceAccount"), of_kind("Namespace")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    (subject,) = binding["subjects"]
    assert subject["name"] == account["metadata"]["name"]
    assert subject["namespace"] == namespace["metadata"]["name"]


def test_the_lease_is_written_in_musters_namespace_only():
    leases = {(api.LEASES.group, "leases"): {"get", "create", "patch"}}
    assert granted("Role") == leases
    settings = Settings.model_validate(yaml.safe_load((MANIFESTS / "base/muster.yaml").read_text()))
    (role,) = of_kind("Role")
    for rule in role["rules"]:
        if rule["verbs"] != ["create"]:
            assert rule["resourceNames"] == [settings.muster.leader_election.name]


def test_readers_may_get_every_guarded_page_and_nothing_else():
    (reader,) = (r for r in of_kind("ClusterRole") if r["metadata"]["name"] == "muster-reader")
    (rule,) = reader["rules"]
    assert rule["verbs"] == ["get"]
    for page in set(admin.PATHS) - OPEN | {"/debug"}:
        assert any(fnmatch(page, allowed) for allowed in rule["nonResourceURLs"]), page


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
    # Whom muster-reader is bound to is the cluster's to say.
    assert {b["roleRef"]["name"] for b in bindings} == {name for _, name in roles} - {
        "muster-reader"
    }
    for binding in bindings:
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) in roles
        (subject,) = binding["subjects"]
        assert subject["name"] == name
        assert subject["namespace"] == namespace["metadata"]["name"]


def test_service_selects_the_leader_among_the_deployments_pods():
    (service,), (deployment,) = of_kind("Service"), of_kind("Deployment")
    template = deployment["spec"]["template"]
    assert service["spec"]["selector"] == {**template["metadata"]["labels"], LEADER_LABEL: "true"}
    (container,) = template["spec"]["containers"]
    listening = {(p["name"], p["containerPort"]) for p in container["ports"]}
    assert {(p["targetPort"], p["port"]) for p in service["spec"]["ports"]} == listening
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


def test_the_account_s_token_is_mounted_into_musters_pods_only():
    (account,), (deployment,) = of_kind("ServiceAccount"), of_kind("Deployment")
    assert account["automountServiceAccountToken"] is False
    assert deployment["spec"]["template"]["spec"]["automountServiceAccountToken"] is True


def test_the_network_lets_in_the_scheduler_and_readers():
    (policy,), (deployment,) = of_kind("NetworkPolicy"), of_kind("Deployment")
    template = deployment["spec"]["template"]
    assert policy["spec"]["podSelector"]["matchLabels"] == template["metadata"]["labels"]
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    verbs, pages = policy["spec"]["ingress"]
    assert [port["port"] for port in verbs["ports"] + pages["ports"]] == ["https", "pages"]
    scheduler = yaml.safe_load((MANIFESTS / "scheduler/deployment.yaml").read_text())
    place = yaml.safe_load((MANIFESTS / "scheduler/kustomization.yaml").read_text())["namespace"]
    (source,) = verbs["from"]
    assert source["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": place}
    assert source["podSelector"]["matchLabels"].items() <= (
        scheduler["spec"]["template"]["metadata"]["labels"].items()
    )


def test_configuration_fits_the_deployment():
    settings = Settings.model_validate(
        yaml.safe_load((MANIFESTS / "base/muster.yaml").read_text())
    ).muster
    (deployment,), (namespace,) = of_kind("Deployment"), of_kind("Namespace")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"https": settings.listen.port, "pages": settings.listen.admin_port}
    assert settings.listen.host == "0.0.0.0"
    assert settings.tls is not None
    folders = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    for file in (settings.tls.cert_file, settings.tls.key_file, settings.tls.client_ca_file):
        assert Path(str(file)).parent == Path(folders["tls"])
    probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")]
    assert {(p["port"], p["scheme"], p["path"] in OPEN) for p in probes} == {
        ("pages", "HTTPS", True)
    }
    assert settings.leader_election.enabled
    assert settings.leader_election.namespace == namespace["metadata"]["name"]


def test_plans_are_for_musters_account_alone():
    (policy,), (account,) = of_kind("ValidatingAdmissionPolicy"), of_kind("ServiceAccount")
    (namespace,) = of_kind("Namespace")
    (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
    plans = (rule["apiGroups"], rule["resources"])
    assert plans == ([api.GANG_PLANS.group], [api.GANG_PLANS.plural])
    (check,) = policy["spec"]["validations"]
    who = f"{namespace['metadata']['name']}:{account['metadata']['name']}"
    assert check["expression"].endswith(f'"system:serviceaccount:{who}"')
    (binding,) = of_kind("ValidatingAdmissionPolicyBinding")
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]


def test_definitions_are_those_of_the_code():
    served = {r for r in RESOURCES if "." in r.group and not r.group.endswith(".k8s.io")}
    served |= {api.SIGS_GROUPS}
    # Volcano's and Kueue's own: read where they are.
    served -= {api.HYPER_NODES, api.TOPOLOGIES, api.OLD_TOPOLOGIES}
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
