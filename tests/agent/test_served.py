"""The agent on a real API server, with the token of its pod, its role and its policy."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml

from extender.agent.run import publish
from extender.core.topology import annotation, devices
from extender.kube import credentials
from extender.obs.metrics import Metrics
from extender.settings import Agent
from extender.sim.daemon import free_port
from extender.sim.realplane import RealPlane, binaries
from tests.agent.machine import Nvml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "manifests/agent"
ACCOUNT = "muster-agent"

pytestmark = pytest.mark.controlplane


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPlane]:
    with RealPlane(binaries(), tmp_path_factory.mktemp("plane")) as plane:
        plane.start_etcd()
        plane.start_apiserver()
        plane.kubectl("apply", "-k", str(FOLDER))
        for name in ("n1", "n2"):
            theirs = {"annotations": {"of.others/key": "1"}, "labels": {"of.others/label": "1"}}
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **theirs}}
            plane.kubectl("create", "-f", "-", stdin=json.dumps(node))
        wait_for_the_policy(plane)
        yield plane


def wait_for_the_policy(plane: RealPlane) -> None:
    """A new policy counts after a moment, which is no measure of these tests."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        token = token_of(plane, "n1")
        said = patch(plane, token, "n2", {"metadata": {"labels": {"a": "b"}}}, "--dry-run=server")
        if said.returncode:
            return
    pytest.fail("the policy never counted")


def token_of(plane: RealPlane, node: str) -> str:
    """A token as a pod of the DaemonSet on ``node`` has it."""
    bound = ("--bound-object-kind=Node", f"--bound-object-name={node}") if node else ()
    return plane.kubectl("create", "token", ACCOUNT, "-n", ACCOUNT, *bound).stdout.strip()


def kubeconfig_of(plane: RealPlane, folder: Path, token: str) -> Path:
    config = yaml.safe_load(plane.kubeconfig_path.read_text())
    config["users"][0]["user"] = {"token": token}
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    return file


def patch(plane: RealPlane, token: str, node: str, body: dict, *flags: str):
    config = plane.work_dir / "agent.kubeconfig"
    config.write_text(kubeconfig_of(plane, plane.work_dir, token).read_text())
    words = ("patch", "node", node, "--type=merge", "-p", json.dumps(body), *flags)
    return plane.kubectl(f"--kubeconfig={config}", *words, check=False)


def node_of(plane: RealPlane, name: str) -> dict:
    return json.loads(plane.kubectl("get", "node", name, "-o", "json").stdout)


@pytest.mark.parametrize(
    ("bound", "node", "body", "said"),
    [
        ("n1", "n1", {"metadata": {"annotations": {annotation.KEY: "x"}}}, ""),
        ("n1", "n1", {"metadata": {"annotations": {devices.KEY: "x"}}}, ""),
        ("n1", "n2", {"metadata": {"annotations": {annotation.KEY: "x"}}}, "bound to"),
        ("", "n1", {"metadata": {"annotations": {annotation.KEY: "x"}}}, "bound to"),
        ("n1", "n1", {"metadata": {"annotations": {"a": "b"}}}, "no other annotations"),
        ("n1", "n1", {"metadata": {"annotations": {"of.others/key": "b"}}}, "no other"),
        ("n1", "n1", {"metadata": {"annotations": {"of.others/key": None}}}, "no other"),
        ("n1", "n1", {"metadata": {"labels": {"a": "b"}}}, "nothing else of a node"),
        ("n1", "n1", {"metadata": {"finalizers": ["a/b"]}}, "nothing else of a node"),
        ("n1", "n1", {"spec": {"unschedulable": True}}, "nothing else of a node"),
    ],
)
def test_an_agent_may_write_its_annotations_of_its_node(plane, bound, node, body, said):
    result = patch(plane, token_of(plane, bound), node, body, "--dry-run=server")
    assert (result.returncode == 0) == (said == ""), result.stderr
    assert said in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("list", "nodes"),
        ("delete", "nodes"),
        ("patch", "nodes", "--subresource=status"),
        ("get", "pods"),
        ("get", "secrets"),
        ("create", "pods"),
    ],
)
def test_an_agent_may_do_nothing_else(plane, words):
    as_ = f"--as=system:serviceaccount:{ACCOUNT}:{ACCOUNT}"
    assert plane.kubectl("auth", "can-i", *words, as_, check=False).stdout.strip() == "no"


def test_others_write_nodes_as_before(plane):
    body = json.dumps({"metadata": {"labels": {"a": "b"}}, "spec": {"unschedulable": True}})
    plane.kubectl("patch", "node", "n2", "--type=merge", "-p", body)


