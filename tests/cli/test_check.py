"""``muster check`` as a user meets it: what it finds, where it says so, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender import cli
from tests.cli.conftest import Write, member

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = sorted((ROOT / "config").glob("scheduler-*.yaml"))


def check(capsys, *files: str) -> tuple[int, int, list[str]]:
    """Exit code, number of objects, and ``object: field: severity`` of each problem."""
    code = cli.main(["check", "--json", *files])
    answer = json.loads(capsys.readouterr().out)
    for problem in answer["problems"]:
        keys = {"file", "object", "field", "severity", "message", "advice"}
        assert problem.keys() == keys
    lines = [f"{p['object']}: {p['field']}: {p['severity']}" for p in answer["problems"]]
    return code, answer["objects"], lines


def test_the_samples_and_examples_are_fine(capsys):
    files = sorted((ROOT / "manifests").glob("*/*.yaml"))
    files = [file for file in files if file.parent.name in ("examples", "crds", "admission")]
    code, objects, problems = check(capsys, str(ROOT / "config/muster.yaml"), *map(str, files))
    assert (code, problems) == (0, [])
    assert objects > len(files)


MANIFEST = "apiVersion: v1\nkind: Pod\n"


def test_a_key_that_a_map_has_twice_is_told(write: Write, capsys):
    body = "metadata:\n  name: a\n  labels: {}\n  name: b\nspec: {}\n"
    file = write("file.yaml", MANIFEST + body)
    cli.main(["check", file])
    said = f"{file}: warning: 'name' of line 6 stands in the same map before: the last one counts\n"
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a: " + "[" * 5000 + "]" * 5000, "is nested too deeply"),
        ("a: " + "9" * 5000, "is not YAML"),
        (MANIFEST + "metadata: &m {name: x, labels: *m}", "does an alias hold itself?"),
        (
            MANIFEST
            + "".join(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 100)}]\n" for i in range(1, 5)),
            "holds more than 1000000 values",
        ),
    ],
    ids=["deep", "digits", "cycle", "aliases"],
)
def test_check_reads_no_file_without_end(write: Write, content, words, capsys):
    file = write("file.yaml", content.replace("*x0", "0"))
    assert cli.main(["check", file]) == 1
    said, count = capsys.readouterr().out.splitlines()
    assert said.startswith(f"{file}: error: ")
    assert words in said
    assert count == "0 objects, 1 problem"


#: What muster.yaml must say beside each sample.
SECTIONS: dict[str, dict[str, Any]] = {
    "scheduler-own": {},
    "scheduler-default": {"schedulerNames": ["default-scheduler"]},
    "scheduler-managed": {
        "schedulerNames": ["default-scheduler"],
        "managedResources": ["nvidia.com/gpu"],
        "bindTimeoutSeconds": 30,
    },
}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_each_scheduler_sample_agrees_with_its_muster_yaml(sample: Path, write: Write, capsys):
    section = {**SECTIONS[sample.stem], "listen": {"host": "127.0.0.1"}}
    config = write("muster.yaml", {"muster": section})
    assert check(capsys, str(sample), config) == (0, 2, [])


def changed(**changes: Any) -> dict[str, Any]:
    """The sample of a scheduler of its own; ``extenders`` are changed entry by entry."""
    config: dict[str, Any] = yaml.safe_load((ROOT / "config/scheduler-own.yaml").read_text())
    for key, value in changes.items():
        if key == "filter":
            config["extenders"][0].update(value)
        elif key == "bind":
            config["extenders"][1].update(value)
        else:
            config[key] = value
    return config


@pytest.mark.parametrize(
    ("changes", "field", "severity"),
    [
        ({"filter": {"nodeCacheCapable": False}}, "extenders[0].nodeCacheCapable", "error"),
        ({"bind": {"ignorable": True}}, "extenders[1].ignorable", "error"),
        ({"filter": {"weight": 0}}, "extenders[0].weight", "error"),
        ({"filter": {"httpTimeout": "soon"}}, "extenders[0].httpTimeout", "error"),
        ({"bind": {"bindVerb": ""}}, "extenders", "error"),
        ({"filter": {"preemptVerb": ""}}, "extenders", "warning"),
        ({"filter": {"enableHTTPS": True, "tlsConfig": {"caFile": "f"}}}, "extenders[0].urlPrefix", "error"),
        ({"percentageOfNodesToScore": 50}, "percentageOfNodesToScore", "error"),
        ({"percentageOfNodesToScore": None}, "percentageOfNodesToScore", "error"),
        ({"extenders": []}, "extenders", "error"),
        ({"bind": {"httpTimeout": "1m"}}, "extenders[1].httpTimeout", "error"),
        ({"bind": {"httpTimeout": "2m30s"}}, "extenders[1].httpTimeout", "warning"),
        ({"podMaxBackoffSeconds": 10}, "podMaxBackoffSeconds", "error"),
        ({"podMaxBackoffSeconds": 1}, "podMaxBackoffSeconds", "warning"),
        ({"profiles": [{"schedulerName": "muster"}, {}]}, "profiles[1].schedulerName", "error"),
    ],
)  # fmt: skip
def test_one_mistake_in_the_scheduler_s_file_is_one_problem(
    changes, field, severity, write: Write, capsys
):
    config = str(ROOT / "config/muster.yaml")
    code, _, problems = check(capsys, write("scheduler.yaml", changed(**changes)), config)
    assert problems == [f"KubeSchedulerConfiguration: {field}: {severity}"]
    assert code == (severity == "error")


def test_two_binders_are_refused_as_kube_scheduler_does(write: Write, capsys):
    config = changed()
    config["extenders"].append({"urlPrefix": "http://127.0.0.1:1/other", "bindVerb": "bind"})
    muster = str(ROOT / "config/muster.yaml")
    assert check(capsys, write("scheduler.yaml", config), muster)[2] == [
        "KubeSchedulerConfiguration: extenders: error"
    ]


@pytest.mark.parametrize(
    ("section", "problems"),
    [
        ({"listen": {"port": 8900}}, [": muster.listen.host: warning"]),
        ({"tls": {"certFile": "a", "keyFile": "b"}}, [": muster.tls.clientCAFile: warning"]),
        ({"tls": {"certFile": "a", "keyFile": "b", "clientCAFile": "c"}}, []),
        ({"listen": {"host": "127.0.0.1"}}, []),
    ],
)
def test_check_says_what_serve_would_refuse(section, problems, write: Write, capsys):
    assert check(capsys, write("muster.yaml", {"muster": section})) == (0, 1, problems)


def test_managed_resources_must_be_the_same_everywhere(write: Write, capsys):
    managed = [{"name": "nvidia.com/gpu"}]
    both = changed(filter={"managedResources": managed}, bind={"managedResources": managed})
    one = changed(filter={"managedResources": managed})
    section = {"managedResources": ["nvidia.com/gpu"], "listen": {"host": "127.0.0.1"}}
    muster = write("muster.yaml", {"muster": section})
    name = "KubeSchedulerConfiguration"
    assert check(capsys, write("both.yaml", both), muster)[2] == [
        f"{name}: extenders[1].managedResources: error"
    ]
    assert check(capsys, write("one.yaml", one), muster)[2] == [f"{name}: extenders: error"]


def pytorch_job(**spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "pytorch", "image": "none"}]}}
    role = {"replicas": 1, "template": template}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "ddp", "namespace": "ml"},
        "spec": {"pytorchReplicaSpecs": {"Master": role, "Worker": role}, **spec},
    }


def pod_group(api_version: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": api_version,
        "kind": "PodGroup",
        "metadata": {"name": "g"},
        "spec": spec,
    }


def bare_pod(**changes: Any) -> dict[str, Any]:
    pod = {"apiVersion": "v1", "kind": "Pod", **member("p")}
    pod["metadata"].update(changes.pop("metadata", {}))
    pod["spec"].update(changes)
    return pod


ACK = "pod-group.scheduling.sigs.k8s.io"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (pod_group("scheduling.volcano.sh/v1beta1", minMember=0), "PodGroup g: spec.minMember: error"),
        (pod_group("scheduling.volcano.sh/v1beta1", minMember="2"), "PodGroup g: spec.minMember: error"),
        (pod_group("scheduling.x-k8s.io/v1alpha1", minMember=-1), "PodGroup g: spec.minMember: error"),
        (
            pod_group("scheduling.k8s.io/v1beta1", schedulingPolicy={"gang": {"minCount": 0}}),
            "PodGroup g: spec.schedulingPolicy.gang.minCount: error",
        ),
        (pytorch_job(pytorchReplicaSpecs={}), "PyTorchJob ml/ddp: spec.pytorchReplicaSpecs: error"),
        (
            pytorch_job(runPolicy={"backoffLimit": -1}),
            "PyTorchJob ml/ddp: spec.runPolicy.backoffLimit: error",
        ),
        (
            bare_pod(metadata={"labels": {f"{ACK}/name": "g", f"{ACK}/min-available": "0"}}),
            f"Pod p: metadata.labels[{ACK}/min-available]: error",
        ),
        (
            bare_pod(
                metadata={
                    "labels": {"scheduling.x-k8s.io/pod-group": "a"},
                    "annotations": {"scheduling.k8s.io/group-name": "b"},
                }
            ),
            "Pod p: metadata: error",
        ),
        (
            bare_pod(
                schedulerName="other", metadata={"labels": {"scheduling.x-k8s.io/pod-group": "a"}}
            ),
            "Pod p: spec.schedulerName: warning",
        ),
        ({"kind": "Pod"}, "Pod: apiVersion: error"),
        ({"apiVersion": "v1", "metadata": {"name": "p"}}, "p: kind: error"),
        ({"metadata": {"name": "p"}}, "p: : error"),
        ("- a", ": : error"),
        ("a: [", ": : error"),
    ],
)  # fmt: skip
def test_one_mistake_in_a_manifest_is_one_problem(body, problem, write: Write, capsys):
    code, _, problems = check(capsys, write("file.yaml", body))
    assert problems == [problem]
    assert code == problem.endswith("error")


@pytest.mark.parametrize(
    ("api_version", "kinds"),
    [
        ("kubeflow.org/v1", "one of JAXJob, MPIJob, PaddleJob, PyTorchJob, TFJob, XGBoostJob"),
        ("scheduling.volcano.sh/v1beta1", "one of PodGroup"),
        ("example.com/v1", "one that example.com/v1 has"),
    ],
)
def test_a_kind_that_is_missing_is_one_of_its_apis(api_version, kinds, write: Write, capsys):
    file = write("file.yaml", {"apiVersion": api_version, "metadata": {"name": "p"}})
    assert cli.main(["check", str(file)]) == 1
    assert f"kind: error: is missing: {kinds}\n" in capsys.readouterr().out


def test_a_bad_quantity_is_found_in_a_pod_a_template_and_a_job(write: Write, capsys):
    container = {"name": "pytorch", "image": "none", "resources": {"requests": {"cpu": "many"}}}
    template = {"metadata": {}, "spec": {"containers": [container]}}
    role = {"replicas": 1, "template": template}
    bodies = [
        bare_pod(containers=[container]),
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "d"},
            "spec": {"template": template},
        },
        pytorch_job(pytorchReplicaSpecs={"Master": role}),
    ]
    code, objects, problems = check(
        capsys, write("list.yaml", {"apiVersion": "v1", "kind": "List", "items": bodies})
    )
    assert (code, objects) == (1, 3)
    assert [line.split(":")[0] for line in problems] == [
        "Pod p",
        "Deployment d",
        "PyTorchJob ml/ddp",
    ]
    assert [line for line in problems if "requests[cpu]: error" not in line] == []
    assert "spec.template" in problems[1]
    assert "spec.pytorchReplicaSpecs.Master.template" in problems[2]


def test_a_plugin_that_does_not_exist_is_found_in_muster_yaml(write: Write, capsys):
    tiers = {"tiers": [{"plugins": [{"name": "magic"}]}]}
    code, objects, problems = check(capsys, write("muster.yaml", tiers))
    assert (code, objects, problems) == (1, 1, [": tiers[0].plugins[0].name: error"])


def test_check_prints_a_line_a_problem_for_people(write: Write, capsys):
    file = write("g.yaml", pod_group("scheduling.volcano.sh/v1beta1", minMember=0))
    assert cli.main(["check", file]) == 1
    line, count = capsys.readouterr().out.splitlines()
    assert line == f"{file}: PodGroup g: spec.minMember: error: 0 is not allowed: at least 1"
    assert count == "1 object, 1 problem"


def test_check_of_a_file_that_is_not_there_is_wrong_use(capsys):
    assert cli.main(["check", "nowhere.yaml", "--json"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "nowhere.yaml: cannot be read" in shown.err
