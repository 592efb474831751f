"""An elastic job's HorizontalPodAutoscaler follows the job; nobody else's is touched."""

from __future__ import annotations

from typing import Any

from extender.core.admission import ADMISSION_SECONDS
from extender.core.api import AUTOSCALERS, PYTORCH_JOBS
from tests.core import machine_stories as do
from tests.core.machine import Fault, Machine

PLACE = (PYTORCH_JOBS, "default", "j")
SCALER = (AUTOSCALERS, "default", "j")
METRICS = [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}}]
ELASTIC: dict[str, Any] = {"minReplicas": 1, "maxReplicas": 4, "metrics": METRICS}


def machine() -> Machine:
    m = Machine()
    do.nodes(m, 2)
    return m


def job(m: Machine, **elastic: Any) -> None:
    do.job(m, "j", 1, elasticPolicy=ELASTIC | elastic)


def scaler(m: Machine) -> dict[str, Any] | None:
    raw = m.api.get(AUTOSCALERS, "j")
    return raw and raw["spec"]


def bounds(m: Machine) -> tuple[int, int] | None:
    spec = scaler(m)
    return None if spec is None else (spec["minReplicas"], spec["maxReplicas"])


def old(m: Machine, owner: str) -> None:
    """One of that name that was there before."""
    meta = {"name": "j", "namespace": "default", "ownerReferences": [{"uid": owner}]}
    m.api.put(AUTOSCALERS, {"metadata": meta, "spec": {"minReplicas": 7, "maxReplicas": 9}})


def told(m: Machine) -> list[str]:
    (replica,) = m.replicas
    return [notice.message for notice in replica.notices if notice.reason == "Autoscaler"]


def version(m: Machine) -> str:
    raw = m.api.get(AUTOSCALERS, "j")
    return raw["metadata"]["resourceVersion"] if raw else ""


def test_it_is_made_and_written_once() -> None:
    m = machine()
    job(m)
    m.rest()
    assert scaler(m) == {
        "scaleTargetRef": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "j"},
        "minReplicas": 1,
        "maxReplicas": 4,
        "metrics": METRICS,
    }
    before = version(m)
    m.api.change(PLACE, metadata={"labels": {"a": "b"}})
    m.rest()
    assert version(m) == before
    m.finish()


def test_it_follows_the_job() -> None:
    m = machine()
    job(m)
    m.rest()
    m.api.change(PLACE, spec={"elasticPolicy": {"maxReplicas": 6}})
    m.rest()
    assert bounds(m) == (1, 6)
    m.api.change(PLACE, spec={"elasticPolicy": {"metrics": None}})
    m.rest()
    assert scaler(m) is None
    m.finish()


def test_it_goes_while_the_job_is_suspended() -> None:
    m = machine()
    job(m)
    m.rest()
    m.api.change(PLACE, spec={"runPolicy": {"suspend": True}})
    m.rest()
    assert scaler(m) is None
    m.api.change(PLACE, spec={"runPolicy": {"suspend": False}})
    m.rest()
    assert bounds(m) == (1, 4)
    m.finish()


def test_one_of_an_earlier_life_is_taken_over() -> None:
    m = machine()
    job(m)
    raw = m.api.get(PYTORCH_JOBS, "j")
    assert raw is not None
    old(m, raw["metadata"]["uid"])
    m.rest()
    assert bounds(m) == (1, 4)
    assert told(m) == []
    m.finish()


def test_one_of_an_earlier_life_goes_where_none_is_wanted() -> None:
    m = machine()
    job(m, metrics=None)
    raw = m.api.get(PYTORCH_JOBS, "j")
    assert raw is not None
    old(m, raw["metadata"]["uid"])
    m.rest()
    assert scaler(m) is None
    m.finish()


def test_somebody_elses_is_left_alone_until_it_is_gone() -> None:
    m = machine()
    old(m, "another")
    job(m)
    m.rest()
    assert bounds(m) == (7, 9)
    assert told(m) == [
        "HorizontalPodAutoscaler j exists already and is not this job's: it is left alone"
    ]
    m.api.change(PLACE, spec={"runPolicy": {"suspend": True}})
    m.rest()
    assert bounds(m) == (7, 9)
    m.api.change(PLACE, spec={"runPolicy": {"suspend": False}})
    m.api.remove(SCALER)
    m.advance(ADMISSION_SECONDS)
    m.rest()
    assert bounds(m) == (1, 4)
    m.finish()


def test_what_the_api_server_refuses_is_said_and_tried_again() -> None:
    m = machine()
    m.faults.append(Fault("422", verb="Create", kind="HorizontalPodAutoscaler"))
    job(m)
    m.rest()
    assert scaler(m) is None
    (said,) = told(m)
    assert said.startswith("HorizontalPodAutoscaler j could not be written: 422")
    m.faults.clear()
    m.advance(ADMISSION_SECONDS)
    m.rest()
    assert bounds(m) == (1, 4)
    m.finish()
