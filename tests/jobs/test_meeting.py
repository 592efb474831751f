"""scheduling.muster.dev/wait-for-master: who waits for whom, and how."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from extender.core.errors import InvalidObject
from extender.core.framework import Replica
from extender.jobs import meeting
from tests.jobs.builders import KINDS, NOW, merged, of_kind

OWN = {"metadata": {"annotations": {meeting.WAIT: "own-image"}}}


def made(name: str, replica: str, *, more: Any = None, wish: str | None = "own-image") -> dict:
    """The pod of a replica of a job as small as it is usual; ``replica`` is e.g. worker-1."""
    kind, roles = KINDS[name]
    more = {} if more is None else more
    roles = more.pop("roles", roles)
    job = merged(of_kind(kind, roles), more)
    if wish is not None:
        job = merged(job, {"metadata": {"annotations": {meeting.WAIT: wish}}})
    role, _, index = replica.partition("-")
    return kind.pod(job, Replica(role, int(index or 0), f"ddp-{replica}"))


def waits(pod: dict) -> list[str]:
    """Host and port that it waits for; nothing where it does not wait."""
    inits = pod["spec"].get("initContainers") or []
    found = [each["command"][4:] for each in inits if each["name"] == meeting.NAME]
    return found[0] if found else []


def elastic(**more: Any) -> dict:
    return {"roles": {"Worker": 3}, "spec": {"elasticPolicy": {"minReplicas": 2, **more}}}


@pytest.mark.parametrize(
    ("name", "more", "replica", "point"),
    [
        ("pytorch", {}, "master-0", []),
        ("pytorch", {}, "worker-0", ["ddp-master-0", "23456"]),
        ("pytorch", {}, "worker-1", ["ddp-master-0", "23456"]),
        # Without a master and without torchrun's policy nobody is told of an address.
        ("pytorch", {"roles": {"Worker": 2}}, "worker-1", []),
        ("pytorch", elastic(), "worker-0", []),
        ("pytorch", elastic(), "worker-1", ["ddp-worker-0", "23456"]),
        ("pytorch", elastic(rdzvPort=29400), "worker-1", ["ddp-worker-0", "29400"]),
        ("pytorch", elastic(rdzvBackend="c10d"), "worker-1", ["ddp-worker-0", "23456"]),
        ("pytorch", elastic(rdzvBackend="etcd-v2", rdzvHost="etcd"), "worker-1", []),
        ("pytorch", elastic(rdzvHost="elsewhere"), "worker-1", []),
        ("pytorch", elastic(standalone=True), "worker-1", []),
        ("jax", {}, "worker-0", []),
        ("jax", {}, "worker-2", ["ddp-worker-0", "6666"]),
        ("paddle", {}, "worker-0", []),
        ("paddle", {}, "worker-1", ["ddp-worker-0", "36543"]),
        ("paddle", {"roles": {"Master": 1, "Worker": 2}}, "worker-0", ["ddp-master-0", "36543"]),
        # XGBoost's tracker of before 2.1 never gets over a connection that says nothing.
        ("xgboost", {}, "worker-0", []),
        # gRPC and ssh try again by themselves.
        ("tensorflow", {}, "worker-1", []),
        ("mpi", {}, "launcher", []),
        ("mpi_v1", {}, "launcher", []),
    ],
)
def test_who_waits_for_whom(name: str, more: dict, replica: str, point: list[str]) -> None:
    assert waits(made(name, replica, more=dict(more))) == point


@pytest.mark.parametrize(
    "wish",
    [
        *("True", "true", "yes", "No", "false", "on", "1", "None", "NONE", "Own-Image"),
        *(
            "own_image",
            "ownimage",
            "own image",
            " none",
            "Busybox",
            "busybox:",
            "a//b",
            "x@sha256:1",
        ),
        "a" * 2000,
    ],
)
def test_a_wish_that_is_no_word_and_no_image_is_refused(wish: str) -> None:
    with pytest.raises(InvalidObject) as error:
        made("pytorch", "worker-0", wish=wish)
    assert error.value.field == "metadata.annotations[scheduling.muster.dev/wait-for-master]"
    assert error.value.value == wish
    assert error.value.allowed == "none, own-image or the name of an image"


@pytest.mark.parametrize(
    "image",
    [
        "busybox",
        "busybox:1.37",
        "Registry.example:5000/team/nccl_tests__v2:V1.0-rc",
        "[::1]:5000/a/b.c",
        "a/b@sha256:" + "0f" * 32,
        "yes/it-is",
    ],
)
def test_any_image_s_name_is_one(image: str) -> None:
    (first,) = made("pytorch", "worker-0", wish=image)["spec"]["initContainers"]
    assert first["image"] == image


@pytest.mark.parametrize("wish", [None, "", "none"])
def test_nobody_waits_unless_asked_to(wish: str | None) -> None:
    assert made("pytorch", "worker-0", wish=wish) == made("pytorch", "worker-0", wish=None)


def main(**fields: Any) -> dict:
    box = {"name": "pytorch", "image": "train:1", **fields}
    role = {"template": {"spec": {"containers": [{"name": "side", "image": "s"}, box]}}}
    return {"spec": {"pytorchReplicaSpecs": {"Worker": role}}}


def test_its_own_image_and_what_it_may_use_of_its_node() -> None:
    room = {
        "requests": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "8"},
        "limits": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "8", "rdma/hca": "1"},
    }
    secure = {"runAsNonRoot": True}
    pod = made(
        "pytorch",
        "worker-0",
        more=main(resources=room, securityContext=secure, imagePullPolicy="Always"),
    )
    (waiting,) = pod["spec"]["initContainers"]
    assert waiting["image"] == "train:1"
    assert waiting["imagePullPolicy"] == "Always"
    assert waiting["securityContext"] == secure
    # As much as the container after it, so that the pod asks for no more and stays Guaranteed.
    asked = {"cpu": "8", "memory": "64Gi"}
    assert waiting["resources"] == {"requests": asked, "limits": asked}


def test_another_image() -> None:
    pod = made("pytorch", "worker-0", wish="busybox:1.37", more=main(imagePullPolicy="Never"))
    (waiting,) = pod["spec"]["initContainers"]
    assert waiting["image"] == "busybox:1.37"
    assert "imagePullPolicy" not in waiting
    assert waiting["resources"] == {}


def test_it_comes_after_the_user_s_own() -> None:
    spec = {"initContainers": [{"name": "data", "image": "fetch"}]}
    role = {"Worker": {"template": {"spec": spec}}}
    pod = made("pytorch", "worker-0", more={"spec": {"pytorchReplicaSpecs": role}})
    assert [each["name"] for each in pod["spec"]["initContainers"]] == ["data", meeting.NAME]


def test_one_of_its_name_that_the_user_wrote_stays_alone() -> None:
    spec = {"initContainers": [{"name": meeting.NAME, "image": "mine", "command": []}]}
    role = {"Worker": {"template": {"spec": spec}}}
    pod = made("pytorch", "worker-0", more={"spec": {"pytorchReplicaSpecs": role}})
    assert pod["spec"]["initContainers"] == spec["initContainers"]


ALLOWED = "none, own-image or the name of an image"
OF_WORKER = "spec.pytorchReplicaSpecs.Worker.template.spec"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"metadata": {"annotations": {meeting.WAIT: "two words"}}},
            f"metadata.annotations[{meeting.WAIT}]: 'two words' is not allowed: {ALLOWED}",
        ),
        (
            {"spec": {"pytorchReplicaSpecs": {"Worker": {"template": {"spec": {"initContainers": 3}}}}}},
            f"{OF_WORKER}.initContainers: 3 is not allowed: a list of maps",
        ),
        (
            main(resources={"limits": "all"}),
            f"{OF_WORKER}.containers.resources.limits: 'all' is not allowed: a map of fields",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name(change: dict, said: str) -> None:
    kind, roles = KINDS["pytorch"]
    job = merged(merged(of_kind(kind, roles), OWN), change)
    ((_, reason, message),) = kind.reconcile(job, [], frozenset(), NOW).notices
    assert (reason, message) == ("PyTorchJobInvalid", said)


# -- the script, as the kubelet runs it


def started(port: int, path: str) -> subprocess.Popen[str]:
    """The container's command where PATH has these tools; it has said that it waits."""
    command = made("pytorch", "worker-0")["spec"]["initContainers"][0]["command"]
    command[-2:] = ["127.0.0.1", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={"PATH": path})
    assert process.stdout is not None
    assert process.stdout.readline() == f"waiting for 127.0.0.1:{port}\n"
    return process


