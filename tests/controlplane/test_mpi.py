"""MPIJob in both of its versions on the real control plane, under the role of manifests/base and its own."""

from __future__ import annotations

import asyncio
import json
import sys
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_public_key

from extender.core import api
from extender.core.errors import ApiError
from extender.core.objects import Manifest
from extender.http import admin
from extender.runtime import Service, running
from extender.sim import fleet
from tests.controlplane import rights
from tests.controlplane.conftest import check_service, leading, settings_for
from tests.controlplane.test_kinds import example
from tests.controlplane.test_s10_jobs import conditions, needs_shared, shared
from tests.controlplane.test_s13b_secrets import fetch
from tests.controlplane.world import World

ROOT = Path(__file__).parents[2]
CRD = ROOT / "manifests/crds/kubeflow.org_mpijobs.yaml"
NAMES = ("launcher", "worker-0", "worker-1")


def names(job: str) -> list[str]:
    return [f"{job}-{name}" for name in NAMES]


def submitted(name: str, world: World, **spec: Any) -> Manifest:
    """An example, in the test's namespace."""
    job = example(name)
    job["metadata"]["namespace"] = world.namespace
    job["spec"] |= spec
    return job


async def nodes(world: World, *names: str, gpus: int = 2) -> None:
    """Nodes with room for all that an example asks for, kubectl-delivery's disk among it."""
    bodies = [fleet.node(name, gpus=gpus) for name in names]
    for body in bodies:
        for kind in ("capacity", "allocatable"):
            body["status"][kind] |= {"ephemeral-storage": "100Gi"}
    await fleet.add_nodes(world.client, bodies)


#: Seconds. Admission (OwnerReferencesPermissionEnforcement) reads every 30 s which kinds there are; where a
#: definition was replaced it may do so just before the new one is told, and refuses the job's objects till then.
_LEARNT_SECONDS = 100.0
pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("mpi_rights")]


async def until(world: World, resource: api.Resource, name: str, condition: str) -> Manifest:
    try:
        return await world.until_object(
            resource,
            name,
            lambda j: conditions(j).get(condition) == "True",
            condition,
            patience=_LEARNT_SECONDS,
        )
    except AssertionError as error:
        said = [event["message"] for event in await world.events(name)]
        raise AssertionError(f"{error}; said: {said}") from None


async def end(world: World, job: str, phase: str = "Succeeded") -> None:
    """The launcher's processes end; its workers would run for ever."""
    status = {"status": {"phase": phase}}
    await world.client.patch(api.PODS, world.namespace, f"{job}-launcher", status, "status")


async def through(world: World, resource: api.Resource, name: str) -> Manifest:
    """From Running to Succeeded."""
    await until(world, resource, name, "Running")
    await end(world, name)
    return await until(world, resource, name, "Succeeded")


async def test_a_job_waits_whole_lands_whole_and_ends(world: World, muster: Service) -> None:
    await nodes(world, "n1")
    await world.client.create(api.MPI_JOBS, world.namespace, submitted("mpijob", world))
    await world.until_event("weather", "pods would fit")
    assert world.ever_bound() == set()
    await nodes(world, "n2")
    done = await through(world, api.MPI_JOBS, "weather")
    assert sorted(world.ever_bound()) == names("weather")
    assert conditions(done) == {"Created": "True", "Running": "False", "Succeeded": "True"}
    reasons = {c["type"]: c["reason"] for c in done["status"]["conditions"]}
    assert (reasons["Created"], reasons["Succeeded"]) == ("MPIJobCreated", "MPIJobSucceeded")
    # cleanPodPolicy Running: workers would wait for ever.
    await world.until(lambda: world.phases() == ["Succeeded"], "the workers to be deleted")
    table = world.plane.kubectl("get", "mpijobs", "-n", world.namespace).stdout.splitlines()
    # kubectl takes v1, which the training operator shows in this order.
    assert table[0].split() == ["NAME", "AGE", "STATE"]
    assert table[1].split()[::2] == ["weather", "Succeeded"]


