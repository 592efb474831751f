"""manifests/ on a real kube-apiserver: accepted, and answering as people expect."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from extender.jobs.pytorch import PyTorchJob
from extender.sim.realplane import RealPlane, binaries

pytestmark = pytest.mark.controlplane

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "manifests"
#: Plans are for it alone to write.
MUSTER = "--as=system:serviceaccount:muster-system:muster"
EXAMPLES = sorted((MANIFESTS / "examples").glob("*.yaml"))


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    with RealPlane(binaries(), tmp_path_factory.mktemp("plane")) as plane:
        plane.start_etcd()
        plane.start_apiserver()
        plane.kubectl("apply", "-k", str(MANIFESTS / "crds"))
        plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        yield plane


def create(plane, document, *flags: str) -> dict:
    output = plane.kubectl("create", "-f", "-", "-o", "json", *flags, stdin=json.dumps(document))
    return json.loads(output.stdout)


def refused(plane, document) -> str:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        create(plane, document, "--dry-run=server")
    return caught.value.stderr


def group(api_version: str, minimum: int) -> dict:
    return {
        "apiVersion": api_version,
        "kind": "PodGroup",
        "metadata": {"name": "g"},
        "spec": {"minMember": minimum},
    }


def columns(plane, resource: str) -> list[str]:
    return plane.kubectl("get", resource).stdout.splitlines()[0].split()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_accepted(plane, path):
    plane.kubectl("create", "--dry-run=server", "--validate=strict", "-f", str(path))


def test_base_is_accepted(plane):
    plane.kubectl("apply", "-k", str(MANIFESTS / "base"))


def test_pods_of_the_deployments_are_admitted_where_pod_security_is_restricted(plane):
    plane.kubectl("apply", "-k", str(MANIFESTS / "base"))
    for folder in ("base", "scheduler"):
        (deployment, *_) = yaml.safe_load_all((MANIFESTS / folder / "deployment.yaml").read_text())
        spec = deployment["spec"]["template"]["spec"]
        pod = {"apiVersion": "v1", "kind": "Pod", "spec": spec}
        pod["metadata"] = {"name": "p", "namespace": "muster-system"}
        # The class may be used in kube-system alone, and is not what this is about.
        spec["priorityClassName"] = ""
        create(plane, pod, "--dry-run=server")
        spec["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
        assert 'violates PodSecurity "restricted' in refused(plane, pod)


def test_a_tenant_who_may_do_everything_in_a_namespace_writes_no_plan(plane):
    plane.kubectl("apply", "-k", str(MANIFESTS / "base"))
    plane.kubectl("create", "role", "all", "--verb=*", "--resource=gangplans.scheduling.muster.dev")
    plane.kubectl("create", "rolebinding", "tenant", "--role=all", "--user=tenant")
    spec = {"groupRef": {"name": "g", "uid": "u"}, "epoch": 1, "attempt": 1, "minMember": 1}
    plan = {
        "apiVersion": "scheduling.muster.dev/v1alpha1",
        "kind": "GangPlan",
        "metadata": {"name": "g"},
        "spec": {**spec, "state": "Planned"},
    }
    create(plane, plan, MUSTER)
    forged = ("patch", "gangplan", "g", "--type=merge", "-p", '{"spec": {"state": "Done"}}')
    flags = ("--as=tenant", "--dry-run=server")
    # A new policy counts after a moment, which is no measure of this test: it is asked until then.
    until = time.monotonic() + 30
    said = plane.kubectl(*forged, *flags, check=False)
    while said.returncode == 0 and time.monotonic() < until:
        said = plane.kubectl(*forged, *flags, check=False)
    assert "GangPlans are written by Muster alone" in said.stderr
    create(plane, {**plan, "metadata": {"name": "h"}}, MUSTER)
    plane.kubectl("delete", "gangplan", "g", "--as=tenant")


def test_certificates_are_put_where_the_deployments_look(plane, tmp_path):
    plane.kubectl("apply", "-k", str(MANIFESTS / "base"))
    path = f"{plane.bin_dir}:{os.environ['PATH']}"
    subprocess.run(
        [str(ROOT / "scripts/certificates"), "--apply", str(tmp_path)],
        check=True,
        capture_output=True,
        env={**os.environ, "PATH": path, "KUBECONFIG": str(plane.kubeconfig_path)},
    )
    for folder, namespace in (("base", "muster-system"), ("scheduler", "kube-system")):
        (deployment, *_) = yaml.safe_load_all((MANIFESTS / folder / "deployment.yaml").read_text())
        volumes = deployment["spec"]["template"]["spec"]["volumes"]
        (name,) = (v["secret"]["secretName"] for v in volumes if "secret" in v)
        secret = plane.kubectl("get", "secret", name, "-n", namespace, "-o", "json").stdout
        assert set(json.loads(secret)["data"]) == {"ca.crt", "tls.crt", "tls.key"}


@pytest.mark.parametrize(
    ("version", "bad", "least"),
    [
        ("scheduling.volcano.sh/v1beta1", -1, 0),
        ("scheduling.x-k8s.io/v1alpha1", 0, 1),
        ("scheduling.x-k8s.io/v1alpha1", -1, 1),
    ],
)
def test_a_minimum_that_cannot_be_is_refused_by_name(plane, version, bad, least):
    said = refused(plane, group(version, bad))
    assert f"spec.minMember: Invalid value: {bad}: minMember has to be" in said
    assert f"at least {least}" in said
    create(plane, group(version, least), "--dry-run=server")


def test_two_tiers_at_once_are_refused(plane):
    document = group("scheduling.volcano.sh/v1beta1", 2)
    document["spec"]["networkTopology"] = {"highestTierAllowed": 1, "highestTierName": "rack"}
    assert "only one of them is allowed" in refused(plane, document)


def test_a_volcano_group_gets_its_queue_and_columns(plane):
    document = group("scheduling.volcano.sh/v1beta1", 2)
    document["spec"]["subGroupPolicy"] = [
        {"name": "stage", "networkTopology": {"mode": "soft"}, "matchLabelKeys": ["stage"]}
    ]
    spec = create(plane, document)["spec"]
    assert spec["queue"] == "default"
    assert spec["subGroupPolicy"][0]["subGroupSize"] == 1
    resource = "podgroups.scheduling.volcano.sh"
    assert columns(plane, resource) == ["NAME", "STATUS", "MINMEMBER", "RUNNINGS", "AGE"]


def test_a_job_keeps_what_its_user_wrote_and_what_muster_writes(plane):
    (document,) = yaml.safe_load_all((MANIFESTS / "examples/pytorchjob.yaml").read_text())
    document["spec"]["cleanPodPolicy"] = "None"
    made = create(plane, document)
    assert made["spec"]["cleanPodPolicy"] == "None"
    assert made["spec"]["pytorchReplicaSpecs"] == document["spec"]["pytorchReplicaSpecs"]
    step = PyTorchJob().reconcile(made, [], frozenset(), 1.79e9)
    assert step.status is not None
    patch = json.dumps({"status": step.status})
    name = made["metadata"]["name"]
    plane.kubectl("patch", "pytorchjob", name, "--subresource=status", "--type=merge", "-p", patch)
    held = json.loads(plane.kubectl("get", "pytorchjob", name, "-o", "json").stdout)
    assert held["status"] == step.status
    assert PyTorchJob().reconcile(held, [], frozenset(), 1.79e9 + 1).status is None
    plane.kubectl("scale", "pytorchjob", name, "--replicas=5")
    header, row = plane.kubectl("get", "pytorchjob", name).stdout.splitlines()
    assert header.split() == ["NAME", "STATE", "AGE"]
    assert row.split()[1] == "Created"


def test_pods_and_services_of_a_job_are_accepted(plane):
    kind = PyTorchJob()
    (document,) = yaml.safe_load_all((MANIFESTS / "examples/pytorchjob.yaml").read_text())
    document["metadata"]["uid"] = "0f9d3c4e-0000-4000-8000-000000000000"
    step = kind.reconcile(document, [], frozenset(), 1.79e9)
    for replica in step.wanted:
        create(plane, kind.pod(document, replica), "--dry-run=server", "--validate=strict")
    create(plane, step.group, "--dry-run=server", "--validate=strict")


def test_a_plan_of_ten_thousand_members_fits(plane):
    plane.kubectl("apply", "-k", str(MANIFESTS / "base"))
    count = 10_000
    document: dict = {
        "apiVersion": "scheduling.muster.dev/v1alpha1",
        "kind": "GangPlan",
        "metadata": {"name": "big"},
        "spec": {
            "groupRef": {"name": "big", "uid": "u"},
            "epoch": 1,
            "attempt": 1,
            "minMember": count,
            "memberCount": count,
            "state": "Planned",
            "nodes": [f"gpu-node-{i:05}.example.internal" for i in range(1250)],
            "roles": ["worker"],
            "members": [f"a-large-training-job-worker-{i}" for i in range(count)],
            "uids": ["0f9d3c4e-0000-4000-8000-000000000000"] * count,
            "node": [i // 8 for i in range(count)],
            "role": [0] * count,
        },
    }
    assert create(plane, document, MUSTER)["spec"]["members"] == document["spec"]["members"]
    assert columns(plane, "gangplans") == ["NAME", "GROUP", "STATE", "ATTEMPT", "MEMBERS", "AGE"]


@pytest.fixture(scope="module")
def gating(plane):
    """A plane on which the policy works already (it takes effect a moment after its creation)."""
    plane.kubectl("apply", "-k", str(MANIFESTS / "admission"))
    for _ in range(200):
        if gates(plane, annotations={"scheduling.k8s.io/group-name": "g"}):
            return plane
    pytest.fail("the policy never took effect")


def gates(plane, scheduler: str = "muster", **metadata: dict) -> list[str]:
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", **metadata},
        "spec": {"schedulerName": scheduler, "containers": [{"name": "a", "image": "b"}]},
    }
    made = create(plane, document, "--dry-run=server")
    return [gate["name"] for gate in made["spec"].get("schedulingGates", [])]


@pytest.mark.parametrize(
    "metadata",
    [
        {"annotations": {"scheduling.k8s.io/group-name": "g"}},
        {"annotations": {"scheduling.volcano.sh/group-name": "g"}},
        {"annotations": {"gang.scheduling.koordinator.sh/name": "g"}},
        {"labels": {"scheduling.x-k8s.io/pod-group": "g"}},
        {"labels": {"pod-group.scheduling.sigs.k8s.io/name": "g"}},
    ],
    ids=lambda metadata: next(iter(next(iter(metadata.values())))),
)
def test_members_are_born_gated(gating, metadata):
    assert gates(gating, **metadata) == ["scheduling.muster.dev/gang"]


def test_others_are_not(gating):
    group_of = {"scheduling.k8s.io/group-name": "g"}
    assert gates(gating) == []
    assert gates(gating, annotations={"a": "b"}, labels={"a": "b"}) == []
    assert gates(gating, annotations=group_of, scheduler="default-scheduler") == []
    assert gates(gating, annotations={**group_of, "scheduling.muster.dev/plan": "1"}) == []