QUICK = {"readEverySeconds": 0.05, "writeEverySeconds": 0.5, "compareEverySeconds": 60}


async def until(condition) -> None:
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(condition):  # noqa: ASYNC110 - others write, and tell nobody
            await asyncio.sleep(0.02)


async def test_what_it_writes_is_read_back_and_changes_are_written_once_an_interval(
    plane, hgx, tmp_path
):
    where = credentials.from_kubeconfig(str(kubeconfig_of(plane, tmp_path, token_of(plane, "n1"))))
    port = free_port()
    given = {**hgx.settings.model_dump(by_alias=True), **QUICK, "metricsPort": port}
    settings = Agent.model_validate(given)
    before = node_of(plane, "n1")["metadata"]

    async def running(done, metrics: Metrics) -> None:
        stop = asyncio.Event()
        task = asyncio.create_task(
            publish(
                settings, "n1", where, Nvml(hgx.machine),
                stop=stop, metrics=metrics, rng=random.Random(1),
            )
        )  # fmt: skip
        await done()
        stop.set()
        await task

    def published() -> dict:
        return node_of(plane, "n1")["metadata"]["annotations"]

    def count(metrics: Metrics, result: str) -> float:
        return metrics.agent_writes.labels(result)._value.get()

    first, asked = Metrics(), hgx.kubelet.asked
    await running(lambda: until(lambda: devices.KEY in published()), first)
    found = published()
    assert annotation.decode(found[annotation.KEY]).same(hgx.machine.known)
    assert devices.decode(found[devices.KEY]).health == ("ok",) * 8
    assert found["of.others/key"] == "1"
    assert hgx.kubelet.asked > asked
    assert count(first, "ok") == 1
    version = node_of(plane, "n1")["metadata"]["resourceVersion"]
    assert version != before["resourceVersion"]

    # Another life of the agent finds that nothing differs.
    second, asked = Metrics(), hgx.kubelet.asked

    def shown() -> bool:
        if hgx.kubelet.asked < asked + 5:
            return False
        with urlopen(f"http://127.0.0.1:{port}/metrics") as page:
            text = page.read().decode()
        return 'muster_agent_writes_total{result="ok"} 0.0' in text

    await running(lambda: until(shown), second)
    assert (count(second, "ok"), count(second, "later")) == (0, 0)
    assert node_of(plane, "n1")["metadata"]["resourceVersion"] == version

    # A pod a reading: what comes too soon waits, and the last one stands.
    third, asked = Metrics(), hgx.kubelet.asked

    async def changing() -> None:
        for number in range(12):
            hgx.kubelet.pods = {f"team/p{number}": [hgx.machine.uuid(0)]}
            seen = hgx.kubelet.asked
            await until(lambda: hgx.kubelet.asked > seen + 1)  # noqa: B023 - awaited at once
        await until(lambda: "team/p11" in published()[devices.KEY])

    await running(changing, third)
    assert devices.decode(published()[devices.KEY]).held[0] == ("team/p11",)
    assert count(third, "later") > 0
    assert count(third, "ok") < 12
    assert count(third, "refused") == 0
    # The links did not change, and were not written again.
    assert published()[annotation.KEY] == found[annotation.KEY]


def test_sigterm_ends_it_cleanly(plane, hgx, tmp_path):
    config = tmp_path / "muster.yaml"
    given = hgx.settings.model_dump(by_alias=True) | QUICK
    config.write_text(yaml.safe_dump({"muster": {"agent": given}}))
    kubeconfig = kubeconfig_of(plane, tmp_path, token_of(plane, "n2"))
    with subprocess.Popen(
        [sys.executable, "-m", "extender.cli", "agent", "--config", str(config), "--json",
         "--kubeconfig", str(kubeconfig)],
        env={**os.environ, "NODE_NAME": "n2"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        cwd=ROOT, text=True,
    ) as agent:  # fmt: skip
        # No driver here: what the kernel and the kubelet tell is published all the same.
        deadline = time.monotonic() + 60
        while devices.KEY not in node_of(plane, "n2")["metadata"]["annotations"]:
            assert agent.poll() is None, agent.communicate()
            assert time.monotonic() < deadline
        agent.send_signal(signal.SIGTERM)
        out, log = agent.communicate(timeout=30)
    assert (agent.returncode, json.loads(out)) == (0, {"stopped": True})
    lines = [json.loads(line) for line in log.splitlines()]
    missing = [line["field"] for line in lines if line["event"] == "not known"]
    assert missing == ["driver"]
    assert lines[-1]["event"] == "stopped"
    found = devices.decode(node_of(plane, "n2")["metadata"]["annotations"][devices.KEY])
    assert found.health == ("?",) * 8
