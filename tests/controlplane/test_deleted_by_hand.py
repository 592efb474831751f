"""What somebody deletes of an MPIJob that runs is made again on the real control plane, and nobody restarts."""

from __future__ import annotations

import pytest

from extender.core import api, jobsync
from extender.runtime import Service
from tests.controlplane.test_mpi import (
    _LEARNT_SECONDS,
    nodes,
    old_rights,  # noqa: F401 - a fixture
    submitted,
    through,
    until,
)
from tests.controlplane.world import World

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("mpi_rights", "old_rights")]


@pytest.mark.parametrize(
    ("resource", "name"), [(api.MPI_JOBS, "mpijob"), (api.OLD_MPI_JOBS, "mpijob-v1")]
)
async def test_each_object_is_made_again(
    world: World,
    muster: Service,
    monkeypatch: pytest.MonkeyPatch,
    resource: api.Resource,
    name: str,
) -> None:
    monkeypatch.setattr(jobsync, "LOOK", 1.0)  # seconds; users wait for 300
    await nodes(world, "n1", "n2", gpus=4)
    body = submitted(name, world)
    called = body["metadata"]["name"]
    await world.client.create(resource, world.namespace, body)
    await until(world, resource, called, "Running")
    of_v1 = (api.SERVICE_ACCOUNTS, api.ROLES, api.ROLE_BINDINGS)
    kinds = (api.SERVICES, api.CONFIG_MAPS, api.SECRETS, api.VOLCANO_GROUPS, *of_v1)
    mine = {
        (kind, each["metadata"]["name"]): each["metadata"]["uid"]
        for kind in kinds
        for each in (await world.client.list(kind, world.namespace))["items"]
        if any(ref["name"] == called for ref in each["metadata"].get("ownerReferences") or ())
    }
    assert len(mine) >= 4
    for (kind, each), uid in mine.items():
        await world.client.delete(kind, world.namespace, each)
        await world.until_object(
            kind,
            each,
            lambda found, uid=uid: found["metadata"]["uid"] != uid,  # type: ignore[misc]
            f"another {kind.kind} {each}",
            patience=_LEARNT_SECONDS,
        )
    await through(world, resource, called)
    assert len({sight.uid for sight in world.seen}) == 3  # nobody was made again
