"""Advice: what is accepted, and will not do what its user wants.

A rule is a function of a :class:`Subject`; a new one is a function in the file of its subject, a
line here, a case in tests/cases/advice.yaml and a line in docs/advice.md. A rule says nothing where
it cannot know: of programs that an image starts, of variables' values, of objects that it does not
see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from extender.core.advice import Advice
from extender.jobs.advice import devices, gang, pods, torch
from extender.jobs.advice.subject import Subject, listed

Rule = Callable[[Subject], Iterator[Advice]]

RULES: Final[tuple[Rule, ...]] = (
    torch.processes,
    torch.nodes,
    torch.ranks,
    torch.meeting,
    torch.backend,
    torch.restarts,
    torch.exit_codes,
    gang.minimum,
    gang.servers,
    gang.slots,
    devices.shared_memory,
    devices.requests,
    devices.rdma,
    devices.nccl,
    devices.visible,
    pods.host_network,
    pods.sidecar,
    pods.checkpoints,
    pods.variables_given,
    pods.labels,
    pods.groups_of_one,
    pods.claims,
)


def advise(subject: Subject) -> tuple[Advice, ...]:
    """All advice for a workload, in the order of the rules; each field once a code."""
    if not all(listed(part.pod.get("containers")) for part in subject.parts):
        return ()
    found = [each for rule in RULES for each in rule(subject)]
    return tuple({(each.code, each.field): each for each in found}.values())
