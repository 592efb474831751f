"""torchrun: processes and GPUs, nodes, ranks, the rendezvous, and what becomes of a lost worker.

Source: PyTorch, torch/distributed/run.py (options, their variables ``PET_*`` and defaults) and
torch/distributed/elastic/rendezvous; kubeflow/trainer v1.9.4, pkg/controller.v1/pytorch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from extender.core.advice import Advice
from extender.jobs.advice.launch import Launch, number, torchrun
from extender.jobs.advice.subject import Part, Subject, gpus, variable

_ETCD: Final = ("etcd", "etcd-v2")
_ETCD_WHY: Final = (
    "torch speaks etcd's API v2 with it, which etcd has off by default since 3.4 and lost in 3.6"
)


def processes(subject: Subject) -> Iterator[Advice]:
    """As many processes as GPUs."""
    for part in subject.parts:
        start = torchrun(part)
        said = start and start.value("nproc_per_node")
        value, field = said or _processes_of(subject)
        have, wanted = gpus(part.main[1]), number((value, field))
        if value == "gpu" and not have and start:
            why = "torchrun fails at once: the container has no GPU"
            yield Advice("NoGPU", field, value, why, "the number of processes")
        elif wanted is not None and have and wanted != have:
            yield _uneven(wanted, have, field)
        elif value in ("", "auto") and not have and start:
            why = (
                "without a GPU torchrun starts a process for each CPU of the node, however many the"
                " container may use"
            )
            yield Advice("ProcessPerCPU", field, value or None, why, "the number of processes")


def _uneven(value: int, have: int, field: str) -> Advice:
    if value > have:
        why = f"the container has {have} GPUs, and the other processes find none"
    else:
        why = f"the container has {have} GPUs: {have - value} stay idle, unless each process drives several"
    instead = f"{have} (or auto), or ask for {value} GPUs"
    return Advice("ProcessesAndGPUs", field, value, why, instead)


def _processes_of(subject: Subject) -> tuple[str, str]:
    """What the controller tells torchrun, and the field of it."""
    deprecated = subject.elastic.get("nProcPerNode")
    if subject.spec.get("nprocPerNode") is None and deprecated is not None:
        return str(deprecated), "spec.elasticPolicy.nProcPerNode"
    return str(subject.spec.get("nprocPerNode") or ""), "spec.nprocPerNode"


def nodes(subject: Subject) -> Iterator[Advice]:
    """--nnodes as many as there are."""
    parts = _launched(subject)
    total = sum(part.replicas for part, _ in parts)
    for _, start in parts:
        said = start.value("nnodes")
        if not said:
            continue
        value, field = said
        bounds = [number((each, field)) for each in value.split(":")]
        least, most = bounds[0], bounds[-1]
        if least is None or most is None or len(bounds) > 2:
            continue
        if total < least:
            why = f"there are {total} replicas: they wait for others until they give up"
        elif total > most:
            why = f"there are {total} replicas: those over {most} are left out, or start another round"
        else:
            continue
        given = "leave the option out: the variable PET_NNODES says it"
        instead = given if "PET_NNODES" in parts[0][0].given else f"--nnodes={total}"
        yield Advice("NumberOfNodes", field, value, why, instead)


def ranks(subject: Subject) -> Iterator[Advice]:
    """Every node another rank, where the rendezvous does not hand them out."""
    parts = _launched(subject)
    total = sum(part.replicas for part, _ in parts)
    for part, start in parts:
        if _is_dynamic(part, start) or total < 2 or start.value("standalone"):
            continue
        said = start.value("node_rank")
        if said and part.replicas > 1 and number(said) is not None:
            value, field = said
            why = f"all {part.replicas} replicas of {part.type} claim this rank, and hang"
        elif not said and variable(part, "PET_NODE_RANK") is None and not _first(parts, part):
            value, field = None, start.field
            why = "--node_rank is 0 by default: several replicas claim it, and hang"
        else:
            continue
        known = "PET_NODE_RANK" in part.given
        instead = (
            "leave the option out: the variable PET_NODE_RANK says it"
            if known
            else "--node_rank with the replica's own rank (of a Volcano Job in a shell:"
            " $((VC_TASK_INDEX + 1)) for workers beside one master)"
        )
        yield Advice("NodeRank", field, value, why, instead)


def _first(parts: list[tuple[Part, Launch]], part: Part) -> bool:
    """A single replica of rank 0 by default, where no other is."""
    others = [start for each, start in parts if each is not part]
    return part.replicas == 1 and all(start.value("node_rank") for start in others)


def meeting(subject: Subject) -> Iterator[Advice]:
    """An address where they meet."""
    parts = _launched(subject)
    total = sum(part.replicas for part, _ in parts)
    alone = subject.elastic.get("standalone") is True
    for part, start in parts:
        if total < 2:
            continue
        if (said := start.value("standalone")) or alone:
            field = said[1] if said else "spec.elasticPolicy.standalone"
            why = f"each of the {total} replicas trains for itself"
            yield Advice("Standalone", field, True, why, "leave it out")
            continue
        options = start.value("master_addr", "rdzv_endpoint")
        told = any(variable(part, f"PET_{each}") for each in ("MASTER_ADDR", "RDZV_ENDPOINT"))
        if options or told:
            continue
        why = f"the {total} replicas get no address to meet at: each waits for the others at its own 127.0.0.1"
        instead = (
            "a Master, or spec.elasticPolicy (its variables say where)"
            if subject.kind == "PyTorchJob"
            else "--master_addr with the first replica's name (of a Volcano Job with plugin svc:"
            f" {subject.name}-{part.type if _first(parts, part) else parts[0][0].type}-0.{subject.name})"
        )
        yield Advice("NoRendezvous", start.field, None, why, instead)


def backend(subject: Subject) -> Iterator[Advice]:
    """A rendezvous that newer servers have."""
    value = subject.elastic.get("rdzvBackend")
    if value in _ETCD:
        instead = "c10d, and leave rdzvHost and rdzvPort out: the first worker is the place then"
        yield Advice(
            "RendezvousBackend", "spec.elasticPolicy.rdzvBackend", value, _ETCD_WHY, instead
        )
    for _, start in _launched(subject):
        if (said := start.value("rdzv_backend")) and said[0] in _ETCD:
            yield Advice("RendezvousBackend", said[1], said[0], _ETCD_WHY, "c10d")


def restarts(subject: Subject) -> Iterator[Advice]:
    """Elastic jobs go on when a worker is lost."""
    elastic, workers = subject.elastic, subject.part("worker")
    if subject.spec.get("elasticPolicy") is None or workers is None:
        return
    start = torchrun(workers)
    told = (start and start.value("max_restarts")) or variable(workers, "PET_MAX_RESTARTS")
    if not elastic.get("maxRestarts") and (not told or told == "0"):
        why = (
            "torchrun restarts the processes of no worker by default: when one worker is lost, the"
            " others fail too"
        )
        field, value = "spec.elasticPolicy.maxRestarts", elastic.get("maxRestarts")
        yield Advice("ElasticRestarts", field, value, why, "how many losses to survive, e.g. 10")
    if workers.restart_policy == "Never":
        field = f"{workers.path}.restartPolicy"
        why = "the first worker that fails fails the job, elastic or not"
        yield Advice("ElasticNever", field, "Never", why, "OnFailure")


def exit_codes(subject: Subject) -> Iterator[Advice]:
    """An exit code of its own."""
    for part, _ in _launched(subject):
        if part.restart_policy == "ExitCode":
            why = (
                "torchrun ends with 1 however its processes ended, which ExitCode takes for a"
                " failure for good: nothing is ever tried again"
            )
            field = f"{part.path}.restartPolicy"
            yield Advice(
                "ExitCodeOfTorchrun", field, "ExitCode", why, "OnFailure, and backoffLimit"
            )


def _launched(subject: Subject) -> list[tuple[Part, Launch]]:
    return [(part, start) for part in subject.parts if (start := torchrun(part))]


def _is_dynamic(part: Part, start: Launch) -> bool:
    """Whether the rendezvous hands out ranks."""
    said = start.value("rdzv_backend")
    word = said[0] if said else variable(part, "PET_RDZV_BACKEND")
    return word not in (None, "", "static")
