"""A job that lands is written once: its group, its record's status, and its own."""

from __future__ import annotations

from collections import Counter

from extender.core import commands as c
from extender.core.api import PYTORCH_JOBS
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
