"""S14: a member dies, and its whole gang starts again elsewhere."""

from __future__ import annotations

from collections import defaultdict

import msgspec

from extender.core import api
from extender.core.health import OUT_OF_SERVICE
from extender.core.objects import Manifest
from extender.jobs.restarts import RECORD, Restarts
from extender.runtime import Service
from tests.controlplane.conftest import check_service
from tests.controlplane.test_s10_jobs import conditions, job
from tests.controlplane.world import World

MEMBERS = ["ddp-master-0", "ddp-worker-0", "ddp-worker-1", "ddp-worker-2"]
SPOT = "aws-node-termination-handler/spot-itn"


def record(body: Manifest) -> Restarts:
    """What the job keeps of its restarts."""
    return Restarts.read(body["metadata"].get("annotations") or {})


def runs(body: Manifest) -> bool:
    """All of it runs, and the job says so."""
    counts = body.get("status", {}).get("replicaStatuses", {})
    active = [counts.get(role, {}).get("active") for role in ("Master", "Worker")]
    return active == [1, 3] and conditions(body).get("Running") == "True"


async def started(world: World) -> dict[str, str]:
    """A job of four, whole on nodes of one GPU, of which there are enough for all of it to go elsewhere;
    its pods' nodes.
    """
    await world.nodes(*(f"n{i}" for i in range(8)))
    body = job("ddp", 3)
    for role in body["spec"]["pytorchReplicaSpecs"].values():
        # They run until they are deleted.
        role["template"]["metadata"]["annotations"].clear()
    await world.client.create(api.PYTORCH_JOBS, world.namespace, body)
    await world.until_object(api.PYTORCH_JOBS, "ddp", runs, "the job to run")
    await world.until(lambda: sorted(world.bound()) == MEMBERS, "four bound pods")
    return world.bound()


def marks(world: World) -> dict[str, str | None]:
    """Bound pods, and the restart that they say they were made in."""
    return {
        name: world.pods[world.namespace, name]["metadata"]["annotations"].get(RECORD)
        for name in sorted(world.bound())
    }


async def again(world: World, left: str) -> Restarts:
    """Wait until the job runs again; what is true of every gang that was started once more, and that
    left a node.
    """
    done = await world.until_object(
        api.PYTORCH_JOBS, "ddp", lambda j: record(j).number and runs(j), "the job to run again"
    )
    await world.until(lambda: marks(world) == dict.fromkeys(MEMBERS, "1"), "pods of restart 1")
    assert left not in world.bound().values()
    lives = defaultdict(set)
    for each in world.seen:
        lives[each.name].add(each.uid)
    # On a slow machine kube-scheduler may take a second attempt for one of them.
    assert {name: len(uids) >= 2 for name, uids in lives.items()} == dict.fromkeys(MEMBERS, True)
    return record(done)


async def test_a_worker_that_is_killed_restarts_its_gang_once(
    world: World, muster: Service
) -> None:
    bad = (await started(world))["ddp-worker-1"]
    end = {"exitCode": 137, "reason": "Error", "finishedAt": "2026-11-29T21:00:00Z"}
    box = {
        "name": "pytorch",
        "image": "none",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": {"terminated": end},
    }
    failed = {"status": {"phase": "Failed", "containerStatuses": [box]}}
    await world.client.patch(api.PODS, world.namespace, "ddp-worker-1", failed, "status")
    found = await again(world, bad)
    assert (found.number, found.counted, found.cause) == (1, 1, "Exit")
    assert [each.node for each in found.failures] == [bad]
    event = await world.until_event("ddp", f"pod ddp-worker-1 on node {bad} failed: exit code 137")
    assert event["reason"] == "PyTorchJobRestarting"
    check_service(muster)


async def test_a_termination_notice_moves_the_whole_gang(world: World, muster: Service) -> None:
    leaving = (await started(world))["ddp-worker-0"]
    taints = {"spec": {"taints": [{"key": SPOT, "effect": "NoSchedule"}]}}
    await world.client.patch(api.NODES, None, leaving, taints)
    found = await again(world, leaving)
    assert (found.number, found.counted, found.cause) == (1, 0, "NodeLeaving")
    check_service(muster)


async def test_a_pod_that_hangs_on_a_dead_node_is_removed(world: World, muster: Service) -> None:
    dead = (await started(world))["ddp-worker-1"]
    world.dead.add(dead)
    await world.client.delete(api.PODS, world.namespace, "ddp-worker-1")
    # Its peers are stopped, and it alone is left, as nobody ends it.
    await world.until(lambda: [*world.bound()] == ["ddp-worker-1"], "the gang to be stopped")
    assert world.pods[world.namespace, "ddp-worker-1"]["metadata"]["deletionGracePeriodSeconds"]
    taints = {"spec": {"taints": [{"key": OUT_OF_SERVICE, "effect": "NoExecute"}]}}
    await world.client.patch(api.NODES, None, dead, taints)
    # As the node lifecycle controller has it, which does not run here.
    silent = [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]
    await world.client.patch(api.NODES, None, dead, {"status": {"conditions": silent}}, "status")
    found = await again(world, dead)
    assert (found.number, found.cause) == (1, "Deleted")
    check_service(muster)


async def test_a_worker_that_is_deleted_restarts_its_gang_once(
    world: World, muster: Service
) -> None:
    await started(world)
    await world.client.delete(api.PODS, world.namespace, "ddp-worker-2")
    found = await again(world, "")
    assert (found.number, found.counted, found.cause) == (1, 1, "Deleted")
    # Nobody waits for five minutes on a node that is lost.
    told = msgspec.json.encode([pod["spec"]["tolerations"] for pod in world.pods.values()])
    assert b'"tolerationSeconds":300' not in told
    check_service(muster)
