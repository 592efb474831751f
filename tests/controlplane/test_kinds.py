"""Every kind of job on the real control plane: from the example as it stands to its end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import yaml

from extender.core import api
from extender.core.errors import ApiError
from extender.core.objects import Manifest
from extender.runtime import Service
from tests.controlplane.test_s10_jobs import conditions, needs_shared, shared, until_condition
from tests.controlplane.world import World

EXAMPLES = Path(__file__).parents[2] / "manifests/examples"
#: Example to (kind, GPUs of a node of 16 cpu, nodes that it needs).
JOBS = {
    "pytorchjob-elastic": (api.PYTORCH_JOBS, 1, 4),
    "tfjob": (api.TF_JOBS, 1, 3),
    "xgboostjob": (api.XGBOOST_JOBS, 0, 2),
    "jaxjob": (api.JAX_JOBS, 2, 4),
    "paddlejob": (api.PADDLE_JOBS, 1, 2),
}
#: Those whose definition has a scale subresource.
SCALED = ("pytorchjob-elastic", "jaxjob", "paddlejob")


def example(name: str) -> Manifest:
    return dict(yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text()))


def replicas(job: Manifest) -> list[str]:
    """Names that its pods will have."""
    (specs,) = (value for key, value in job["spec"].items() if key.endswith("ReplicaSpecs"))
    return sorted(
        f"{job['metadata']['name']}-{type_.lower()}-{index}"
        for type_, spec in specs.items()
        for index in range(spec.get("replicas", 1))
    )


@pytest.mark.parametrize("name", JOBS)
async def test_an_example_waits_whole_lands_whole_and_ends(
    world: World, muster: Service, name: str
) -> None:
    resource, gpus, count = JOBS[name]
    job = example(name)
    job["metadata"]["namespace"] = world.namespace
    called, names = job["metadata"]["name"], replicas(job)
    await world.nodes(*(f"n{i}" for i in range(count - 1)), gpus=gpus, cpu="16")
    await world.client.create(resource, world.namespace, job)
    event = await world.until_event(called, "pods would fit")
    assert event["reason"] == "Unschedulable"
    assert world.ever_bound() == set()

    await world.nodes("last", gpus=gpus, cpu="16")
    await world.until(lambda: sorted(world.ever_bound()) == names, "all of them bound")
    await until_condition(world, called, "Running", resource)
    await world.until(lambda: world.phases() == ["Running"] * len(names), "all of them run")
    pods = {pod["metadata"]["name"]: pod for pod in world.pods.values()}
    # Who decides the job's end is the last one; a parameter server never ends by itself. Of an elastic
    # job any worker decides, and the others may be gone by then.
    ends = [each for each in reversed(names) if "-ps-" not in each]
    for each in ends[:1] if name == "pytorchjob-elastic" else ends:
        await world.end(each)
    done = await world.until_object(
        resource, called, lambda j: conditions(j).get("Succeeded") == "True", "the job to succeed"
    )
    assert conditions(done) == {"Created": "True", "Running": "False", "Succeeded": "True"}
    kind = resource.kind
    reasons = {c["type"]: c["reason"] for c in done["status"]["conditions"]}
    assert (reasons["Created"], reasons["Succeeded"]) == (f"{kind}Created", f"{kind}Succeeded")
    assert done["status"]["completionTime"]
    worker = pods[f"{called}-worker-0"]
    assert worker["metadata"]["ownerReferences"][0]["kind"] == kind
    services = await world.client.list(api.SERVICES, world.namespace)
    assert {each["metadata"]["name"] for each in services["items"]} <= set(names)
    table = world.plane.kubectl("get", resource.plural, "-n", world.namespace).stdout
    assert table.splitlines()[0].split() == ["NAME", "STATE", "AGE"]
    assert table.splitlines()[1].split()[:2] == [called, "Succeeded"]


@pytest.mark.parametrize("name", SCALED)
async def test_workers_are_scaled_by_kubectl(world: World, muster: Service, name: str) -> None:
    resource, gpus, count = JOBS[name]
    job = example(name)
    job["metadata"]["namespace"] = world.namespace
    called, before = job["metadata"]["name"], len(replicas(job))
    await world.nodes(*(f"n{i}" for i in range(count + 1)), gpus=gpus, cpu="16")
    await world.client.create(resource, world.namespace, job)
    await world.until(lambda: len(world.bound()) == before, "the gang")
    more = f"{called}-worker-{before}"
    scale = ("scale", resource.plural, called, "-n", world.namespace)
    world.plane.kubectl(*scale, f"--replicas={before + 1}")
    await world.until(lambda: more in world.bound(), "one more")
    world.plane.kubectl(*scale, f"--replicas={before}")
    await world.until(lambda: more not in world.bound(), "one less")
    uids = {sight.uid for sight in world.seen if sight.name == f"{called}-worker-0"}
    assert len(uids) == 1  # nobody else was restarted


async def test_an_elastic_job_s_autoscaler(world: World, muster: Service) -> None:
    job = example("pytorchjob-elastic")
    job["metadata"]["namespace"] = world.namespace
    await world.nodes("n1", "n2", gpus=2)
    await world.client.create(api.PYTORCH_JOBS, world.namespace, job)
    made = await world.until_object(api.AUTOSCALERS, "speech", lambda _: True, "the autoscaler")
    elastic = job["spec"]["elasticPolicy"]
    assert made["spec"]["scaleTargetRef"]["kind"] == "PyTorchJob"
    assert made["spec"]["metrics"] == elastic["metrics"]
    patch = {"spec": {"elasticPolicy": {"maxReplicas": 5}}}
    await world.client.patch(api.PYTORCH_JOBS, world.namespace, "speech", patch)
    await world.until_object(
        api.AUTOSCALERS, "speech", lambda a: a["spec"]["maxReplicas"] == 5, "its new bound"
    )
    patch = {"spec": {"runPolicy": {"suspend": True}}}
    await world.client.patch(api.PYTORCH_JOBS, world.namespace, "speech", patch)
    async with asyncio.timeout(20):
        async for kind, gone in world.client.follow(api.AUTOSCALERS, world.namespace):
            if kind == "DELETED" or not gone:
                break
    found = await world.client.list(api.AUTOSCALERS, world.namespace)
    assert found["items"] == []


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("tfjob", {"tfReplicaSpecs": {"Master": {}, "Chief": {}}}, "at most one of Chief and Mas"),
        ("tfjob", {"successPolicy": "Chief"}, "successPolicy has to be AllWorkers, or empty"),
        ("jaxjob", {"runPolicy": {"managedBy": "me"}}, "managedBy has to be kubeflow.org/training"),
    ],
)
async def test_what_cannot_be_is_refused_by_name(
    world: World, name: str, change: Manifest, said: str
) -> None:
    job = example(name)
    job["metadata"]["namespace"] = world.namespace
    job["spec"] |= change
    found = world.plane.kubectl("create", "-f", "-", check=False, stdin=yaml.safe_dump(job))
    assert found.returncode != 0
    assert said in found.stderr


@pytest.mark.parametrize("name", [*JOBS, "mpijob", "mpijob-v1"])
async def test_no_other_controller_takes_a_job_over(world: World, name: str) -> None:
    """Nor is one let go: its pods would be nobody's."""
    job = example(name)
    what = (job["apiVersion"], job["kind"])
    (resource,) = (each for each in api.JOBS if (each.api_version, each.kind) == what)

    async def submit(called: str, **policy: str) -> None:
        job["metadata"] = {"name": called, "namespace": world.namespace}
        job["spec"]["runPolicy"] = policy
        await world.client.create(resource, world.namespace, job)

    async def change(called: str, **policy: str | None) -> None:
        patch = {"spec": {"runPolicy": policy}}
        await world.client.patch(resource, world.namespace, called, patch)

    elsewhere = "kueue.x-k8s.io/multikueue"
    await submit("here")
    await submit("there", managedBy=elsewhere)
    for called, other in (("here", elsewhere), ("there", None)):
        with pytest.raises(ApiError, match="managedBy cannot be changed"):
            await change(called, managedBy=other)
        await change(called, cleanPodPolicy="All")


