"""The control plane itself: it serves, is restarted, and leaves nothing behind.

Excluded: what Muster does with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from extender.sim.realplane import RealPlane, StartError, binaries

pytestmark = pytest.mark.controlplane

ROOT = Path(__file__).resolve().parents[2]
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1"},
    "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
}


def pod(name: str, scheduler: str = "default-scheduler") -> str:
    spec = {"schedulerName": scheduler, "containers": [{"name": "main", "image": "any"}]}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


def node_of(plane: RealPlane, name: str) -> str:
    plane.kubectl("wait", "--for=condition=PodScheduled", f"pod/{name}", "--timeout=60s")
    return plane.kubectl("get", "pod", name, "--output=jsonpath={.spec.nodeName}").stdout


def listens(port: int) -> bool:
    with contextlib.closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    with RealPlane(
        binaries(), tmp_path_factory.mktemp("plane"), users={"muster": ["team"]}, audit="Metadata"
    ) as plane:
        plane.start_etcd()
        plane.start_apiserver()
        plane.start_scheduler()
        plane.kubectl("create", "-f", "-", stdin=json.dumps(NODE))
        # Admission added the taint of a node that no kubelet has reported ready.
        plane.kubectl("patch", "node", "n1", "--type=merge", "--patch", '{"spec":{"taints":null}}')
        yield plane


def test_kube_scheduler_alone_binds_a_pod(plane):
    plane.kubectl("create", "-f", "-", stdin=pod("alone"))
    assert node_of(plane, "alone") == "n1"


def test_a_second_scheduler_serves_its_own_profile(plane):
    config = (
        "apiVersion: kubescheduler.config.k8s.io/v1\n"
        "kind: KubeSchedulerConfiguration\n"
        "profiles: [{schedulerName: second}]\n"
    )
    plane.start_scheduler(config, "second")
    with pytest.raises(RuntimeError, match="runs already"):
        plane.start_scheduler(config, "second")
    plane.kubectl("create", "-f", "-", stdin=pod("for-second", "second"))
    assert node_of(plane, "for-second") == "n1"

    plane.kill_scheduler("second")
    plane.kubectl("create", "-f", "-", stdin=pod("while-dead", "second"))
    plane.start_scheduler(config, "second")
    assert node_of(plane, "while-dead") == "n1"


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGKILL])
def test_a_restart_of_the_api_server_keeps_address_certificates_and_objects(plane, sig):
    url, authority = plane.server_url, plane.ca.read_bytes()
    plane.restart_apiserver(sig)
    assert (plane.server_url, plane.ca.read_bytes()) == (url, authority)
    assert plane.kubectl("get", "node", "n1", "--output=name").stdout == "node/n1\n"


def test_a_hung_api_server_is_there_and_does_not_answer(plane):
    plane.kill_apiserver(signal.SIGSTOP)
    hung = plane.kubectl("get", "nodes", "--request-timeout=300ms", check=False)
    plane.kill_apiserver(signal.SIGCONT)
    assert "imeout" in hung.stderr or "deadline" in hung.stderr, hung.stderr
    assert plane.kubectl("get", "node", "n1", "--output=name").stdout == "node/n1\n"


def test_a_further_user_has_only_the_rights_that_rbac_gives(plane):
    def allowed(verb: str) -> bool:
        answer = plane.kubectl("auth", "can-i", verb, "pods", user="muster", check=False)
        return answer.returncode == 0

    assert not allowed("list")
    plane.kubectl("create", "clusterrole", "reader", "--verb=list", "--resource=pods")
    plane.kubectl("create", "clusterrolebinding", "team", "--clusterrole=reader", "--group=team")
    # The authorizer learns of the binding a moment later, through a watch of its own.
    assert any(allowed("list") for _ in range(100))
    assert not allowed("delete")


def test_the_client_certificate_is_an_administrator(plane):
    certificate, key = plane.client_cert
    command = [
        plane.bin_dir / "kubectl",
        f"--server={plane.server_url}",
        f"--certificate-authority={plane.ca}",
        f"--client-certificate={certificate}",
        f"--client-key={key}",
        "auth",
        "whoami",
        "--output=jsonpath={.status.userInfo.groups[0]}",
    ]
    who = subprocess.run(command, env={"HOME": "/nonexistent"}, capture_output=True, text=True)
    assert who.stdout == "system:masters", who.stderr


def test_the_version_and_the_native_pod_group_are_served(plane):
    version = json.loads(plane.kubectl("version", "--output=json").stdout)["serverVersion"]
    assert version["gitVersion"] == f"v{plane.version}"
    served = plane.kubectl("api-resources", "--api-group=scheduling.k8s.io", "--output=name").stdout
    assert "podgroups.scheduling.k8s.io" in served


def test_the_audit_log_names_who_bound_a_pod(plane):
    plane.kubectl("create", "-f", "-", stdin=pod("audited"))
    node_of(plane, "audited")
    entries = map(json.loads, (plane.work_dir / "audit.log").read_text().splitlines())
    binders = {
        entry["user"]["username"]
        for entry in entries
        if entry.get("objectRef", {}).get("subresource") == "binding"
    }
    assert binders == {"system:kube-scheduler"}


def test_a_failed_start_shows_the_log_and_leaves_no_process(plane):
    with pytest.raises(StartError, match="unknown field"):
        plane.start_scheduler({"noSuchField": 1}, "broken")
    assert not next(one for one in plane.daemons if one.name == "scheduler-broken").alive


def test_stop_frees_the_ports_and_may_be_repeated(tmp_path):
    plane = RealPlane(binaries(), tmp_path)
    plane.start_etcd()
    plane.start_apiserver()
    ports = [one.port for one in plane.daemons]
    assert all(map(listens, ports))
    plane.stop()
    plane.stop()
    assert not any(map(listens, ports))
    assert plane.daemons == []


def test_servers_started_from_a_thread_outlive_it(tmp_path):
    with RealPlane(binaries(), tmp_path) as plane:
        thread = threading.Thread(target=plane.start_etcd)
        thread.start()
        thread.join()
        # Were they tied to the thread, SIGKILL would have come with its end.
        assert listens(plane.daemons[0].port)


def test_servers_die_with_their_owner_however_it_ends(tmp_path):
    program = (
        "import sys\nfrom pathlib import Path\nfrom extender.sim.realplane import RealPlane, binaries\n"
        "plane = RealPlane(binaries(), Path(sys.argv[1]))\nplane.start_etcd()\n"
        "print(plane.daemons[0].pid, flush=True)\nsys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as owner:
        assert owner.stdout
        etcd = os.pidfd_open(int(owner.stdout.readline()))
        owner.kill()
    gone, _, _ = select.select([etcd], [], [], 30)
    os.close(etcd)
    assert gone


def test_the_command_starts_and_stops_it(tmp_path):
    def controlplane(*args):
        return subprocess.run(
            [ROOT / "scripts" / "controlplane", *args, f"--dir={tmp_path}", "--json"],
            capture_output=True,
            text=True,
        )

    started = controlplane("start")
    assert started.returncode == 0, started.stderr
    state = json.loads(started.stdout)
    try:
        kubectl = [f"{state['folder']}/kubectl", f"--kubeconfig={state['kubeconfig']}"]
        assert subprocess.run([*kubectl, "get", "namespace", "default"]).returncode == 0
        again = controlplane("start")
        assert again.returncode == 1
        assert "runs already" in json.loads(again.stdout)["error"]
    finally:
        stopped = controlplane("stop")
    assert json.loads(stopped.stdout) == {"stopped": ["scheduler-default", "apiserver", "etcd"]}
    assert not Path(state["work_dir"]).exists()
    assert json.loads(controlplane("stop").stdout) == {"stopped": []}
