"""Jobs of two kinds with one name: the second waits until the first is deleted."""

from __future__ import annotations

from itertools import pairwise

from extender.core import commands as c
from extender.core.api import JAX_JOBS, PODS, PYTORCH_JOBS, VOLCANO_GROUPS
from tests.builders import GPU
from tests.core import machine_stories as do
from tests.core.machine import RULES, Machine, written

NAME = "j"


def jax(m: Machine, workers: int) -> None:
    box = {"name": "jax", "image": "train", "resources": {"requests": {GPU: "1"}}}
    role = {"replicas": workers, "template": {"spec": {"containers": [box]}}}
    body = {"apiVersion": "kubeflow.org/v1", "kind": "JAXJob"}
    meta = {"name": NAME, "namespace": "default"}
    m.api.put(JAX_JOBS, body | {"metadata": meta, "spec": {"jaxReplicaSpecs": {"Worker": role}}})


def told(m: Machine) -> list[str]:
    (replica,) = m.replicas
    return [notice.message for notice in replica.notices if notice.reason == "NameTaken"]


def owners(m: Machine) -> set[str]:
    pods = [raw for (resource, _, _), raw in m.api.objects.items() if resource == PODS]
    return {raw["metadata"]["ownerReferences"][0]["kind"] for raw in pods}


def test_the_second_waits_and_says_so_and_takes_nothing_from_the_first() -> None:
    m = Machine()
    do.nodes(m, 2)
    do.job(m, NAME, 3)  # one too many
    m.flush()
    jax(m, 2)
    m.rest()
    assert set(do.of(m, NAME).members) == {"j-master-0", "j-worker-0", "j-worker-1"}
    assert m.bound() == {}
    (said,) = told(m)
    assert said == (
        "PyTorchJob j has the PodGroup of this name; this JAXJob waits until that one is deleted:"
        " give one of them another name"
    )
    do.node(m, "more", 1)
    m.rest()
    assert set(m.bound()) == {"j-master-0", "j-worker-0", "j-worker-1"}
    assert owners(m) == {"PyTorchJob"}
    m.finish()


def test_the_end_of_the_second_leaves_the_first_its_replicas() -> None:
    m = Machine()
    do.nodes(m, 2)
    do.job(m, NAME, 3)
    m.flush()
    jax(m, 2)
    m.rest()
    before = dict(do.of(m, NAME).members)
    m.api.remove((JAX_JOBS, "default", NAME))
    m.rest()
    # The very same: a member that is enrolled anew has lost its place.
    assert {k: id(v) for k, v in do.of(m, NAME).members.items()} == {
        k: id(v) for k, v in before.items()
    }
    do.node(m, "more", 1)
    m.rest()
    assert set(m.bound()) == {"j-master-0", "j-worker-0", "j-worker-1"}
    m.finish()


def test_the_second_lands_when_the_first_is_gone() -> None:
    m = Machine()
    do.nodes(m, 2)
    do.job(m, NAME, 3)
    m.flush()
    jax(m, 2)
    m.rest()
    m.api.remove((PYTORCH_JOBS, "default", NAME))
    m.api.remove((VOLCANO_GROUPS, "default", NAME))
    m.rest()
    assert set(m.bound()) == {"j-worker-0", "j-worker-1"}
    assert owners(m) == {"JAXJob"}
    m.finish()


def test_a_pod_that_has_a_replica_s_name_is_run_into_less_and_less_often() -> None:
    """The job waits for room, and its pods are made only to be seen: no attempt counts that."""
    m = Machine()
    do.nodes(m, 2)
    do.pod(m, "j-worker-0", schedulerName="other")
    do.job(m, NAME, 3)
    times: list[float] = []
    take = m.replicas[0]._take

    def noted(command: c.Command) -> None:
        if isinstance(command, c.Create) and command.resource == PODS and not command.dry_run:
            times.extend([m.now] * (written(command) == "j-worker-0"))
        take(command)

    m.replicas[0]._take = noted  # type: ignore[method-assign]
    m.rest(RULES.visible_after + 10 * RULES.retry_seconds_max)
    pauses = [after - before for before, after in pairwise(times)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == RULES.retry_seconds_max
    m.api.remove((PODS, "default", "j-worker-0"))
    do.node(m, "more", 1)
    m.rest()
    assert set(m.bound()) == {"j-master-0", "j-worker-0", "j-worker-1"}
    m.finish()
