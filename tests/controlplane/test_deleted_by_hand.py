"""What somebody deletes of a job that runs is made again on the real control plane, and nobody restarts."""

from __future__ import annotations

import asyncio

import pytest

from extender.core import api, jobsync
from extender.runtime import Service
from tests.controlplane.test_kinds import replicas
from tests.controlplane.test_mpi import (
    _LEARNT_SECONDS,
    nodes,
    old_rights,  # noqa: F401 - a fixture
    submitted,
    until,
)
from tests.controlplane.world import World

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("mpi_rights", "old_rights")]
KINDS = (
    api.SERVICES,
    api.CONFIG_MAPS,
    api.SECRETS,
    api.BATCH_JOBS,
    api.VOLCANO_GROUPS,
    api.SERVICE_ACCOUNTS,
    api.ROLES,
    api.ROLE_BINDINGS,
    api.AUTOSCALERS,
)


async def kubectl_deletes(world: World, kind: api.Resource, name: str) -> None:
    """Beside the loop, which is Muster's, too. In the background: a Job would wait for the garbage collector."""
    full = ".".join(part for part in (kind.plural, kind.version, kind.group) if part)
    words = ("delete", full if kind.group else kind.plural, name, "-n", world.namespace)
    await asyncio.to_thread(world.plane.kubectl, *words, "--wait=false")


async def owned(world: World, job: str) -> dict[tuple[api.Resource, str], str]:
    """Uids of what a job owns beside its pods."""
    return {
        (kind, each["metadata"]["name"]): each["metadata"]["uid"]
        for kind in KINDS
        for each in (await world.client.list(kind, world.namespace))["items"]
        if any(ref["name"] == job for ref in each["metadata"].get("ownerReferences") or ())
    }


@pytest.mark.parametrize(
    ("resource", "name", "count"),
    [
        # Service, ConfigMap, Secret, launcher's Job, PodGroup.
        (api.MPI_JOBS, "mpijob", 5),
        # ConfigMap, ServiceAccount, Role, RoleBinding, PodGroup.
        (api.OLD_MPI_JOBS, "mpijob-v1", 5),
        # A Service each of four replicas, PodGroup, and the elastic one's autoscaler.
        (api.PYTORCH_JOBS, "pytorchjob", 5),
        (api.PYTORCH_JOBS, "pytorchjob-elastic", 6),
    ],
    ids=["mpijob", "mpijob-v1", "pytorchjob", "pytorchjob-elastic"],
)
async def test_each_object_is_made_again(
    world: World,
    muster: Service,
    monkeypatch: pytest.MonkeyPatch,
    resource: api.Resource,
    name: str,
    count: int,
) -> None:
    monkeypatch.setattr(jobsync, "LOOK", 1.0)  # seconds; users wait for 300
    await nodes(world, "n1", "n2", "n3", "n4", gpus=4)
    body = submitted(name, world)
    called = body["metadata"]["name"]
    await world.client.create(resource, world.namespace, body)
    await until(world, resource, called, "Running")
    async with asyncio.timeout(_LEARNT_SECONDS):
        while len(mine := await owned(world, called)) < count:  # noqa: ASYNC110 - of nine kinds
            await asyncio.sleep(0.1)
    assert len(mine) == count
    for (kind, each), uid in mine.items():
        await kubectl_deletes(world, kind, each)
        await world.until_object(
            kind,
            each,
            lambda found, uid=uid: found["metadata"]["uid"] != uid,  # type: ignore[misc]
            f"another {kind.kind} {each}",
            patience=_LEARNT_SECONDS,
        )
    await until(world, resource, called, "Running")
    # Nobody was made again.
    assert len(world.lives()) == len(replicas(body))


async def test_a_pod_of_a_gang_comes_back_with_its_gang(world: World, muster: Service) -> None:
    await nodes(world, "n1", "n2", "n3", "n4", gpus=4)
    body = submitted("pytorchjob", world)
    called = body["metadata"]["name"]
    await world.client.create(api.PYTORCH_JOBS, world.namespace, body)
    await until(world, api.PYTORCH_JOBS, called, "Running")
    (*_, last) = names = replicas(body)
    before = {name: world.pods[world.namespace, name]["metadata"]["uid"] for name in names}
    await world.client.delete(api.PODS, world.namespace, last)

    def back() -> bool:
        pods = [world.pods.get((world.namespace, name)) for name in names]
        return all(
            pod is not None
            and pod["metadata"]["uid"] != before[pod["metadata"]["name"]]
            and pod["status"]["phase"] == "Running"
            for pod in pods
        )

    await world.until(back, "all of it runs again")
    await until(world, api.PYTORCH_JOBS, called, "Running")
