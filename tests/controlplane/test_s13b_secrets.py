"""S13b: what is planted in manifests, tokens and keys is in no log, Event, debug page or record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aiohttp

from extender.core import api
from extender.http import admin
from extender.sim.daemon import free_port
from tests.controlplane import rights
from tests.controlplane.processes import replicas
from tests.controlplane.test_s10_jobs import job
from tests.controlplane.world import World

#: Each stands for one way in which people hand secrets to a pod.
PLANTED = {way: f"sesame-{way}-0b1a2c" for way in ("env", "args", "annotation", "command", "token")}
SECTION = {"podMaxBackoffSeconds": 1, "leaderElection": {"enabled": False}}


def planted(name: str, workers: int = 1) -> dict[str, Any]:
    """A job whose every template holds what nobody else may see."""
    # Its roles share one template until they are written.
    body = json.loads(json.dumps(job(name, workers)))
    for role in body["spec"]["pytorchReplicaSpecs"].values():
        template = role["template"]
        template["metadata"]["annotations"]["example.com/key"] = PLANTED["annotation"]
        (main, *_) = template["spec"]["containers"]
        main["env"] = [{"name": "API_TOKEN", "value": PLANTED["env"]}]
        main["args"] = [f"--password={PLANTED['args']}"]
        main["command"] = ["train", PLANTED["command"]]
    return body


async def test_nothing_that_was_planted_is_told(
    world: World, extender_port: int, tmp_path: Path
) -> None:
    pages = free_port()
    listen = {"host": "127.0.0.1", "port": extender_port, "adminPort": pages}
    await world.nodes("n1", "n2", gpus=8)
    fine, unfit, unread, refused = (planted(n) for n in ("fine", "unfit", "unread", "refused"))
    roles = unfit["spec"]["pytorchReplicaSpecs"]
    roles["Worker"]["template"]["spec"]["nodeSelector"] = {"there": "is-none"}
    # Admission has words of its own for this one, in the dry run of its pods.
    roles = refused["spec"]["pytorchReplicaSpecs"]
    roles["Worker"]["template"]["spec"]["containers"][0]["image"] = ""
    roles = unread["spec"]["pytorchReplicaSpecs"]
    limits = roles["Worker"]["template"]["spec"]["containers"][0]["resources"]
    limits["limits"]["nvidia.com/gpu"] = "many"
    section = {**SECTION, "listen": listen}
    async with replicas(world.plane, tmp_path, 1, section, extender_port) as (muster,):
        await muster.until_leading()
        for body in (fine, unfit, unread, refused):
            await world.client.create(api.PYTORCH_JOBS, world.namespace, body)
        await world.until(lambda: len(world.bound("fine-")) == 2, "the job that fits")
        for name in ("unfit", "unread", "refused"):
            await world.until_event(name, "")
        told = [await fetch(extender_port, path) for path in paths(world.namespace)]
        told.append(await fetch(pages, "/metrics", PLANTED["token"]))
    kinds = (api.EVENTS, api.GANG_PLANS, api.VOLCANO_GROUPS)
    told += [json.dumps(await world.client.list(kind, world.namespace)) for kind in kinds]
    told.append(logged(tmp_path))
    statuses = await world.client.list(api.PYTORCH_JOBS, world.namespace)
    told += [json.dumps(each.get("status")) for each in statuses["items"]]
    everything = "\n".join(told)
    # What was looked at is about these jobs.
    assert all(name in everything for name in ("fine-master-0", "unfit", "refused"))
    own = world.plane.token_of(rights.ACCOUNT)
    assert [secret for secret in (*PLANTED.values(), own) if secret in everything] == []


def logged(folder: Path) -> str:
    """All that the service printed."""
    (log,) = folder.glob("muster-*.log")
    return log.read_text()


def paths(namespace: str) -> list[str]:
    """Every page, and one of each gang."""
    gangs = [f"/debug/gangs/{namespace}/{name}" for name in ("fine", "unfit", "unread", "refused")]
    return [*(path for path in admin.PATHS if "{" not in path), *gangs]


async def fetch(port: int, path: str, token: str = "") -> str:
    """A page as text, whatever its status."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http,
        http.get(path, headers=headers) as answer,
    ):
        return await answer.text()


def test_the_role_of_base_reaches_no_secret_and_no_config(world: World) -> None:
    """Those of MPIJobs alone do, which are applied where such jobs run."""

    def may(verb: str, kind: str) -> str:
        groups = [f"--as-group={group}" for group in rights.GROUPS]
        asked = ("auth", "can-i", verb, kind, "-A", f"--as={rights.ACCOUNT}", *groups)
        return world.plane.kubectl(*asked, check=False).stdout.strip()

    asked = [
        (verb, kind)
        for kind in ("secrets", "configmaps")
        for verb in ("get", "list", "watch", "create", "patch", "update", "delete")
    ]

    def granted(wanted: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """As soon as it is what is wanted: the API server reads of roles a moment after they are written."""
        found: list[tuple[str, str]] = []
        for _ in range(10):
            found = [each for each in asked if may(*each) != "no"]
            if found == wanted:
                break
        return found

    assert granted([]) == []
    wanted = [
        ("get", "secrets"),
        ("create", "secrets"),
        ("get", "configmaps"),
        ("create", "configmaps"),
        ("patch", "configmaps"),
    ]
    with rights.beside(world.plane, "mpijob"):
        assert granted(wanted) == wanted
