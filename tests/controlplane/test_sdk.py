"""A client that nobody here wrote: kubeflow-training's TrainingClient, against the real control plane."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from aiohttp import web
from aiohttp.test_utils import unused_port

from extender.core import api
from extender.core.errors import ApiError
from extender.core.objects import Manifest
from extender.runtime import Service
from tests.controlplane import sdk
from tests.controlplane.sdk import Sdk, SdkError
from tests.controlplane.test_kinds import EXAMPLES, replicas
from tests.controlplane.test_mpi import nodes, old_rights  # noqa: F401 - the second is a fixture
from tests.controlplane.world import PATIENCE, World

#: Example to (kind, the pod that the client takes for the master).
JOBS = {
    "pytorchjob": (api.PYTORCH_JOBS, "digits-master-0"),
    "pytorchjob-elastic": (api.PYTORCH_JOBS, "speech-worker-0"),
    "tfjob": (api.TF_JOBS, "recommender-chief-0"),
    "xgboostjob": (api.XGBOOST_JOBS, "churn-master-0"),
    "jaxjob": (api.JAX_JOBS, "diffusion-worker-0"),
    "paddlejob": (api.PADDLE_JOBS, None),
}
#: The first of a session may install the SDK.
pytestmark = pytest.mark.timeout(400)
#: Of wait_for_job_conditions, in seconds: as long as MPIJob's objects may be refused (test_mpi.py).
SOON = {"wait_timeout": 120, "polling_interval": 1}
Connect = Callable[[str], AbstractAsyncContextManager[Sdk]]


@pytest.fixture(scope="session")
def sdk_python() -> Path:
    return sdk.interpreter()


@pytest.fixture
def connect(sdk_python: Path, world: World) -> Connect:
    return partial(sdk.client, sdk_python, world.plane.kubeconfig_path, world.namespace)


@pytest.fixture
async def kubelet_port() -> AsyncIterator[int]:
    """A kubelet that shows logs, and nothing else."""

    async def logs(request: web.Request) -> web.Response:
        return web.Response(text=f"{request.match_info['pod']} has loss 0.1\n")

    app = web.Application()
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", logs)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(tls)
    runner = web.AppRunner(app)
    await runner.setup()
    port = unused_port()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
    yield port
    await runner.cleanup()


def example(name: str, namespace: str) -> Manifest:
    body = dict(yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text()))
    body["metadata"]["namespace"] = namespace
    # The SDK lacks the model of a metric, and reads no job that has one.
    body["spec"].get("elasticPolicy", {}).pop("metrics", None)
    return body


async def end(world: World, names: list[str], code: int = 0) -> None:
    """The pods' programs end, as a kubelet tells it, as far as cleanPodPolicy leaves them to."""
    for name in names:
        pod = world.pods.get((world.namespace, name))
        if pod is None:
            continue  # the job has ended with those before
        statuses = [
            {**each, "state": {"terminated": {"exitCode": code, "reason": "Completed"}}}
            for each in pod["status"]["containerStatuses"]
        ]
        phase = "Failed" if code else "Succeeded"
        status = {"phase": phase, "containerStatuses": statuses}
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        try:
            await world.client.patch(api.PODS, world.namespace, name, body, "status")
        except ApiError as error:
            if error.code != 404:
                raise


async def reachable(world: World, port: int, *nodes: str) -> None:
    """The API server finds the nodes' kubelets at this port of the machine's own address."""
    for node in nodes:
        where = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        await world.client.patch(api.NODES, None, node, {"status": where}, "status")


async def gone(world: World, resource: api.Resource, name: str) -> None:
    async with asyncio.timeout(PATIENCE):
        async for kind, found in world.client.follow(resource, world.namespace):
            there = any(each["metadata"]["name"] == name for each in found)
            if there == (kind == "DELETED"):
                return


async def all_active(world: World, resource: api.Resource, name: str, count: int) -> None:
    """The job says that all its pods run: its controller has nothing more to write."""

    def active(job: Manifest) -> int:
        roles = job.get("status", {}).get("replicaStatuses", {})
        return sum(each["active"] for each in roles.values())

    await world.until_object(resource, name, lambda j: active(j) == count, f"{count} active")


@pytest.mark.parametrize("name", JOBS)
async def test_a_job_s_life_by_the_sdk(
    world: World, muster: Service, connect: Connect, kubelet_port: int, name: str
) -> None:
    resource, master = JOBS[name]
    job = example(name, world.namespace)
    await live(world, connect, kubelet_port, resource, job, replicas(job), master)


