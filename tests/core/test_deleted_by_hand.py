"""What a job owns and somebody deletes is made again, and nobody who runs notices."""

from __future__ import annotations

from typing import Any

import pytest

from extender.core.api import AUTOSCALERS, GANG_PLANS, NODES, PODS, VOLCANO_GROUPS
from extender.jobs.kind import Kind
from tests.builders import GPU
from tests.core import machine_stories as do
from tests.core.machine import Machine
from tests.core.machine_api import Place, Raw
from tests.jobs.builders import KINDS, merged, of_kind

METRICS = [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}}]


def machine(nodes: int) -> Machine:
    m = Machine()
    do.nodes(m, nodes)
    for i in range(nodes):  # kubectl-delivery asks for some
        room = {"allocatable": {"ephemeral-storage": "100Gi"}}
        m.api.change((NODES, "", f"n{i}"), status=room)
    return m


def job(m: Machine, kind: Kind, roles: dict[str, int], more: Raw | None = None) -> Place:
    """Of one GPU a replica, so that a node takes one."""
    body = merged(of_kind(kind, roles), more or {})  # type: ignore[arg-type]
    body["metadata"] = {"name": "ddp", "namespace": "default"}
    for role in body["spec"][kind.facts.specs_key].values():
        (box,) = role["template"]["spec"]["containers"]
        box["resources"] = {"requests": {GPU: "1"}}
    m.api.put(kind.resource, body)
    return kind.resource, "default", "ddp"


def owned(m: Machine, job: Place) -> dict[Place, str]:
    """Uids of what it owns beside its pods."""
    uid = m.api.objects[job]["metadata"]["uid"]
    return {
        place: raw["metadata"]["uid"]
        for place, raw in m.api.objects.items()
        if place[0] not in (PODS, GANG_PLANS)
        and any(ref["uid"] == uid for ref in raw["metadata"].get("ownerReferences") or ())
    }


def lives(m: Machine) -> set[str]:
    return {pod["metadata"]["uid"] for pod in m.api.pods()}


def holds(m: Machine, job: Place, condition: str) -> bool:
    found = m.api.objects[job]["status"]["conditions"]
    return any(each["type"] == condition and each["status"] == "True" for each in found)


@pytest.mark.parametrize("name", KINDS)
def test_each_object_of_a_job_that_runs(name: str) -> None:
    kind, roles = KINDS[name]
    m = machine(sum(roles.values()))
    place = job(m, kind, roles)
    m.rest()
    before, pods = owned(m, place), lives(m)
    assert holds(m, place, "Running")
    assert (VOLCANO_GROUPS, "default", "ddp") in before
    for each in before:
        m.api.delete(each)
        m.rest()
        assert owned(m, place).keys() == before.keys(), each
        assert owned(m, place)[each] != before[each]
        assert lives(m) == pods, each
    m.finish()


@pytest.mark.parametrize("name", KINDS)
def test_all_of_it_at_once_while_the_gang_waits_for_room(name: str) -> None:
    kind, roles = KINDS[name]
    size = sum(roles.values())
    m = machine(size - 1)
    place = job(m, kind, roles)
    m.rest(30.0)
    before = owned(m, place)
    for each in before:
        m.api.delete(each)
    do.node(m, "last", 1)
    room: dict[str, Any] = {"allocatable": {"ephemeral-storage": "100Gi"}}
    m.api.change((NODES, "", "last"), status=room)
    m.rest()
    assert holds(m, place, "Running")
    assert len(m.bound()) == size
    assert before.keys() <= owned(m, place).keys()
    m.finish()


@pytest.mark.parametrize("name", KINDS)
def test_each_pod_comes_back_and_the_job_runs(name: str) -> None:
    kind, roles = KINDS[name]
    m = machine(sum(roles.values()))
    place = job(m, kind, roles)
    m.rest()
    names = [pod["metadata"]["name"] for pod in m.api.pods()]
    for each in names:
        uid = m.api.objects[PODS, "default", each]["metadata"]["uid"]
        m.api.delete((PODS, "default", each))
        m.rest()
        assert [pod["metadata"]["name"] for pod in m.api.pods()] == names, each
        assert m.api.objects[PODS, "default", each]["metadata"]["uid"] != uid
        assert holds(m, place, "Running"), each
        assert not holds(m, place, "Failed")
    m.finish()


def test_the_autoscaler_of_an_elastic_job() -> None:
    kind, _ = KINDS["pytorch"]
    elastic = {"minReplicas": 1, "maxReplicas": 4, "metrics": METRICS}
    m = machine(2)
    place = job(m, kind, {"Worker": 2}, {"spec": {"elasticPolicy": elastic}})
    m.rest()
    pods = lives(m)
    m.api.delete((AUTOSCALERS, "default", "ddp"))
    m.rest()
    found = m.api.get(AUTOSCALERS, "ddp")
    assert found is not None
    assert found["spec"]["maxReplicas"] == 4
    assert lives(m) == pods
    assert holds(m, place, "Running")
    m.finish()
