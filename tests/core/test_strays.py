"""Nominations that outlive their plan keep other pods from a node, so they are ended."""

from __future__ import annotations

from extender.core.api import NODES, PODS
from tests.core import machine_stories as do
from tests.core.machine import Fault, Machine


def nominated(m: Machine) -> list[str]:
    names = (pod["status"].get("nominatedNodeName") for pod in m.api.pods() if "status" in pod)
    return [name for name in names if name]


def forgotten(m: Machine) -> None:
    """A gang that does not fit, with a nomination of an older plan that nobody has ended."""
    do.nodes(m, 2, gpus=2)
    do.gang(m, "g", 2, gpus=3)
    m.flush()
    m.scheduler.held_back.add("g-0")
    m.api.change((PODS, "default", "g-0"), status={"nominatedNodeName": "n0"})
    m.flush()
    assert nominated(m) == ["n0"]


def test_kube_scheduler_is_left_time_to_end_it_and_then_it_is_ended() -> None:
    m = Machine()
    forgotten(m)
    m.rest(4.0)
    assert nominated(m) == ["n0"]
    m.rest(10.0)
    assert nominated(m) == []


def test_it_is_tried_again_where_the_write_fails() -> None:
    m = Machine()
    m.faults.append(Fault("500", verb="Patch", kind="Pod", times=2))
    forgotten(m)
    m.rest(60.0)
    assert nominated(m) == []


def test_one_that_outlives_its_node_is_ended_too() -> None:
    """kube-scheduler does not come for the pod, and nothing else happens to it (chaos seed 15397)."""
    m = Machine()
    do.gang(m, "g", 1)
    m.scheduler.held_back.add("g-0")
    m.rest(60.0)
    do.nodes(m, 1)
    m.flush()
    assert nominated(m) == ["n0"]
    m.api.change((NODES, "", "n0"), spec={"unschedulable": True})
    m.rest(60.0)
    assert nominated(m) == []
    assert do.reason(m, "g") == "NoNodeAdmits"