@pytest.mark.usefixtures("old_rights")
async def test_an_mpijob_s_life_by_the_sdk(
    world: World, muster: Service, connect: Connect, kubelet_port: int
) -> None:
    """It knows kubeflow.org/v1 alone, and reads logs of containers named mpi."""
    job = example("mpijob-v1", world.namespace)
    for role in job["spec"]["mpiReplicaSpecs"].values():
        role["template"]["spec"]["containers"][0]["name"] = "mpi"
    names = ["climate-launcher", "climate-worker-0", "climate-worker-1"]
    await live(world, connect, kubelet_port, api.OLD_MPI_JOBS, job, names, "climate-launcher")


async def live(
    world: World,
    connect: Connect,
    kubelet_port: int,
    resource: api.Resource,
    job: Manifest,
    names: list[str],
    master: str | None,
) -> None:
    """From create_job to delete_job, all that the client can be asked meanwhile."""
    machines = [f"n{i}" for i in range(4)]
    await nodes(world, *machines)
    await reachable(world, kubelet_port, *machines)
    called = job["metadata"]["name"]

    async with connect(resource.kind) as client:
        call = client.call
        await call("create_job", job=job)
        running = await call(
            "wait_for_job_conditions", name=called, expected_conditions=["Running"], **SOON
        )
        assert running["kind"] == resource.kind
        # The master may run before the others.
        await all_active(world, resource, called, len(names))

        assert sorted(await call("get_job_pod_names", name=called)) == names
        of_master = await call("get_job_pod_names", name=called, is_master=True)
        assert of_master == ([master] if master else [])
        worker = {"replica_type": "worker", "replica_index": 1}
        assert await call("get_job_pod_names", name=called, **worker) == [f"{called}-worker-1"]
        pods = await call("get_job_pods", name=called)
        assert {pod["status"]["phase"] for pod in pods} == {"Running"}
        logs, _ = await call("get_job_logs", name=called, is_master=master is not None)
        assert logs == {each: f"{each} has loss 0.1\n" for each in of_master or names}
        of = {"name": called, "is_master": master is not None}
        followed, _ = await call("get_job_logs", follow=True, **of)
        assert followed == {each: f"{each} has loss 0.1" for each in of_master or names}
        assert await call("is_job_created", name=called) is True
        assert await call("is_job_running", name=called) is True
        for other in ("restarting", "succeeded", "failed"):
            assert await call(f"is_job_{other}", name=called) is False
        listed = await call("list_jobs")
        assert [each["metadata"]["name"] for each in listed] == [called]

        change = await call("get_job", name=called)
        change["spec"]["runPolicy"]["ttlSecondsAfterFinished"] = 7200
        await call("update_job", name=called, job=change)
        changed = await call("get_job", name=called)
        assert changed["spec"]["runPolicy"]["ttlSecondsAfterFinished"] == 7200

        await end(world, names)
        done = await call("wait_for_job_conditions", name=called, **SOON)
        assert done["status"]["completionTime"]
        assert await call("is_job_succeeded", name=called) is True
        assert await call("is_job_running", name=called) is False
        end_words = "successfully completed."
        await world.until_event(called, end_words)
        _, events = await call("get_job_logs", name=called, verbose=True)
        told = events[f"{resource.kind.lower()}/{called}"]
        assert any(end_words in each for each in told), told
        said = await call("get_job_conditions", name=called)
        assert {each["type"]: each["status"] for each in said} == {
            "Created": "True",
            "Running": "False",
            "Succeeded": "True",
        }
        # Changing the job restarted nobody.
        assert {sight.name for sight in world.seen} == set(names)
        assert len(world.lives()) == len(names)

        await call("delete_job", name=called)
        with pytest.raises(SdkError, match="RuntimeError: Failed to get"):
            await call("get_job", name=called)
    await gone(world, resource, called)


