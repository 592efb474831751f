"""The batch/v1 Job of an MPIJob's launcher, as kubectl shows it and as the API server lets it be written."""

from __future__ import annotations

import asyncio

import pytest

from extender.core import api
from extender.core.objects import Manifest
from extender.runtime import Service
from tests.controlplane.test_mpi import _LEARNT_SECONDS, end, nodes, submitted, until
from tests.controlplane.test_sdk import kubelet_port, reachable  # noqa: F401 - one is a fixture
from tests.controlplane.world import World

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("mpi_rights")]
NAME = "weather-launcher"


async def kubectl(world: World, *words: str) -> str:
    """Beside the loop, which is Muster's, too."""
    here = (*words, "-n", world.namespace)
    return (await asyncio.to_thread(world.plane.kubectl, *here)).stdout


async def until_status(world: World, **wanted: object) -> Manifest:
    def says(found: Manifest) -> bool:
        status = {"active": 0, "ready": 0, "succeeded": 0, "failed": 0} | found.get("status", {})
        status["suspended"] = "Suspended" in reasons(found)
        return all(status.get(key) == value for key, value in wanted.items())

    return await world.until_object(
        api.BATCH_JOBS, NAME, says, f"a Job of {wanted}", patience=_LEARNT_SECONDS
    )


def reasons(found: Manifest) -> dict[str, str]:
    conditions = found.get("status", {}).get("conditions") or ()
    return {each["type"]: each["reason"] for each in conditions if each["status"] == "True"}


async def test_it_shows_a_launcher_that_runs_and_succeeds(world: World, muster: Service) -> None:
    await nodes(world, "n1", "n2")
    await world.client.create(api.MPI_JOBS, world.namespace, submitted("mpijob", world))
    await until(world, api.MPI_JOBS, "weather", "Running")
    job = await until_status(world, active=1, ready=1)
    assert job["spec"]["managedBy"] == "scheduling.muster.dev/mpijob"
    # As `kubectl logs job/…` finds it, and as scripts do.
    chosen = ",".join(f"{k}={v}" for k, v in job["spec"]["selector"]["matchLabels"].items())
    for labels in (chosen, f"job-name={NAME}", f"batch.kubernetes.io/job-name={NAME}"):
        assert await kubectl(world, "get", "pods", "-l", labels, "-o", "name") == f"pod/{NAME}\n"
    await end(world, "weather")
    await kubectl(world, "wait", "--for=condition=complete", f"job/{NAME}", "--timeout=100s")
    done = await until_status(world, active=0, ready=0, succeeded=1)
    said = reasons(done)
    assert said == {"SuccessCriteriaMet": "MPIJobSucceeded", "Complete": "MPIJobSucceeded"}
    row = (await kubectl(world, "get", "jobs")).splitlines()[1].split()
    assert row[:3] == [NAME, "Complete", "1/1"]


async def test_its_log_is_the_launcher_s_and_stays(
    world: World,
    muster: Service,
    kubelet_port: int,  # noqa: F811 - a fixture
) -> None:
    """Also where nothing else of the job does."""
    await nodes(world, "n1", "n2")
    await reachable(world, kubelet_port, "n1", "n2")
    job = submitted("mpijob", world)
    job["spec"]["runPolicy"] = {"cleanPodPolicy": "All"}
    await world.client.create(api.MPI_JOBS, world.namespace, job)
    await until(world, api.MPI_JOBS, "weather", "Running")
    await until_status(world, active=1)
    line = f"{NAME} has loss 0.1\n"
    assert await kubectl(world, "logs", f"job/{NAME}") == line
    await end(world, "weather")
    await until_status(world, succeeded=1)

    def left() -> list[str]:
        return [name for (where, name) in world.pods if where == world.namespace]

    await world.until(lambda: left() == [NAME], "the workers to go")
    assert await kubectl(world, "logs", f"job/{NAME}") == line


async def test_it_shows_one_that_fails(world: World, muster: Service) -> None:
    await nodes(world, "n1", "n2")
    job = submitted("mpijob", world)
    job["spec"]["runPolicy"] = {"backoffLimit": 0}
    await world.client.create(api.MPI_JOBS, world.namespace, job)
    await until(world, api.MPI_JOBS, "weather", "Running")
    await end(world, "weather", "Failed")
    await kubectl(world, "wait", "--for=condition=failed", f"job/{NAME}", "--timeout=100s")
    done = await until_status(world, active=0, failed=1)
    assert set(reasons(done)) == {"FailureTarget", "Failed"}
    assert reasons(done)["Failed"] == "BackoffLimitExceeded"


async def test_it_is_suspended_and_resumed_with_its_job(world: World, muster: Service) -> None:
    await nodes(world, "n1", "n2")
    await world.client.create(api.MPI_JOBS, world.namespace, submitted("mpijob", world))
    await until_status(world, active=1)
    for suspend, active in ((True, 0), (False, 1)):
        policy = {"spec": {"runPolicy": {"suspend": suspend}}}
        await world.client.patch(api.MPI_JOBS, world.namespace, "weather", policy)
        # One that is active may yet be pending, and would be told to run after its end.
        job = await until_status(world, active=active, ready=active, suspended=suspend)
        (condition,) = job["status"]["conditions"]
        assert condition["reason"] == ("JobSuspended" if suspend else "JobResumed")
    await end(world, "weather")
    await kubectl(world, "wait", "--for=condition=complete", f"job/{NAME}", "--timeout=100s")
    done = await until_status(world, succeeded=1, suspended=False)
    assert done["status"]["conditions"][0]["type"] == "Suspended"