async def test_what_its_pods_mount_is_there_and_is_the_job_s(world: World, muster: Service) -> None:
    await nodes(world, "n1", "n2")
    await world.client.create(api.MPI_JOBS, world.namespace, submitted("mpijob", world))
    await through(world, api.MPI_JOBS, "weather")
    where, get = world.namespace, world.client.get
    secret = await get(api.SECRETS, where, "weather-ssh")
    config = await get(api.CONFIG_MAPS, where, "weather-config")
    service = await get(api.SERVICES, where, "weather")
    for each in (secret, config, service):
        (owner,) = each["metadata"]["ownerReferences"]
        assert (owner["apiVersion"], owner["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    assert secret["type"] == "kubernetes.io/ssh-auth"
    private = load_pem_private_key(b64decode(secret["data"]["ssh-privatekey"]), None)
    public = load_ssh_public_key(b64decode(secret["data"]["ssh-publickey"]))
    assert private.public_key() == public
    assert config["data"]["hostfile"].splitlines() == [
        f"weather-worker-{i}.weather.{where}.svc slots=2" for i in range(2)
    ]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True


async def test_hosts_are_discovered_as_workers_come_and_go(world: World, muster: Service) -> None:
    await nodes(world, "n1", "n2", gpus=4)
    await world.client.create(api.MPI_JOBS, world.namespace, submitted("mpijob", world))

    async def until_hosts(count: int) -> None:
        def found(config: Manifest) -> bool:
            return bool(config["data"]["discover_hosts.sh"].count("echo") == count)

        await world.until_object(api.CONFIG_MAPS, "weather-config", found, f"{count} hosts")

    await until_hosts(2)
    scale = ("scale", "mpijobs", "weather", "-n", world.namespace)
    world.plane.kubectl(*scale, "--replicas=3")
    await until_hosts(3)
    world.plane.kubectl(*scale, "--replicas=1")
    await until_hosts(1)


async def test_a_launcher_that_waits_for_its_workers(world: World, muster: Service) -> None:
    job = submitted("mpijob", world, launcherCreationPolicy="WaitForWorkersReady")
    await nodes(world, "n1", "n2")
    await world.client.create(api.MPI_JOBS, world.namespace, job)
    await through(world, api.MPI_JOBS, "weather")
    first: dict[tuple[str, str], int] = {}
    for at, sight in enumerate(world.seen):
        first.setdefault((sight.name, sight.phase), at)
    made = min(at for (name, _), at in first.items() if name == "weather-launcher")
    assert all(first[name, "Running"] < made for name in names("weather")[1:])


async def test_the_next_muster_finds_what_there_is(world: World, extender_port: int) -> None:
    settings, who = settings_for(extender_port), rights.account(world.plane)
    await nodes(world, "n1", "n2")
    async with running(settings, who) as first:
        await leading(first)
        await world.client.create(api.MPI_JOBS, world.namespace, submitted("mpijob", world))
        await until(world, api.MPI_JOBS, "weather", "Running")
    secret = await world.client.get(api.SECRETS, world.namespace, "weather-ssh")
    stale = {"data": {"discover_hosts.sh": "stale"}}
    await world.client.patch(api.CONFIG_MAPS, world.namespace, "weather-config", stale)
    async with running(settings, who) as second:
        await leading(second)
        await world.until_object(
            api.CONFIG_MAPS,
            "weather-config",
            lambda config: config["data"]["discover_hosts.sh"].count("echo") == 2,
            "both hosts",
        )
        await through(world, api.MPI_JOBS, "weather")
        check_service(second)
    assert await world.client.get(api.SECRETS, world.namespace, "weather-ssh") == secret
    assert "ErrResourceExists" not in {e["reason"] for e in await world.events("weather")}
    assert len(world.lives()) == 3  # nobody was made again


def recorded(folder: Path) -> list[str]:
    return [path.read_bytes().decode(errors="replace") for path in folder.glob("muster.log*")]


async def test_no_key_is_in_a_record_a_page_or_the_log(
    world: World, extender_port: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "muster.log"
    await nodes(world, "n1", "n2")
    job = submitted("mpijob", world)
    settings = settings_for(extender_port)
    async with running(settings, rights.account(world.plane), record=log) as service:
        await leading(service)
        await world.client.create(api.MPI_JOBS, world.namespace, job)
        await through(world, api.MPI_JOBS, "weather")
        pages = (
            *(p for p in admin.PATHS if "{" not in p),
            f"/debug/gangs/{world.namespace}/weather",
        )
        told = [await fetch(extender_port, path) for path in pages]
        check_service(service)
    told += capfd.readouterr()
    told += recorded(tmp_path)
    assert any("weather-ssh" in text for text in told)  # what was looked at is about this job
    secret = await world.client.get(api.SECRETS, world.namespace, "weather-ssh")
    key = secret["data"]["ssh-privatekey"]
    for each in (key, *b64decode(key).decode().splitlines()[1:-1]):
        assert [text for text in told if each in text] == []
    command = [sys.executable, "-m", "extender.cli", "replay", "--json", str(log)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert json.loads(out)["identical"] is True


# -- both versions, one definition


@pytest.fixture
def old_rights(world: World) -> Iterator[None]:
    """What MPIJobs of v1 need beside manifests/base."""
    with rights.beside(world.plane, "mpijob-v1"):
        yield


async def test_a_job_of_v1_reaches_its_end(world: World, old_rights: None, muster: Service) -> None:
    await nodes(world, "n1", "n2")
    await world.client.create(api.OLD_MPI_JOBS, world.namespace, submitted("mpijob-v1", world))
    done = await through(world, api.OLD_MPI_JOBS, "climate")
    assert sorted(world.ever_bound()) == names("climate")
    assert conditions(done) == {"Created": "True", "Running": "False", "Succeeded": "True"}
    where = world.namespace
    role = await world.client.get(api.ROLES, where, "climate-launcher")
    assert role["rules"][1]["resourceNames"] == names("climate")[1:]
    # The launcher may exec into its workers, and into no other pod.
    who = f"--as=system:serviceaccount:{where}:climate-launcher"
    for pod, answer in (("climate-worker-0", "yes"), ("weather-worker-0", "no")):
        asked = ("auth", "can-i", "create", f"pods/{pod}", "--subresource=exec", "-n", where, who)
        assert world.plane.kubectl(*asked, check=False).stdout.strip() == answer


async def test_one_definition_serves_jobs_of_both(
    world: World, old_rights: None, muster: Service
) -> None:
    await nodes(world, "n1", "n2", gpus=4)
    await world.client.create(api.MPI_JOBS, world.namespace, submitted("mpijob", world))
    await world.client.create(api.OLD_MPI_JOBS, world.namespace, submitted("mpijob-v1", world))
    # Each is seen in the version of the other, too, and is what it was made as.
    new = await through(world, api.OLD_MPI_JOBS, "weather")
    old = await through(world, api.MPI_JOBS, "climate")
    assert new["spec"]["mpiImplementation"] == "OpenMPI"
    assert "mpiImplementation" not in old["spec"]
    versions = {
        name: pod["metadata"]["ownerReferences"][0]["apiVersion"]
        for (_, name), pod in world.pods.items()
    }
    assert versions["weather-launcher"] == "kubeflow.org/v2beta1"
    assert versions["climate-launcher"] == "kubeflow.org/v1"


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("mpijob", {"mpiImplementation": "LAM"}, "supported values"),
        ("mpijob", {"runPolicy": {"managedBy": "kubeflow.org/training-operator"}}, "managedBy has"),
        ("mpijob-v1", {"runPolicy": {"managedBy": "kubeflow.org/mpi-operator"}}, "managedBy has"),
        ("mpijob", {"mpiReplicaSpecs": {"Worker": {}}}, "mpiReplicaSpecs needs a Launcher"),
    ],
)
async def test_what_cannot_be_is_refused_by_name(
    world: World, name: str, change: Manifest, said: str
) -> None:
    job = submitted(name, world, **change)
    found = world.plane.kubectl("create", "-f", "-", check=False, stdin=yaml.safe_dump(job))
    assert found.returncode != 0
    assert said in found.stderr


async def test_a_job_stays_what_it_was_made_as(world: World) -> None:
    job = submitted("mpijob-v1", world, runPolicy={"suspend": True})
    await world.client.create(api.OLD_MPI_JOBS, world.namespace, job)
    patch = (
        "climate",
        "-n",
        world.namespace,
        "--type=merge",
        "-p",
        '{"spec": {"slotsPerWorker": 4}}',
    )
    found = world.plane.kubectl("patch", "mpijobs.v2beta1.kubeflow.org", *patch, check=False)
    assert found.returncode != 0
    assert "a job stays what it was made as" in found.stderr
    world.plane.kubectl("patch", "mpijobs.v1.kubeflow.org", *patch)


# -- upstream's definitions


@pytest.fixture
async def upstream(
    world: World, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[api.Resource, str]]:
    """One version alone, as the definition of mpi-operator or of the training operator serves it."""
    resource, name = request.param
    crd = yaml.safe_load(CRD.read_text())
    (kept,) = (v for v in crd["spec"]["versions"] if v["name"] == resource.version)
    spec = kept["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del spec["x-kubernetes-validations"]
    for field in ("mainContainer", "mpiImplementation"):
        spec["properties"][field].pop("default", None)
    crd["spec"]["versions"] = [{**kept, "storage": True}]
    await _define(world, yaml.safe_dump(crd), resource)
    yield resource, name
    await _define(world, CRD.read_text(), api.MPI_JOBS, api.OLD_MPI_JOBS)


async def _define(world: World, definition: str, *served: api.Resource) -> None:
    """Replace the definition, and wait until it is served."""
    plane = world.plane
    plane.kubectl("delete", "crd", "mpijobs.kubeflow.org", "--timeout=60s")
    plane.kubectl("create", "-f", "-", stdin=definition)
    plane.kubectl("wait", "--for=condition=Established", "crd/mpijobs.kubeflow.org")
    async with asyncio.timeout(60):
        for resource in served:
            while not await _known(world, resource):  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(0.1)


async def _known(world: World, resource: api.Resource) -> bool:
    """Whether its objects can be listed and, what admission learns later, be owners."""
    owner = {"apiVersion": resource.api_version, "kind": resource.kind, "name": "j", "uid": "u"}
    meta = {"name": "probe", "ownerReferences": [{**owner, "blockOwnerDeletion": True}]}
    try:
        await world.client.list(resource)
        await world.client.create(
            api.CONFIG_MAPS, world.namespace, {"metadata": meta}, dry_run=True
        )
    except ApiError as error:
        if error.code not in (403, 404, 429):
            raise
        return False
    return True


@pytest.mark.parametrize(
    "upstream",
    [(api.MPI_JOBS, "mpijob"), (api.OLD_MPI_JOBS, "mpijob-v1")],
    indirect=True,
    ids=["mpi-operator", "training-operator"],
)
async def test_where_the_cluster_has_upstream_s_definition(
    world: World, upstream: tuple[api.Resource, str], old_rights: None, muster: Service
) -> None:
    resource, name = upstream
    await nodes(world, "n1", "n2")
    job = submitted(name, world)
    await world.client.create(resource, world.namespace, job)
    await through(world, resource, job["metadata"]["name"])
    assert len(world.ever_bound()) == 3


@needs_shared
async def test_manifest_05_as_it_stands(world: World, muster: Service) -> None:
    await nodes(world, "n1", "n2", "n3", "n4")
    await world.client.create(api.MPI_JOBS, world.namespace, shared("05"))
    await through(world, api.MPI_JOBS, "horovod-training")
    assert len(world.ever_bound("horovod-training-")) == 5
