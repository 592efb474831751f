"""tests/cases/advice.yaml: what is said of a job, and that nothing is once it is written so."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from extender import cli
from extender.core.errors import InvalidObject
from extender.jobs import KINDS as ALL
from extender.jobs import advice
from extender.jobs.advice import advise, training
from extender.jobs.advice.subject import Part, Subject
from extender.jobs.lifecycle import TrainingKind
from tests.jobs.builders import KINDS, merged, of_kind

ROOT = Path(__file__).parents[2]
CASES = yaml.safe_load((ROOT / "tests/cases/advice.yaml").read_text())
EXAMPLES = sorted((ROOT / "manifests/examples").glob("*.yaml"))


def job_of(case: dict) -> dict:
    kind, roles = KINDS[case.get("kind", "pytorch")]
    facts = kind.facts
    job = of_kind(kind, case.get("roles", roles))
    job["spec"] = merged(job["spec"], case.get("spec", {}))
    for type_, role in job["spec"][facts.specs_key].items():
        spec = role["template"]["spec"]
        spec["containers"] = [merged(spec["containers"][0], case.get("main", {}))]
        role["template"]["spec"] = merged(spec, case.get("pod", {}))
        job["spec"][facts.specs_key][type_] = merged(role, case.get("of", {}).get(type_, {}))
    return job


def subject_of(case: dict, job: dict) -> Subject:
    claims = {
        name: {"spec": {"accessModes": modes}} for name, modes in case.get("claims", {}).items()
    }
    found = training.subject(KINDS[case.get("kind", "pytorch")][0], job)
    return msgspec.structs.replace(found, claims=claims, namespace_labels=case.get("namespace", {}))


def said(case: dict) -> dict:
    ignored = case.get("ignore", ())
    found = [each for each in advise(subject_of(case, job_of(case))) if each.code not in ignored]
    return {each.code: each for each in found}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_what_is_said_and_what_to_write(case):
    found = said(case)
    specs = KINDS[case.get("kind", "pytorch")][0].facts.specs_key
    expected = case.get("says", {})
    assert found.keys() == expected.keys()
    for code, (field, value, words) in expected.items():
        path = field if field.startswith("spec.") else f"spec.{specs}.{field}"
        assert (found[code].field, found[code].value) == (path, value)
        assert words in found[code].render()
    if expected:
        assert said(merged(case, case["fix"])) == {}


@pytest.mark.parametrize(
    "case",
    [
        {"spec": {"nprocPerNode": "9" * 5000}},
        {"main": {"command": ["torchrun", "--nnodes=" + "9" * 5000, "--nproc_per_node=1"]}},
        {"main": {"command": ["torchrun", "--nnodes=1:" + "9" * 5000, "--nproc_per_node=1"]}},
    ],
)
def test_of_numbers_that_int_does_not_read_nothing_is_said(case):
    one = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
    assert said({**case, "main": {**one, **case.get("main", {})}}) == {}


def test_each_code_has_its_case_and_its_line():
    files = sorted(Path(advice.__file__).parent.glob("*.py"))
    calls = [
        node
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Advice"
    ]
    codes = {str(call.args[0].value) for call in calls if isinstance(call.args[0], ast.Constant)}
    assert len(codes) > 25
    lines = (ROOT / "docs/advice.md").read_text()
    assert set(re.findall(r"(?m)^\| `([A-Za-z]+)` \|", lines)) == codes
    assert {code for case in CASES for code in case.get("says", {})} | MPI == codes


#: Said of MPIJobs, below.
MPI = {"SlotsAndGPUs", "ProcessesAndSlots"}


def mpi(np: str, slots: int | None, gpus: int) -> dict:
    command = ["mpirun", "--allow-run-as-root", "-np", np, "python", "train.py", "-n", "3"]
    launcher = {"spec": {"containers": [{"name": "l", "image": "i", "command": command}]}}
    limits = {"limits": {"nvidia.com/gpu": gpus, "memory": "1Gi"}}
    worker = {"spec": {"hostIPC": True, "containers": [{"name": "w", "resources": limits}]}}
    where = "spec.mpiReplicaSpecs"
    subject = Subject(
        kind="MPIJob",
        name="mpi",
        spec={} if slots is None else {"slotsPerWorker": slots},
        parts=(
            Part("Launcher", f"{where}.Launcher", 1, "OnFailure", launcher),
            Part("Worker", f"{where}.Worker", 4, "Never", worker),
        ),
    )
    return {each.code: (each.field, each.value, each.instead) for each in advise(subject)}


def test_slots_processes_and_gpus_of_mpi():
    assert mpi("8", 2, 2) == {}
    assert mpi("$(N)", 2, 2) == {}
    at = "spec.mpiReplicaSpecs.Launcher.template.spec.containers[0].command[3]"
    assert mpi("12", 2, 2) == {"ProcessesAndSlots": (at, 12, "8")}
    assert mpi("4", 2, 2) == {"ProcessesAndSlots": (at, 4, "8")}
    assert mpi("4", None, 2) == {"SlotsAndGPUs": ("spec.slotsPerWorker", None, "2")}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_nothing_is_said_of_the_examples(path):
    for document in yaml.safe_load_all(path.read_text()):
        for kind in ALL:
            same = (kind.resource.api_version, kind.resource.kind)
            if isinstance(kind, TrainingKind) and same == (
                document["apiVersion"],
                document["kind"],
            ):
                whole = merged({"metadata": {"uid": "u"}}, document)
                assert advise(training.subject(kind, whole)) == ()


#: The manifests that users apply, where this checkout has them beside it.
SHARED = ROOT.parent / "shared" / "manifests"
#: By the number of the file; in the others nothing is wrong that advice is about.
OF_SHARED = {
    "03": {"NodeRank", "NoRendezvous"},
    "04": {"SharedMemory", "ClaimReadOnly"},
    "05": {"SharedMemory"},
    "06": {"ServersStay", "AllGPUsVisible"},
    "13": {"RendezvousBackend", "ElasticRestarts", "ElasticMinimum", "Checkpoints"},
    "17": {"NoSuchLabel"},
}


@pytest.mark.skipif(not SHARED.is_dir(), reason="the users' manifests are not here")
def test_what_is_wrong_in_users_manifests(capsys):
    cli.main(["check", "--json", str(SHARED)])
    problems = json.loads(capsys.readouterr().out)["problems"]
    found: dict[str, set[str]] = {}
    for each in problems:
        if each["advice"]:
            found.setdefault(Path(each["file"]).name[:2], set()).add(each["advice"])
    assert found == OF_SHARED


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 9) | st.sampled_from(["", "lo", "torchrun -m", "'"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(
        ["name", "env", "limits", "value", "volumes", "emptyDir", "mountPath", "labels"]), inner, max_size=2),
    max_leaves=6,
)  # fmt: skip


@given(data=st.data(), case=st.sampled_from(CASES))
def test_no_template_stops_it(data, case):
    """Values of a case are replaced by junk, one after the other; whatever is valid gets advice."""
    body = json.loads(
        json.dumps({key: case[key] for key in ("pod", "main", "spec", "of") if key in case})
    )
    places = list(_places(body))
    for parent, key in data.draw(st.lists(st.sampled_from(places), max_size=3)) if places else ():
        parent[key] = data.draw(JUNK)
    try:
        job = job_of({**case, **body})
    except (AttributeError, TypeError):
        return  # the case itself cannot be put together
    try:
        subject = subject_of(case, job)
    except InvalidObject:
        return
    for each in advise(subject):
        assert each.render()


def _places(value):
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])