@pytest.fixture
def port() -> int:
    """One that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def tools(folder: Path, **found: str) -> str:
    """A PATH of these names alone, and sleep."""
    for name, program in {"sleep": "sleep", **found}.items():
        # Not a venv's, nor a version manager's: these need more of PATH.
        target = sys.executable if program == "python3" else shutil.which(program)
        assert target is not None
        (folder / name).symlink_to(Path(target).resolve())
    return str(folder)


@pytest.mark.parametrize("found", [{"python3": "python3"}, {"python": "python3"}, {"bash": "bash"}])
def test_it_ends_once_the_port_is_open(port: int, found: dict[str, str], tmp_path: Path) -> None:
    with started(port, tools(tmp_path, **found)) as process:
        with socket.create_server(("127.0.0.1", port)) as listener:
            # It dialled in vain at least once, or will: only a connection ends it.
            listener.accept()[0].close()
            assert process.wait() == 0
        assert process.stdout is not None
        assert process.stdout.read() == "done\n"


def test_a_small_image_tries_by_nc(port: int, tmp_path: Path) -> None:
    said = tmp_path / "said"
    nc = tmp_path / "nc"
    # In vain the first time.
    nc.write_text(f'#!/bin/sh\n[ -e "{said}" ] && exit 0\necho "$@" >"{said}"\nexit 1\n')
    nc.chmod(0o755)
    with started(port, tools(tmp_path)) as process:
        assert process.wait() == 0
    assert said.read_text() == f"-z -w 5 127.0.0.1 {port}\n"


def test_where_nothing_can_try_it_does_not_wait(port: int, tmp_path: Path) -> None:
    with started(port, tools(tmp_path)) as process:
        assert process.wait() == 0
        assert process.stdout is not None
        assert "not waiting" in process.stdout.read()


def test_it_ends_when_it_is_told_to(port: int, tmp_path: Path) -> None:
    """Or each pod that waits would take its whole grace period to go."""
    with started(port, tools(tmp_path, python3="python3")) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 143