async def test_a_function_is_trained_by_workers(
    world: World, muster: Service, connect: Connect
) -> None:
    """create_job's short way: a function, a number of workers, what each of them gets."""
    await world.nodes("n1", "n2", gpus=2)
    async with connect("PyTorchJob") as client:
        short: dict[str, Any] = {
            "train_func": "train",
            "parameters": {"epochs": 3},
            "num_workers": 3,
            "num_procs_per_worker": 1,
            "resources_per_worker": {"cpu": 2, "memory": "4Gi", "gpu": 1},
        }
        await client.call("create_job", name="short", **short)
        await world.until(lambda: world.phases() == ["Running"] * 3, "three pods run")
        names = sorted(await client.call("get_job_pod_names", name="short"))
        assert names == ["short-master-0", "short-worker-0", "short-worker-1"]
        (container,) = world.pods[world.namespace, "short-master-0"]["spec"]["containers"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
        env = {each["name"]: each.get("value") for each in container["env"]}
        assert (env["WORLD_SIZE"], env["PET_NPROC_PER_NODE"]) == ("3", "1")
        await end(world, names)
        await client.call("wait_for_job_conditions", name="short", **SOON)


async def test_a_tfjob_of_a_base_image(world: World, muster: Service, connect: Connect) -> None:
    await world.nodes("n1", "n2", gpus=2)
    async with connect("TFJob") as client:
        short = {"num_chief_replicas": 1, "num_ps_replicas": 1, "num_workers": 2}
        await client.call("create_job", name="tf", base_image="example.com/tf:1", **short)
        await world.until(lambda: world.phases() == ["Running"] * 4, "four pods run")
        names = await client.call("get_job_pod_names", name="tf")
        assert sorted(names) == ["tf-chief-0", "tf-ps-0", "tf-worker-0", "tf-worker-1"]
        await end(world, ["tf-chief-0"])
        await client.call("wait_for_job_conditions", name="tf", **SOON)


async def test_a_job_that_fails_is_told(world: World, muster: Service, connect: Connect) -> None:
    await world.nodes("n1", "n2", gpus=2)
    job = example("pytorchjob", world.namespace)
    for role in job["spec"]["pytorchReplicaSpecs"].values():
        role["restartPolicy"] = "Never"
    async with connect("PyTorchJob") as client:
        await client.call("create_job", job=job)
        await world.until(lambda: world.phases() == ["Running"] * 4, "four pods run")
        await end(world, ["digits-worker-1"], code=1)
        with pytest.raises(SdkError, match=r"RuntimeError: PyTorchJob .*/digits is Failed"):
            await client.call("wait_for_job_conditions", name="digits", **SOON)
        assert await client.call("is_job_failed", name="digits") is True


async def test_a_wrong_job_is_refused_in_the_server_s_words(world: World, connect: Connect) -> None:
    job = example("tfjob", world.namespace)
    job["spec"]["successPolicy"] = "Chief"
    async with connect("TFJob") as client:
        with pytest.raises(SdkError, match="successPolicy has to be AllWorkers, or empty"):
            await client.call("create_job", job=job)


async def test_kubectl_describes_scales_and_deletes(world: World, muster: Service) -> None:

    async def kubectl(*words: str, stdin: str = "") -> str:
        """Beside the loop, which is Muster's, too."""
        return (await asyncio.to_thread(world.plane.kubectl, *words, stdin=stdin)).stdout

    await world.nodes("n1", "n2", "n3", gpus=2, cpu="16")
    job = example("pytorchjob-elastic", world.namespace)
    await kubectl("create", "-f", "-", stdin=yaml.safe_dump(job))
    await world.until(lambda: world.phases() == ["Running"] * 4, "four pods run")
    here = ("-n", world.namespace)
    scaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "own", "namespace": world.namespace},
        "spec": {
            "scaleTargetRef": {
                "apiVersion": "kubeflow.org/v1",
                "kind": "PyTorchJob",
                "name": "speech",
            },
            "minReplicas": 2,
            "maxReplicas": 6,
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {
                        "name": "cpu",
                        "target": {"type": "Utilization", "averageUtilization": 80},
                    },
                }
            ],
        },
    }
    await kubectl("create", "-f", "-", stdin=yaml.safe_dump(scaler))
    table = await kubectl("get", "hpa", "own", *here)
    assert "PyTorchJob/speech" in table
    await all_active(world, api.PYTORCH_JOBS, "speech", 4)
    # What the autoscaler's controller reads and writes.
    at = f"/apis/kubeflow.org/v1/namespaces/{world.namespace}/pytorchjobs/speech/scale"
    scale = yaml.safe_load(await kubectl("get", "--raw", at))
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (4, 4)
    assert "training.kubeflow.org/job-name=speech" in scale["status"]["selector"]
    await kubectl("scale", "pytorchjob", "speech", "--replicas=6", *here)
    await world.until(lambda: world.phases() == ["Running"] * 6, "six pods run")
    told = await kubectl("describe", "pytorchjob", "speech", *here)
    assert f"PyTorchJob {world.namespace}/speech is running." in told
    await kubectl("delete", "pytorchjob", "speech", *here)
    await gone(world, api.PYTORCH_JOBS, "speech")