async def test_a_queue_cannot_be_changed(world: World) -> None:
    job = example("xgboostjob")
    job["metadata"]["namespace"] = world.namespace
    job["spec"]["runPolicy"] = {"suspend": True, "schedulingPolicy": {"queue": "red"}}
    await world.client.create(api.XGBOOST_JOBS, world.namespace, job)
    change = '{"spec": {"runPolicy": {"schedulingPolicy": {"queue": "blue"}}}}'
    flags = ("-n", world.namespace, "--type=merge", "-p", change)
    found = world.plane.kubectl("patch", "xgboostjob", "churn", *flags, check=False)
    assert found.returncode != 0
    assert "queue cannot be changed" in found.stderr


@needs_shared
async def test_manifest_06_a_tfjob_of_servers_and_workers(world: World, muster: Service) -> None:
    world.run_seconds = 0.5
    await world.nodes("n1", "n2", gpus=2, cpu="64", memory="256Gi")
    job = shared("06")
    await world.client.create(api.TF_JOBS, world.namespace, job)
    await world.until(lambda: sorted(world.ever_bound()) == replicas(job), "all of them bound")
    await world.until_object(
        api.TF_JOBS,
        "tf-ps-training",
        lambda j: conditions(j).get("Succeeded") == "True",
        "the job to succeed",
    )


@needs_shared
async def test_manifest_13_an_elastic_job_on_spot_nodes(world: World, muster: Service) -> None:
    world.run_seconds = 0.5
    spot = {"cloud.google.com/gke-provisioning": "spot"}
    await world.nodes("n1", "n2", gpus=2, labels=spot)
    job = shared("13")
    await world.client.create(api.PYTORCH_JOBS, world.namespace, job)
    await world.until(lambda: sorted(world.ever_bound()) == replicas(job), "all of them bound")
    await world.until_object(
        api.PYTORCH_JOBS,
        "elastic-training",
        lambda j: conditions(j).get("Succeeded") == "True",
        "the job to succeed",
    )
