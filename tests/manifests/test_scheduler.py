"""manifests/scheduler: a second kube-scheduler with Muster's entries, on the real control plane."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from extender import cli
from extender.sim.realplane import RealPlane, binaries

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "manifests/scheduler"
ACCOUNT = "system:serviceaccount:kube-system:muster-scheduler"


def test_it_is_the_sample_with_the_address_of_the_service(capsys) -> None:
    sample = (ROOT / "config/scheduler-own.yaml").read_text()
    service = "https://muster.muster-system.svc:8900"
    theirs = yaml.safe_load(sample.replace("http://127.0.0.1:8900", service))
    names = {"caFile": "ca.crt", "certFile": "tls.crt", "keyFile": "tls.key"}
    for entry in theirs["extenders"]:
        entry["enableHTTPS"] = True
        entry["tlsConfig"] = {key: f"/etc/muster-client/{name}" for key, name in names.items()}
    assert yaml.safe_load((FOLDER / "scheduler.yaml").read_text()) == theirs
    files = [str(FOLDER / "scheduler.yaml"), str(ROOT / "manifests/base/muster.yaml")]
    assert cli.main(["check", *files]) == 0
    assert capsys.readouterr().out == "2 objects, 0 problems\n"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPlane]:
    with RealPlane(binaries(), tmp_path_factory.mktemp("plane")) as plane:
        plane.start_etcd()
        plane.start_apiserver()
        # Roles that Kubernetes itself brings come a moment after it is ready.
        plane.kubectl(
            "wait", "--for=create", "--timeout=30s", "-n", "kube-system",
            "role/extension-apiserver-authentication-reader",
        )  # fmt: skip
        plane.kubectl("apply", "-k", str(FOLDER))
        yield plane


@pytest.mark.controlplane
def test_the_deployment_reads_the_configuration_that_is_made_for_it(plane: RealPlane) -> None:
    found = plane.kubectl("-n", "kube-system", "get", "deploy,cm", "-o", "json").stdout
    by_kind: dict[str, dict] = {}
    for item in json.loads(found)["items"]:
        if item["metadata"]["name"].startswith("muster-scheduler"):
            by_kind[item["kind"]] = item
    spec = by_kind["Deployment"]["spec"]["template"]["spec"]
    config, client, _ = spec["volumes"]
    assert client["secret"]["secretName"] == "muster-client"
    assert config["configMap"]["name"] == by_kind["ConfigMap"]["metadata"]["name"]
    (container,) = spec["containers"]
    folder = container["volumeMounts"][0]["mountPath"]
    (file,) = by_kind["ConfigMap"]["data"]
    assert f"--config={folder}/{file}" in container["command"]


@pytest.mark.controlplane
@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("create", "pods", "--subresource=binding"), "yes"),
        (("patch", "pods", "--subresource=status"), "yes"),
        (("watch", "nodes"), "yes"),
        (("create", "leases", "-n", "kube-system"), "yes"),
        (("update", "leases.coordination.k8s.io/muster-scheduler", "-n", "kube-system"), "yes"),
        (("create", "podgroups.scheduling.volcano.sh"), "no"),
        (("get", "secrets"), "no"),
    ],
)
def test_its_account_may_do_what_a_scheduler_does(
    plane: RealPlane, words: tuple[str, ...], answer: str
) -> None:
    said = plane.kubectl("auth", "can-i", *words, f"--as={ACCOUNT}", check=False)
    assert said.stdout.strip() == answer, said.stderr
