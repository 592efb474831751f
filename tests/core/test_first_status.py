"""A job that lands is written once: its group, its record's status, and its own."""

from __future__ import annotations

from collections import Counter

from extender.core import commands as c
from extender.core.api import PODS, PYTORCH_JOBS
from tests.core import machine_stories as do
from tests.core.machine import Fault, Machine


def writes(m: Machine) -> Counter[tuple[str, str, str]]:
    """(verb, kind, subresource) of all that is sent from now on, pods and dry runs left out."""
    found: Counter[tuple[str, str, str]] = Counter()
    take = m.replicas[0]._take

    def counted(command: c.Command) -> None:
        if isinstance(command, c.Create | c.Patch) and command.resource.kind != "Pod":
            sub = command.subresource if isinstance(command, c.Patch) else ""
            found[type(command).__name__, command.resource.kind, sub] += 1
        take(command)

    m.replicas[0]._take = counted  # type: ignore[method-assign]
    return found


def conditions(m: Machine) -> list[str]:
    job = m.api.get(PYTORCH_JOBS, "j")
    assert job is not None
    found = (job.get("status") or {}).get("conditions", ())
    return [each["type"] for each in found if each["type"] != "Advice"]


def test_a_job_that_lands_has_one_write_of_each_kind() -> None:
    m = Machine()
    do.nodes(m, 1, gpus=4)
    sent = writes(m)
    do.job(m, "j", 4)
    m.rest()
    job = m.api.get(PYTORCH_JOBS, "j")
    assert job is not None
    assert job["status"]["startTime"]
    assert conditions(m) == ["Created", "Running"]
    assert {what: n for what, n in sent.items() if what[1] != "Service"} == {
        ("Create", "PodGroup", ""): 1,
        ("Create", "GangPlan", ""): 1,
        ("Patch", "GangPlan", ""): 1,
        ("Patch", "PodGroup", "status"): 1,
        ("Patch", "PyTorchJob", "status"): 1,
    }
    m.finish()


def test_a_job_that_waits_is_said_to_be_created_all_the_same() -> None:
    m = Machine()
    do.job(m, "j", 4)
    m.flush()
    assert conditions(m) == []
    m.rest(1.0)
    assert conditions(m) == ["Created"]


def test_a_job_whose_landing_takes_long_is_said_to_be_created_meanwhile() -> None:
    """Its pods are being made, and no answer comes."""
    m = Machine()
    do.nodes(m, 1, gpus=4)
    m.faults.append(Fault("hold", verb="Create", kind="Pod"))
    do.job(m, "j", 4)
    m.rest(31.0)
    assert conditions(m) == ["Created"]
    m.faults.clear()
    m.rest()
    m.finish()


def test_a_job_of_which_it_is_not_known_yet_whether_it_waits_is_written_once() -> None:
    m = Machine()
    do.nodes(m, 1, gpus=4)
    sent = writes(m)
    m.faults.append(Fault("hold", verb="Create", kind="PodGroup"))
    do.job(m, "j", 4)
    m.rest(2.0)
    assert conditions(m) == []
    m.faults.clear()
    m.rest()
    assert conditions(m) == ["Created", "Running"]
    assert sent["Patch", "PyTorchJob", "status"] == 1
    m.finish()


def test_a_job_of_which_that_is_not_known_for_long_is_said_to_be_created() -> None:
    m = Machine()
    m.faults.append(Fault("hold", verb="Create", kind="PodGroup"))
    do.job(m, "j", 4)
    m.rest(6.0)
    assert conditions(m) == ["Created"]
    m.faults.clear()
    m.rest()


def test_a_job_that_runs_for_a_moment_has_run() -> None:
    """Its pod runs and ends before its gang's landing is told of."""
    m = Machine()
    do.nodes(m, 1, gpus=4)
    do.job(m, "j", 1)
    m.flush()
    m.api.change((PODS, "default", "j-worker-0"), status={"phase": "Running"})
    m.flush()
    m.api.change((PODS, "default", "j-worker-0"), status={"phase": "Succeeded"})
    m.rest()
    assert conditions(m) == ["Created", "Running", "Succeeded"]
