"""MPIJob in its two versions: which of them a job is, and the definition that serves both."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from extender.jobs.mpi_v1 import OldMPIJob
from extender.jobs.mpi_v2 import MPIJob
from tests.jobs.builders import KINDS, NOW, of_kind

ROOT = Path(__file__).resolve().parents[2]
OLD, NEW = OldMPIJob(), MPIJob()


@pytest.mark.parametrize(
    ("spec", "takers"),
    [
        # A definition without defaults of ours: it is what it is seen as.
        ({}, [OLD, NEW]),
        # The definition of manifests/crds: v1 marks all, v2beta1 marks its own.
        ({"mainContainer": ""}, [OLD]),
        ({"mainContainer": "", "mpiImplementation": "OpenMPI"}, [NEW]),
        # mpi-operator's definition.
        ({"mpiImplementation": "Intel"}, [NEW]),
        (None, [OLD, NEW]),
        ("x", [OLD, NEW]),
    ],
)
def test_a_job_is_run_as_what_it_was_made_as(spec, takers):
    job = {"metadata": {"name": "j"}, "spec": spec}
    assert [kind for kind in (OLD, NEW) if kind.takes(job)] == takers


def versions():
    path = ROOT / "manifests/crds/kubeflow.org_mpijobs.yaml"
    return {v["name"]: v for v in yaml.safe_load(path.read_text())["spec"]["versions"]}


def spec_of(version):
    schema = versions()[version]["schema"]["openAPIV3Schema"]
    return schema["properties"]["spec"]["properties"]


def test_no_field_is_lost_between_the_versions():
    """Without a conversion webhook what a version does not know is dropped when it is read in it."""

    def bare(version):
        return {
            name: {k: v for k, v in field.items() if k != "default"}
            for name, field in spec_of(version).items()
        }

    assert bare("v1") == bare("v2beta1")


def test_what_is_kept_is_marked_by_v2beta1_alone():
    defaults = {v: {n for n, f in spec_of(v).items() if "default" in f} for v in versions()}
    assert "mpiImplementation" in defaults["v2beta1"] - defaults["v1"]
    assert "mainContainer" in defaults["v1"] - defaults["v2beta1"]
    stored = [name for name, version in versions().items() if version["storage"]]
    # Defaults are given to what is read from the store, too: to v2beta1's jobs there would be no others.
    assert stored == ["v1"]


def test_what_all_kinds_share_is_defined_alike():
    path = ROOT / "manifests/crds/kubeflow.org_jaxjobs.yaml"
    (other,) = yaml.safe_load(path.read_text())["spec"]["versions"]
    shared = other["schema"]["openAPIV3Schema"]["properties"]
    for version in versions():
        schema = versions()[version]["schema"]["openAPIV3Schema"]["properties"]
        assert schema["status"] == shared["status"]
        policy = dict(spec_of(version)["runPolicy"]["properties"])
        of_others = dict(shared["spec"]["properties"]["runPolicy"]["properties"])
        # Who may run a job is another for each version.
        policy.pop("managedBy"), of_others.pop("managedBy")
        assert policy == of_others
        columns = versions()[version]["additionalPrinterColumns"]
        assert columns[:: -1 if version == "v1" else 1] == other["additionalPrinterColumns"]


@pytest.mark.parametrize("name", ["mpi", "mpi_v1"])
def test_hosts_that_no_config_map_holds_are_refused_by_name(name):
    kind, _ = KINDS[name]

    def said(workers, letters):
        job = of_kind(kind, {"Launcher": 1, "Worker": workers})
        job["metadata"] |= {"name": "j" * letters, "namespace": "n" * 63}
        notices = kind.reconcile(job, [], frozenset(), NOW).notices
        return [message for _, reason, message in notices if reason == "MPIJobInvalid"]

    assert said(2_000, 50) == said(4_000, 1) == []
    (message,) = said(9_999, 50)
    assert message.startswith(
        "spec.mpiReplicaSpecs: 10000 is not allowed: fewer workers, or shorter"
    )


@pytest.mark.parametrize("name", ["mpi", "mpi_v1"])
@pytest.mark.parametrize("junk", [5, "x", [1], {"a": 1}, None, True], ids=repr)
def test_whatever_a_template_holds_a_pass_answers(name, junk):
    """The definitions let any pod template in: it is refused by name, or the API server refuses it."""
    kind, _ = KINDS[name]
    fields = ("volumes", "initContainers", "dnsConfig", "serviceAccountName", "hostNetwork")
    of_container = ("volumeMounts", "command", "args", "resources", "env", "name")
    for role in ("Launcher", "Worker"):
        for field in (*fields, *of_container, "searches"):
            job = of_kind(kind, {"Launcher": 1, "Worker": 1})
            spec = job["spec"]["mpiReplicaSpecs"][role]["template"]["spec"]
            if field == "searches":
                spec["dnsConfig"] = {"searches": junk}
            else:
                (spec if field in fields else spec["containers"][0])[field] = junk
            step = kind.reconcile(job, [], frozenset(), NOW)
            for replica in step.wanted:
                kind.pod(job, replica)
            assert step.wanted or step.notices
