"""Each kind's names, labels, ports and defaults; and that its definition says the same."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.core import api
from extender.core.errors import Faults, InvalidObject
from extender.core.framework import Replica
from extender.jobs import KINDS
from extender.jobs.model import read
from tests.jobs.builders import KINDS as BUILT
from tests.jobs.builders import NOW, of_kind, pod

ROOT = Path(__file__).resolve().parents[2]
FACTS = yaml.safe_load((ROOT / "tests/cases/jobs_kinds.yaml").read_text())
WORDS = yaml.safe_load((ROOT / "tests/cases/jobs_words.yaml").read_text())
LABEL = "training.kubeflow.org/"
of_each = pytest.mark.parametrize("facts", FACTS, ids=[each["kind"] for each in FACTS])


def definition(plural: str) -> dict:
    path = ROOT / f"manifests/crds/kubeflow.org_{plural}.yaml"
    spec = yaml.safe_load(path.read_text())["spec"]
    (version,) = spec["versions"]
    return version


def spec_of(plural: str) -> dict:
    return definition(plural)["schema"]["openAPIV3Schema"]["properties"]["spec"]


def job_of(facts: dict) -> dict:
    containers = [{"name": "sidecar", "image": "s"}, {"name": facts["container"], "image": "i"}]
    specs = {type_: {"template": {"spec": {"containers": containers}}} for type_ in facts["types"]}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": facts["kind"],
        "metadata": {"name": "j", "namespace": "team", "uid": "u"},
        "spec": {facts["specs"]: specs},
    }


def kind_of(facts: dict):
    (kind,) = (each for each in KINDS if each.resource.kind == facts["kind"])
    return kind


def test_every_kind_is_here():
    # MPIJob has no Services of its replicas, and two versions: test_mpi.py.
    others = [kind.resource.kind for kind in KINDS if kind.resource.plural != "mpijobs"]
    assert [each["kind"] for each in FACTS] == others
    assert [kind.resource for kind in KINDS] == list(api.JOBS)


@of_each
def test_pods_and_services_are_named_and_labelled_as_scripts_expect(facts):
    kind, job = kind_of(facts), job_of(facts)
    step = kind.reconcile(job, [], frozenset(), NOW)
    assert {replica.pod_name for replica in step.wanted} == {
        f"j-{type_.lower()}-0" for type_ in facts["types"]
    }
    labels = {
        LABEL + "job-name": "j",
        LABEL + "operator-name": facts["operator"],
        LABEL + "replica-type": "worker",
        LABEL + "replica-index": "0",
    }
    made = kind.pod(job, Replica("worker", 0, "j-worker-0"))
    assert made["metadata"]["labels"].items() >= labels.items()
    assert made["metadata"]["annotations"] == {
        "scheduling.k8s.io/group-name": "j",
        "volcano.sh/task-spec": "worker",
    }
    owner = made["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["uid"], owner["controller"]) == (facts["kind"], "u", True)
    assert made["spec"]["restartPolicy"] == facts["restartPolicy"]
    sidecar, main = made["spec"]["containers"]
    assert main["ports"] == [facts["port"]]
    assert "ports" not in sidecar
    service = kind.service(job, Replica("worker", 0, "j-worker-0"))
    assert service["metadata"]["name"] == "j-worker-0"
    assert service["metadata"]["labels"] == labels
    number = facts["port"]["containerPort"]
    port = {"name": facts["port"]["name"], "port": number, "targetPort": number}
    assert service["spec"]["ports"] == [port]
    assert service["spec"]["clusterIP"] == "None"


@of_each
def test_the_environment_goes_into_every_container_but_tensorflow_s(facts):
    made = kind_of(facts).pod(job_of(facts), Replica("worker", 0, "j-worker-0"))
    sidecar, main = made["spec"]["containers"]
    if facts["kind"] == "TFJob":
        assert [each["name"] for each in main["env"]] == ["TF_CONFIG"]
        assert "env" not in sidecar
    else:
        assert main["env"] == sidecar["env"]


@of_each
def test_conditions_have_the_kind_s_reasons(facts):
    kind, job = kind_of(facts), job_of(facts)
    pods = [pod(f"j-{type_.lower()}-0", owner="u") for type_ in facts["types"]]
    step = kind.reconcile(job, pods, frozenset(), NOW)
    assert step.status is not None
    said = [(c["type"], c["reason"]) for c in step.status["conditions"]]
    name = facts["kind"]
    assert said == [("Created", f"{name}Created"), ("Running", f"{name}Running")]
    assert step.status["conditions"][0]["message"] == f"{name} j is created."


@pytest.mark.parametrize("case", WORDS, ids=lambda case: f"{case['kind']} {case['roles']}")
@pytest.mark.parametrize("end", ["running", "succeeded", "failed"])
def test_conditions_have_the_operator_s_words(case, end):
    kind, _ = BUILT[case["kind"]]
    job = of_kind(kind, case["roles"], "Never")
    names = [replica.pod_name for replica in kind.replicas(job)]
    looks: dict[str, Any] = {
        "owner_kind": kind.facts.kind,
        "container": kind.facts.container or "main",
    }
    pods = [pod(name, "Succeeded" if end == "succeeded" else "Running", **looks) for name in names]
    if end == "failed":
        pods[-1] = pod(names[-1], "Failed", exit_code=1, **looks)
    step = kind.reconcile(job, pods, frozenset(), NOW)
    assert step.status is not None
    last = step.status["conditions"][-1]
    assert (last["type"], last["message"]) == (end.capitalize(), case[end])


@of_each
def test_the_definition_is_the_kind_s(facts):
    found = definition(facts["plural"])
    assert facts["specs"] in spec_of(facts["plural"])["properties"]
    columns = [column["name"] for column in found["additionalPrinterColumns"]]
    assert columns == ["State", "Age"]
    worker = f".spec.{facts['specs']}.Worker.replicas"
    scale = found["subresources"].get("scale", {})
    assert scale.get("specReplicasPath") == (worker if facts["scales"] else None)


@of_each
def test_what_all_kinds_share_is_defined_alike(facts):
    for field in ("runPolicy", "cleanPodPolicy"):
        of_first = spec_of(FACTS[0]["plural"])["properties"][field]
        assert spec_of(facts["plural"])["properties"][field] == of_first
    roots = [
        definition(each["plural"])["schema"]["openAPIV3Schema"]["properties"]
        for each in (FACTS[0], facts)
    ]
    assert roots[0]["status"] == roots[1]["status"]


def longest_variable(name: str, workers: int, letters: int, namespace: str = "team"):
    """Bytes of the longest variable, and whether the job is allowed."""
    kind, roles = BUILT[name]
    job = of_kind(kind, {**roles, "Worker": workers})
    job["metadata"] |= {"name": "j" * letters, "namespace": namespace}
    read_job = read(job, kind.facts, Faults())
    assert read_job is not None
    env = kind.env(read_job, Replica("worker", workers - 1, ""))
    size = max(len(f"{each['name']}={each['value']}") for each in env)
    try:
        kind.replicas(job)
    except InvalidObject:
        return size, False
    return size, True


@pytest.mark.parametrize(("name", "workers"), [("tensorflow", 2000), ("xgboost", 3000)])
def test_a_variable_may_be_as_long_as_a_program_starts_with(name, workers):
    found = [longest_variable(name, workers, letters) for letters in range(1, 51)]
    assert all(allowed == (size <= 131_071) for size, allowed in found)
    assert {allowed for _, allowed in found} == {True, False}
    with pytest.raises(OSError, match="Argument list too long"):
        subprocess.run(["/bin/true"], env={"A": "x" * (131_072 - 2)}, check=True)
    subprocess.run(["/bin/true"], env={"A": "x" * (131_071 - 2)}, check=True)


@pytest.mark.parametrize("name", ["tensorflow", "xgboost"])
def test_few_replicas_are_never_too_many(name):
    size, _ = longest_variable(name, 799, 52, "n" * 63)
    assert size <= 131_071
