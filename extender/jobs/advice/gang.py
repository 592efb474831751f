"""How many start together, and what is left when a job has ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from extender.core.advice import Advice
from extender.jobs.advice.launch import launch, number
from extender.jobs.advice.subject import Subject, gpus

_MINIMUM: Final = "spec.runPolicy.schedulingPolicy.minAvailable"
#: Kinds whose frameworks start with all that are named, or not at all.
_TOGETHER: Final = ("PyTorchJob", "JAXJob", "XGBoostJob")


def minimum(subject: Subject) -> Iterator[Advice]:
    """The gang's minimum against what the framework waits for."""
    least, elastic = subject.min_available, subject.elastic
    if elastic and subject.kind == "PyTorchJob":
        needs = elastic.get("minReplicas")
        if not isinstance(needs, int) or needs >= subject.total:
            return
        if least is None:
            why = (
                f"the job could start with {needs} workers (elasticPolicy.minReplicas), but the gang"
                f" waits until all {subject.total} fit"
            )
            yield Advice("ElasticMinimum", _MINIMUM, None, why, str(needs))
        elif least < needs:
            why = f"torchrun waits for {needs} workers (elasticPolicy.minReplicas), and holds GPUs meanwhile"
            yield Advice("GangMinimum", _MINIMUM, least, why, str(needs))
    elif least is not None and least < subject.total and subject.kind in _TOGETHER:
        why = (
            f"the processes wait for all {subject.total} replicas, and those that are placed hold"
            " their GPUs meanwhile"
        )
        yield Advice("GangMinimum", _MINIMUM, least, why, "leave it out: all are placed at once")


def servers(subject: Subject) -> Iterator[Advice]:
    """Parameter servers never end by themselves."""
    if subject.kind != "TFJob" or subject.part("PS") is None:
        return
    policy = subject.spec.get("runPolicy")
    inner = policy.get("cleanPodPolicy") if isinstance(policy, dict) else None
    value = inner or subject.spec.get("cleanPodPolicy")
    if value in (None, "None"):
        why = "parameter servers run on when the job has ended, and keep what they hold"
        field = "spec.runPolicy.cleanPodPolicy"
        yield Advice("ServersStay", field, value, why, "Running")


def slots(subject: Subject) -> Iterator[Advice]:
    """Processes of mpirun, the workers' slots, their GPUs."""
    workers, launcher = subject.part("Worker"), subject.part("Launcher")
    if subject.kind != "MPIJob" or workers is None:
        return
    given = subject.spec.get("slotsPerWorker")
    each = given if isinstance(given, int) and given > 0 else 1
    have = gpus(workers.main[1])
    if have and each != have:
        why = f"a worker has {have} GPUs, and gets {each} processes"
        yield Advice("SlotsAndGPUs", "spec.slotsPerWorker", given, why, str(have))
    start = launch(launcher) if launcher else None
    said = start.value("np") if start and start.program == "mpirun" else None
    asked = number(said)
    more = each if subject.spec.get("runLauncherAsWorker") is True else 0
    room = workers.replicas * each + more
    if said and asked is not None and asked > room:
        why = (
            f"{workers.replicas} workers of {each} slots have room for {room}: mpirun refuses to start"
            " more, unless it is told to oversubscribe"
        )
        yield Advice("ProcessesAndSlots", said[1], asked, why, str(room))
    elif said and asked is not None and asked < room:
        why = f"{workers.replicas} workers of {each} slots have room for {room}: {room - asked} slots stay idle"
        yield Advice("ProcessesAndSlots", said[1], asked, why, str(room))
