"""Groups that only labels name: Muster makes their PodGroup, and nobody else would delete it."""

from __future__ import annotations

from typing import Any

import pytest

from extender.core.api import PODS, VOLCANO_GROUPS
from extender.core.groups import MOST_OWNERS
from extender.core.identity import ACK_MIN, ACK_NAME, KOORDINATOR_MIN, KOORDINATOR_NAME
from tests.core import machine_stories as do
from tests.core.machine import Fault, Machine

ACK: dict[str, Any] = {"labels": {ACK_NAME: "g", ACK_MIN: "2"}}
KOORDINATOR: dict[str, Any] = {"annotations": {KOORDINATOR_NAME: "g", KOORDINATOR_MIN: "2"}}
RECORD = (VOLCANO_GROUPS, "default", "g")


def world(*faults: Fault) -> Machine:
    m = Machine()
    do.nodes(m, 4)
    m.faults.extend(faults)
    return m


def said(m: Machine) -> set[str]:
    return {notice.reason for replica in m.replicas for notice in replica.notices}


@pytest.mark.parametrize("marks", [ACK, KOORDINATOR])
@pytest.mark.parametrize("wait", [0.0, 29.0])
def test_while_its_record_is_being_made_none_is_said_to_be_missing(marks, wait) -> None:
    hold = Fault("hold", verb="Create", kind="PodGroup")
    m = world(hold)
    for index in range(2):
        do.pod(m, f"g-{index}", **marks)
    m.flush()
    m.advance(wait)
    m.flush()
    assert do.reason(m, "g") == ""
    m.faults.remove(hold)
    m.rest(10)
    assert len(m.bound()) == 2
    assert said(m) == {"Scheduled"}
    m.finish()


def test_a_record_that_exists_and_is_never_shown_is_said_to_be_missing() -> None:
    m = world(Fault("409", verb="Create", kind="PodGroup"))
    do.pod(m, "g-0", **ACK)
    m.flush()
    assert do.reason(m, "g") == ""
    m.rest(60)
    assert do.reason(m, "g") == "PodGroupMissing"
    assert said(m) == {"PodGroupMissing"}


def test_a_record_that_is_refused_says_so() -> None:
    m = world(Fault("403", verb="Create", kind="PodGroup", times=1))
    for index in range(2):
        do.pod(m, f"g-{index}", **ACK)
    m.flush()
    assert do.reason(m, "g") == "PodGroupRefused"
    m.rest(60)
    assert len(m.bound()) == 2
    assert said(m) == {"PodGroupRefused", "Scheduled"}


@pytest.mark.parametrize("bound", [True, False])
def test_a_record_that_muster_made_goes_with_its_pods(bound) -> None:
    m = world()
    for index in range(2 if bound else 1):
        do.pod(m, f"g-{index}", **ACK)
    m.rest(10)
    assert len(m.bound()) == (2 if bound else 0)
    assert RECORD in m.api.objects
    for pod in list(m.api.pods()):
        m.api.delete((PODS, "default", pod["metadata"]["name"]))
    m.rest(90)
    assert RECORD not in m.api.objects
    assert m.leader is not None
    assert m.leader.state.gangs == {}


def test_it_stays_while_one_of_its_pods_does() -> None:
    m = world()
    for index in range(3):
        do.pod(m, f"g-{index}", **ACK)
    m.rest(10)
    m.api.delete((PODS, "default", "g-0"))
    m.api.delete((PODS, "default", "g-2"))
    m.rest(90)
    assert RECORD in m.api.objects
    assert do.of(m, "g").was_whole


def test_its_owners_are_the_controllers_where_pods_have_any() -> None:
    m = world()
    for index in range(MOST_OWNERS + 2):
        owners = [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"r{at}", "uid": f"u-r{at}", "controller": at == index % 2}
            for at in range(2)
        ]  # fmt: skip
        meta = {"name": f"g-{index}", "namespace": "default", "ownerReferences": owners, **ACK}
        spec = {"schedulerName": "muster", "containers": [{"name": "main"}]}
        m.api.put(PODS, {"metadata": meta, "spec": spec})
    m.flush()
    owners = m.api.objects[RECORD]["metadata"]["ownerReferences"]
    assert [owner["name"] for owner in owners] == ["r0", "r1"]
    assert not any(owner.keys() - {"apiVersion", "kind", "name", "uid"} for owner in owners)


def test_a_group_of_many_bare_pods_is_owned_by_some_of_them() -> None:
    m = world()
    for index in range(MOST_OWNERS + 2):
        do.pod(m, f"g-{index:02}", **ACK)
    m.flush()
    owners = m.api.objects[RECORD]["metadata"]["ownerReferences"]
    assert [owner["name"] for owner in owners] == [f"g-{at:02}" for at in range(MOST_OWNERS)]
    for index in range(MOST_OWNERS):
        m.api.delete((PODS, "default", f"g-{index:02}"))
    m.rest(90)
    assert m.api.objects[RECORD]["metadata"]["ownerReferences"][0]["name"] == "g-10"


def test_it_is_not_made_again_for_pods_that_are_being_deleted() -> None:
    m = world()
    for index in range(2):
        do.pod(m, f"g-{index}", **ACK)
    m.rest(10)
    for pod in list(m.api.pods()):
        m.api.delete((PODS, "default", pod["metadata"]["name"]))
    m.api.delete(RECORD)
    m.rest(90)
    assert RECORD not in m.api.objects
